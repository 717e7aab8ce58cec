//! Costs: meters of machines, and their accounts.

pub mod cost_accounts;
pub mod cost_reports;
pub mod meters;
