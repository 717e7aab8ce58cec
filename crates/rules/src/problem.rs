//! The problems of a document, each with its place; their number is bounded.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::limits::MAX_PROBLEMS;

/// Something wrong in a document, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A JSON pointer from the parsed value: `/3/conditions/region` in a list of rules.
    pub path: String,
    /// The rule, if its id could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_id: Option<String>,
    /// The error, and what is expected instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule_id) = &self.rule_id {
            write!(formatter, "rule {rule_id:?}: ")?;
        }
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.message)
    }
}

/// The problems of a document, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Problems {
    problems: Vec<Problem>,
    /// The number of problems beyond those in the list.
    more: usize,
}

impl Problems {
    /// At most [`MAX_PROBLEMS`] problems.
    pub fn list(&self) -> &[Problem] {
        &self.problems
    }

    /// The number of problems beyond those in the list.
    pub fn more(&self) -> usize {
        self.more
    }

    pub(crate) fn push(&mut self, path: &str, rule_id: Option<&str>, message: String) {
        if self.problems.len() == MAX_PROBLEMS {
            self.more += 1;
            return;
        }
        self.problems.push(Problem {
            path: path.to_owned(),
            rule_id: rule_id.map(str::to_owned),
            message,
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.problems.len() + self.more
    }

    pub(crate) fn into_result(self) -> Result<(), Self> {
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{problem}")?;
        }
        if self.more > 0 {
            write!(formatter, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

/// The parser's place inside a rule, and the list for its problems.
pub(crate) struct Place<'a> {
    pub(crate) path: String,
    pub(crate) rule_id: Option<&'a str>,
    /// Compiling globs is the most expensive step, so their number is limited.
    pub(crate) globs_left: &'a mut usize,
    pub(crate) problems: &'a mut Problems,
}

impl Place<'_> {
    pub(crate) fn problem(&mut self, message: impl Into<String>) {
        self.problems.push(&self.path, self.rule_id, message.into());
    }

    /// Runs `parse` one step deeper.
    pub(crate) fn within<T>(&mut self, token: &str, parse: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        push_token(&mut self.path, token);
        let parsed = parse(self);
        self.path.truncate(length);
        parsed
    }
}

/// Adds a step to a JSON pointer.
pub(crate) fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    for character in token.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            _ => pointer.push(character),
        }
    }
}

/// The type of a value, in words that suit JSON and YAML.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// `, did you mean "values"?` if a candidate is similar to the written text.
pub fn did_you_mean<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let allowed = (written.chars().count() / 3).clamp(1, 3);
    let near = candidates
        .into_iter()
        .map(|candidate| (distance(written, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min();
    near.map(|(_, candidate)| format!(", did you mean {candidate:?}?"))
        .unwrap_or_default()
}

/// The number of characters to add, remove or replace to get from one text to the other, ignoring
/// case.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, left) in left.chars().flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, right) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
