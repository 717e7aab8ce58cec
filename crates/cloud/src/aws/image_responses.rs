//! Responses of the EC2 Query API about images, snapshots and imports: only what we read.

use serde::Deserialize;

use super::machines::Page;
use super::responses::{Items, StateReason, Tag};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeImages {
    #[serde(default)]
    pub(crate) images_set: Items<ImageItem>,
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImageItem {
    pub(crate) image_id: String,
    pub(crate) image_state: String,
    pub(crate) state_reason: Option<StateReason>,
    #[serde(default)]
    block_device_mapping: Items<Device>,
    #[serde(default)]
    pub(crate) tag_set: Items<Tag>,
}

#[derive(Debug, Deserialize)]
struct Device {
    ebs: Option<Ebs>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ebs {
    snapshot_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeSnapshots {
    #[serde(default)]
    pub(crate) snapshot_set: Items<SnapshotItem>,
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SnapshotItem {
    pub(crate) snapshot_id: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) tag_set: Items<Tag>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeImportSnapshotTasks {
    #[serde(default)]
    import_snapshot_task_set: Items<ImportTask>,
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImportTask {
    pub(crate) import_task_id: String,
    pub(crate) snapshot_task_detail: ImportDetail,
    #[serde(default)]
    pub(crate) tag_set: Items<Tag>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImportDetail {
    status: Option<String>,
    pub(crate) status_message: Option<String>,
    pub(crate) progress: Option<String>,
    pub(crate) snapshot_id: Option<String>,
}

/// The response to `ImportSnapshot`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImportedSnapshot {
    pub(crate) import_task_id: String,
}

/// The response to `RegisterImage`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RegisteredImage {
    pub(crate) image_id: String,
}

impl ImageItem {
    pub(crate) fn snapshots(&self) -> Vec<String> {
        let devices = self.block_device_mapping.items.iter();
        let snapshots = devices.filter_map(|device| device.ebs.as_ref()?.snapshot_id.clone());
        snapshots.collect()
    }
}

impl ImportTask {
    pub(crate) fn status(&self) -> &str {
        self.snapshot_task_detail
            .status
            .as_deref()
            .unwrap_or("active")
    }

    pub(crate) fn is_active(&self) -> bool {
        self.status() == "active"
    }
}

impl Page for DescribeImages {
    const ACTION: &str = "DescribeImages";
    type Item = ImageItem;

    fn into_items(self) -> (Vec<ImageItem>, Option<String>) {
        (self.images_set.items, self.next_token)
    }
}

impl Page for DescribeSnapshots {
    const ACTION: &str = "DescribeSnapshots";
    type Item = SnapshotItem;

    fn into_items(self) -> (Vec<SnapshotItem>, Option<String>) {
        (self.snapshot_set.items, self.next_token)
    }
}

impl Page for DescribeImportSnapshotTasks {
    const ACTION: &str = "DescribeImportSnapshotTasks";
    type Item = ImportTask;

    fn into_items(self) -> (Vec<ImportTask>, Option<String>) {
        (self.import_snapshot_task_set.items, self.next_token)
    }
}
