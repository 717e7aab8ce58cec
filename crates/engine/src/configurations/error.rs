//! Why an edit of a worker configuration, or a query of one, is refused.

use std::io;

use domain::configuration::{LineupError, Problems};
use domain::launch_config::BadLaunchConfigs;
use store::StoreError;

use super::refusals::PoolRefusal;
use crate::pools::PoolError;

#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error("Worker configuration does not exist")]
    NotFound,
    /// A conflict with another change, or with stored pools.
    #[error("{0}")]
    Conflict(String),
    /// The rules are invalid, or do not compile.
    #[error("{0}")]
    Unusable(String),
    /// A provider or a schema refuses one of its pools.
    #[error("{0}")]
    Refused(String),
    /// A part of `Refused`, before the refusals of all pools are joined.
    #[error("{0}")]
    RefusedPool(PoolRefusal),
    /// A provider cannot validate now.
    #[error("{0}")]
    ProviderSetupFailed(String),
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A blocking job failed.
    #[error(transparent)]
    Work(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<BadLaunchConfigs> for ConfigurationError {
    fn from(bad: BadLaunchConfigs) -> Self {
        Self::Pool(bad.into())
    }
}

impl From<LineupError> for ConfigurationError {
    fn from(problem: LineupError) -> Self {
        Self::Refused(problem.to_string())
    }
}

/// All errors, in one message.
impl From<&Problems> for ConfigurationError {
    fn from(problems: &Problems) -> Self {
        let lines: Vec<String> = problems
            .to_string()
            .lines()
            .map(|line| format!("* {line}"))
            .collect();
        let text = format!(
            "The worker configuration cannot be used; nothing was changed:\n{}",
            lines.join("\n")
        );
        match problems.is_outage() {
            true => Self::ProviderSetupFailed(text),
            false => Self::Unusable(text),
        }
    }
}
