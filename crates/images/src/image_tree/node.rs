//! Images and builders, as their nodes in the tree describe them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use backplane::tree::TreePath;
use domain::id::ProviderId;
use domain::image::{
    BuildNumber, BuildRecord, BuildState, HeldLock, ImageDefinition, Standing, UploadNumber,
    UploadRecord, UploadTargetId,
};
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::provenance::Provenance;

/// An image, as far as it has been read.
#[derive(Clone, Debug, Default)]
pub struct ImageNode {
    pub definition: Option<Arc<MirroredDefinition>>,
    /// Why the node of the definition cannot be read.
    pub definition_error: Option<String>,
    /// A server wrote that the image was deleted. That the node is missing does not say so.
    pub is_removed: bool,
    /// Nodes below the image that servers do not write again, and why they are not to be trusted.
    /// Nothing is done with the image while there are any.
    pub forged: BTreeMap<TreePath, String>,
    pub builds: BTreeMap<BuildNumber, BuildNode>,
    /// Contenders for the lock of builds by their fencing numbers: the lowest holds it.
    pub contenders: BTreeMap<i64, Contender>,
    pub request: Option<Note>,
    pub pause: Option<Note>,
    pub standing: Standing,
    /// Why the node of the standing is not to be trusted.
    pub standing_error: Option<String>,
    /// The version of the node of the standing; `None`: there is none.
    pub standing_version: Option<i32>,
    /// The canary that runs, as it was written.
    pub canary: Option<Value>,
    pub canary_version: Option<i32>,
}

/// A definition, as a server wrote it into the tree.
#[derive(Clone, Debug)]
pub struct MirroredDefinition {
    pub version: i64,
    pub definition: ImageDefinition,
}

/// The node of a definition.
#[derive(Serialize, Deserialize)]
pub(crate) struct DefinitionText {
    pub(crate) version: i64,
    /// `null`: the image was deleted.
    pub(crate) document: Value,
}

#[derive(Clone, Debug, Default)]
pub struct BuildNode {
    /// `None`: it cannot be read. A build whose signed record does not fit has failed.
    pub record: Option<BuildRecord>,
    /// The record, before it was compared with the signed one.
    pub(super) as_written: Option<BuildRecord>,
    /// The version of its node.
    pub version: i32,
    /// The signed record of how it was made.
    pub(crate) provenance: Option<Provenance>,
    pub pin: Option<Note>,
    pub cancel: Option<CancelNote>,
    pub targets: BTreeMap<UploadTargetId, TargetNode>,
}

/// Somebody wants a running build to end.
pub type CancelNote = Note;

#[derive(Clone, Debug, Default)]
pub struct TargetNode {
    pub contenders: BTreeMap<i64, Contender>,
    pub uploads: BTreeMap<UploadNumber, UploadNode>,
}

#[derive(Clone, Debug, Default)]
pub struct UploadNode {
    /// `None`: it cannot be read.
    pub record: Option<UploadRecord>,
    pub version: i32,
}

/// A holder of a lock, or a waiter for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The name of its node.
    pub name: String,
    pub holder: String,
}

/// Somebody asked for something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// When the node was created.
    #[serde(skip, default = "beginning")]
    pub at: Timestamp,
    #[serde(default)]
    pub by: String,
    #[serde(default)]
    pub reason: String,
}

/// A builder that runs now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BuilderNode {
    pub host: String,
    /// Identifies its folder.
    pub builder_id: String,
    pub labels: BTreeSet<String>,
    /// Builds that it makes side by side.
    pub slots: usize,
    /// Identify the artifact store that it uses, and its own disk.
    pub artifacts: BTreeSet<String>,
    /// Providers to which it can upload.
    pub providers: BTreeSet<ProviderId>,
    /// Where servers read the logs of its builds; empty: they cannot.
    pub address: String,
    pub version: String,
}

fn beginning() -> Timestamp {
    Timestamp::from_millis(0)
}

impl Note {
    /// Nodepool's flags are empty.
    pub(crate) fn read(data: &[u8], at: Timestamp) -> Self {
        let read = serde_json::from_slice(data).unwrap_or_else(|_| Self {
            at,
            by: String::new(),
            reason: String::new(),
        });
        Self { at, ..read }
    }
}

impl ImageNode {
    /// Why nothing is built, uploaded or deleted for the image. A node that is missing or cannot be
    /// read is no order to delete.
    pub fn problem(&self) -> Option<String> {
        if let Some(problem) = self.problem_without_standing() {
            return Some(problem);
        }
        if let Some(problem) = &self.standing_error {
            return Some(format!(
                "which builds are in use is not to be trusted: {problem}"
            ));
        }
        if !self.is_removed && self.standing_version.is_none() {
            return Some("the node that says which builds are in use is missing".to_owned());
        }
        None
    }

    /// The same for a server, which knows which builds are in use, and writes it.
    pub(super) fn problem_without_standing(&self) -> Option<String> {
        if let Some(error) = &self.definition_error {
            return Some(format!("its definition cannot be read: {error}"));
        }
        if let Some((path, problem)) = self.forged.first_key_value() {
            return Some(format!("node {path} is not to be trusted: {problem}"));
        }
        if self.definition.is_none() && !self.is_removed {
            return Some("its definition is missing in the tree".to_owned());
        }
        None
    }

    pub fn build_lock(&self) -> Option<HeldLock> {
        held(&self.contenders)
    }

    /// The build that is made now.
    pub fn running(&self) -> Option<(BuildNumber, &BuildRecord)> {
        let lock = self.build_lock()?;
        let records = self.builds.iter().rev();
        let mut records = records.filter_map(|(number, it)| Some((*number, it.record.as_ref()?)));
        records.find(|(_, record)| {
            record.state == BuildState::Building && record.fence == Some(lock.fence)
        })
    }
}

impl TargetNode {
    pub fn lock(&self) -> Option<HeldLock> {
        held(&self.contenders)
    }
}

fn held(contenders: &BTreeMap<i64, Contender>) -> Option<HeldLock> {
    let (number, contender) = contenders.first_key_value()?;
    Some(HeldLock {
        fence: fence(*number),
        owner: contender.holder.clone(),
    })
}

/// The fencing number in records.
fn fence(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
