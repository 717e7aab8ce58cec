//! The only crate that knows SQL: SQLite and PostgreSQL behind one portable text.
#![doc = include_str!("../README.md")]

mod access_revision;
mod all_statements;
mod artifact;
mod artifact_run;
mod audit;
mod cache_purge;
mod claimant;
mod client;
mod configuration;
mod counts;
mod documentation;
mod error;
mod error_stats;
mod event_reader;
mod event_stream;
mod failure;
mod in_place;
mod lanes;
mod launch;
mod launch_config;
mod launch_health;
mod lock;
mod migration;
mod notice;
mod notice_cause;
mod options;
mod outbox;
mod overrides;
mod part;
mod pause;
mod plan_record;
mod pool;
mod postgres_session;
mod queue_worker;
mod role;
mod role_news;
mod row;
mod run_count;
mod run_message;
mod run_outcome;
mod run_outcome_trim;
mod session;
mod sqlite;
mod statement;
mod stopwatch;
mod store;
mod task;
mod task_claimed;
mod task_dependency;
mod task_expiry;
mod task_group;
mod task_pending;
mod task_queue;
mod tls;
mod turn;
mod tx;
mod value;
mod worker;
mod worker_counts;
mod worker_error;
mod worker_list;
mod worker_metadata;
mod worker_running;
mod worker_supply;
mod worker_type;
mod write_probe;

