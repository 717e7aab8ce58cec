//! Errors of pools: stored as error reports, published and logged.

use domain::error_report::ErrorReport;
use domain::event::EventBody;
use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerKey};
use serde_json::{Map, Value, json};
use store::StoreError;

use crate::change::Change;

/// An error of a pool, as its report describes it.
pub struct ErrorDetails {
    /// A short word for programs: `creation-error`.
    pub kind: &'static str,
    pub title: &'static str,
    pub description: String,
    pub extra: Map<String, Value>,
    pub launch_config_id: Option<LaunchConfigId>,
    pub worker: Option<WorkerKey>,
}

/// Longer descriptions are cut; the contract has this limit.
const MAX_DESCRIPTION: usize = 10_240;

/// Writes the error report and its event in this transaction.
pub fn report_pool_error(
    change: &mut Change<'_, '_>,
    pool_id: &PoolId,
    provider_id: &ProviderId,
    problem: &ErrorDetails,
) -> Result<(), StoreError> {
    let mut extra = problem.extra.clone();
    if let Some(worker) = &problem.worker {
        extra.insert("workerGroup".to_owned(), json!(worker.group.as_str()));
        extra.insert("workerId".to_owned(), json!(worker.id.as_str()));
    }
    let id = change.new_id();
    let report = ErrorReport {
        pool_id: pool_id.clone(),
        error_id: id.parse().expect("a slugid is an error id"),
        reported: change.now,
        kind: problem.kind.to_owned(),
        title: problem.title.to_owned(),
        description: cut(&problem.description, MAX_DESCRIPTION).to_owned(),
        extra,
        launch_config_id: problem.launch_config_id.clone(),
    };
    store::worker_errors::insert(change.tx, &report)?;
    tracing::warn!(pool.id = %pool_id, error.id = %report.error_id, error.kind = problem.kind,
        "{} in {pool_id}: {}", problem.title, report.description);
    let worker = problem.worker.as_ref();
    let event = EventBody::PoolError {
        provider_id: provider_id.clone(),
        report: Box::new(report),
        worker: worker.map(|key| (key.group.to_string(), key.id.to_string())),
    };
    change.announce([event])
}

/// The beginning of a text, at most this many bytes, cut between characters.
fn cut(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("größe", 4), "gr\u{f6}");
        assert_eq!(cut("größe", 3), "gr");
        assert_eq!(cut("abc", 10), "abc");
    }
}
