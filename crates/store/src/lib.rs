//! The only crate that knows SQL: SQLite and PostgreSQL behind one portable text.
#![doc = include_str!("../README.md")]

mod access;
mod configuration;
mod cost;
mod engine;
mod fleet;
mod history;
mod queue;
mod statements;
mod tree;
pub mod year_old;

pub use access::{clients, revisions, roles, secrets, sessions};
pub use configuration::{
    canary_trials, configuration_versions, configurations, documentation, image_rollouts,
    image_users, image_versions, images, worker_types,
};
pub use cost::{cost_accounts, cost_reports, meters};
pub use engine::attempts::MAX_ATTEMPTS;
pub use engine::counts::Counts;
pub use engine::error::{DriverError, Result, StoreError};
pub use engine::explain::{Explanation, Joins};
pub use engine::options::{DatabaseLock, LockError, MAX_CONNECTIONS, Options};
pub use engine::part::{MAX_PART_BYTES, Part};
pub use engine::store::{Engine, Store};
pub use engine::touched::PoolStamp;
pub use engine::tx::{MAX_ROWS, Tx};
pub use engine::value::MAX_TEXT_BYTES;
pub use engine::{probe, turns};
pub use fleet::{
    all_workers, budgets, host_numbers, launch_configs, launch_failures, launch_health, launches,
    listed_workers, machine_moments, offering_memories, offering_news, overrides, plans,
    pool_memories, pool_news, pool_resources, pool_waits, pools, processes, provider_counts,
    relays, running_workers, selected_workers, shadow_plans, started_workers, worker_counts,
    worker_supply, workers,
};
pub use history::{
    audit, error_causes, error_stats, event_readers, events, kept_runs, notice_causes, notices,
    outbox, recorded_gaps, recorded_runs, recorded_workers, run_counts, run_messages, run_outcomes,
    series, series_points, wait_accounts, wait_messages, worker_errors,
};
pub use queue::{
    announced_tasks, artifacts, cache_purges, claimants, claimed_tasks, demand, dependencies,
    pending_tasks, queue_workers, task_groups, task_queues, task_waits, tasks, worker_metadata,
};
pub use tree::{database_identity, tree_nodes, tree_owners};
