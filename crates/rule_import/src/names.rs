//! Ids and descriptions of rules: what a rule sets, and for which pools and places.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::leaves::leaves_and_deletions;
use super::templates::plain;

/// Maximum length of an id.
const MAX_ID: usize = 60;
/// Maximum length of a value in an id.
const MAX_SAID: usize = 24;
/// Keys in a description.
const MAX_KEYS: usize = 3;
/// Keys that say nothing about a value.
const TELL_NOTHING: [&str; 3] = ["value", "config", "items"];

/// A rule that gets a name.
pub(super) struct Subject<'a> {
    /// The section of its values; `None` for the settings of pools.
    pub(super) section: Option<&'a str>,
    pub(super) conditions: &'a Value,
    pub(super) values: &'a Map<String, Value>,
}

/// The ids that are in use.
#[derive(Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// An id that no other rule has.
    pub(super) fn id(&mut self, subject: &Subject<'_>) -> String {
        let candidates = candidates(subject).into_iter();
        let mut fitting = candidates.filter(|id| !id.is_empty() && id.len() <= MAX_ID);
        let free = fitting.find(|id| !self.0.contains(id));
        let id = free.unwrap_or_else(|| subject.fallback());
        self.0.insert(id.clone());
        id
    }
}

/// Ids for a rule, the best first.
fn candidates(subject: &Subject<'_>) -> Vec<String> {
    let topic = subject.topic();
    let short = subject
        .keys()
        .first()
        .map(|key| kebab(key))
        .unwrap_or_default();
    let section = subject.section.unwrap_or_default();
    let texts = subject.texts();
    let all: Vec<String> = texts.values().flatten().map(|text| slug(text)).collect();
    let singles = texts.values().all(|texts| texts.len() == 1);
    let place = join(&all);
    let common = common_start(&all);
    let first = all.first().cloned().unwrap_or_default();
    let mut candidates = Vec::new();
    if all.is_empty() {
        let base = if section.is_empty() {
            "all-pools"
        } else {
            section
        };
        candidates.push(base.to_owned());
        candidates.push(join(&[base, &topic]));
    } else if singles && subject.conditions.is_object() {
        candidates.push(join(&[section, &place]));
        candidates.push(join(&[section, &place, &short]));
        candidates.push(join(&[section, &place, &topic]));
        candidates.push(join(&[&place, &topic]));
    }
    candidates.push(topic.clone());
    candidates.push(join(&[section, &topic]));
    candidates.push(join(&[section, &common, &topic]));
    candidates.push(join(&[section, &first, &short]));
    candidates.push(join(&[section, &first, &topic]));
    for keys in 2..=subject.keys().len().min(MAX_KEYS) {
        let keys: Vec<String> = subject
            .keys()
            .iter()
            .take(keys)
            .map(|key| kebab(key))
            .collect();
        candidates.push(join(&[section, &join(&keys)]));
        candidates.push(join(&[section, &first, &join(&keys)]));
    }
    for count in 2..=all.len().min(6) {
        candidates.push(join(&[section, &join(&all[..count]), &short]));
        candidates.push(join(&[&join(&all[..count]), &topic]));
    }
    candidates
}

