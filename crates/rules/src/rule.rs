//! A rule: its id, its description, its conditions and the values that it assigns.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::conditions::Conditions;
use crate::limits::{
    MAX_DESCRIPTION_CHARS, MAX_GLOBS_OF_SET, MAX_RULE_ID_CHARS, MAX_VALUE_DEPTH, MAX_VALUES,
};
use crate::problem::{Place, Problems, did_you_mean, kind};
use crate::size::Size;

const KEYS: [&str; 4] = ["ruleId", "description", "conditions", "values"];

/// A rule. Cheap to clone.
#[derive(Clone)]
pub struct Rule(Arc<RuleContent>);

/// Serialized in the order in which people read it.
#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleContent {
    rule_id: String,
    description: String,
    conditions: Conditions,
    values: Map<String, Value>,
    #[serde(skip)]
    size: Size,
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
            || (self.id() == other.id() && self.values() == other.values())
    }

    /// Whether both rules also have the same conditions.
    pub(crate) fn acts_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.assigns_as(other) && self.conditions() == other.conditions())
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
        let values = parse_values(rule.get("values"), &mut place);
        let any_problem = problems.len() > before;
        let parts = RuleContent {
            rule_id: rule_id?.to_owned(),
            description: description?.to_owned(),
            conditions: conditions?,
            values: values?,
            size: Size::default(),
        };
        (!any_problem).then(|| parts.measured())
    }
}

impl RuleContent {
    fn measured(mut self) -> Rule {
        let json = serde_json::to_vec(&self).expect("a rule has text keys and finite numbers");
        self.size = Size::new(json.len(), &self.conditions);
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
        let mut nodes = 0;
        if !is_shallow(value, MAX_VALUE_DEPTH, &mut nodes) {
            place.problem(format!(
                "values are nested deeper than {MAX_VALUE_DEPTH} objects and lists"
            ));
            return None;
        }
        if nodes > MAX_VALUES {
            place.problem(format!(
                "a rule has at most {MAX_VALUES} values in all depths, this one has {nodes}"
            ));
            return None;
        }
        let mut values = values.clone();
        values.sort_keys();
        values.values_mut().for_each(Value::sort_all_objects);
        Some(values)
    })
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
