//! A rule: its id, its description, its conditions and the values that it assigns.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::conditions::Conditions;
use crate::elements::{ElementChange, Elements};
use crate::limits::{
    MAX_DESCRIPTION_CHARS, MAX_GLOBS_OF_SET, MAX_RULE_ID_CHARS, MAX_VALUE_DEPTH, MAX_VALUES,
};
use crate::problem::{Place, Problems, did_you_mean, kind, push_token};
use crate::references::{Part, marked_object, parts, visit_templates};
use crate::sets::Sets;
use crate::size::Size;

const KEYS: [&str; 6] = [
    "ruleId",
    "description",
    "conditions",
    "references",
    "values",
    "elements",
];

/// A rule. Cheap to clone.
#[derive(Clone)]
pub struct Rule(Arc<RuleContent>);

/// Serialized in the order in which people read it.
#[derive(Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleContent {
    rule_id: String,
    description: String,
    conditions: Conditions,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    references: bool,
    values: Map<String, Value>,
    #[serde(skip_serializing_if = "Elements::is_empty")]
    elements: Elements,
    #[serde(skip)]
    size: Size,
    /// The values with marked texts, if there are any.
    #[serde(skip)]
    marked: Option<Map<String, Value>>,
    /// The conditions whose values are in its texts.
    #[serde(skip)]
    names: BTreeSet<String>,
}

impl Rule {
    /// Reads a rule: `{"ruleId": …, "description": …, "conditions": …, "values": …}`. Or returns
    /// all its problems, with JSON pointers from the rule.
    pub fn parse(rule: &Value) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut globs_left = MAX_GLOBS_OF_SET + 1;
        let parsed = Self::parse_at(rule, String::new(), &mut globs_left, &mut problems);
        problems.into_result()?;
        Ok(parsed.expect("a rule without problems was parsed"))
    }

    /// The name of the rule in its set.
    pub fn id(&self) -> &str {
        &self.0.rule_id
    }

    /// The purpose of the rule, in a sentence; may be empty.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// The conditions under which it applies.
    pub fn conditions(&self) -> &Conditions {
        &self.0.conditions
    }

    /// The values that it assigns.
    pub fn values(&self) -> &Map<String, Value> {
        &self.0.values
    }

    /// Whether `${…}` in its texts refers to a condition or to another value.
    pub fn has_references(&self) -> bool {
        self.0.references
    }

    /// The elements of lists that it changes.
    pub fn elements(&self) -> &Elements {
        &self.0.elements
    }

    /// The values with marked texts: see the module `references`.
    pub(crate) fn marked_values(&self) -> &Map<String, Value> {
        self.0.marked.as_ref().unwrap_or(&self.0.values)
    }

    /// Whether any text has a reference or an escaped one.
    pub(crate) fn has_templates(&self) -> bool {
        let mut found = false;
        let values = self.marked_values().values();
        let elements = self.elements().changes().iter().map(ElementChange::value);
        for value in values.chain(elements) {
            visit_templates(value, &mut |_| found = true);
        }
        found
    }

    /// Whether its values alone are not what it assigns.
    pub(crate) fn is_extended(&self) -> bool {
        self.0.marked.is_some() || !self.0.elements.is_empty()
    }

    /// The conditions whose values are in its texts.
    pub fn referenced_names(&self) -> impl Iterator<Item = &str> {
        self.0.names.iter().map(String::as_str)
    }

    /// The rule at this index with the sets that its conditions name. Missing ones are problems.
    pub(crate) fn linked(&self, sets: &Sets, index: usize, problems: &mut Problems) -> Self {
        let names = self.0.conditions.set_names();
        if names.is_empty() {
            return self.clone();
        }
        for (tokens, name) in names {
            if sets.get(name).is_none() {
                let mut path = format!("/{index}/conditions");
                tokens.iter().for_each(|token| push_token(&mut path, token));
                let hint = did_you_mean(name, sets.iter().map(|(name, _)| name));
                let text = format!("no set has the name {name:?}{hint}");
                problems.push(&path, Some(self.id()), text);
            }
        }
        let conditions = self.0.conditions.linked(sets);
        if self.0.conditions.has_sets_of(&conditions) {
            return self.clone();
        }
        Self(Arc::new(RuleContent {
            conditions,
            ..self.0.as_ref().clone()
        }))
    }

    /// The rule as JSON. Parsing it gives an equal rule.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(&*self.0).expect("a rule has text keys and finite numbers")
    }

    pub(crate) fn size(&self) -> Size {
        self.0.size
    }

    /// Whether both rules have the same id and assign the same values.
    pub(crate) fn assigns_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.id() == other.id()
                && self.has_references() == other.has_references()
                && self.values() == other.values()
                && self.elements() == other.elements())
    }

    /// Whether both rules also have the same conditions.
    pub(crate) fn acts_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.assigns_as(other)
                && self.conditions() == other.conditions()
                && self.conditions().has_sets_of(other.conditions()))
    }

    pub(crate) fn parse_at(
        rule: &Value,
        path: String,
        globs_left: &mut usize,
        problems: &mut Problems,
    ) -> Option<Self> {
        let before = problems.len();
        let mut place = Place {
            path,
            rule_id: None,
            globs_left,
            problems,
        };
        let Value::Object(rule) = rule else {
            place.problem(format!("a rule is a mapping, found {}", kind(rule)));
            return None;
        };
        let rule_id = parse_id(rule.get("ruleId"), &mut place);
        place.rule_id = rule_id;
        for key in rule.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            place.problem(format!(
                "unknown key {key:?}, a rule has {}{}",
                KEYS.join(", "),
                did_you_mean(key, KEYS),
            ));
        }
        let description = place.within("description", |place| {
            parse_description(rule.get("description"), place)
        });
        let conditions = place.within("conditions", |place| {
            Conditions::parse(rule.get("conditions").unwrap_or(&Value::Null), place)
        });
        let references = place.within("references", |place| {
            parse_references(rule.get("references"), place)
        });
        let values = parse_values(rule.get("values"), &mut place);
        let elements = place.within("elements", |place| {
            let value = rule.get("elements");
            is_within_limits(value.unwrap_or(&Value::Null), "elements", place)
                .then(|| Elements::parse(value, references.unwrap_or_default(), place))
                .flatten()
        });
        let any_problem = place.problems.len() > before;
        let parts = RuleContent {
            rule_id: rule_id?.to_owned(),
            description: description?.to_owned(),
            conditions: conditions?,
            references: references?,
            values: values?,
            elements: elements?,
            size: Size::default(),
            marked: None,
            names: BTreeSet::new(),
        };
        if any_problem {
            return None;
        }
        let parts = parts.with_marks().map_err(|problem| place.problem(problem));
        parts.ok().map(RuleContent::measured)
    }
}

