//! A mapping of the file: each key is read once, and the remaining keys become remarks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::notes::{Notes, below};

/// The name of an object whose name cannot be read. It is an error, so nothing is written.
const UNNAMED: &str = "?";
const UNKNOWN: &str = "this import does not know the key";
/// How Nodepool names a variable of the environment in a value.
const VARIABLE: &str = "%(NODEPOOL_";

pub(super) struct Section<'a> {
    members: &'a Map<String, Value>,
    pub(super) place: String,
    read: BTreeSet<&'a str>,
}

impl<'a> Section<'a> {
    /// `None`, with an error, if the value is not a mapping.
    pub(super) fn new(value: &'a Value, place: String, notes: &mut Notes) -> Option<Self> {
        let Value::Object(members) = value else {
            notes.wrong(place, format!("must be a mapping, not {}", kind(value)));
            return None;
        };
        Some(Self {
            members,
            place,
            read: BTreeSet::new(),
        })
    }

    pub(super) fn place_of(&self, key: &str) -> String {
        below(&self.place, key)
    }

    /// The value of a key, unless it is absent or null.
    pub(super) fn get(&mut self, key: &str) -> Option<&'a Value> {
        let (known, value) = self.members.get_key_value(key)?;
        self.read.insert(known);
        Some(value).filter(|value| !value.is_null())
    }

    fn expect(&self, key: &str, what: &str, value: &Value, notes: &mut Notes) {
        let text = format!("must be {what}, not {}", kind(value));
        notes.wrong(self.place_of(key), text);
    }

    /// The name of the object. It is mandatory.
    pub(super) fn name(&mut self, notes: &mut Notes) -> String {
        match self.get("name") {
            Some(Value::String(name)) if !name.is_empty() => return name.clone(),
            Some(value) => self.expect("name", "a text", value, notes),
            None => notes.wrong(&self.place, "`name` is missing"),
        }
        UNNAMED.to_owned()
    }

    /// A text. Numbers are taken for texts, as people write releases without quotes.
    pub(super) fn text(&mut self, key: &str, notes: &mut Notes) -> Option<String> {
        match self.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            other @ (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                self.expect(key, "a text", other, notes);
                None
            }
        }
    }

    /// A whole number that is not negative.
    pub(super) fn number(&mut self, key: &str, notes: &mut Notes) -> Option<u64> {
        let value = self.get(key)?;
        if value.as_u64().is_none() {
            self.expect(key, "a whole number of at least 0", value, notes);
        }
        value.as_u64()
    }

    /// A limit, for which -1 means none.
    pub(super) fn limit(&mut self, key: &str, notes: &mut Notes) -> Option<u64> {
        if self.members.get(key).is_some_and(|value| *value == -1) {
            self.get(key);
            return None;
        }
        self.number(key, notes)
    }

    pub(super) fn flag(&mut self, key: &str, notes: &mut Notes) -> Option<bool> {
        let value = self.get(key)?;
        if value.as_bool().is_none() {
            self.expect(key, "true or false", value, notes);
        }
        value.as_bool()
    }

    /// A list of texts; a single text is a list of one.
    pub(super) fn texts(&mut self, key: &str, notes: &mut Notes) -> Option<Vec<String>> {
        let value = self.get(key)?;
        if let Value::String(text) = value {
            return Some(vec![text.clone()]);
        }
        let texts = value.as_array().map(|items| {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<String>>>()
        });
        match texts.flatten() {
            Some(texts) => Some(texts),
            None => {
                self.expect(key, "a list of texts", value, notes);
                None
            }
        }
    }

    /// A mapping of names to texts.
    pub(super) fn variables(&mut self, key: &str, notes: &mut Notes) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        let Some(value) = self.get(key) else {
            return variables;
        };
        let Value::Object(members) = value else {
            self.expect(key, "a mapping of names to texts", value, notes);
            return variables;
        };
        for (name, value) in members {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                other @ (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                    let place = below(&self.place_of(key), name);
                    let text = format!("must be a text, not {}: put it in quotes", kind(other));
                    notes.wrong(place, text);
                    continue;
                }
            };
            variables.insert(name.clone(), text);
        }
        variables
    }

    /// The sections of a list.
    pub(super) fn sections(&mut self, key: &str, notes: &mut Notes) -> Vec<Section<'a>> {
        let place = self.place_of(key);
        let items = match self.get(key) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.expect(key, "a list", other, notes);
                return Vec::new();
            }
        };
        let numbered = items.iter().enumerate();
        numbered
            .filter_map(|(index, item)| {
                Section::new(item, below(&place, &index.to_string()), notes)
            })
            .collect()
    }

    /// The members that were not read, which count as read from now on.
    pub(super) fn take_rest(&mut self) -> Map<String, Value> {
        let rest: Vec<&'a String> = self.rest().collect();
        self.read.extend(rest.iter().map(|key| key.as_str()));
        let members = rest.into_iter().filter_map(|key| {
            let value = self.members.get(key)?;
            (!value.is_null()).then(|| (key.clone(), value.clone()))
        });
        members.collect()
    }

    fn rest(&self) -> impl Iterator<Item = &'a String> {
        let is_rest = |key: &&'a String| !self.read.contains(key.as_str());
        self.members.keys().filter(is_rest)
    }

    /// Notes a reason for each key that was not read.
    pub(super) fn finish(self, reasons: &[(&str, &str)], notes: &mut Notes) {
        for key in self.rest() {
            let known = reasons.iter().find(|(name, _)| name == key);
            let reason = known.map_or(UNKNOWN, |(_, reason)| *reason);
            notes.remark(self.place_of(key), reason);
        }
    }
}

/// Notes values in which Nodepool replaces a variable of its environment.
pub(super) fn remark_on_variables(value: &Value, place: &str, notes: &mut Notes) {
    match value {
        Value::String(text) => {
            for (start, _) in text.match_indices(VARIABLE) {
                let name: String = text[start + 2..]
                    .chars()
                    .take_while(|c| *c != ')')
                    .collect();
                let text = format!(
                    "Nodepool replaces %({name}) by a variable of its environment; the text is \
                     kept: replace it"
                );
                notes.remark(place, text);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                remark_on_variables(item, &below(place, &index.to_string()), notes);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                remark_on_variables(value, &below(place, key), notes);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}
