//! Scopes: coverage, sets, and the expressions that requests must satisfy.
//!
//! A scope is printable ASCII. Only a star at its end has a meaning: it covers everything that
//! begins with the text before it.

mod expression;
mod set;
mod template;

pub use expression::Expression;
pub use set::ScopeSet;
pub use template::{MissingParameter, Param, Params, Template};

/// The scope that every request has, also an anonymous one.
pub const ANONYMOUS: &str = "assume:anonymous";

/// Whether the text is a valid scope: printable ASCII, possibly empty.
pub fn is_scope(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
}

/// Whether holding `pattern` means holding `scope`.
///
/// A star at the end of `scope` is not compared, so that `a**` does not cover `a*`, which covers
/// more.
pub fn covers(pattern: &str, scope: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(stem) => split(scope).0.starts_with(stem),
        None => pattern == scope,
    }
}

/// The text before a final star, and whether it has one.
pub(crate) fn split(scope: &str) -> (&str, bool) {
    match scope.strip_suffix('*') {
        Some(stem) => (stem, true),
        None => (scope, false),
    }
}
