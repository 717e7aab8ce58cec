//! What the crate promises, checked from outside.

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
