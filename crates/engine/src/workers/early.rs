//! A registration that comes before its launch was answered: its worker has no row yet.

use std::time::Duration;

use cloud::Proof;
use domain::id::{LaunchToken, ProviderId, WorkerKey};
use domain::worker::Worker;
use store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// How long a registration waits for the answer of its launch. Clients give up after 30 seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of the worker that registers.
pub(super) enum Awaited {
    /// The launch was answered, and this is the worker.
    Worker(Box<Worker>),
    /// The launch was not answered in time.
    NotAnswered,
    /// No launch that may still be answered offered this identity.
    NotOffered,
}

/// Waits for the row of a worker, if a launch that is not answered yet offered the worker's identity. Only the holder
/// of the identity can make us wait: to everybody else the worker does not exist.
pub(super) async fn worker(
    engine: &Engine,
    key: &WorkerKey,
    provider_id: &ProviderId,
    proof: &Proof,
    gone: &CancellationToken,
) -> Result<Awaited, StoreError> {
    let provider = engine.providers.get(provider_id).ok();
    let Some(token) = provider.and_then(|provider| provider.offered_by(key, proof)) else {
        return Ok(Awaited::NotOffered);
    };
    let until = Instant::now() + PATIENCE;
    let mut awaiting = engine.launch_answers.listen(&token);
    loop {
        match look(engine, key, &token).await? {
            Awaited::NotAnswered => {}
            settled @ (Awaited::Worker(_) | Awaited::NotOffered) => return Ok(settled),
        }
        let left = until.saturating_duration_since(Instant::now());
        let Some(awaiting) = awaiting.as_mut().filter(|_| !left.is_zero()) else {
            return Ok(Awaited::NotAnswered);
        };
        tokio::select! {
            _ = awaiting.listener.woken_within(left) => {}
            () = gone.cancelled() => return Ok(Awaited::NotAnswered),
        }
    }
}

/// Worker and launch as of one moment.
async fn look(
    engine: &Engine,
    key: &WorkerKey,
    token: &LaunchToken,
) -> Result<Awaited, StoreError> {
    let (key, token) = (key.clone(), token.clone());
    let read = engine.store.read("registration_await", move |tx| {
        if let Some(worker) = store::workers::get(tx, &key)? {
            return Ok(Awaited::Worker(Box::new(worker)));
        }
        let launch = store::launches::get(tx, &token)?;
        let is_pending = launch.is_some_and(|launch| launch.state.is_pending());
        Ok(match is_pending {
            true => Awaited::NotAnswered,
            false => Awaited::NotOffered,
        })
    });
    read.await
}
