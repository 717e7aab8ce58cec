//! Ids and descriptions of rules: what a rule sets, and for which pools and places.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::leaves::leaves_and_deletions;
use super::source::Sections;
use super::templates::{ELEMENTS, VALUES};
use super::words::{USUAL_WORDS, common_start, fallback, join, kebab, list, said, slug, words};

/// Maximum length of an id.
const MAX_ID: usize = 72;
/// Keys in an id, and in a description before the rest is counted.
const MAX_KEYS: usize = 3;
/// Conditions in an id.
const MAX_TEXTS: usize = 6;
/// Keys that say nothing about a value.
const TELL_NOTHING: [&str; 3] = ["value", "config", "items"];
/// Words of descriptions that say nothing if the rest is in the id.
const FILL_WORDS: [&str; 9] = [
    "all", "and", "configs", "for", "in", "launch", "of", "on", "pools",
];
/// The key of the worker types that use a provider.
const USES: &str = "pools";
/// The key of the worker types that do not.
const USES_NOT: &str = "no";

/// Gives each rule an id that no other rule has, and a description unless the id says as much.
pub(super) fn name_all(rules: &mut [Value], sections: &Sections) {
    let mut taken = BTreeSet::new();
    for rule in rules {
        let subject = Subject::new(rule, sections);
        let id = subject.id(&taken);
        let description = subject.description(&id);
        let says_more = !subject.is_obvious() && {
            let known = words(&id);
            let mut said = words(&description).into_iter();
            said.any(|word| !known.contains(&word) && !FILL_WORDS.contains(&word.as_str()))
        };
        let Value::Object(fields) = rule else {
            continue;
        };
        fields.insert("ruleId".to_owned(), Value::from(id.as_str()));
        match says_more {
            true => fields.insert("description".to_owned(), Value::from(description)),
            false => fields.remove("description"),
        };
        taken.insert(id);
    }
}

/// A rule that gets a name.
struct Subject<'a> {
    /// The section of its values, or of the provider that it is about.
    section: Option<&'a str>,
    /// The provider whose options it sets.
    provider: Option<String>,
    /// Whether it sets values of launch configs.
    is_of_launch_configs: bool,
    conditions: &'a Value,
    /// With JSON pointers; elements of lists come last.
    leaves: Vec<(String, &'a Value)>,
}

impl<'a> Subject<'a> {
    fn new(rule: &'a Value, sections: &'a Sections) -> Self {
        let values = rule[VALUES].as_object();
        let mut leaves = values.map(leaves_and_deletions).unwrap_or_default();
        let elements = rule.get(ELEMENTS).and_then(Value::as_object);
        let elements = elements.into_iter().flatten();
        leaves.extend(elements.map(|(path, value)| (path.clone(), value)));
        let first = |pointer: &str| pointer.split('/').nth(1).map(str::to_owned);
        let by_values: BTreeSet<&str> = leaves
            .iter()
            .filter_map(|(pointer, _)| {
                let key = first(pointer)?;
                sections.values().find(|section| **section == key)
            })
            .map(String::as_str)
            .collect();
        let providers: BTreeSet<String> = leaves
            .iter()
            .filter_map(|(pointer, _)| provider_of(pointer))
            .collect();
        let provider = match providers.len() {
            1 => providers.into_iter().next(),
            _ => None,
        };
        let of_provider = provider
            .as_ref()
            .and_then(|provider| sections.get(provider));
        let is_about_provider = leaves
            .iter()
            .all(|(pointer, _)| provider_of(pointer).is_some());
        let section = match by_values.len() {
            1 => by_values.first().copied(),
            0 if is_about_provider => of_provider.map(String::as_str),
            _ => None,
        };
        Self {
            section,
            provider,
            is_of_launch_configs: by_values.len() == 1,
            conditions: &rule["conditions"],
            leaves,
        }
    }

    fn id(&self, taken: &BTreeSet<String>) -> String {
        let candidates = self.candidates().into_iter();
        let mut fitting = candidates.filter(|id| !id.is_empty() && id.len() <= MAX_ID);
        let free = fitting.find(|id| !taken.contains(id));
        free.unwrap_or_else(|| {
            let content = format!("{}{:?}", self.conditions, self.leaves);
            let topic = self.keys().first().map(|key| kebab(key));
            join(&[topic.unwrap_or_default(), fallback(&content)])
        })
    }

