//! The patterns of one condition: globs, named sets, and their negation.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use crate::limits::MAX_PATTERNS;
use crate::pattern::{Pattern, counted};
use crate::problem::{Place, kind};
use crate::sets::{NamedSet, Sets};

/// The patterns of one condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Patterns {
    /// A text or a named set.
    One(Alternative),
    /// A list of texts and named sets, of which one must match.
    AnyOf(Vec<Alternative>),
    /// `{not: …}`: none of these may match.
    Not(Negation),
}

/// Patterns of which none may match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negation {
    alternatives: Vec<Alternative>,
    /// Whether they are written as a list.
    is_list: bool,
}

/// A text, or the name of a set of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Alternative {
    /// A glob.
    Pattern(Pattern),
    /// `{set: NAME}`.
    Set(SetReference),
}

/// The name of a set, and its content once the rule is in a rule set.
#[derive(Clone, Debug)]
pub struct SetReference {
    name: String,
    content: Option<NamedSet>,
}

/// Whether sets match a value: each set is compared only once.
#[derive(Default)]
pub(crate) struct SetMatches(HashMap<String, bool>);

impl Patterns {
    /// Whether a value satisfies the condition.
    pub fn match_value(&self, value: &str) -> bool {
        let mut matches = self.as_slice().iter().map(|one| one.matches(value));
        matches.any(|one| one) != self.is_negated()
    }

    /// The same, with the known results of sets for this value.
    pub(crate) fn match_with(&self, value: &str, known: &mut SetMatches) -> bool {
        let mut matches = self.as_slice().iter().map(|one| match one {
            Alternative::Pattern(pattern) => pattern.matches(value),
            Alternative::Set(set) => known.matches(set, value),
        });
        matches.any(|one| one) != self.is_negated()
    }

    /// All alternatives, in the order of the document.
    pub fn as_slice(&self) -> &[Alternative] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::AnyOf(alternatives) => alternatives,
            Self::Not(negation) => &negation.alternatives,
        }
    }

    /// Whether none of the alternatives may match.
    pub fn is_negated(&self) -> bool {
        matches!(self, Self::Not(_))
    }

    /// The place of an alternative below its condition, as tokens of a JSON pointer.
    pub fn tokens(&self, index: usize) -> Vec<String> {
        let (is_list, is_negated) = match self {
            Self::One(_) => (false, false),
            Self::AnyOf(_) => (true, false),
            Self::Not(negation) => (negation.is_list, true),
        };
        let not = is_negated.then(|| "not".to_owned());
        let index = is_list.then(|| index.to_string());
        not.into_iter().chain(index).collect()
    }

    /// The names of its sets.
    pub fn set_names(&self) -> impl Iterator<Item = &str> {
        self.as_slice().iter().filter_map(|one| match one {
            Alternative::Pattern(_) => None,
            Alternative::Set(set) => Some(set.name()),
        })
    }

    /// The same with the sets that it names. Unknown ones match nothing.
    pub(crate) fn linked(&self, sets: &Sets) -> Self {
        let linked = |alternatives: &[Alternative]| -> Vec<Alternative> {
            alternatives.iter().map(|one| one.linked(sets)).collect()
        };
        match self {
            Self::One(one) => Self::One(one.linked(sets)),
            Self::AnyOf(alternatives) => Self::AnyOf(linked(alternatives)),
            Self::Not(negation) => Self::Not(Negation {
                alternatives: linked(&negation.alternatives),
                is_list: negation.is_list,
            }),
        }
    }

    /// Whether both have the same sets, if they name the same ones.
    pub(crate) fn has_sets_of(&self, other: &Self) -> bool {
        let contents = |of: &Self| -> Vec<Option<NamedSet>> {
            let sets = of.as_slice().iter().filter_map(|one| match one {
                Alternative::Pattern(_) => None,
                Alternative::Set(set) => Some(set.content.clone()),
            });
            sets.collect()
        };
        contents(self) == contents(other)
    }

    pub(crate) fn parse(value: &Value, place: &mut Place<'_>) -> Option<Self> {
        if let Value::Object(object) = value
            && let Some(inner) = object.get("not")
        {
            refuse_others(object, "not", place)?;
            return place.within("not", |place| {
                let alternatives = match parse_positive(inner, place)? {
                    Self::One(one) => (vec![one], false),
                    Self::AnyOf(several) => (several, true),
                    Self::Not(negation) => (negation.alternatives, negation.is_list),
                };
                let (alternatives, is_list) = alternatives;
                Some(Self::Not(Negation {
                    alternatives,
                    is_list,
                }))
            });
        }
        parse_positive(value, place)
    }
}

