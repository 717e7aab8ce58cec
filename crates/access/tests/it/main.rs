//! Tests of the crate's promises through its public interface.

mod certificates;
mod common;
mod headers;
mod never_panics;
mod refusals;
mod roles;
mod scopes;
mod seal;
mod tampering;
mod templates;
mod vectors;