    /// Ids for the rule, the best first.
    fn candidates(&self) -> Vec<String> {
        let keys: Vec<String> = self.keys().iter().map(|key| kebab(key)).collect();
        let key = keys.first().cloned().unwrap_or_default();
        let has_one_key = keys.len() == 1;
        let section = self.section.unwrap_or_default();
        let texts = self.texts();
        let all: Vec<String> = texts.values().flatten().map(|text| slug(text)).collect();
        let topic = self.topic();
        let mut candidates = Vec::new();
        if key == USES || key == USES_NOT {
            let names = [section, &slug(self.provider.as_deref().unwrap_or_default())];
            for name in names.into_iter().filter(|name| !name.is_empty()) {
                candidates.push(match key == USES {
                    true => join(&[name, USES]),
                    false => join(&[USES_NOT, name]),
                });
            }
        }
        let singles = texts.values().filter(|texts| texts.len() == 1);
        let singles: Vec<String> = singles.flatten().map(|text| slug(text)).collect();
        let is_single = texts.values().all(|texts| texts.len() == 1) && self.conditions.is_object();
        if all.is_empty() {
            let base = if section.is_empty() {
                "all-pools"
            } else {
                section
            };
            if !has_one_key {
                candidates.push(base.to_owned());
            }
            candidates.push(join(&[base, &key]));
            candidates.push(join(&[base, &topic]));
        } else if is_single || !singles.is_empty() {
            let place = join(if is_single { &all } else { &singles });
            if is_single && !has_one_key {
                candidates.push(join(&[section, &place]));
            }
            candidates.push(join(&[section, &place, &key]));
            candidates.push(join(&[&place, &key]));
            candidates.push(join(&[section, &place, &topic]));
            candidates.push(join(&[&place, &topic]));
        }
        candidates.extend(self.candidates_by_topic(&keys, &all));
        candidates
    }

    fn candidates_by_topic(&self, keys: &[String], all: &[String]) -> Vec<String> {
        let (section, topic) = (self.section.unwrap_or_default(), self.topic());
        let key = keys.first().cloned().unwrap_or_default();
        let (common, first) = (common(all), all.first().cloned().unwrap_or_default());
        let is_clear = topic != key || keys.len() > 1;
        let mut candidates = Vec::new();
        if is_clear && !TOO_SHORT.contains(&topic.as_str()) {
            candidates.push(join(&[section, &topic]));
        }
        candidates.push(join(&[section, &common, &topic]));
        candidates.push(join(&[section, &first, &topic]));
        for n_keys in 2..=keys.len().min(MAX_KEYS) {
            let keys = join(&keys[..n_keys]);
            candidates.push(join(&[section, &keys]));
            candidates.push(join(&[section, &first, &keys]));
        }
        for count in 2..=all.len().min(MAX_TEXTS) {
            let texts = join(&all[..count]);
            candidates.push(join(&[section, &texts, &key]));
            candidates.push(join(&[&texts, &topic]));
        }
        candidates
    }

