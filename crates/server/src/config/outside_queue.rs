//! The queue of a Taskcluster deployment: the section `[queue.taskcluster]`.

use std::path::PathBuf;

use access::Secret;
use serde::Deserialize;

use super::auth::token;
use super::{Amqp, ConfigError};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideQueue {
    pub root_url: String,
    /// Needs `queue:pending-count:*`, `queue:claimed-count:*`, `queue:claimed-list:*` and
    /// `queue:list-workers:*`.
    pub client_id: String,
    #[serde(default)]
    pub access_token: Option<Secret>,
    #[serde(default)]
    pub access_token_file: Option<PathBuf>,
    /// The deployment's broker, to notice pending tasks sooner.
    #[serde(default)]
    pub pulse: Option<Amqp>,
}

impl OutsideQueue {
    pub fn token(&self) -> Result<Secret, ConfigError> {
        let file = self.access_token_file.as_deref();
        token("queue.taskcluster", self.access_token.as_ref(), file)
    }
}
