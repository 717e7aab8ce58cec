//! Where each value of a result comes from: the rule that set it, and what it took the place of.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::problem::push_token;
use crate::rule::Rule;
use crate::trace::{self, Children, Did, Node, Now, Step};

/// A result, and where its values come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// The result.
    pub values: Map<String, Value>,
    /// The origin of every value in it.
    pub origins: Origins,
}

/// For every leaf of a result (texts, numbers, booleans, lists, empty objects), by its JSON pointer,
/// where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Origins(BTreeMap<String, Origin>);

/// Where one value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The rule that set it. Of an empty object, the last one that assigned an object there.
    pub rule_id: String,
    /// What earlier rules had done to it, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrode: Vec<Earlier>,
}

/// What a rule had done to a value (or to values within it) before another rule set the one that is there now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Earlier {
    /// The rule.
    pub rule_id: String,
    /// Whether it deleted what was there, rather than set something.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

impl Origins {
    /// The origin of the leaf at a JSON pointer.
    #[must_use]
    pub fn get(&self, pointer: &str) -> Option<&Origin> {
        self.0.get(pointer)
    }

    /// All of them, by pointer.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.0
            .iter()
            .map(|(pointer, origin)| (pointer.as_str(), origin))
    }

    /// How many leaves the result has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the result is an empty object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Evaluates, and says of every value where it comes from.
pub(crate) fn evaluate(rules: &[&Rule]) -> Evaluation {
    let root = trace::assign_all(rules);
    let mut collector = Collector {
        rules,
        pointer: String::new(),
        origins: BTreeMap::new(),
    };
    let values = collector.object(&root, &[]);
    Evaluation {
        values,
        origins: Origins(collector.origins),
    }
}

/// Walks over what is there in the end.
struct Collector<'a> {
    rules: &'a [&'a Rule],
    pointer: String,
    origins: BTreeMap<String, Origin>,
}

impl Collector<'_> {
    /// `above` are the steps that ended whatever was in this object at the time, oldest first.
    fn object(&mut self, children: &Children<'_>, above: &[Step]) -> Map<String, Value> {
        let mut object = Map::new();
        for (key, node) in children {
            let length = self.pointer.len();
            push_token(&mut self.pointer, key);
            let value = match node.now {
                Now::Nothing => None,
                Now::Leaf(value) => {
                    self.leaf(node, above);
                    Some(value.clone())
                }
                Now::Object => {
                    let within = self.object(&node.children, &node.ends(above));
                    if within.is_empty() {
                        self.leaf(node, above);
                    }
                    Some(Value::Object(within))
                }
            };
            self.pointer.truncate(length);
            object.extend(value.map(|value| ((*key).to_owned(), value)));
        }
        object
    }

    fn leaf(&mut self, node: &Node<'_>, above: &[Step]) {
        let mut steps = node.steps.clone();
        for child in node.children.values() {
            child.setters(&mut steps);
        }
        let first = steps.first().map_or(0, |step| step.rule);
        steps.extend(
            above
                .iter()
                .filter(|step| step.rule > first)
                .map(|step| Step {
                    rule: step.rule,
                    did: Did::Delete,
                }),
        );
        steps.sort_by_key(|step| step.rule);
        steps.dedup_by_key(|step| step.rule);
        // What was gone already was not deleted once more.
        let mut is_there = false;
        steps.retain(|step| {
            let counts = is_there || step.did != Did::Delete;
            is_there = step.did != Did::Delete;
            counts
        });
        let last = steps.pop().expect("somebody set what is there");
        let rule_id = |step: Step| self.rules[step.rule].id().to_owned();
        let earlier = |step: Step| Earlier {
            rule_id: rule_id(step),
            deleted: step.did == Did::Delete,
        };
        let origin = Origin {
            rule_id: rule_id(last),
            overrode: steps.into_iter().map(earlier).collect(),
        };
        self.origins.insert(self.pointer.clone(), origin);
    }
}
