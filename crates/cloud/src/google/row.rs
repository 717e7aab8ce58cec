//! A worker's provider data: the machine and the operation that makes it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the row's form. A reader must not guess at another version.
const VERSION: u32 = 1;

/// A worker's `provider_data`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    version: u32,
    pub(super) project: String,
    pub(super) zone: String,
    pub(super) name: String,
    pub(super) machine_type: String,
    /// Whether Google may take the machine away.
    pub(super) spot: bool,
    /// The operation that makes the machine; `None`: the machine was found without it.
    pub(super) operation: Option<OperationName>,
}

/// As Taskcluster has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OperationName {
    pub(super) name: String,
    pub(super) zone: String,
}

impl Row {
    pub(super) fn new(project: &str, zone: &str, name: &str, machine_type: &str) -> Self {
        Self {
            version: VERSION,
            project: project.to_owned(),
            zone: zone.to_owned(),
            name: name.to_owned(),
            machine_type: last_part(machine_type).to_owned(),
            spot: false,
            operation: None,
        }
    }

    pub(super) fn read(provider_data: &Value) -> Option<Self> {
        let row: Self = serde_json::from_value(provider_data.clone()).ok()?;
        (row.version == VERSION).then_some(row)
    }

    pub(super) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The name in an address like `…/zones/us-central1-a`.
pub(super) fn last_part(address: &str) -> &str {
    address.rsplit('/').next().unwrap_or(address)
}

/// The region of a zone: `us-central1` of `us-central1-a`.
pub(super) fn region_of(zone: &str) -> &str {
    zone.rsplit_once('-').map_or(zone, |(region, _)| region)
}
