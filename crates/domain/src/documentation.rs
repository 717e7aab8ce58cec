//! What is documented, and what is known of its documentation without a look into it.

use crate::id::{ConfigurationId, PoolId};
use crate::time::Timestamp;

/// What is documented.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Configuration(ConfigurationId),
    /// By the id of its pool.
    WorkerType(PoolId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub subject: Subject,
    pub title: String,
    /// Of the tarball.
    pub digest: String,
    pub packed_bytes: u64,
    pub unpacked_bytes: u64,
    pub n_files: u32,
    pub created: Timestamp,
    pub last_modified: Timestamp,
}

impl Subject {
    pub const CONFIGURATION: &'static str = "worker-configuration";
    pub const WORKER_TYPE: &'static str = "worker-type";

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Configuration(_) => Self::CONFIGURATION,
            Self::WorkerType(_) => Self::WORKER_TYPE,
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Configuration(id) => id.as_str(),
            Self::WorkerType(id) => id.as_str(),
        }
    }
}

/// `worker type worker-manager/build-opt`, as sentences have it.
impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Configuration(id) => write!(f, "worker configuration {id}"),
            Self::WorkerType(id) => write!(f, "worker type {id}"),
        }
    }
}
