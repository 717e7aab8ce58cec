//! The account that machines are in, and our marks there.

use domain::id::ProviderId;
use serde_json::Value;

use super::arm::Arm;
use super::tags::FoundTags;

/// One resource group of a subscription, as one provider uses it.
pub(super) struct Site {
    pub(super) arm: Arm,
    pub(super) id: ProviderId,
    pub(super) root_url: String,
    /// For all but the deployments of templates that have their own.
    pub(super) resource_group: String,
}

impl Site {
    /// Whether this deployment and this provider made the resource.
    pub(super) fn owns(&self, resource: &Value) -> bool {
        FoundTags::of(resource).are_ours(&self.root_url, &self.id)
    }
}

/// The provisioning state of a resource.
pub(super) fn provisioning_state(resource: &Value) -> &str {
    let state = resource["properties"]["provisioningState"].as_str();
    state
        .or_else(|| resource["provisioningState"].as_str())
        .unwrap_or_default()
}
