//! Clients, roles and scopes: who may sign requests, and what they may do.

mod audit;
mod clients;
mod hawk;
mod roles;
mod scopes;
mod table;
mod websocktunnel;

pub use table::ENDPOINTS;

use super::call::Call;
use super::error::ApiError;
use crate::authentication::EmbeddedAuthenticator;

/// Our own clients and roles. Without them the endpoints are not served.
fn embedded(call: &Call) -> Result<&EmbeddedAuthenticator, ApiError> {
    call.app
        .authenticator
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

/// The added scopes: the caller must hold only these itself.
fn added(before: &[String], after: &[String]) -> Vec<String> {
    after
        .iter()
        .filter(|scope| !before.contains(scope))
        .cloned()
        .collect()
}
