//! Fleet-wide lists.

mod all_workers;
mod audit;
mod error_causes;
mod named_workers;
mod processes;
mod providers;
mod startup;
mod table;

pub(in crate::api) use table::ENDPOINTS;
