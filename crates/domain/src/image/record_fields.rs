//! Reads and writes the fields of records in the tree.
//!
//! Names and units are those of Nodepool, so its records can be read: times are seconds with a
//! fraction, and formats are one text with commas. Unknown fields are kept.

use std::fmt::Display;
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::time::Timestamp;

/// A record in the tree that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record cannot be read: {place}: {error}")]
pub struct BadRecord {
    pub place: String,
    pub error: String,
}

impl BadRecord {
    pub(super) fn at(place: &str, error: impl Display) -> Self {
        Self {
            place: place.to_owned(),
            error: error.to_string(),
        }
    }
}

/// The fields of a record. Each is taken once; the rest is unknown.
pub(super) struct Fields(pub(super) Map<String, Value>);

impl Fields {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, BadRecord> {
        let value = serde_json::from_slice(bytes).map_err(|error| BadRecord::at("", error))?;
        if let Value::Object(fields) = value {
            return Ok(Self(fields));
        }
        Err(BadRecord::at("", format!("must be an object, not {value}")))
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, BadRecord> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(BadRecord::at(key, format!("must be a text, not {other}"))),
        }
    }

    pub(super) fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        key: &str,
    ) -> Result<Option<T>, BadRecord> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let parsed = text.parse().map_err(|error| BadRecord::at(key, error));
        parsed.map(Some)
    }

    /// A moment in seconds.
    pub(super) fn moment(&mut self, key: &str) -> Result<Option<Timestamp>, BadRecord> {
        let Some(found) = self.take(key) else {
            return Ok(None);
        };
        // Beyond this a moment has no date of four digits, and milliseconds are not exact.
        const LAST_SECONDS: f64 = 253_402_300_799.0;
        let seconds = found
            .as_f64()
            .filter(|seconds| seconds.abs() <= LAST_SECONDS);
        let seconds = seconds
            .ok_or_else(|| BadRecord::at(key, format!("must be a time in seconds, not {found}")))?;
        #[expect(clippy::cast_possible_truncation, reason = "its size was checked")]
        let millis = (seconds * 1_000.0).round() as i64;
        Ok(Some(Timestamp::from_millis(millis)))
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<u64>, BadRecord> {
        let Some(found) = self.take(key) else {
            return Ok(None);
        };
        let wrong = || BadRecord::at(key, format!("must be a whole number, not {found}"));
        found.as_u64().ok_or_else(wrong).map(Some)
    }

    pub(super) fn count(&mut self, key: &str) -> Result<Option<u32>, BadRecord> {
        let number = self.number(key)?.map(u32::try_from).transpose();
        number.map_err(|error| BadRecord::at(key, error))
    }

    pub(super) fn flag(&mut self, key: &str) -> Result<bool, BadRecord> {
        match self.take(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(BadRecord::at(
                key,
                format!("must be true or false, not {other}"),
            )),
        }
    }

    pub(super) fn object(&mut self, key: &str) -> Result<Map<String, Value>, BadRecord> {
        match self.take(key) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(other) => Err(BadRecord::at(
                key,
                format!("must be an object, not {other}"),
            )),
        }
    }

    /// Writes a field, unless its value is null.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.0.insert(key.to_owned(), value);
        }
    }

    pub(super) fn put_moment(&mut self, key: &str, moment: Option<Timestamp>) {
        self.put(
            key,
            moment.map(|moment| moment.as_millis() as f64 / 1_000.0),
        );
    }
}
