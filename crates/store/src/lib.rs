//! The only crate that knows SQL: SQLite and PostgreSQL behind one portable text.
#![doc = include_str!("../README.md")]

mod access_revision;
mod audit;
mod client;
mod error;
mod error_stats;
mod failure;
mod launch_config;
mod migration;
mod options;
mod outbox;
mod pause;
mod pool;
mod postgres_session;
mod queue_worker;
mod role;
mod row;
mod session;
mod sqlite;
mod statement;
mod stopwatch;
mod store;
mod tls;
mod tx;
mod value;
mod worker;
mod worker_counts;
mod worker_error;
mod worker_list;
mod worker_metadata;

pub use access_revision::access_revision;
pub use audit::{audit_by_client, audit_by_entity, audit_insert};
pub use client::{
    client_delete, client_delete_expired, client_get, client_insert, client_list, client_touch,
    client_update,
};
pub use error::{DriverError, StoreError};
pub use error_stats::error_stats;
pub use launch_config::{
    launch_config_active_between, launch_config_all, launch_config_archive,
    launch_config_delete_expirable, launch_config_get, launch_config_insert, launch_config_list,
    launch_config_update,
};
pub use options::{MAX_CONNECTIONS, Options};
pub use outbox::{
    OutboxRow, outbox_delete_published_before, outbox_depth, outbox_mark_published, outbox_push,
    outbox_take,
};
pub use pool::{
    pool_delete, pool_get, pool_insert, pool_list, pool_list_expirable, pool_list_leaving,
    pool_update, pools_by_provider,
};
pub use queue_worker::{queue_worker_delete_expired, queue_worker_get, queue_worker_upsert};
pub use role::{role_all, role_delete, role_get, role_insert, role_list, role_update};
pub use session::MAX_ATTEMPTS;
pub use store::{Engine, Store};
pub use tx::{MAX_ROWS, Tx};
pub use value::MAX_TEXT_BYTES;
pub use worker::{worker_delete_expired, worker_get, worker_insert, worker_update};
pub use worker_counts::{
    worker_count_by_state, worker_counts, worker_counts_between, worker_counts_by_launch_config,
};
pub use worker_error::{ErrorFilter, error_delete_older_than, error_insert, error_list};
pub use worker_list::{
    WorkerCursor, WorkerFilter, worker_list, worker_list_live, worker_live_providers,
};
pub use worker_metadata::{
    MetadataFilter, WorkerMetadata, worker_metadata_get, worker_metadata_list,
};
