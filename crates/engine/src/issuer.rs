//! In whose name workers and runs of tasks get credentials.

use access::Secret;
use access::certificate::Issuer;

/// Our own identity.
#[derive(Clone, Debug)]
pub struct WorkerIssuer {
    pub client_id: String,
    pub access_token: Secret,
}

impl WorkerIssuer {
    pub fn as_issuer(&self) -> Issuer<'_> {
        Issuer {
            client_id: &self.client_id,
            access_token: &self.access_token,
        }
    }
}
