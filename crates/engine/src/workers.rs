//! Workers: registration, credentials, error reports, and declared workers.

mod created_workers;
mod declared_workers;
mod error;
mod error_reports;
mod host_launch_config;
mod launch_config;
mod named_workers;
mod pending_launch;
mod provider_test;
mod registration;
mod relayed_host;
mod renewal;
mod selected_workers;
mod take_over;
mod worker_log;
mod worker_place;

pub use declared_workers::{declare, remove, update_declaration};
pub use error::WorkerError;
pub use error_reports::{WorkerReport, report_error};
pub use launch_config::ask_launch_config;
pub use named_workers::{WorkerResult, end_named_workers};
pub use provider_test::test_provider;
pub use registration::{Registration, RegistrationResult, register};
pub use relayed_host::{RelayedHost, register_relayed};
pub use renewal::renew;
pub use selected_workers::{
    EndOrder, EndedWorkers, Ending, MAX_ENDED, check_selection, count_workers, end_workers,
    select_workers,
};
pub use take_over::{
    Inheritance, InheritanceResult, Inherited, InheritedWorker, MAX_INHERITED, take_over,
};
pub use worker_log::read_worker_log;
pub use worker_place::Declaration;

use std::sync::Arc;

use cloud::{Provider, ProviderUnavailable};
use domain::id::{ProviderId, WorkerKey};

use crate::Engine;

/// A provider in service; `unknown` is the error for an unknown one.
fn find_provider<'a>(
    engine: &'a Engine,
    id: &ProviderId,
    unknown: impl FnOnce() -> WorkerError,
) -> Result<&'a Arc<dyn Provider>, WorkerError> {
    engine.providers.get(id).map_err(|problem| match problem {
        ProviderUnavailable::Unknown => unknown(),
        ProviderUnavailable::SetupFailed { .. } => WorkerError::ProviderSetupFailed,
    })
}

/// Binds the digest of a secret that renews credentials to its worker.
fn secret_purpose(key: &WorkerKey) -> String {
    format!("registration:{key}")
}
