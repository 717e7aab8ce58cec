//! The claim of a run: renewed repeatedly until it is lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Lease, Run, reclaim};
use crate::client::{Call, CallError, Client};
use crate::credentials::Credentials;
use crate::machine::{Backoff, pause};

/// A renewal also shows whether the task was cancelled, so it is not delayed longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const SHORTEST_WAIT: Duration = Duration::from_millis(200);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// A claimed run, and the right to report on it.
pub(crate) struct Tenure {
    pub(crate) run: Run,
    pub(crate) client: Arc<Client>,
    lease: Mutex<Lease>,
    renew_now: Notify,
    lost: CancellationToken,
}

impl Tenure {
    pub(crate) fn new(run: Run, lease: Lease, client: Arc<Client>) -> Self {
        Self {
            run,
            client,
            lease: Mutex::new(lease),
            renew_now: Notify::new(),
            lost: CancellationToken::new(),
        }
    }

    /// The credentials of the last renewal.
    pub(crate) fn credentials(&self) -> Credentials {
        self.lock().credentials.clone()
    }

    /// How long the claim lasts without another renewal.
    pub(crate) fn left(&self) -> Duration {
        self.client.machine.until(self.lock().taken_until)
    }

    /// Renews the claim now, because it may be lost.
    pub(crate) fn renew_now(&self) {
        self.renew_now.notify_one();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Waits until the claim is lost.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Sends a call with the current credentials, repeatedly while the claim lasts.
    pub(crate) async fn send<T: DeserializeOwned>(&self, call: &Call) -> Result<T, CallError> {
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

    /// Renews the claim in time until it is lost.
    pub(crate) async fn keep(&self) {
        loop {
            let wait = (self.left() / 3).clamp(SHORTEST_WAIT, LONGEST_WAIT);
            tokio::select! {
                () = pause(wait) => {}
                () = self.renew_now.notified() => {}
            }
            if !self.renew().await {
                return self.lost.cancel();
            }
        }
    }

    /// Renews once; false if the claim is lost.
    async fn renew(&self) -> bool {
        match self.send::<Lease>(&reclaim(&self.run)).await {
            Ok(lease) => {
                *self.lock() = lease;
                true
            }
            Err(problem) => {
                tracing::warn!("the claim of {} is lost: {problem}", self.run);
                false
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lease> {
        // A lease is replaced in one assignment.
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
