//! Costs: meters of machines, and accounts.

pub mod cost_accounts;
pub mod cost_reports;
pub mod meters;
