//! The problems of a document, in the wording that clients know.
//!
//! Clients and people search these texts for substrings, so the wording is that of the JavaScript
//! validator ajv.

use crate::wording::wording;
use jsonschema::{ErrorIterator, ValidationError, Validator, error::ValidationErrorKind as Kind};
use serde_json::Value;
use std::fmt;

/// Problems that are listed at most. After fixing this many, people validate again anyway.
pub const MAX_PROBLEMS: usize = 100;
/// A text with keys or patterns of the document is cut here, since they may have megabytes.
const MAX_TEXT_CHARS: usize = 1_000;
/// The problems of documents heavier than this are not listed: the engine makes all problems, with
/// copies of the values, before we see the first one.
const MAX_WEIGHT: usize = 20_000;
/// Bytes of text that weigh as much as one value.
const BYTES_PER_WEIGHT: usize = 64;

/// A document that does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The name of the schema, like `worker-manager/v1/worker-full.json`.
    pub schema: String,
    /// At least one and at most [`MAX_PROBLEMS`], plus a note if there are more.
    pub problems: Vec<Problem>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place in the document as a JSON pointer; empty for the root.
    pub pointer: String,
    /// The problem, like `must be >= 1200`.
    pub message: String,
}

impl Invalid {
    /// The text of an API error, without the trailer that all API errors have.
    pub fn message(&self, root_url: &str) -> String {
        let mut text = format!(
            "\nSchema Validation Failed!\nRejecting Schema: {}/schemas/{}#\nErrors:",
            root_url.trim_end_matches('/'),
            self.schema
        );
        for problem in &self.problems {
            text.push_str("\n  * ");
            text.push_str(&problem.to_string());
        }
        text
    }

    /// A problem of the document itself, without a place in it.
    pub(crate) fn document(schema: &str, message: String) -> Self {
        Self {
            schema: schema.to_owned(),
            problems: vec![Problem {
                pointer: String::new(),
                message,
            }],
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "does not fit {}:", self.schema)?;
        for (index, problem) in self.problems.iter().enumerate() {
            write!(f, "{} {problem}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data{} {}", self.pointer, self.message)
    }
}

/// Validates a document.
pub(crate) fn validate(name: &str, validator: &Validator, document: &Value) -> Result<(), Invalid> {
    if validator.is_valid(document) {
        return Ok(());
    }
    Err(list_problems(name, document, || {
        validator.iter_errors(document)
    }))
}

/// Lists the problems of a document that does not fit.
pub(crate) fn list_problems<'i>(
    name: &str,
    document: &Value,
    errors: impl FnOnce() -> ErrorIterator<'i>,
) -> Invalid {
    let mut left = MAX_WEIGHT;
    if !weigh(document, &mut left) {
        let message = "must fit its schema (it is too large to list the problems)";
        return Invalid::document(name, message.to_owned());
    }
    let mut problems = Vec::new();
    for error in errors() {
        add_problems(&error, &mut problems);
        if problems.len() > MAX_PROBLEMS {
            problems.truncate(MAX_PROBLEMS);
            let message = format!("has more problems than the {MAX_PROBLEMS} listed here");
            problems.push(Problem {
                pointer: String::new(),
                message,
            });
            break;
        }
    }
    Invalid {
        schema: name.to_owned(),
        problems,
    }
}

/// Subtracts the weight of a value from `left`. Returns whether enough is left.
fn weigh(value: &Value, left: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => 1 + text.len() / BYTES_PER_WEIGHT,
        Value::Object(members) => {
            1 + members
                .keys()
                .map(|key| key.len() / BYTES_PER_WEIGHT)
                .sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => 1,
    };
    *left = left.saturating_sub(own);
    *left > 0
        && match value {
            Value::Array(items) => items.iter().all(|item| weigh(item, left)),
            Value::Object(members) => members.values().all(|member| weigh(member, left)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
}

/// Lists the problems of one error of the engine: those of the branches before the failed choice,
/// and one for each additional property.
fn add_problems(error: &ValidationError<'_>, problems: &mut Vec<Problem>) {
    if let Kind::AdditionalProperties { unexpected } = error.kind() {
        // One more than the limit shows that the list is cut.
        for key in unexpected.iter().take(MAX_PROBLEMS + 1) {
            let key = Value::from(key.as_str());
            let message = format!("must NOT have additional properties: {key}");
            push(error, message, problems);
        }
        return;
    }
    if let Kind::AnyOf { context }
    | Kind::OneOfNotValid { context }
    | Kind::OneOfMultipleValid { context } = error.kind()
    {
        for inner in context.iter().flatten().take(MAX_PROBLEMS) {
            add_problems(inner, problems);
        }
    }
    push(error, wording(error.kind(), error.instance()), problems);
}

fn push(error: &ValidationError<'_>, message: String, problems: &mut Vec<Problem>) {
    if problems.len() <= MAX_PROBLEMS {
        let pointer = shorten(error.instance_path().as_str());
        problems.push(Problem {
            pointer,
            message: shorten(&message),
        });
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
