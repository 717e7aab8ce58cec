//! The decisions of canaries and people about the builds of an image.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::number::BuildNumber;

/// The decisions of canaries and people about the builds of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Standing {
    /// The newest build that machines start from. Newer ones wait for their canary. `None`: nothing
    /// was decided yet, and the newest is used.
    pub promoted: Option<BuildNumber>,
    /// The build that a canary tests.
    pub candidate: Option<BuildNumber>,
    /// Builds that were rolled back.
    pub rejected: BTreeSet<BuildNumber>,
    /// Builds whose canary took too long: people decide about them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub expired: BTreeSet<BuildNumber>,
}
