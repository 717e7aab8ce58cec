//! The client that issues the credentials of workers and runs.

use access::Secret;
use access::certificate::Issuer;

/// The server's own client id and access token.
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
