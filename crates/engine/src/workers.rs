//! Workers: registration, credentials, error reports, and declared workers.

mod declared_workers;
mod error;
mod error_reports;
mod pending_launch;
mod registration;
mod renewal;
mod secrets;

pub use declared_workers::{Declaration, declare, remove, update_declaration};
pub use error::WorkerError;
pub use error_reports::{WorkerReport, report_error};
pub use registration::{Registration, RegistrationResult, register};
pub use renewal::renew;
