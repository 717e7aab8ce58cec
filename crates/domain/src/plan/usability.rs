//! Whether and how an offer is used now.

use crate::time::Timestamp;

/// Whether and how an offer is used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usability {
    Usable,
    /// Its pause after failures is over: the next plan that needs capacity tries it.
    Due,
    /// It was tried, and it is not known yet whether that machine starts. If it stays unknown, the
    /// next trial is due at this time.
    OnTrial {
        until: Option<Timestamp>,
    },
    /// Its launches failed: it is not tried before this time.
    ShutOff {
        until: Timestamp,
    },
    /// An override pauses it, it is full, its weight is 0, or its provider gives no machine.
    Unusable,
}

impl Usability {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Due => "due",
            Self::OnTrial { .. } => "on-trial",
            Self::ShutOff { .. } => "shut-off",
            Self::Unusable => "unusable",
        }
    }

    /// Whether its launches failed, and nothing has worked since.
    pub fn is_failing(self) -> bool {
        match self {
            Self::Due | Self::OnTrial { .. } | Self::ShutOff { .. } => true,
            Self::Usable | Self::Unusable => false,
        }
    }

    /// When it is tried again, if that depends on the time.
    pub fn next_try(self) -> Option<Timestamp> {
        match self {
            Self::ShutOff { until } => Some(until),
            Self::OnTrial { until } => until,
            Self::Usable | Self::Due | Self::Unusable => None,
        }
    }
}
