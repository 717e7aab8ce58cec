//! Scope expressions: one scope, all of a list, or any of a list.

use serde_json::{Value, json};

use super::ScopeSet;

/// The scopes that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    Scope(String),
    /// Every part. An empty list is always satisfied.
    AllOf(Vec<Expression>),
    /// At least one part. An empty list is never satisfied.
    AnyOf(Vec<Expression>),
}

impl Expression {
    /// Whether these scopes satisfy the expression.
    pub fn satisfied_by(&self, held: &ScopeSet) -> bool {
        match self {
            Self::Scope(scope) => held.satisfies(scope),
            Self::AllOf(parts) => parts.iter().all(|part| part.satisfied_by(held)),
            Self::AnyOf(parts) => parts.iter().any(|part| part.satisfied_by(held)),
        }
    }

    /// The unsatisfied part, or `None`. Lists with one member are replaced by the member.
    pub fn missing_from(&self, held: &ScopeSet) -> Option<Self> {
        match self {
            Self::Scope(scope) => (!held.satisfies(scope)).then(|| self.clone()),
            Self::AllOf(parts) => {
                let missing: Vec<_> = parts
                    .iter()
                    .filter_map(|part| part.missing_from(held))
                    .collect();
                (!missing.is_empty()).then(|| alone_or(Self::AllOf, missing))
            }
            Self::AnyOf(parts) => {
                let missing = parts.iter().map(|part| part.missing_from(held));
                missing
                    .collect::<Option<Vec<_>>>()
                    .map(|missing| alone_or(Self::AnyOf, missing))
            }
        }
    }

    /// The form in the API: a string, or an object with `AllOf` or `AnyOf`.
    pub fn to_json(&self) -> Value {
        let list = |parts: &[Self]| parts.iter().map(Self::to_json).collect::<Vec<_>>();
        match self {
            Self::Scope(scope) => json!(scope),
            Self::AllOf(parts) => json!({ "AllOf": list(parts) }),
            Self::AnyOf(parts) => json!({ "AnyOf": list(parts) }),
        }
    }

    /// The form in error messages: a plain scope, or JSON indented by two spaces.
    pub fn for_people(&self) -> String {
        match self {
            Self::Scope(scope) => scope.clone(),
            Self::AllOf(_) | Self::AnyOf(_) => format!("{:#}", self.to_json()),
        }
    }
}

fn alone_or(wrap: fn(Vec<Expression>) -> Expression, mut parts: Vec<Expression>) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            wrap(parts)
        }
        None => wrap(parts),
    }
}
