//! Texts that repeat a condition of their place become references: `zones/${zone}/disks`.
//!
//! A template is marked until it is written, because other texts of its rule are escaped then.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::leaves::{leaves_and_deletions, put};
use super::table::{Ask, Row};

/// The keys of a rule for what it sets.
pub(super) const VALUES: &str = "values";
pub(super) const ELEMENTS: &str = "elements";
/// The key of a rule that says that its texts are templates.
pub(super) const REFERENCES: &str = "references";
/// The beginning of a reference, also of an escaped one.
pub(super) const REFERENCE: &str = "${";
/// The first characters of a template.
const MARK: &str = "\0template:";
/// Shorter values occur in texts by chance.
const MIN_LENGTH: usize = 2;

/// Writes references where they make values of several rows equal.
pub(super) fn apply(rows: &mut [Row]) {
    let has_marks = |row: &Row| {
        let leaves = leaves_and_deletions(&row.document);
        leaves.iter().any(|(_, value)| is_marked(value))
    };
    // No text of a cloud begins like this; with one, marks would not be exact.
    if rows.iter().any(has_marks) {
        return;
    }
    for (pointer, templates) in templates(rows) {
        for (row, template) in templates {
            put(&mut rows[row].document, &pointer, template);
        }
    }
}

/// By pointer: the templates of the rows that have one.
fn templates(rows: &[Row]) -> BTreeMap<String, Vec<(usize, Value)>> {
    let mut found: BTreeMap<String, Vec<(usize, Value)>> = BTreeMap::new();
    let mut raw: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut kept: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        let conditions = conditions(row);
        for (pointer, value) in leaves_and_deletions(&row.document) {
            raw.entry(pointer.clone())
                .or_default()
                .insert(value.to_string());
            let template = with_references(value, &conditions);
            let text = template.as_ref().unwrap_or(value).to_string();
            kept.entry(pointer.clone()).or_default().insert(text);
            if let Some(template) = template {
                found.entry(pointer).or_default().push((number, template));
            }
        }
    }
    found.retain(|pointer, _| kept[pointer].len() < raw[pointer].len());
    found
}

/// The conditions of a row that texts may refer to, the longest value first.
fn conditions(row: &Row) -> Vec<(&'static str, &str)> {
    let own = row.presented.iter().filter_map(|(ask, value)| match ask {
        Ask::Condition(..) | Ask::WorkerType => Some((ask.name(), value.as_str())),
        Ask::Provider | Ask::Provisioner | Ask::Name => None,
    });
    let mut conditions: Vec<_> = own.filter(|(_, value)| value.len() >= MIN_LENGTH).collect();
    conditions.sort_by_key(|(name, value)| (std::cmp::Reverse(value.len()), *name));
    conditions
}

fn with_references(value: &Value, conditions: &[(&str, &str)]) -> Option<Value> {
    match value {
        Value::String(text) => template(text, conditions).map(Value::String),
        Value::Array(list) => {
            let mut changed = list.clone();
            let mut has_changed = false;
            for item in &mut changed {
                if let Some(new) = with_references(item, conditions) {
                    *item = new;
                    has_changed = true;
                }
            }
            has_changed.then_some(Value::Array(changed))
        }
        Value::Object(object) => {
            let mut changed = object.clone();
            let mut has_changed = false;
            for item in changed.values_mut() {
                if let Some(new) = with_references(item, conditions) {
                    *item = new;
                    has_changed = true;
                }
            }
            has_changed.then_some(Value::Object(changed))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The text with references in place of complete words that are values of conditions.
fn template(text: &str, conditions: &[(&str, &str)]) -> Option<String> {
    let mut template = MARK.to_owned();
    let (mut at, mut before) = (0, None);
    let mut has_reference = false;
    while at < text.len() {
        let rest = &text[at..];
        let fits = |(_, value): &&(&str, &str)| {
            let after = rest.strip_prefix(*value).map(|after| after.chars().next());
            after.is_some_and(|after| !is_word(before) && !is_word(after))
        };
        if let Some((name, value)) = conditions.iter().find(fits) {
            // A `$` before a reference would escape it.
            if before == Some('$') {
                return None;
            }
            template.extend(["${", *name, "}"]);
            at += value.len();
            before = value.chars().next_back();
            has_reference = true;
            continue;
        }
        if rest.starts_with("${") {
            template.push('$');
        }
        let first = rest.chars().next()?;
        template.push(first);
        at += first.len_utf8();
        before = Some(first);
    }
    has_reference.then_some(template)
}

fn is_word(character: Option<char>) -> bool {
    character.is_some_and(char::is_alphanumeric)
}

pub(super) fn is_marked(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with(MARK),
        Value::Array(list) => list.iter().any(is_marked),
        Value::Object(object) => object.values().any(is_marked),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The values of a rule as they are written, and whether they have references.
pub(super) fn written(values: &Map<String, Value>) -> (Map<String, Value>, bool) {
    let has_references = values.values().any(is_marked);
    let mut written = values.clone();
    if has_references {
        written.values_mut().for_each(unmark);
    }
    (written, has_references)
}

fn unmark(value: &mut Value) {
    match value {
        Value::String(text) => match text.strip_prefix(MARK) {
            Some(template) => *text = template.to_owned(),
            None => *text = text.replace("${", "$${"),
        },
        Value::Array(list) => list.iter_mut().for_each(unmark),
        Value::Object(object) => object.values_mut().for_each(unmark),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text without marks, for names.
pub(super) fn plain(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_words_become_references() {
        let conditions = [
            ("zone", "us-east1-b"),
            ("region", "us-east1"),
            ("machine", "n2"),
        ];
        let written = |text: &str| template(text, &conditions).map(|text| plain(&text).to_owned());
        for (text, wanted) in [
            (
                "zones/us-east1-b/types/n2",
                "zones/${zone}/types/${machine}",
            ),
            ("net-us-east1-${X}", "net-${region}-$${X}"),
            ("n2 n2x xn2 n2", "${machine} n2x xn2 ${machine}"),
        ] {
            assert_eq!(written(text).as_deref(), Some(wanted), "{text}");
        }
        for text in ["", "other", "us-east12", "$n2"] {
            assert_eq!(written(text), None, "{text}");
        }
    }
}
