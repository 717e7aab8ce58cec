//! Why an edit of a worker configuration, or a question about one, is refused.

use std::io;

use domain::configuration::{LineupError, Problems};
use domain::launch_config::BadLaunchConfigs;
use store::StoreError;

use crate::pools::PoolError;

#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error("Worker configuration does not exist")]
    NotThere,
    /// What somebody else has done, or did before, stands in the way.
    #[error("{0}")]
    Conflict(String),
    /// The rules are no rules, or nothing follows from them.
    #[error("{0}")]
    Unusable(String),
    /// A pool of it is refused, by its provider or by a schema.
    #[error("{0}")]
    Refused(String),
    /// A provider cannot say now.
    #[error("{0}")]
    ProviderSetupFailed(String),
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Work beside other work came to no end.
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

/// Everything that is wrong, in one error.
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
