//! Regions: the parts of a cloud that respond, throttle and fail independently.

use std::fmt;

use domain::id::WorkerGroup;

/// Where calls go. A failure in one region says nothing about another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// The only region of a provider without parts.
    Everything,
    /// The machines of one group: an AWS region, an Azure location.
    Group(WorkerGroup),
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("all"),
            Self::Group(group) => group.fmt(f),
        }
    }
}