    /// The texts of its conditions by name, without the provider.
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
            for text in several.iter().filter_map(Value::as_str) {
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
        for (pointer, value) in &self.leaves {
            let key = key_of(pointer, value);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The key and the value of the first value that can be said, or the key of the first value.
    fn topic(&self) -> String {
        let has_words = |value: &Value| {
            let said = said(value);
            (value.is_string() || value.is_array()) && !said.is_empty()
        };
        let telling = self.leaves.iter().find(|(_, value)| has_words(value));
        let Some((pointer, value)) = telling.or(self.leaves.first()) else {
            return String::new();
        };
        join(&[kebab(&key_of(pointer, value)), said(value)])
    }

    /// Whether it sets one value under few conditions, so that the next lines say everything.
    fn is_obvious(&self) -> bool {
        let has_few = |texts: &Vec<String>| texts.len() <= MAX_KEYS;
        self.keys().len() == 1 && self.texts().values().all(has_few)
    }

    /// A sentence: the keys that the rule sets, and its pools and places unless the id has them.
    fn description(&self, id: &str) -> String {
        let keys = self.keys();
        let scope = self.scope();
        let provider = self.provider.as_deref().unwrap_or_default();
        if let [key] = keys.as_slice() {
            let pools = || {
                let texts = self.texts();
                list(texts.values().flatten(), MAX_KEYS)
            };
            match key.as_str() {
                USES => return format!("Worker types that use {provider}: {}", pools()),
                USES_NOT => return format!("Worker types that do not use {provider}: {}", pools()),
                _other => {}
            }
        }
        let keys = keys.iter().map(|key| match key.as_str() {
            USES | USES_NOT => "providers".to_owned(),
            key => kebab(key).replace('-', " "),
        });
        let keys: Vec<String> = keys.collect();
        let what = match keys.len() {
            0..=MAX_KEYS => list(&keys, MAX_KEYS),
            _ => list(&keys, MAX_KEYS - 1),
        };
        let known = words(id);
        let is_known = |word: &String| known.contains(word) || FILL_WORDS.contains(&word.as_str());
        let scope = match words(&scope).iter().all(is_known) {
            true => String::new(),
            false => format!(" {scope}"),
        };
        let mut characters = what.chars();
        let first = characters.next().map(|first| first.to_uppercase());
        let first = first.map(|first| first.to_string()).unwrap_or_default();
        format!("{first}{}{scope}", characters.as_str())
    }

    fn scope(&self) -> String {
        let texts = self.texts();
        let parts = texts.iter().map(|(name, texts)| {
            let texts = list(texts, MAX_KEYS);
            match name.as_str() {
                "workerType" => format!("for {texts}"),
                "machine" => format!("on {texts}"),
                "variant" => format!("for variant {texts}"),
                _place => format!("in {texts}"),
            }
        });
        let parts: Vec<_> = parts.collect();
        match (parts.is_empty(), self.section) {
            (false, _) => parts.join(" "),
            (true, Some(section)) if self.is_of_launch_configs => {
                format!("for all {section} launch configs")
            }
            (true, _) => "for all pools".to_owned(),
        }
    }
}

/// The words at the beginning of all, if they say something.
fn common(all: &[String]) -> String {
    let start = common_start(all);
    match USUAL_WORDS.contains(&start.as_str()) {
        true => String::new(),
        false => start,
    }
}

/// Ids that say too little.
const TOO_SHORT: [&str; 3] = ["places", USES, USES_NOT];

/// The provider whose options have this pointer.
fn provider_of(pointer: &str) -> Option<String> {
    let rest = pointer.strip_prefix("/providers/")?;
    let name = rest.split('/').next()?;
    Some(name.replace("~1", "/").replace("~0", "~"))
}

fn key_of(pointer: &str, value: &Value) -> String {
    if let Some(option) = pointer.strip_prefix("/providers/") {
        let option = option.split_once('/').map(|(_, option)| option);
        match option {
            None if value.is_null() => return USES_NOT.to_owned(),
            None | Some("exact" | "section") => return USES.to_owned(),
            Some(_) => {}
        }
    }
    let mut names = pointer.rsplit('/').filter(|name| {
        let is_step =
            name.starts_with('[') || *name == "-" || name.bytes().all(|byte| byte.is_ascii_digit());
        !is_step && !TELL_NOTHING.contains(name)
    });
    names.next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sections() -> Sections {
        [("g", "google"), ("big-cloud", "big-cloud")]
            .map(|(provider, section)| (provider.to_owned(), section.to_owned()))
            .into()
    }

    fn named(conditions: Value, values: Value) -> (String, String) {
        let mut rules = [json!({"conditions": conditions, "values": values})];
        name_all(&mut rules, &sections());
        let text = |key: &str| rules[0][key].as_str().unwrap_or_default().to_owned();
        (text("ruleId"), text("description"))
    }

    #[test]
    fn an_id_says_what_a_rule_is_about_and_a_description_says_more() {
        let table = [
            (json!(null), json!({"owner": "o"}), "all-pools-owner", ""),
            (
                json!({"provider": "g"}),
                json!({"google": {"a": 1, "b": 2}}),
                "google",
                "A and b",
            ),
            (
                json!({"region": "us-east1"}),
                json!({"google": {"disk": {"value": 1}}}),
                "google-us-east1-disk",
                "",
            ),
            (
                json!({"workerType": "proj-x/*"}),
                json!({"maxCapacity": 5}),
                "proj-x-max-capacity",
                "",
            ),
            (
                json!({"workerType": ["a/b", "c/d"]}),
                json!({"maxCapacity": 5}),
                "max-capacity-5",
                "",
            ),
            (
                json!({"workerType": ["a/b", "c/d", "e/f", "g/h"]}),
                json!({"maxCapacity": 5, "emailOnError": true}),
                "email-on-error",
                "Email on error and max capacity for a/b, c/d, e/f and 1 more",
            ),
            (
                json!({"workerType": ["a/b", "c/d", "e", "f", "g"], "region": "r"}),
                json!({"google": {"run": "C:\\Windows\\calc.exe"}}),
                "google-r-run",
                "Run in r for a/b, c/d, e and 2 more",
            ),
            (
                json!({"workerType": ["a/b", "c/d", "e", "f"]}),
                json!({"providers": {"g": {"exact": true, "section": "google"}}}),
                "google-pools",
                "Worker types that use g: a/b, c/d, e and 1 more",
            ),
            (
                json!({"workerType": ["a/b", "c/d", "e", "f"]}),
                json!({"providers": {"g": null}}),
                "no-google",
                "Worker types that do not use g: a/b, c/d, e and 1 more",
            ),
            (
                json!({"workerType": ["a/b", "c/d", "e", "f"]}),
                json!({"providers": {"g": {"places": [{"machine": ["n2", "n4"]}]}}}),
                "google-places-n2",
                "Places for a/b, c/d, e and 1 more",
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
    fn a_changed_element_is_named_by_its_key() {
        let mut rules = [json!({"conditions": {"workerType": "p/ci"}, "values": {},
            "elements": {"/providers/g/places/[machine=n2]/machine": "n4"}})];
        name_all(&mut rules, &sections());
        assert_eq!(rules[0]["ruleId"], "google-p-ci-machine");
    }

    #[test]
    fn ids_are_unique_without_numbers() {
        let rule = |number: usize| {
            let types = json!([format!("proj/{}", "x".repeat(number * 3)), "b"]);
            json!({"conditions": {"workerType": types}, "values": {"list": [number]}})
        };
        let mut rules: Vec<Value> = (0..40).map(rule).collect();
        name_all(&mut rules, &sections());
        let ids: BTreeSet<&str> = rules
            .iter()
            .filter_map(|rule| rule["ruleId"].as_str())
            .collect();
        assert_eq!(ids.len(), rules.len());
        for id in ids {
            assert!(id.len() <= MAX_ID, "{id}");
            assert!(
                id.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
                "{id}"
            );
        }
    }
}
