//! How long a run is ours: the claim is renewed again and again, until it is lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Lease, LeaseBody, Run, reclaim};
use crate::client::{Call, CallError, Client};
use crate::credentials::Credentials;
use crate::machine::{Backoff, pause};

/// A renewal is also how we learn that the task was cancelled, so it is not put off longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const SHORTEST_WAIT: Duration = Duration::from_millis(200);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// A claimed run and the right to speak for it.
pub(crate) struct Tenure {
    pub(crate) run: Run,
    pub(crate) client: Arc<Client>,
    lease: Mutex<Lease>,
    doubt: Notify,
    lost: CancellationToken,
}

impl Tenure {
    pub(crate) fn new(run: Run, lease: Lease, client: Arc<Client>) -> Self {
        Self {
            run,
            client,
            lease: Mutex::new(lease),
            doubt: Notify::new(),
            lost: CancellationToken::new(),
        }
    }

    /// The credentials of the last renewal.
    pub(crate) fn credentials(&self) -> Credentials {
        self.lock().credentials.clone()
    }

    /// How long the run is ours if it is not renewed again.
    pub(crate) fn left(&self) -> Duration {
        self.client.machine.until(self.lock().taken_until)
    }

    /// Something hints that the run is not ours any more: asks the queue now.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Waits until the run is not ours any more.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Sends a call with the credentials of the moment, again and again while the run is ours.
    pub(crate) async fn speak<T: DeserializeOwned>(&self, call: &Call) -> Result<T, CallError> {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            let credentials = self.credentials();
            match self.client.send(call, Some(&credentials)).await {
                Err(problem) if problem.may_pass() => {
                    let limit = Instant::now() + self.left();
                    if !backoff.wait(&self.client.machine, limit).await {
                        return Err(problem);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Renews the claim in time, for ever, or until it is lost.
    pub(crate) async fn keep(&self) {
        loop {
            let wait = (self.left() / 3).clamp(SHORTEST_WAIT, LONGEST_WAIT);
            tokio::select! {
                () = pause(wait) => {}
                () = self.doubt.notified() => {}
            }
            if !self.renew().await {
                return self.lost.cancel();
            }
        }
    }

    /// Renews once; false when the run is lost.
    async fn renew(&self) -> bool {
        let reply = self.speak::<LeaseBody>(&reclaim(&self.run)).await;
        match reply.and_then(LeaseBody::read) {
            Ok(lease) => {
                *self.lock() = lease;
                true
            }
            Err(problem) => {
                tracing::warn!("{} is not ours any more: {problem}", self.run);
                false
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lease> {
        // A lease is replaced as a whole.
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
