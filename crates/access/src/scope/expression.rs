//! A demand on a caller's scopes: one scope, all of some, or any of some.

use serde_json::{Value, json};

use super::ScopeSet;

/// What a request demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// This scope.
    Scope(String),
    /// Every part. No parts: satisfied by anybody.
    AllOf(Vec<Expression>),
    /// At least one part. No parts: satisfied by nobody.
    AnyOf(Vec<Expression>),
}

impl Expression {
    /// Whether a holder of these scopes may pass.
    pub fn satisfied_by(&self, held: &ScopeSet) -> bool {
        match self {
            Self::Scope(scope) => held.satisfies(scope),
            Self::AllOf(parts) => parts.iter().all(|part| part.satisfied_by(held)),
            Self::AnyOf(parts) => parts.iter().any(|part| part.satisfied_by(held)),
        }
    }

    /// The part that is not satisfied, or nothing if all is well. Lists of one lose their wrapping.
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

    /// As the API shows it: a string, or an object with `AllOf` or `AnyOf`.
    pub fn to_json(&self) -> Value {
        let list = |parts: &[Self]| parts.iter().map(Self::to_json).collect::<Vec<_>>();
        match self {
            Self::Scope(scope) => json!(scope),
            Self::AllOf(parts) => json!({ "AllOf": list(parts) }),
            Self::AnyOf(parts) => json!({ "AnyOf": list(parts) }),
        }
    }

    /// A bare scope, or JSON indented by two spaces: as error messages show it.
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
