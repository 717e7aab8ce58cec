//! What happened: audit, events, outcomes of runs, errors and notices.

pub(crate) mod audit;
pub(crate) mod error_stats;
pub(crate) mod event_readers;
pub(crate) mod events;
pub(crate) mod kept_runs;
pub(crate) mod notice_causes;
pub(crate) mod notices;
pub(crate) mod outbox;
pub(crate) mod run_counts;
pub(crate) mod run_messages;
pub(crate) mod run_outcomes;
pub(crate) mod worker_errors;
