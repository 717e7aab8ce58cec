//! The content of a notice, the same for all channels: bounded, and without possible secrets.

use domain::error_report::ErrorReport;
use domain::pool::Pool;
use domain::text::one_line;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::notice_causes::NoticeCause;

use super::collect::MIXED;

/// Longer titles, descriptions and extras are cut.
const MAX_TITLE: usize = 200;
const MAX_DESCRIPTION: usize = 4_096;
const MAX_EXTRA: usize = 4_096;
/// Replaces a value that looks like a secret.
const REMOVED: &str = "(removed)";
/// A key that contains one of these, ignoring case and punctuation, may name a secret.
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

/// A notice: some causes in full, and the number of further ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// Never empty; the most frequent ones come first.
    pub causes: Vec<Described>,
    /// The causes and errors that are not described.
    pub further: Further,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Further {
    pub errors: u64,
    pub causes: u64,
}

/// One cause, and its latest error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Described {
    pub worker_pool_id: String,
    pub owner: String,
    pub cause_id: String,
    /// Stands for all causes beyond the limit.
    pub is_mixed: bool,
    pub launch_config_id: Option<String>,
    pub kind: String,
    pub title: String,
    pub code: String,
    pub error_id: String,
    pub description: String,
    pub extra: Value,
    /// The number of errors that were not reported before, and their times.
    pub count: u64,
    pub first_at: String,
    pub last_at: String,
    /// The number of errors that were reported before, and the time of the first.
    pub told_before: u64,
    pub since: String,
}

impl Described {
    /// `sample` is the latest error with this cause.
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

/// The URL of the error in the API.
pub(super) fn error_url(root_url: &str, described: &Described) -> String {
    let pool = described.worker_pool_id.replace('/', "%2F");
    let error = &described.error_id;
    format!("{root_url}/api/worker-manager/v1/worker-pool-errors/{pool}?errorId={error}")
}

/// The recursion is as deep as the document, whose depth its parser has limited.
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

/// Replaces a large value by the beginning of its text.
fn bounded(extra: Value) -> Value {
    let text = extra.to_string();
    if text.len() <= MAX_EXTRA {
        return extra;
    }
    Value::String(cut(&text, MAX_EXTRA))
}

/// The beginning of a text, with a remark if it was cut.
fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max_bytes);
    format!("{}… (cut; the error itself has all of it)", &text[..end])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn possible_secrets_are_removed_at_any_depth() {
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
    fn long_texts_are_cut_between_characters() {
        let long = "ö".repeat(MAX_EXTRA);
        let Value::String(text) = bounded(json!({"a": long})) else {
            panic!("it is still an object");
        };
        assert!(text.len() < MAX_EXTRA + 100, "{}", text.len());
        assert_eq!(bounded(json!({"a": 1})), json!({"a": 1}));
        assert!(cut("größe", 4).starts_with("gr\u{f6}… (cut"));
    }
}
