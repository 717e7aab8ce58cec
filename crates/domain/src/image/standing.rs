//! The decisions of canaries and people about the builds of an image.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::number::BuildNumber;
use crate::time::Timestamp;

/// The decisions of canaries and people about the builds of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Standing {
    /// The newest build that machines start from. Newer ones wait for their canary. `None`: nothing
    /// was decided yet, and the newest is used.
    pub promoted: Option<BuildNumber>,
    /// The build that a canary tests.
    pub candidate: Option<BuildNumber>,
    /// Builds that were rolled back or passed over.
    pub rejected: BTreeSet<BuildNumber>,
    /// Why the promoted build is used, and why the rejected ones are not.
    pub decisions: BTreeMap<BuildNumber, BuildDecision>,
    /// Builds that machines started from until a decision, with the moment of that. Launch configs
    /// name them for a while after it.
    pub replaced: BTreeMap<BuildNumber, Timestamp>,
}

/// The decision about a build that holds now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildDecision {
    pub at: Timestamp,
    /// The client; `fleetwright` if no person decided.
    pub by: String,
    /// Empty if a person gave none.
    pub reason: String,
    /// No machine had started from the build when an older one was chosen.
    #[serde(
        default,
        rename = "passedOver",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_passed_over: bool,
}
