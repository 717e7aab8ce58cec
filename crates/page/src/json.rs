//! Reads replies of the API.
//!
//! The schemas of the contract describe the replies, so a picture does not repeat them as types. A
//! missing member reads as empty: an optional one is shown as such.

use domain::time::Timestamp;
use serde_json::Value;

pub(crate) trait Json {
    /// A member by its path of names, such as `a.b`.
    fn at(&self, path: &str) -> &Value;
    /// A text; empty if there is none.
    fn text(&self, path: &str) -> &str;
    fn number(&self, path: &str) -> Option<f64>;
    fn count(&self, path: &str) -> u64;
    fn list(&self, path: &str) -> &[Value];
    fn moment(&self, path: &str) -> Option<Timestamp>;
    fn is(&self, path: &str) -> bool;
}

static NOTHING: Value = Value::Null;

impl Json for Value {
    fn at(&self, path: &str) -> &Value {
        if path.is_empty() {
            return self;
        }
        path.split('.')
            .fold(self, |value, name| value.get(name).unwrap_or(&NOTHING))
    }

    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn number(&self, path: &str) -> Option<f64> {
        self.at(path).as_f64()
    }

    fn count(&self, path: &str) -> u64 {
        self.at(path).as_u64().unwrap_or_default()
    }

    fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    fn moment(&self, path: &str) -> Option<Timestamp> {
        self.text(path).parse().ok()
    }

    fn is(&self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or_default()
    }
}
