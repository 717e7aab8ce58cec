//! Costs: the meters of machines, the accounts that they are charged to, and sums of accounts.

pub mod cost_accounts;
pub mod meters;
