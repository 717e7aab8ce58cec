//! The only crate that knows SQL: SQLite and PostgreSQL behind one portable text.
#![doc = include_str!("../README.md")]

mod access;
mod configuration;
mod engine;
mod fleet;
mod history;
mod queue;
mod statements;

pub use access::clients::{
    client_delete, client_delete_expired, client_get, client_insert, client_list, client_touch,
    client_update,
};
pub use access::revisions::{AccessRevision, access_revision};
pub use access::roles::{
    RoleNews, role_all, role_delete, role_get, role_insert, role_list, role_news, role_update,
};
pub use configuration::configuration_versions::{
    ListedVersion, configuration_version_get, configuration_version_insert,
    configuration_version_list,
};
pub use configuration::configurations::{
    ListedConfiguration, configuration_delete, configuration_get, configuration_insert,
    configuration_list, configuration_update, configuration_version_now,
};
pub use configuration::documentation::{
    documentation_configuration_of, documentation_delete, documentation_delete_orphans,
    documentation_get, documentation_list, documentation_put, documentation_record,
    documentation_subject_exists,
};
pub use configuration::worker_types::{
    worker_type_claim, worker_type_get, worker_type_judged_by, worker_type_list,
    worker_type_release,
};
pub use engine::attempts::MAX_ATTEMPTS;
pub use engine::counts::Counts;
pub use engine::error::{DriverError, StoreError};
pub use engine::options::{DatabaseLock, LockError, MAX_CONNECTIONS, Options};
pub use engine::part::{MAX_PART_BYTES, Part};
pub use engine::probe::{database_clock, write_probe};
pub use engine::store::{Engine, Store};
pub use engine::turns::turn_take;
pub use engine::tx::{MAX_ROWS, Tx};
pub use engine::value::MAX_TEXT_BYTES;
pub use fleet::launch_configs::{
    launch_config_active_between, launch_config_all, launch_config_archive,
    launch_config_count_between, launch_config_delete_expirable, launch_config_get,
    launch_config_insert, launch_config_list, launch_config_part, launch_config_update,
};
pub use fleet::launch_health::{HealthWindow, launch_health_between};
pub use fleet::launches::{
    launch_delete_before, launch_get, launch_insert, launch_list, launch_list_pending,
    launch_note_never_registered, launch_note_registered, launch_note_silent,
    launch_pending_between, launch_pending_machines, launch_pending_providers,
    launch_unsettled_providers, launch_update,
};
pub use fleet::overrides::{
    override_delete, override_delete_ended_before, override_get, override_insert, override_list,
    override_list_due, override_list_in_force, override_update,
};
pub use fleet::plans::{
    PlanRecord, plan_delete_before, plan_get, plan_input, plan_insert, plan_list,
};
pub use fleet::pools::{
    pool_delete, pool_get, pool_insert, pool_list, pool_list_expirable, pool_list_leaving,
    pool_part, pool_update, pools_by_provider,
};
pub use fleet::running_workers::{
    SilentWorker, worker_list_running, worker_list_silent, worker_supply_fresh_between,
    worker_supply_silent_between,
};
pub use fleet::worker_counts::{
    PoolAndProvider, worker_count_by_state, worker_counts, worker_counts_between,
    worker_counts_by_launch_config, worker_counts_by_provider_between,
};
pub use fleet::worker_supply::{
    worker_pools_with_archived_between, worker_supply_between, worker_supply_overdue_between,
    worker_supply_quarantined_between,
};
pub use fleet::workers::{
    WorkerCursor, WorkerFilter, worker_delete_expired, worker_get, worker_insert, worker_list,
    worker_list_live, worker_list_stopping, worker_live_groups, worker_live_machines,
    worker_live_providers, worker_note_checked, worker_note_first_claim, worker_update,
};
pub use history::audit::{audit_by_client, audit_by_entity, audit_insert};
pub use history::error_stats::error_stats;
pub use history::event_readers::{
    EventReader, event_reader_get, event_reader_leave, event_reader_move, event_reader_open,
    event_reader_take,
};
pub use history::events::{
    event_delete_before, event_head, event_is_waiting, event_list_after, event_place,
    event_place_before, event_time_after,
};
pub use history::kept_runs::{KeptRuns, run_outcome_next_pool, run_outcome_trim};
pub use history::notice_causes::{
    NoticeCause, error_list_after, notice_cause_count, notice_cause_delete,
    notice_cause_delete_settled, notice_cause_get, notice_cause_insert, notice_cause_list_due,
    notice_cause_update,
};
pub use history::notices::{
    Notice, notice_delete, notice_delete_older_than, notice_insert, notice_mark_sent, notice_next,
    notice_recent, notice_update, notice_waiting,
};
pub use history::outbox::{OutboxRow, outbox_depth, outbox_push};
pub use history::run_counts::{
    Tallies, run_count_delete_before, run_count_of_configuration, run_count_of_pool,
};
pub use history::run_messages::run_message_list;
pub use history::run_outcomes::{
    RunCursor, configuration_pools, run_outcome_list_of_pools, run_outcome_list_of_worker,
    run_outcome_note,
};
pub use history::worker_errors::{
    ErrorFilter, error_delete_older_than, error_get, error_insert, error_list,
};
pub use queue::artifacts::{
    artifact_delete_expired, artifact_get, artifact_insert, artifact_list, artifact_update,
};
pub use queue::cache_purges::{
    CachePurge, cache_purge_count_others, cache_purge_delete_expired, cache_purge_list,
    cache_purge_list_of_pool, cache_purge_put,
};
pub use queue::claimants::{Claimant, claimant_list};
pub use queue::claimed_tasks::{
    ClaimedTask, task_list_claimed, task_list_claims_expired, task_list_claims_of_worker,
    task_note_ended,
};
pub use queue::demand::{task_demand_all, task_demand_of, task_demand_up_to};
pub use queue::dependencies::{
    Edge, task_dependency_release, task_dependents, task_dependents_to_release, task_edges_freed,
    task_look_again, task_look_is_due, task_looks_done, task_looks_due, task_open_dependencies,
    task_require, task_required,
};
pub use queue::pending_tasks::{
    PendingPlace, PendingTask, task_any_waiting, task_list_pending, task_next,
    task_queues_with_work,
};
pub use queue::queue_workers::{
    queue_worker_delete_expired, queue_worker_get, queue_worker_list, queue_worker_of_live,
    queue_worker_upsert,
};
pub use queue::task_groups::{
    task_group_active, task_group_delete_expired, task_group_get, task_group_insert,
    task_group_size, task_group_tasks, task_group_touch, task_group_update,
};
pub use queue::task_queues::{
    Provisioner, TaskQueue, provisioner_get, provisioner_list, task_queue_delete_expired,
    task_queue_get, task_queue_list, task_queue_seen,
};
pub use queue::tasks::{
    TaskRuns, task_delete_expired, task_get, task_insert, task_list_overdue, task_runs,
    task_several, task_touch, task_update,
};
pub use queue::worker_metadata::{
    MetadataFilter, WorkerMetadata, worker_metadata_get, worker_metadata_list,
};
