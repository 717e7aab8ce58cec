//! What a notice says, whichever way it goes: bounded, and without what looks like a secret.

use domain::error_report::ErrorReport;
use domain::pool::Pool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::notice_causes::NoticeCause;

use super::cause::MIXED;

/// Longer titles, descriptions and extras are cut.
const MAX_TITLE: usize = 200;
const MAX_DESCRIPTION: usize = 4_096;
const MAX_EXTRA: usize = 4_096;
/// Instead of a value that looks like a secret.
const REMOVED: &str = "(removed)";
/// A key with one of these in it, apart from case and punctuation, names a secret or what may hold one.
const SECRETS: [&str; 17] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "authorization",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "sharedkey",
    "signature",
    "bewit",
    "connectionstring",
    "userdata",
    "customdata",
];

/// A notice: some causes in full, and how much more there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// Never empty; those with the most errors come first.
    pub causes: Vec<Described>,
    /// What is not described for want of room.
    pub further: Further,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Further {
    pub errors: u64,
    pub causes: u64,
}

/// One cause, and the latest of its errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Described {
    pub worker_pool_id: String,
    pub owner: String,
    pub cause_id: String,
    /// There were so many causes that these were not kept apart.
    pub is_mixed: bool,
    pub launch_config_id: Option<String>,
    pub kind: String,
    pub title: String,
    pub code: String,
    pub error_id: String,
    pub description: String,
    pub extra: Value,
    /// How many errors nobody has been told of before, and when.
    pub count: u64,
    pub first_at: String,
    pub last_at: String,
    /// How many have been told before, and since when this goes on.
    pub told_before: u64,
    pub since: String,
}

impl Described {
    /// `sample` is the latest error that has the cause.
    pub fn new(cause: &NoticeCause, pool: &Pool, sample: &ErrorReport) -> Self {
        let config = sample.launch_config_id.as_ref();
        let first = cause.first_waiting.unwrap_or(cause.last_reported);
        Self {
            worker_pool_id: pool.id.to_string(),
            owner: pool.definition.owner.clone(),
            cause_id: cause.cause.clone(),
            is_mixed: cause.cause == MIXED,
            launch_config_id: config.map(ToString::to_string),
            kind: one_line(&sample.kind, MAX_TITLE),
            title: one_line(&sample.title, MAX_TITLE),
            code: one_line(sample.code(), MAX_TITLE),
            error_id: sample.error_id.to_string(),
            description: cut(&sample.description, MAX_DESCRIPTION),
            extra: bounded(without_secrets(&sample.extra)),
            count: cause.n_waiting,
            first_at: first.to_string(),
            last_at: cause.last_reported.to_string(),
            told_before: cause.n_notified,
            since: cause.first_reported.to_string(),
        }
    }
}

/// Where the error can be read through the API.
pub(super) fn error_url(root_url: &str, described: &Described) -> String {
    let pool = described.worker_pool_id.replace('/', "%2F");
    let error = &described.error_id;
    format!("{root_url}/api/worker-manager/v1/worker-pool-errors/{pool}?errorId={error}")
}

/// The text without line breaks and other control characters, and no longer than this.
pub(super) fn one_line(text: &str, max_characters: usize) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace());
    let mut line = words
        .filter(|word| !word.is_empty())
        .fold(String::new(), |mut line, word| {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            line
        });
    if let Some((end, _)) = line.char_indices().nth(max_characters) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The recursion is as deep as the document, which its parser has bounded.
fn without_secrets(object: &Map<String, Value>) -> Value {
    let members = object.iter().map(|(key, value)| {
        let value = if names_secret(key) {
            Value::from(REMOVED)
        } else {
            clean(value)
        };
        (key.clone(), value)
    });
    Value::Object(members.collect())
}

fn clean(value: &Value) -> Value {
    match value {
        Value::Object(object) => without_secrets(object),
        Value::Array(items) => Value::Array(items.iter().map(clean).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn names_secret(key: &str) -> bool {
    let letters = key.chars().filter(|c| c.is_alphanumeric());
    let bare: String = letters.flat_map(char::to_lowercase).collect();
    SECRETS.iter().any(|secret| bare.contains(secret))
}

/// What is too long is replaced by the beginning of its text.
fn bounded(extra: Value) -> Value {
    let text = extra.to_string();
    if text.len() <= MAX_EXTRA {
        return extra;
    }
    Value::String(cut(&text, MAX_EXTRA))
}

/// The beginning of a text, and a word about it if that is not all.
fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let mut end = max_bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… (cut; the error itself has all of it)", &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_removed_wherever_it_stands() {
        let extra = json!({
            "code": "x", "Access_Token": "T0P", "launchConfig": {"UserData": "T0P", "ImageId": "ami"},
            "list": [{"api-key": "T0P"}, 1], "PASSWORD": {"deep": "T0P"}, "authorization": ["T0P"],
        });
        let clean = without_secrets(extra.as_object().unwrap());
        assert_eq!(
            clean,
            json!({
                "code": "x", "Access_Token": "(removed)",
                "launchConfig": {"UserData": "(removed)", "ImageId": "ami"},
                "list": [{"api-key": "(removed)"}, 1], "PASSWORD": "(removed)",
                "authorization": "(removed)",
            })
        );
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let long = "ö".repeat(MAX_EXTRA);
        let Value::String(text) = bounded(json!({"a": long})) else {
            panic!("it is still an object");
        };
        assert!(text.len() < MAX_EXTRA + 100, "{}", text.len());
        assert_eq!(bounded(json!({"a": 1})), json!({"a": 1}));
        assert!(cut("größe", 4).starts_with("gr\u{f6}… (cut"));
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(
            one_line(" a\r\nBcc: x@y\t\0b\u{85}c ", 100),
            "a Bcc: x@y b c"
        );
        assert_eq!(one_line("größer", 3), "grö…");
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_line(text in ".*") {
            let line = one_line(&text, 50);
            prop_assert!(!line.chars().any(char::is_control));
            prop_assert!(line.chars().count() <= 51);
        }
    }
}
