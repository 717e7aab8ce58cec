//! Workers: they prove who they are and renew their credentials; those that people declare are made, changed, removed.

mod by_hand;
mod early;
mod error;
mod error_reports;
mod registration;
mod renewal;
mod secrets;

pub use by_hand::{Declaration, declare, redeclare, remove};
pub use error::WorkerError;
pub use error_reports::{WorkerReport, report_error};
pub use registration::{Registered, Registration, register};
pub use renewal::renew;