impl Subject<'_> {
    /// The texts of its conditions by name, without the provider if others say more.
    fn texts(&self) -> BTreeMap<String, Vec<String>> {
        let mappings = match self.conditions {
            Value::Array(mappings) => mappings.as_slice(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => std::slice::from_ref(self.conditions),
        };
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in mappings.iter().filter_map(Value::as_object).flatten() {
            if name == "provider" {
                continue;
            }
            let texts = found.entry(name.clone()).or_default();
            let several = value
                .as_array()
                .map_or(std::slice::from_ref(value), Vec::as_slice);
            let new = several
                .iter()
                .filter_map(|one| one.get("set").unwrap_or(one).as_str());
            for text in new {
                if !texts.iter().any(|known| known == text) {
                    texts.push(text.to_owned());
                }
            }
        }
        found
    }

    /// The last telling key of each value, without duplicates.
    fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for (pointer, _) in leaves_and_deletions(self.values) {
            let mut names = pointer.rsplit('/').filter(|name| {
                let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
                !name.is_empty() && !is_number && !TELL_NOTHING.contains(name)
            });
            let key = names.next().unwrap_or_default().to_owned();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The key of its values and, if there is only one and it is short, the value.
    fn topic(&self) -> String {
        let leaves = leaves_and_deletions(self.values);
        let keys = self.keys();
        let key = keys.first().map(|key| kebab(key)).unwrap_or_default();
        let [(_, value)] = leaves.as_slice() else {
            return key;
        };
        let said = match value {
            Value::Null => "none".to_owned(),
            Value::Bool(true) => String::new(),
            Value::Bool(false) => "off".to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => said(text),
            Value::Array(list) => {
                let machine = list.first().and_then(|item| item.get("machine"));
                let machine =
                    machine.and_then(|machine| machine.as_str().or(machine.get(0)?.as_str()));
                said(machine.unwrap_or_default())
            }
            Value::Object(_) => String::new(),
        };
        join(&[key, said])
    }

    /// For rules that no words distinguish.
    fn fallback(&self) -> String {
        let text = format!("{}{}", self.conditions, Value::Object(self.values.clone()));
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let letters =
            (0..8).map(|at| char::from(b'a' + u8::try_from(hash >> (4 * at) & 15).unwrap_or(0)));
        let topic = slug(
            &self
                .keys()
                .first()
                .map(|key| kebab(key))
                .unwrap_or_default(),
        );
        join(&[topic, letters.collect::<String>()])
    }

    /// A sentence for people.
    pub(super) fn description(&self) -> String {
        let keys = self.keys();
        let words: Vec<String> = keys
            .iter()
            .map(|key| kebab(key).replace('-', " "))
            .collect();
        let what = match words.as_slice() {
            [] => "nothing".to_owned(),
            [one] => one.clone(),
            [first, second] => format!("{first} and {second}"),
            [first, second, third] => format!("{first}, {second} and {third}"),
            [first, second, ..] => format!("{first}, {second} and {} more", words.len() - 2),
        };
        let mut characters = what.chars();
        let first = characters
            .next()
            .map(|first| first.to_uppercase().to_string());
        format!(
            "{}{} {}",
            first.unwrap_or_default(),
            characters.as_str(),
            self.scope()
        )
    }

    fn scope(&self) -> String {
        let texts = self.texts();
        let parts: Vec<String> = texts
            .iter()
            .map(|(name, texts)| match (name.as_str(), texts.as_slice()) {
                ("workerType", [one]) => format!("of {one}"),
                ("workerType", several) => format!("of {} worker types or patterns", several.len()),
                (name, [one]) => format!("for {name} {one}"),
                (name, several) => format!("for {} {name}s", several.len()),
            })
            .collect();
        match (parts.is_empty(), self.section) {
            (false, _) => parts.join(" "),
            (true, Some(section)) => format!("of all {section} launch configs"),
            (true, None) => "of all pools".to_owned(),
        }
    }
}

/// A short value in words, or nothing.
fn said(text: &str) -> String {
    let last = plain(text).rsplit(['/', '\\']).next().unwrap_or_default();
    let stem = last.split_once('.').map_or(last, |(stem, _)| stem);
    let word = slug(stem);
    match word.len() <= MAX_SAID {
        true => word,
        false => String::new(),
    }
}

fn join(parts: &[impl AsRef<str>]) -> String {
    let mut words: Vec<&str> = Vec::new();
    for part in parts
        .iter()
        .map(AsRef::as_ref)
        .filter(|part| !part.is_empty())
    {
        if words.last() != Some(&part) {
            words.push(part);
        }
    }
    words.join("-")
}

/// The words at the beginning of all.
fn common_start(all: &[String]) -> String {
    let mut common: Vec<&str> = match all.first() {
        Some(first) => first.split('-').collect(),
        None => return String::new(),
    };
    for other in all {
        let same = common.iter().zip(other.split('-'));
        common.truncate(same.take_while(|(left, right)| *left == right).count());
    }
    common.join("-")
}

/// Words of small letters, digits and dots with hyphens between them.
fn slug(text: &str) -> String {
    let words =
        text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '.'));
    let words: Vec<String> = words
        .map(|word| word.trim_matches('.').to_ascii_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    words.join("-")
}

/// `maxCapacity` as `max-capacity`.
fn kebab(key: &str) -> String {
    let mut words = String::new();
    let mut before_is_small = false;
    for character in key.chars() {
        if character.is_ascii_uppercase() && before_is_small {
            words.push('-');
        }
        before_is_small = character.is_ascii_lowercase() || character.is_ascii_digit();
        words.push(character.to_ascii_lowercase());
    }
    slug(&words)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(conditions: Value, values: Value) -> (String, String) {
        let values = values.as_object().unwrap().clone();
        let subject = Subject {
            section: values.contains_key("google").then_some("google"),
            conditions: &conditions,
            values: &values,
        };
        (Names::default().id(&subject), subject.description())
    }

    #[test]
    fn an_id_says_what_a_rule_is_about() {
        let table = [
            (
                json!(null),
                json!({"owner": "o"}),
                "all-pools",
                "Owner of all pools",
            ),
            (
                json!({"provider": "g"}),
                json!({"google": {"a": 1, "b": 2}}),
                "google",
                "A and b of all google launch configs",
            ),
            (
                json!({"region": "us-east1"}),
                json!({"google": {"region": "us-east1"}}),
                "google-us-east1",
                "Region for region us-east1",
            ),
            (
                json!({"workerType": "proj-x/*"}),
                json!({"maxCapacity": 5}),
                "proj-x",
                "Max capacity of proj-x/*",
            ),
            (
                json!({"workerType": ["a/b", "c/d"]}),
                json!({"maxCapacity": 5}),
                "max-capacity-5",
                "Max capacity of 2 worker types or patterns",
            ),
            (
                json!({"workerType": ["a/b", "c/d"]}),
                json!({"google": {"run": "C:\\Windows\\calc.exe"}}),
                "run-calc",
                "Run of 2 worker types or patterns",
            ),
        ];
        for (conditions, values, id, description) in table {
            assert_eq!(
                named(conditions, values),
                (id.to_owned(), description.to_owned())
            );
        }
    }

    #[test]
    fn ids_are_unique_without_numbers() {
        let mut names = Names::default();
        let mut seen = BTreeSet::new();
        for number in 0..40 {
            let conditions =
                json!({"workerType": [format!("proj/{}", "x".repeat(number * 3)), "b"]});
            let values = json!({"list": [number]});
            let subject = Subject {
                section: None,
                conditions: &conditions,
                values: values.as_object().unwrap(),
            };
            let id = names.id(&subject);
            assert!(id.len() <= MAX_ID && !id.contains(['(', '+', '\\']), "{id}");
            assert!(seen.insert(id));
        }
    }
}
