//! Named sets: lists of globs that conditions refer to by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::limits::{MAX_GLOBS_OF_SET, MAX_NAME_CHARS, MAX_PATTERNS_OF_NAMED_SET, MAX_SETS};
use crate::pattern::{Pattern, counted};
use crate::problem::{Place, Problems, kind, push_token};

/// All sets of a document, by name. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets(Arc<BTreeMap<String, NamedSet>>);

/// The patterns of one set. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSet(Arc<[Pattern]>);

impl Sets {
    /// Reads a mapping from names to lists of patterns; `null` is none. Or returns all problems,
    /// with JSON pointers from the mapping.
    pub fn parse(sets: &Value) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut globs_left = MAX_GLOBS_OF_SET + 1;
        let parsed = match sets {
            Value::Null => BTreeMap::new(),
            Value::Object(object) if object.len() > MAX_SETS => {
                let count = object.len();
                let text = format!("a document has at most {MAX_SETS} sets, this one has {count}");
                problems.push("", None, text);
                BTreeMap::new()
            }
            Value::Object(object) => {
                let mut parsed = BTreeMap::new();
                for (name, value) in object {
                    let mut path = String::new();
                    push_token(&mut path, name);
                    let mut place = Place {
                        path,
                        rule_id: None,
                        globs_left: &mut globs_left,
                        problems: &mut problems,
                    };
                    check_name(name, &mut place);
                    if let Some(set) = NamedSet::parse(value, &mut place) {
                        parsed.insert(name.clone(), set);
                    }
                }
                parsed
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let found = kind(sets);
                let text =
                    format!("sets are a mapping from names to lists of texts, found {found}");
                problems.push("", None, text);
                BTreeMap::new()
            }
        };
        problems.into_result()?;
        Ok(Self(Arc::new(parsed)))
    }

    /// The set with this name.
    pub fn get(&self, name: &str) -> Option<&NamedSet> {
        self.0.get(name)
    }

    /// All names with their sets, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &NamedSet)> {
        self.0.iter().map(|(name, set)| (name.as_str(), set))
    }

    /// Whether the document has no sets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sets as JSON. Parsing it gives equal sets.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("sets are texts")
    }
}

impl NamedSet {
    /// Its patterns, in their order.
    pub fn patterns(&self) -> &[Pattern] {
        &self.0
    }

    /// Whether one of its patterns matches.
    pub fn matches(&self, value: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(value))
    }

    fn parse(value: &Value, place: &mut Place<'_>) -> Option<Self> {
        let Value::Array(list) = value else {
            place.problem(format!("a set is a list of texts, found {}", kind(value)));
            return None;
        };
        if list.len() > MAX_PATTERNS_OF_NAMED_SET {
            place.problem(format!(
                "a set has at most {MAX_PATTERNS_OF_NAMED_SET} patterns, this one has {}",
                list.len()
            ));
            return None;
        }
        let parsed: Vec<Option<Pattern>> = list
            .iter()
            .enumerate()
            .map(|(index, item)| {
                place.within(&index.to_string(), |place| match item {
                    Value::String(text) => counted(text, place),
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => {
                        place.problem(format!("expected a text, found {}", kind(item)));
                        None
                    }
                })
            })
            .collect();
        let all: Option<Vec<Pattern>> = parsed.into_iter().collect();
        all.map(|patterns| Self(patterns.into()))
    }
}

impl Serialize for Sets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl Serialize for NamedSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.patterns())
    }
}

fn check_name(name: &str, place: &mut Place<'_>) {
    let length = name.chars().count();
    if length == 0 || length > MAX_NAME_CHARS {
        place.problem(format!(
            "the name of a set has 1 to {MAX_NAME_CHARS} characters, this one has {length}"
        ));
    }
}
