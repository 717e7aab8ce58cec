//! Clients, roles and scopes: who may sign requests, and what they may do.

mod audit;
mod clients;
mod hawk;
mod roles;
mod scopes;
mod table;

pub use table::ENDPOINTS;

use super::call::Call;
use super::error::ApiError;
use crate::gate::Embedded;

/// Our own clients and roles. The endpoints are served only where they are kept.
fn embedded(call: &Call) -> Result<&Embedded, ApiError> {
    call.app
        .gate
        .embedded()
        .ok_or_else(|| ApiError::not_found("Clients and roles are kept by another service"))
}

/// A scope that ends in two stars is nearly always a mistake.
fn refuse_double_stars(scopes: &[String]) -> Result<(), ApiError> {
    match scopes.iter().find(|scope| scope.ends_with("**")) {
        Some(scope) => Err(ApiError::input(format!(
            "scopes must not end with `**`: {scope}"
        ))),
        None => Ok(()),
    }
}

/// Those that were not there before: only these must the caller hold itself.
fn added(before: &[String], after: &[String]) -> Vec<String> {
    after
        .iter()
        .filter(|scope| !before.contains(scope))
        .cloned()
        .collect()
}
