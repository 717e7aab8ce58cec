//! Credentials for a claimed run: to report on it, and with the scopes of the task.

use access::certificate::Credentials;
use domain::task::{Claim, Task};
use domain::time::Timestamp;

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
    let issuer = &engine.queue.issuer;
    issuer.issue(&engine.random, &name, scopes.collect(), now, *taken_until)
}
