//! Credentials for a claimed run: to report on it, and with the scopes of the task.

use access::certificate::{self, Credentials};
use domain::task::{Claim, Task};
use domain::time::Timestamp;
use domain::worker_credentials::START_BEFORE_MS;

use crate::Engine;

pub fn issue_task_credentials(
    engine: &Engine,
    task: &Task,
    run_id: u32,
    claim: &Claim,
    now: Timestamp,
) -> Credentials {
    let Claim {
        group,
        worker_id,
        taken_until,
        ..
    } = claim;
    let id = &task.id;
    let until = taken_until.as_millis().div_euclid(1_000);
    let name = format!("task-client/{id}/{run_id}/on/{group}/{worker_id}/until/{until}");
    let own = ["reclaim-task", "resolve-task", "create-artifact"];
    let own = own.map(|what| format!("queue:{what}:{id}/{run_id}"));
    let scopes = own
        .into_iter()
        .chain(task.definition.scopes.iter().cloned());
    engine.random.with(|random| {
        certificate::issue(
            &engine.queue.issuer.as_issuer(),
            Some(&name),
            scopes.collect(),
            now.plus_millis(-START_BEFORE_MS).as_millis(),
            taken_until.as_millis(),
            random,
        )
    })
}
