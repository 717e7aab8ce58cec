//! Carries a plan out, item by item: one that fails does not hold up the others.

use super::compare::Plan;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::Progress;

/// An item that could not be brought over.
pub(super) struct ItemFailure {
    /// Its place in the plan.
    pub(super) position: usize,
    pub(super) failure: Failure,
}

pub(super) async fn carry_out(plan: &Plan, client: &Client) -> Vec<ItemFailure> {
    let mut failures = Vec::new();
    let mut progress = Progress::start();
    for (position, change) in plan.changes.iter().enumerate() {
        progress.report(|| {
            let total = plan.changes.len();
            format!("importing: {position} of {total}, now {}", change.title())
        });
        if let Err(failure) = client.call(&change.call).await {
            // The others would only wait for the same silence.
            let is_gone = failure.exit == Exit::Unreachable;
            failures.push(ItemFailure { position, failure });
            if is_gone {
                break;
            }
        }
    }
    failures
}
