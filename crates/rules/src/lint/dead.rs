//! Finds values without effect: later rules override or delete them wherever the rule applies.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Finding;
use crate::elements::ElementChange;
use crate::problem::push_token;
use crate::rule::Rule;
use crate::set::RuleSet;
use crate::trace::{self, Children, NodeState, StepKind, TraceStep};

/// `groups` has the indices of the applying rules of each evaluation.
pub(super) fn find(set: &RuleSet, groups: &[Vec<usize>], findings: &mut Vec<(usize, Finding)>) {
    let rules = set.rules();
    let mut leaves: Vec<Vec<Leaf<'_>>> = rules.iter().map(leaves_of).collect();
    let mut applied: BTreeSet<usize> = BTreeSet::new();
    for group in groups {
        applied.extend(group);
        let is_undecided = |rule: &&usize| leaves[**rule].iter().any(|leaf| !leaf.has_effect);
        // Nearly all values have an effect in the first evaluation, so only few groups are
        // evaluated.
        if !group.iter().any(|rule| is_undecided(&rule)) {
            continue;
        }
        let applying: Vec<&Rule> = group.iter().map(|rule| &rules[*rule]).collect();
        let (root, _) = trace::assign_all(&applying);
        for (place, rule) in group.iter().enumerate() {
            for leaf in leaves[*rule].iter_mut().filter(|leaf| !leaf.has_effect) {
                leaf.record_effect(&root, place, group);
            }
        }
    }
    for rule in applied {
        let id = |rule: &usize| rules[*rule].id().to_owned();
        let found = findings_of(&leaves[rule], &id(&rule), id);
        findings.extend(found.into_iter().map(|finding| (rule, finding)));
    }
}

/// A value that a rule assigns, and what is known about its effect.
struct Leaf<'a> {
    path: Vec<&'a str>,
    value: &'a Value,
    /// The change of an element with its number in the rule; its path ends at the list.
    change: Option<(usize, &'a ElementChange)>,
    /// Whether it had an effect in at least one evaluation.
    has_effect: bool,
    /// Whether this `null` deleted something.
    deleted: bool,
    /// The later rules that overrode or deleted it.
    by: BTreeSet<usize>,
}

impl Leaf<'_> {
    /// Records its effect in one evaluation.
    fn record_effect(&mut self, root: &Children<'_>, place: usize, group: &[usize]) {
        let mut children = root;
        let Some((last, above)) = self.path.split_last() else {
            return;
        };
        // Steps are sorted by rule. Only the first rule that ended the value is reported.
        let mut first: Option<usize> = None;
        let mut note = |steps: &[TraceStep], ends: fn(StepKind) -> bool| {
            let later = steps.partition_point(|step| step.rule <= place);
            let ending = steps[later..].iter().find(|step| ends(step.did));
            let rules = first.into_iter().chain(ending.map(|step| step.rule));
            first = rules.min();
        };
        for token in above {
            let Some(node) = children.get(token) else {
                return;
            };
            note(&node.steps, |did| did != StepKind::AssignObject);
            children = &node.children;
        }
        let Some(node) = children.get(last) else {
            return; // A `null` at a place that no rule set.
        };
        if let Some((number, _)) = self.change {
            let mut changes = node.changes().iter();
            let made = changes.find(|change| change.rule == place && change.number == number);
            self.deleted |= made.is_some();
            self.has_effect |= match made {
                None => !self.value.is_null(),
                Some(made) => {
                    let is_last = made.n_steps == node.steps.len();
                    is_last && node.is_leaf()
                }
            };
            note(&node.steps, |_| true);
            self.by.extend(first.map(|rule| group[rule]));
            return;
        }
        note(&node.steps, |_| true);
        self.by.extend(first.map(|rule| group[rule]));
        let is_leaf = node.is_leaf();
        let own = node
            .steps
            .binary_search_by_key(&place, |step| step.rule)
            .ok();
        let next = own.and_then(|own| node.steps.get(own + 1));
        self.has_effect |= match self.value {
            Value::Null => {
                self.deleted |= own.is_some();
                own.is_some() && !is_leaf
            }
            Value::Object(_) => node.now == NodeState::Object,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => match next {
                // Without this value, a later object would have merged with the older one.
                Some(next) => next.did == StepKind::AssignObject,
                None => is_leaf,
            },
        };
    }

    fn pointer(&self) -> String {
        if let Some((_, change)) = self.change {
            return change.path().to_owned();
        }
        let mut pointer = String::new();
        for token in &self.path {
            push_token(&mut pointer, token);
        }
        pointer
    }
}

fn leaves_of(rule: &Rule) -> Vec<Leaf<'_>> {
    fn collect<'a>(
        values: &'a Map<String, Value>,
        path: &mut Vec<&'a str>,
        leaves: &mut Vec<Leaf<'a>>,
    ) {
        for (key, value) in values {
            path.push(key);
            match value.as_object() {
                Some(values) if !values.is_empty() => collect(values, path, leaves),
                Some(_) | None => leaves.push(Leaf {
                    path: path.clone(),
                    value,
                    change: None,
                    has_effect: false,
                    deleted: false,
                    by: BTreeSet::new(),
                }),
            }
            path.pop();
        }
    }
    let mut leaves = Vec::new();
    collect(rule.values(), &mut Vec::new(), &mut leaves);
    let changes = rule.elements().changes().iter().enumerate();
    leaves.extend(changes.map(|(number, change)| Leaf {
        path: change.keys().iter().map(String::as_str).collect(),
        value: change.value(),
        change: Some((number, change)),
        has_effect: false,
        deleted: false,
        by: BTreeSet::new(),
    }));
    leaves
}

fn findings_of(leaves: &[Leaf<'_>], rule_id: &str, id: impl Fn(&usize) -> String) -> Vec<Finding> {
    let is_idle = |leaf: &&Leaf<'_>| leaf.value.is_null() && !leaf.deleted;
    let without_effect = leaves.iter().filter(|leaf| !leaf.has_effect);
    let (idle, dead): (Vec<&Leaf<'_>>, Vec<&Leaf<'_>>) = without_effect.partition(is_idle);
    let rule_id = || rule_id.to_owned();
    let pointers = |leaves: &[&Leaf<'_>]| leaves.iter().map(|leaf| leaf.pointer()).collect();
    let by: BTreeSet<usize> = dead.iter().flat_map(|leaf| &leaf.by).copied().collect();
    let by = by.iter().map(id).collect();
    let mut findings = Vec::new();
    if idle.is_empty() && dead.len() == leaves.len() && !dead.is_empty() {
        let rule_id = rule_id();
        return vec![Finding::DeadRule { rule_id, by }];
    }
    if !dead.is_empty() {
        findings.push(Finding::DeadValues {
            rule_id: rule_id(),
            pointers: pointers(&dead),
            by,
        });
    }
    if !idle.is_empty() {
        findings.push(Finding::DeletesNothing {
            rule_id: rule_id(),
            pointers: pointers(&idle),
        });
    }
    findings
}
