//! Returns claims whose reply was not delivered, so that others need not wait for their end.

use std::sync::Arc;

use domain::id::{TaskId, WorkerKey};
use domain::task::{Claim, Task};
use store::StoreError;
use tokio::runtime::Handle;

use super::transitions::try_transition;
use crate::Engine;
use crate::undo_guard::UndoGuard;

/// A run as its worker claimed it.
type ClaimedRun = (TaskId, u32, Claim);

/// Returns these claims, unless the reply with them is delivered.
pub(super) fn return_unless_delivered(
    engine: &Arc<Engine>,
    worker: &WorkerKey,
    tasks: &[Task],
) -> UndoGuard {
    let runs = tasks.iter().filter_map(|task| {
        let (run_id, run) = task.last_run()?;
        Some((task.id.clone(), run_id, run.running()?.clone()))
    });
    let (engine, worker, runs) = (Arc::clone(engine), worker.clone(), runs.collect());
    UndoGuard::new(move || {
        // During a shutdown nothing is returned; the claims expire.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(return_claims(engine, worker, runs));
        }
    })
}

async fn return_claims(engine: Arc<Engine>, worker: WorkerKey, runs: Vec<ClaimedRun>) {
    let (n_runs, now) = (runs.len(), engine.clock.now());
    let written = engine.change("claim_give_back", now, move |change| {
        for (task_id, run_id, claim) in &runs {
            try_transition(change, task_id, |task| task.give_back(*run_id, claim, now))?;
        }
        Ok::<_, StoreError>(())
    });
    match written.await {
        Ok(()) => {
            tracing::info!(worker = %worker, runs = n_runs,
                                "{worker} disconnected before it got the {n_runs} runs that it had claimed: returned them");
        }
        Err(problem) => tracing::warn!(worker = %worker, error = %problem,
                        "cannot return the claims of {worker}, which did not get the reply; they expire"),
    }
}