fn parse_positive(value: &Value, place: &mut Place<'_>) -> Option<Patterns> {
    match value {
        Value::String(_) | Value::Object(_) => Alternative::parse(value, place).map(Patterns::One),
        Value::Array(list) if list.len() > MAX_PATTERNS => {
            place.problem(format!(
                "a condition has at most {MAX_PATTERNS} patterns, this one has {}",
                list.len()
            ));
            None
        }
        Value::Array(list) => {
            let parsed: Vec<Option<Alternative>> = list
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    place.within(&index.to_string(), |place| Alternative::parse(item, place))
                })
                .collect();
            let all: Option<Vec<Alternative>> = parsed.into_iter().collect();
            all.map(Patterns::AnyOf)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            place.problem(format!(
                "expected a text or a list of texts, found {}",
                kind(value)
            ));
            None
        }
    }
}

/// `None` if it has other keys.
fn refuse_others(object: &Map<String, Value>, key: &str, place: &mut Place<'_>) -> Option<()> {
    if object.len() == 1 {
        return Some(());
    }
    place.problem(format!("beside {key:?}, a condition has no other key"));
    None
}

impl Alternative {
    /// Whether it matches the value.
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Self::Pattern(pattern) => pattern.matches(value),
            Self::Set(set) => set.matches(value),
        }
    }

    /// Its pattern, or those of the set.
    pub(crate) fn patterns(&self) -> &[Pattern] {
        match self {
            Self::Pattern(pattern) => std::slice::from_ref(pattern),
            Self::Set(set) => set.content.as_ref().map_or(&[], NamedSet::patterns),
        }
    }

    /// Its pattern, unless it is a set.
    pub fn as_pattern(&self) -> Option<&Pattern> {
        match self {
            Self::Pattern(pattern) => Some(pattern),
            Self::Set(_) => None,
        }
    }

    fn linked(&self, sets: &Sets) -> Self {
        match self {
            Self::Pattern(pattern) => Self::Pattern(pattern.clone()),
            Self::Set(set) => Self::Set(SetReference {
                name: set.name.clone(),
                content: sets.get(&set.name).cloned(),
            }),
        }
    }

    fn parse(value: &Value, place: &mut Place<'_>) -> Option<Self> {
        match value {
            Value::String(text) => counted(text, place).map(Self::Pattern),
            Value::Object(object) => match object.get("set") {
                Some(Value::String(name)) if object.len() == 1 => Some(Self::Set(SetReference {
                    name: name.clone(),
                    content: None,
                })),
                Some(_) | None => {
                    place.problem(
                        "expected a text, {set: NAME}, or {not: …} for the complete condition; found another mapping",
                    );
                    None
                }
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                place.problem(format!("expected a text, found {}", kind(value)));
                None
            }
        }
    }
}

impl SetReference {
    /// The name of the set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a pattern of the set matches. A rule that is in no rule set has no sets, and then
    /// none does.
    pub fn matches(&self, value: &str) -> bool {
        self.content
            .as_ref()
            .is_some_and(|content| content.matches(value))
    }
}

impl SetMatches {
    fn matches(&mut self, set: &SetReference, value: &str) -> bool {
        if let Some(known) = self.0.get(&set.name) {
            return *known;
        }
        let matches = set.matches(value);
        self.0.insert(set.name.clone(), matches);
        matches
    }
}

impl PartialEq for SetReference {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SetReference {}

impl Serialize for SetReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("set", &self.name)?;
        map.end()
    }
}

impl Serialize for Negation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.alternatives.as_slice() {
            [one] if !self.is_list => map.serialize_entry("not", one)?,
            several => map.serialize_entry("not", several)?,
        }
        map.end()
    }
}
