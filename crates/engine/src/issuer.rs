//! The client that issues the credentials of workers and runs.

use access::Secret;
use access::certificate::{self, Credentials, Issuer};
use domain::time::Timestamp;
use domain::worker_credentials::START_BEFORE_MS;

use crate::random::Random;

/// The server's own client id and access token.
#[derive(Clone, Debug)]
pub struct WorkerIssuer {
    pub client_id: String,
    pub access_token: Secret,
}

impl WorkerIssuer {
    /// Temporary credentials; clocks that are slow accept them, too.
    pub(crate) fn issue(
        &self,
        random: &Random,
        name: &str,
        scopes: Vec<String>,
        now: Timestamp,
        expires: Timestamp,
    ) -> Credentials {
        let issuer = Issuer {
            client_id: &self.client_id,
            access_token: &self.access_token,
        };
        let (start, expires) = (now.plus_millis(-START_BEFORE_MS), expires.as_millis());
        random.with(|random| {
            certificate::issue(
                &issuer,
                Some(name),
                scopes,
                start.as_millis(),
                expires,
                random,
            )
        })
    }
}
