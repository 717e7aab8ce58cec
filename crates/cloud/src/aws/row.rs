//! A worker's provider data: the machine as EC2 reported it at the launch.
//!
//! A registration compares it with the worker's identity document.

use domain::id::WorkerId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::responses::{Group, Instance, Items};
use crate::LaunchedMachine;

/// Version of the row's form. A reader must not guess at another version.
const VERSION: u32 = 1;

/// A worker's `provider_data`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    version: u32,
    pub(crate) region: String,
    pub(crate) groups: Vec<String>,
    pub(crate) ami_launch_index: Option<u32>,
    pub(crate) image_id: Option<String>,
    pub(crate) instance_type: Option<String>,
    pub(crate) architecture: Option<String>,
    pub(crate) availability_zone: Option<String>,
    pub(crate) private_ip: Option<String>,
    /// The account that owns it.
    pub(crate) owner: String,
    pub(crate) state: String,
    pub(crate) state_reason: Option<String>,
}

impl Row {
    pub(crate) fn read(provider_data: &Value) -> Option<Self> {
        let row: Self = serde_json::from_value(provider_data.clone()).ok()?;
        (row.version == VERSION).then_some(row)
    }

    fn of(region: &str, owner: &str, groups: &Items<Group>, instance: &Instance) -> Self {
        let placement = instance.placement.as_ref();
        let groups = groups.items.iter().chain(&instance.group_set.items);
        Self {
            version: VERSION,
            region: region.to_owned(),
            groups: groups.filter_map(|group| group.group_id.clone()).collect(),
            ami_launch_index: instance.ami_launch_index,
            image_id: instance.image_id.clone(),
            instance_type: instance.instance_type.clone(),
            architecture: instance.architecture.clone(),
            availability_zone: placement.and_then(|place| place.availability_zone.clone()),
            private_ip: instance.private_ip_address.clone(),
            owner: owner.to_owned(),
            state: instance.instance_state.name.clone(),
            state_reason: reason(instance),
        }
    }
}

/// The machine for the rest of the program; `None` if EC2's names are not valid names of ours.
pub(crate) fn machine(
    region: &str,
    owner: &str,
    groups: &Items<Group>,
    instance: &Instance,
) -> Option<LaunchedMachine> {
    let id: WorkerId = instance.instance_id.parse().ok()?;
    Some(LaunchedMachine {
        group: region.parse().ok()?,
        id,
        made: None,
        provider_data: serde_json::to_value(Row::of(region, owner, groups, instance)).ok()?,
    })
}

/// EC2's reason for the state of the machine.
pub(crate) fn reason(instance: &Instance) -> Option<String> {
    let reason = instance.state_reason.as_ref()?;
    match (reason.code.as_str(), reason.message.as_str()) {
        ("", "") => None,
        ("", text) | (text, "") => Some(text.to_owned()),
        // EC2's messages mostly start with the code.
        (code, message) if message.starts_with(code) => Some(message.to_owned()),
        (code, message) => Some(format!("{code}: {message}")),
    }
}
