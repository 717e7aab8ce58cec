//! Applies a plan item by item; a failed item does not stop the others.

use super::compare::Plan;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::Progress;

pub(super) struct ItemFailure {
    /// Its place in the plan.
    pub(super) position: usize,
    pub(super) failure: Failure,
}

pub(super) async fn apply(plan: &Plan, client: &Client) -> Vec<ItemFailure> {
    let mut failures = Vec::new();
    let mut progress = Progress::start();
    for (position, change) in plan.changes.iter().enumerate() {
        progress.step("importing", position, plan.changes.len(), change.title());
        if let Err(failure) = client.call(&change.call).await {
            // Further calls would time out too.
            let is_unreachable = failure.exit == Exit::Unreachable;
            failures.push(ItemFailure { position, failure });
            if is_unreachable {
                break;
            }
        }
    }
    failures
}
