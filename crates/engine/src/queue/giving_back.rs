//! What a worker claimed and never heard of is given back, so that it need not wait for the claim to run out.

use std::sync::Arc;

use domain::id::{TaskId, WorkerKey};
use domain::task::{Claim, Task};
use store::StoreError;
use tokio::runtime::Handle;

use super::moves::carry_out;
use crate::Engine;
use crate::unheard::IfUnheard;

/// A run as the worker would have got it.
type Unheard = (TaskId, u32, Claim);

/// Gives these claims back, unless the answer that tells of them is heard.
pub(super) fn if_unheard(engine: &Arc<Engine>, worker: &WorkerKey, tasks: &[Task]) -> IfUnheard {
    let runs = tasks.iter().filter_map(|task| {
        let (run_id, run) = task.last_run()?;
        Some((task.id.clone(), run_id, run.running()?.clone()))
    });
    let (engine, worker, runs) = (Arc::clone(engine), worker.clone(), runs.collect());
    IfUnheard::new(move || {
        // A process that ends gives nothing back; its claims run out by themselves.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(give_back(engine, worker, runs));
        }
    })
}

async fn give_back(engine: Arc<Engine>, worker: WorkerKey, runs: Vec<Unheard>) {
    let n_runs = runs.len();
    let written = engine.change("claim_give_back", engine.clock.now(), move |change| {
        for (task_id, run_id, claim) in &runs {
            let Some(before) = store::tasks::get(change.tx, task_id)? else {
                continue;
            };
            if let Ok(moved) = before.clone().give_back(*run_id, claim, change.now) {
                carry_out(change, &before, moved)?;
            }
        }
        Ok::<_, StoreError>(())
    });
    match written.await {
        Ok(()) => {
            tracing::info!(worker = %worker, runs = n_runs,
                "{worker} hung up before it heard of the {n_runs} runs that it had claimed: gave them back");
        }
        Err(problem) => tracing::warn!(worker = %worker, error = %problem,
            "cannot give back what {worker} claimed and never heard of; it waits until the claim runs out"),
    }
}
