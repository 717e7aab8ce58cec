//! Registrations of workers without a row yet, because their launch has no answer yet.

use std::time::Duration;

use cloud::Proof;
use domain::id::{LaunchToken, ProviderId, WorkerKey};
use domain::worker::Worker;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// A registration waits at most this long for its launch. Clients give up after 30 seconds.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The result of waiting for a worker's row.
pub(super) enum WaitResult {
    /// The launch was answered, and this is the worker.
    Worker(Box<Worker>),
    /// The launch was not answered in time.
    NotAnswered,
    /// No pending launch has offered this identity.
    NotOffered,
}

/// Waits for the row of a worker, if a pending launch has offered the worker's identity. Only the
/// holder of the identity makes us wait: for all others the worker does not exist.
pub(super) async fn wait_for_worker(
    engine: &Engine,
    key: &WorkerKey,
    provider_id: &ProviderId,
    proof: &Proof,
    gone: &CancellationToken,
) -> store::Result<WaitResult> {
    let provider = engine.providers.get(provider_id).ok();
    let Some(token) = provider.and_then(|provider| provider.offered_by(key, proof)) else {
        return Ok(WaitResult::NotOffered);
    };
    let until = Instant::now() + MAX_WAIT;
    let mut listener = engine.launch_answers.listen(&token);
    loop {
        match read_result(engine, key, &token).await? {
            WaitResult::NotAnswered => {}
            settled @ (WaitResult::Worker(_) | WaitResult::NotOffered) => return Ok(settled),
        }
        let left = until.saturating_duration_since(Instant::now());
        let Some(listener) = listener.as_mut().filter(|_| !left.is_zero()) else {
            return Ok(WaitResult::NotAnswered);
        };
        tokio::select! {
            _ = listener.listener.wait(left) => {}
            () = gone.cancelled() => return Ok(WaitResult::NotAnswered),
        }
    }
}

/// Reads worker and launch in one transaction.
async fn read_result(
    engine: &Engine,
    key: &WorkerKey,
    token: &LaunchToken,
) -> store::Result<WaitResult> {
    let (key, token) = (key.clone(), token.clone());
    let read = engine.store.read("registration_await", move |tx| {
        if let Some(worker) = store::workers::get(tx, &key)? {
            return Ok(WaitResult::Worker(Box::new(worker)));
        }
        let launch = store::launches::get(tx, &token)?;
        let pending = launch.filter(|launch| launch.state.is_pending());
        Ok(pending.map_or(WaitResult::NotOffered, |_| WaitResult::NotAnswered))
    });
    read.await
}