pub use access_revision::{AccessRevision, access_revision};
pub use artifact::{
    artifact_delete_expired, artifact_get, artifact_insert, artifact_list, artifact_update,
};
pub use artifact_run::{TaskRuns, task_runs};
pub use audit::{audit_by_client, audit_by_entity, audit_insert};
pub use cache_purge::{
    CachePurge, cache_purge_count_others, cache_purge_delete_expired, cache_purge_list,
    cache_purge_list_of_pool, cache_purge_put,
};
pub use claimant::{Claimant, claimant_list};
pub use client::{
    client_delete, client_delete_expired, client_get, client_insert, client_list, client_touch,
    client_update,
};
pub use configuration::{
    ListedConfiguration, ListedVersion, configuration_delete, configuration_get,
    configuration_insert, configuration_list, configuration_update, configuration_version_get,
    configuration_version_insert, configuration_version_list, configuration_version_now,
};
pub use counts::Counts;
pub use documentation::{
    documentation_configuration_of, documentation_delete, documentation_delete_orphans,
    documentation_get, documentation_list, documentation_put, documentation_record,
    documentation_subject_exists,
};
pub use error::{DriverError, StoreError};
pub use error_stats::error_stats;
pub use event_reader::{
    EventReader, event_reader_get, event_reader_leave, event_reader_move, event_reader_open,
    event_reader_take,
};
pub use event_stream::{
    event_delete_before, event_head, event_is_waiting, event_list_after, event_place,
    event_place_before, event_time_after,
};
pub use launch::{
    launch_delete_before, launch_get, launch_insert, launch_list, launch_list_pending,
    launch_note_never_registered, launch_note_registered, launch_note_silent,
    launch_pending_between, launch_pending_machines, launch_pending_providers,
    launch_unsettled_providers, launch_update,
};
pub use launch_config::{
    launch_config_active_between, launch_config_all, launch_config_archive,
    launch_config_count_between, launch_config_delete_expirable, launch_config_get,
    launch_config_insert, launch_config_list, launch_config_part, launch_config_update,
};
pub use launch_health::{HealthWindow, launch_health_between};
pub use notice::{
    Notice, notice_delete, notice_delete_older_than, notice_insert, notice_mark_sent, notice_next,
    notice_recent, notice_update, notice_waiting,
};
pub use notice_cause::{
    NoticeCause, error_list_after, notice_cause_count, notice_cause_delete,
    notice_cause_delete_settled, notice_cause_get, notice_cause_insert, notice_cause_list_due,
    notice_cause_update,
};
pub use options::{DatabaseLock, LockError, MAX_CONNECTIONS, Options};
pub use outbox::{OutboxRow, outbox_depth, outbox_push};
pub use overrides::{
    override_delete, override_delete_ended_before, override_get, override_insert, override_list,
    override_list_due, override_list_in_force, override_update,
};
pub use part::{MAX_PART_BYTES, Part};
pub use plan_record::{
    PlanRecord, plan_delete_before, plan_get, plan_input, plan_insert, plan_list,
};
pub use pool::{
    pool_delete, pool_get, pool_insert, pool_list, pool_list_expirable, pool_list_leaving,
    pool_part, pool_update, pools_by_provider,
};
pub use queue_worker::{
    queue_worker_delete_expired, queue_worker_get, queue_worker_list, queue_worker_of_live,
    queue_worker_upsert,
};
pub use role::{role_all, role_delete, role_get, role_insert, role_list, role_update};
pub use role_news::{RoleNews, role_news};
pub use run_count::{
    Tallies, run_count_delete_before, run_count_of_configuration, run_count_of_pool,
};
pub use run_message::run_message_list;
pub use run_outcome::{
    RunCursor, configuration_pools, run_outcome_list_of_pools, run_outcome_list_of_worker,
    run_outcome_note,
};
pub use run_outcome_trim::{KeptRuns, run_outcome_next_pool, run_outcome_trim};
pub use session::MAX_ATTEMPTS;
pub use store::{Engine, Store};
pub use task::{task_get, task_insert, task_several, task_touch, task_update};
pub use task_claimed::{
    ClaimedTask, task_demand_all, task_demand_of, task_demand_up_to, task_list_claimed,
    task_list_claims_expired, task_list_claims_of_worker, task_note_ended,
};
pub use task_dependency::{
    Edge, task_dependency_release, task_dependents, task_dependents_to_release, task_edges_freed,
    task_look_again, task_look_is_due, task_looks_done, task_looks_due, task_open_dependencies,
    task_require, task_required,
};
pub use task_expiry::{task_delete_expired, task_list_overdue};
pub use task_group::{
    task_group_active, task_group_delete_expired, task_group_get, task_group_insert,
    task_group_size, task_group_tasks, task_group_touch, task_group_update,
};
pub use task_pending::{
    PendingPlace, PendingTask, task_any_waiting, task_list_pending, task_next,
    task_queues_with_work,
};
pub use task_queue::{
    Provisioner, TaskQueue, provisioner_get, provisioner_list, task_queue_delete_expired,
    task_queue_get, task_queue_list, task_queue_seen,
};
pub use turn::turn_take;
pub use tx::{MAX_ROWS, Tx};
pub use value::MAX_TEXT_BYTES;
pub use worker::{
    worker_delete_expired, worker_get, worker_insert, worker_note_first_claim, worker_update,
};
pub use worker_counts::{
    PoolAndProvider, worker_count_by_state, worker_counts, worker_counts_between,
    worker_counts_by_launch_config, worker_counts_by_provider_between,
};
pub use worker_error::{ErrorFilter, error_delete_older_than, error_get, error_insert, error_list};
pub use worker_list::{
    WorkerCursor, WorkerFilter, worker_list, worker_list_live, worker_live_groups,
    worker_live_providers,
};
pub use worker_metadata::{
    MetadataFilter, WorkerMetadata, worker_metadata_get, worker_metadata_list,
};
pub use worker_running::{
    SilentWorker, worker_list_running, worker_list_silent, worker_supply_fresh_between,
    worker_supply_silent_between,
};
pub use worker_supply::{
    worker_list_stopping, worker_live_machines, worker_note_checked,
    worker_pools_with_archived_between, worker_supply_between, worker_supply_overdue_between,
    worker_supply_quarantined_between,
};
pub use worker_type::{
    worker_type_claim, worker_type_get, worker_type_judged_by, worker_type_list,
    worker_type_release,
};
pub use write_probe::{database_clock, write_probe};
