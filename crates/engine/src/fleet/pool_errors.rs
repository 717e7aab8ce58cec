//! Errors of pools: stored as error reports, published and logged.

use domain::error_report::ErrorReport;
use domain::event::EventBody;
use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerKey};
use domain::launch::Launch;
use serde_json::Value;

use crate::change::Change;

/// An error of a pool, as its report describes it.
pub(crate) struct ErrorDetails {
    /// A short word for programs: `creation-error`.
    pub(crate) kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: String,
    pub(crate) extra: Value,
    pub(crate) launch_config_id: Option<LaunchConfigId>,
}

/// Longer descriptions are cut; the contract has this limit.
const MAX_DESCRIPTION: usize = 10_240;

/// Writes the error report and its event in this transaction.
pub(crate) fn report_pool_error(
    change: &mut Change<'_, '_>,
    pool_id: &PoolId,
    provider_id: &ProviderId,
    problem: ErrorDetails,
) -> store::Result<()> {
    let report = ErrorReport {
        pool_id: pool_id.clone(),
        error_id: change.new_id(),
        reported: change.now,
        kind: problem.kind.to_owned(),
        title: problem.title.to_owned(),
        description: cut(&problem.description, MAX_DESCRIPTION).to_owned(),
        extra: problem.extra.as_object().cloned().unwrap_or_default(),
        launch_config_id: problem.launch_config_id,
    };
    write_error_report(change, provider_id, report.clone(), None)?;
    tracing::warn!(pool.id = %pool_id, error.id = %report.error_id, error.kind = problem.kind,
        "{} in {pool_id}: {}", problem.title, report.description);
    Ok(())
}

/// Reports a launch that made no machine, as far as is known. Names the launch config without its
/// content, which fewer people may read than errors.
pub(super) fn report_launch_error(
    change: &mut Change<'_, '_>,
    launch: &Launch,
    title: &'static str,
    description: String,
    extra: Value,
) -> store::Result<()> {
    let details = ErrorDetails {
        kind: "creation-error",
        title,
        description,
        extra,
        launch_config_id: Some(launch.launch_config_id.clone()),
    };
    report_pool_error(change, &launch.pool_id, &launch.provider_id, details)
}

/// Writes a report and its event; `worker` is the worker that made the report.
pub(crate) fn write_error_report(
    change: &mut Change<'_, '_>,
    provider_id: &ProviderId,
    report: ErrorReport,
    worker: Option<&WorkerKey>,
) -> store::Result<()> {
    store::worker_errors::insert(change.tx, &report)?;
    change.announce([EventBody::PoolError {
        provider_id: provider_id.clone(),
        report: Box::new(report),
        worker: worker.map(|key| (key.group.to_string(), key.id.to_string())),
    }])
}

/// The beginning of a text, at most this many bytes, cut between characters.
fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
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
