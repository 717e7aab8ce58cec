//! Audit entries, events, run outcomes, the recorded history, errors and notices.

pub mod audit;
pub mod error_causes;
pub mod error_stats;
pub mod event_readers;
pub mod events;
pub mod kept_runs;
pub mod notice_causes;
pub mod notices;
pub mod outbox;
pub mod recorded_gaps;
pub mod recorded_runs;
pub mod recorded_workers;
pub mod run_counts;
pub mod run_messages;
pub mod run_outcomes;
pub mod series;
pub mod series_points;
pub mod wait_accounts;
pub mod wait_messages;
pub mod worker_errors;
