//! Configuration as code: what files say about a fleet, against what a server has.

mod paint;
pub(crate) mod semantic;
mod values;

pub(crate) use paint::Paint;

/// In which order people read: the keys that come first in what is written for them.
pub(crate) const KEYS_FIRST: [&str; 14] = [
    "owns",
    "workerConfigurationId",
    "workerPoolId",
    "roleId",
    "clientId",
    "overrideId",
    "ruleId",
    "description",
    "owner",
    "providerId",
    "workerTypes",
    "conditions",
    "rules",
    "values",
];
