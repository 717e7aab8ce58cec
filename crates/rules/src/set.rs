//! A rule set: rules in the order of evaluation. Immutable and cheap to clone.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::limits::{MAX_GLOBS_OF_SET, MAX_RULES};
use crate::problem::{Problems, kind};
use crate::rule::Rule;
use crate::sets::Sets;
use crate::size::Size;

/// Rules in their order, with the sets that their conditions name.
#[derive(Clone)]
pub struct RuleSet {
    rules: Arc<[Rule]>,
    sets: Sets,
}

impl RuleSet {
    /// Reads a list of rules, or returns all its problems, with JSON pointers from the list.
    pub fn parse(rules: &Value) -> Result<Self, Problems> {
        Self::parse_with(rules, Sets::default())
    }

    /// Reads a list of rules whose conditions may name these sets.
    pub fn parse_with(rules: &Value, sets: Sets) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let Value::Array(list) = rules else {
            problems.push("", None, format!("rules are a list, found {}", kind(rules)));
            return Err(problems);
        };
        if list.len() > MAX_RULES {
            problems.push("", None, too_many(list.len()));
            return Err(problems);
        }
        let mut parsed = Vec::with_capacity(list.len());
        let mut size = Size::of_sets(&sets);
        let mut globs_left = MAX_GLOBS_OF_SET + 1;
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (index, value) in list.iter().enumerate() {
            let path = format!("/{index}");
            let rule = Rule::parse_at(value, path, &mut globs_left, &mut problems);
            size += rule.as_ref().map(Rule::size).unwrap_or_default();
            if let Some(excess) = size.excess() {
                problems.push("", None, excess);
            }
            if globs_left == 0 || size.excess().is_some() {
                break;
            }
            parsed.extend(rule);
            // Checked here rather than in `from_rules`, so that duplicates are reported also in
            // sets with other problems.
            let Some(rule_id) = value.get("ruleId").and_then(Value::as_str) else {
                continue;
            };
            let earlier = *first.entry(rule_id).or_insert(index);
            if earlier != index {
                let message = duplicate(earlier);
                problems.push(&format!("/{index}/ruleId"), Some(rule_id), message);
            }
        }
        problems.into_result()?;
        Self::with_sets(parsed, sets)
    }

    /// Makes a set of rules. Fails if two rules have the same id, or the set is too large.
    pub fn from_rules(rules: Vec<Rule>) -> Result<Self, Problems> {
        Self::with_sets(rules, Sets::default())
    }

    /// Makes a set of rules whose conditions name these sets. Fails if two rules have the same id,
    /// a set is missing, or the set is too large.
    pub fn with_sets(rules: Vec<Rule>, sets: Sets) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if rules.len() > MAX_RULES {
            problems.push("", None, too_many(rules.len()));
        }
        let mut size = Size::of_sets(&sets);
        rules.iter().for_each(|rule| size += rule.size());
        if let Some(excess) = size.excess() {
            problems.push("", None, excess);
        }
        let mut first: HashMap<&str, usize> = HashMap::with_capacity(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            let earlier = *first.entry(rule.id()).or_insert(index);
            if earlier != index {
                let message = duplicate(earlier);
                problems.push(&format!("/{index}/ruleId"), Some(rule.id()), message);
            }
        }
        let linked = rules.iter().enumerate();
        let linked = linked
            .map(|(index, rule)| rule.linked(&sets, index, &mut problems))
            .collect();
        problems.into_result()?;
        Ok(Self {
            rules: linked,
            sets,
        })
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The sets that conditions can name.
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// The rule with this id.
    pub fn get(&self, id: &str) -> Option<&Rule> {
        self.rules().iter().find(|rule| rule.id() == id)
    }

    /// The list of rules as JSON. Parsing it with the same sets gives an equal set.
    pub fn to_value(&self) -> Value {
        self.rules().iter().map(Rule::to_value).collect()
    }
}

fn too_many(rules: usize) -> String {
    format!("a set has at most {MAX_RULES} rules, this one has {rules}")
}

fn duplicate(earlier: usize) -> String {
    format!("the rule at /{earlier} has the same ruleId: each must be unique in the set")
}

impl PartialEq for RuleSet {
    fn eq(&self, other: &Self) -> bool {
        self.sets == other.sets
            && (Arc::ptr_eq(&self.rules, &other.rules) || self.rules() == other.rules())
    }
}

impl Default for RuleSet {
    /// No rules; every evaluation gives an empty object.
    fn default() -> Self {
        Self::from_rules(Vec::new()).expect("an empty set is valid")
    }
}

impl Serialize for RuleSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rules())
    }
}

impl fmt::Debug for RuleSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.rules()).finish()
    }
}
