//! The registration of a worker, in replies and in its state file.

use access::Secret;
use domain::time::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::credentials::Credentials;
use crate::text::parsed;

/// The registration of the worker: its credentials, their end, and the secret for their renewal.
/// The reply to a registration and the state file have this form.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistrationState {
    pub(crate) credentials: Credentials,
    #[serde(deserialize_with = "parsed")]
    pub(crate) expires: Timestamp,
    pub(crate) secret: Secret,
    /// The reply to a renewal lacks it.
    #[serde(default)]
    pub(crate) worker_config: Map<String, Value>,
}
