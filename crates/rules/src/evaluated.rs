//! The result of an evaluation, with its errors.

use std::fmt;
use std::ops::Deref;

use serde::Serialize;
use serde_json::{Map, Value};

/// The values of an evaluation. Check the errors before you use them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evaluated {
    /// The result. A text whose reference has an error stays as it was written.
    pub values: Map<String, Value>,
    /// References without a value, and elements of lists that do not exist. Empty for rules
    /// without `references` and `elements`.
    pub errors: Vec<EvaluationError>,
}

/// A value that could not be made in one evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvaluationError {
    /// The value, as a JSON pointer into the result; or the path of an element.
    pub pointer: String,
    /// The rule.
    pub rule_id: String,
    /// The error, for people.
    pub message: String,
}

impl Deref for Evaluated {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.values
    }
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule_id, pointer, message) = (&self.rule_id, &self.pointer, &self.message);
        write!(formatter, "rule {rule_id:?}: {pointer}: {message}")
    }
}
