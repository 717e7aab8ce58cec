//! Registration of the worker, and its renewal before it expires.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::{register, reregister};
use crate::client::{CallError, Client};
use crate::credentials::Credentials;
use crate::identity::{Identity, Proof};
use crate::machine::{Backoff, boot_time, pause};
use crate::registration_state::RegistrationState;
use crate::state::StateFile;

/// The provider may announce the worker to the server a moment after it started.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
const REGISTRATION_LIMIT: Duration = Duration::from_secs(5 * 60);
/// Renew the registration this long before it expires; short ones are renewed at half of their
/// time.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 60);
/// Longest wait of one timer.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("worker {worker} could not register at {root_url}")]
pub struct RegistrationError {
    pub worker: String,
    pub root_url: String,
    #[source]
    pub source: CallError,
}

/// A registered worker.
pub(crate) struct RegisteredWorker {
    client: Arc<Client>,
    identity: Arc<Identity>,
    file: StateFile,
    standing: Mutex<Arc<RegistrationState>>,
}

impl RegisteredWorker {
    /// Continues the registration of an earlier process of this worker, or registers.
    pub(crate) async fn start(
        identity: Arc<Identity>,
        client: Arc<Client>,
    ) -> Result<Self, RegistrationError> {
        let file = StateFile::of(&identity);
        let given = match &identity.proof {
            // It has replaced the secret of the stored state.
            Proof::Relay(given) => Some(given.as_ref().clone()),
            Proof::Token(_)
            | Proof::StaticSecret(_)
            | Proof::Document { .. }
            | Proof::AttestedDocument(_) => None,
        };
        let kept = match &given {
            Some(_) => None,
            None => file.read(client.machine.now()),
        };
        let is_new = kept.is_none();
        let standing = match (given, kept) {
            (Some(given), _) => {
                tracing::info!("worker {identity} is registered until {}", given.expires);
                given
            }
            (None, Some(kept)) => {
                tracing::info!(
                    "worker {identity} continues; it is registered until {}",
                    kept.expires
                );
                kept
            }
            (None, None) => first_registration(&identity, &client).await?,
        };
        let registered = Self {
            client,
            identity,
            file,
            standing: Mutex::new(Arc::new(standing)),
        };
        if is_new {
            registered.store_state();
        }
        Ok(registered)
    }

    pub(crate) fn standing(&self) -> Arc<RegistrationState> {
        let standing = self.standing.lock();
        Arc::clone(&standing.unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn credentials(&self) -> Credentials {
        self.standing().credentials.clone()
    }

    /// Deletes the stored registration of a worker that will not come back.
    pub(crate) fn forget(&self) {
        self.file.remove();
    }

    /// Renews the registration in time, while the server allows it. Returns why it ended.
    pub(crate) async fn stay(&self) -> String {
        loop {
            let standing = self.standing();
            let wait = wait_before_renewal(self.client.machine.until(standing.expires));
            pause(wait.min(LONGEST_WAIT)).await;
            if wait > LONGEST_WAIT {
                continue;
            }
            let left = self.client.machine.until(standing.expires);
            // The server also accepts the previous secret and then returns a new one, so a lost
            // response does no harm.
            let call = reregister(&self.identity, &standing.secret);
            let limit = Instant::now() + left;
            let reply = self
                .client
                .retried::<RegistrationState>(&call, Some(&standing.credentials), limit)
                .await;
            match reply {
                Ok(mut renewed) => {
                    renewed.worker_config = standing.worker_config.clone();
                    tracing::info!("the registration was renewed until {}", renewed.expires);
                    *self.standing.lock().unwrap_or_else(PoisonError::into_inner) =
                        Arc::new(renewed);
                    self.store_state();
                }
                Err(problem) => return format!("its registration was not renewed: {problem}"),
            }
        }
    }

    /// A worker that cannot store its registration continues; only a restart of its process will
    /// fail.
    fn store_state(&self) {
        if let Err(problem) = self.file.write(&self.standing()) {
            tracing::error!("{}", api_client::with_causes(&problem));
        }
    }
}

/// At 30 minutes before the end, or at half of the remaining time if that is later.
fn wait_before_renewal(left: Duration) -> Duration {
    left.saturating_sub(RENEW_BEFORE)
        .max(left / 2)
        .max(SHORTEST_WAIT)
}

async fn first_registration(
    identity: &Identity,
    client: &Client,
) -> Result<RegistrationState, RegistrationError> {
    let call = register(identity, boot_time());
    let limit = Instant::now() + REGISTRATION_LIMIT;
    let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
    let refused = |source| RegistrationError {
        worker: identity.to_string(),
        root_url: client.root_url().to_owned(),
        source,
    };
    let mut is_logged = false;
    loop {
        let problem = match client.send::<RegistrationState>(&call, None).await {
            Ok(standing) => {
                let until = standing.expires;
                tracing::info!("worker {identity} is registered until {until}");
                return Ok(standing);
            }
            Err(problem) => problem,
        };
        let may_come = problem.may_pass() || problem.status() == Some(404);
        if !may_come || !backoff.wait(&client.machine, limit).await {
            return Err(refused(problem));
        }
        if !is_logged {
            tracing::warn!("cannot register yet, will try again: {problem}");
            is_logged = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_registrations_are_renewed_half_an_hour_before_their_end_and_short_ones_at_half_time() {
        for (left, expected) in [
            (96 * 3_600, 96 * 3_600 - 1_800),
            (3_600, 1_800),
            (600, 300),
            (60, 30),
            (1, 1),
            (0, 1),
        ] {
            let wait = wait_before_renewal(Duration::from_secs(left));
            assert_eq!(wait.as_secs(), expected, "{left}");
        }
    }
}
