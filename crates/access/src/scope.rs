//! Scopes: what one covers, sets of them, and the expressions that requests must satisfy.
//!
//! A scope is printable ASCII. Only a star at its end has a meaning: it covers whatever continues
//! the text before it.

mod expression;
mod set;
mod template;

pub use expression::Expression;
pub use set::ScopeSet;
pub use template::{MissingParameter, Param, Params, Template};

/// Every caller, known or not, holds this scope.
pub const ANONYMOUS: &str = "assume:anonymous";

/// Whether the text can be a scope: printable ASCII, possibly empty.
pub fn is_scope(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
}

/// Whether someone who holds `pattern` holds `scope`.
///
/// A star at the end of `scope` is kept out of the comparison, so that `a**` does not give `a*`,
/// which is more than itself.
pub fn covers(pattern: &str, scope: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(stem) => split(scope).0.starts_with(stem),
        None => pattern == scope,
    }
}

/// The text before a final star, and whether there was one.
pub(crate) fn split(scope: &str) -> (&str, bool) {
    match scope.strip_suffix('*') {
        Some(stem) => (stem, true),
        None => (scope, false),
    }
}