impl RuleContent {
    /// Marks texts, and checks the references in them.
    fn with_marks(mut self) -> Result<Self, String> {
        self.marked = marked_object(&self.values, self.references);
        let mut templates = Vec::new();
        let values = self.marked.iter().flat_map(Map::values);
        let elements = self.elements.changes().iter().map(ElementChange::value);
        for value in values.chain(elements) {
            visit_templates(value, &mut |template| templates.push(template));
        }
        for template in templates {
            let parts = parts(template)
                .map_err(|problem| format!("the text {template:?} is no template: {problem}"))?;
            self.names
                .extend(parts.into_iter().filter_map(|part| match part {
                    Part::Condition(name) => Some(name.to_owned()),
                    Part::Text(_) | Part::Pointer(_) => None,
                }));
        }
        Ok(self)
    }

    fn measured(mut self) -> Rule {
        let json = serde_json::to_vec(&self).expect("a rule has text keys and finite numbers");
        self.size = Size::new(json.len(), &self.conditions, self.elements.len());
        Rule(Arc::new(self))
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0 == *other.0
    }
}

impl Serialize for Rule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rule({})", self.to_value())
    }
}

fn parse_id<'a>(value: Option<&'a Value>, place: &mut Place<'_>) -> Option<&'a str> {
    let Some(value) = value else {
        place.problem("ruleId is missing: a text that identifies the rule in its set");
        return None;
    };
    place.within("ruleId", |place| {
        let Value::String(rule_id) = value else {
            place.problem(format!("a ruleId is a text, found {}", kind(value)));
            return None;
        };
        let length = rule_id.chars().count();
        if length == 0 || length > MAX_RULE_ID_CHARS {
            place.problem(format!(
                "a ruleId has 1 to {MAX_RULE_ID_CHARS} characters, this one has {length}"
            ));
            return None;
        }
        if let Some(control) = rule_id.chars().find(|character| character.is_control()) {
            place.problem(format!(
                "a ruleId has no control characters, this one has {control:?}"
            ));
            return None;
        }
        Some(rule_id.as_str())
    })
}

fn parse_description<'a>(value: Option<&'a Value>, place: &mut Place<'_>) -> Option<&'a str> {
    match value {
        None => Some(""),
        Some(Value::String(description)) => {
            let length = description.chars().count();
            if length <= MAX_DESCRIPTION_CHARS {
                return Some(description);
            }
            place.problem(format!(
                "a description has at most {MAX_DESCRIPTION_CHARS} characters, this one has {length}"
            ));
            None
        }
        Some(other) => {
            place.problem(format!("a description is a text, found {}", kind(other)));
            None
        }
    }
}

fn parse_values(value: Option<&Value>, place: &mut Place<'_>) -> Option<Map<String, Value>> {
    let Some(value) = value else {
        place.problem("values is missing: a mapping of the values that the rule assigns");
        return None;
    };
    place.within("values", |place| {
        let Value::Object(values) = value else {
            place.problem(format!("values are a mapping, found {}", kind(value)));
            return None;
        };
        if !is_within_limits(value, "values", place) {
            return None;
        }
        let mut values = values.clone();
        values.sort_keys();
        values.values_mut().for_each(Value::sort_all_objects);
        Some(values)
    })
}

fn parse_references(value: Option<&Value>, place: &mut Place<'_>) -> Option<bool> {
    match value {
        None => Some(false),
        Some(Value::Bool(references)) => Some(*references),
        Some(other) => {
            place.problem(format!(
                "references are true or false, found {}: `true` makes ${{…}} in the texts of the rule a reference",
                kind(other)
            ));
            None
        }
    }
}

fn is_within_limits(value: &Value, what: &str, place: &mut Place<'_>) -> bool {
    let mut nodes = 0;
    if !is_shallow(value, MAX_VALUE_DEPTH, &mut nodes) {
        place.problem(format!(
            "{what} are nested deeper than {MAX_VALUE_DEPTH} objects and lists"
        ));
        return false;
    }
    if nodes > MAX_VALUES {
        place.problem(format!(
            "a rule has at most {MAX_VALUES} values in all depths, this one has {nodes}"
        ));
        return false;
    }
    true
}

/// Counts the values inside, and returns whether they are within the depth.
fn is_shallow(value: &Value, depth: usize, nodes: &mut usize) -> bool {
    let mut within = |child: &Value| {
        *nodes += 1;
        is_shallow(child, depth.saturating_sub(1), nodes)
    };
    match value {
        Value::Object(object) => depth > 0 && object.values().all(&mut within),
        Value::Array(list) => depth > 0 && list.iter().all(&mut within),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
