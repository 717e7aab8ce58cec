//! A worker's provider data: where its machine and the parts of it are.

use domain::worker::Worker;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the row's form. A reader must not guess at another version.
const VERSION: u32 = 1;

/// A worker's `provider_data`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) version: u32,
    pub(super) resource_group: String,
    /// The id that Azure gave to the machine; `None`: not known at the launch.
    pub(super) vm_id: Option<String>,
    pub(super) is_spot: bool,
    /// Whether a template made it; `None`: not known.
    pub(super) has_deployment: Option<bool>,
    pub(super) keeps_deployment: bool,
    pub(super) ignored_failures: Vec<String>,
}

impl Row {
    pub(super) fn new(resource_group: String) -> Self {
        Self {
            version: VERSION,
            resource_group,
            vm_id: None,
            is_spot: false,
            has_deployment: None,
            keeps_deployment: false,
            ignored_failures: Vec::new(),
        }
    }

    /// The row of a worker. A row of another version means the usual group, and nothing else.
    pub(super) fn of(worker: &Worker, usual_group: &str) -> Self {
        let row: Option<Self> = serde_json::from_value(worker.provider_data.clone()).ok();
        let row = row.filter(|row| row.version == VERSION);
        row.unwrap_or_else(|| Self::new(usual_group.to_owned()))
    }

    pub(super) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}
