//! The changes of an edit of a worker configuration: pools, launch configs and rules, value by
//! value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rules::{Attributes, Rule, longest_ascending};
use serde_json::{Value, json};

use super::lineup::CompletedLaunchConfig;
use super::problem::below;
use super::{Compilation, CompiledLaunchConfig, CompiledPool, Configuration, WorkerType};
use crate::id::{LaunchConfigId, ProviderId};

/// A value that differs; `None` if it is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueChange {
    pub pointer: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolChange {
    Created,
    Changed,
    Removed,
    /// It existed before any configuration had it.
    Adopted,
}

/// The changes of one pool.
#[derive(Clone, Debug)]
pub struct PoolDifference {
    pub worker_type: WorkerType,
    pub change: PoolChange,
    pub settings: Vec<ValueChange>,
    pub created: Vec<CompletedLaunchConfig>,
    pub archived: Vec<CompletedLaunchConfig>,
    /// Launch configs of the same place with another id.
    pub replaced: Vec<Replacement>,
    /// Launch configs with the same id and a changed `workerManager` part.
    pub updated: Vec<Replacement>,
    /// The number of unchanged launch configs.
    pub n_kept: usize,
}

impl PoolDifference {
    pub(super) fn new(
        worker_type: &WorkerType,
        change: PoolChange,
        settings: Vec<ValueChange>,
    ) -> Self {
        Self {
            worker_type: worker_type.clone(),
            change,
            settings,
            created: Vec::new(),
            archived: Vec::new(),
            replaced: Vec::new(),
            updated: Vec::new(),
            n_kept: 0,
        }
    }

    /// Whether nothing but the owner of the pool differs.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
            && self.created.is_empty()
            && self.archived.is_empty()
            && self.replaced.is_empty()
            && self.updated.is_empty()
    }
}

#[derive(Clone, Debug)]
pub struct Replacement {
    pub before: CompletedLaunchConfig,
    pub after: CompletedLaunchConfig,
    /// Pointers are into the launch config.
    pub values: Vec<ValueChange>,
}

/// The changes of the pools: first in the order of the new worker types, then the removed pools.
/// Unchanged pools are omitted.
pub fn difference(
    before: Option<&Compilation>,
    after: Option<&Compilation>,
) -> Vec<PoolDifference> {
    let known: BTreeMap<&WorkerType, Side<'_>> = by_worker_type(before);
    let stays: BTreeMap<&WorkerType, Side<'_>> = by_worker_type(after);
    let next = after.into_iter().flat_map(sides);
    let changed = next.filter_map(|pool| {
        let before = known.get(&pool.pool.worker_type).copied();
        let same = before
            .is_some_and(|before| Arc::ptr_eq(before.pool, pool.pool) || before.pool == pool.pool);
        (!same).then(|| pool_difference(before, Some(pool)))
    });
    let gone = before.into_iter().flat_map(sides);
    let gone = gone.filter(|pool| !stays.contains_key(&pool.pool.worker_type));
    let gone = gone.map(|pool| pool_difference(Some(pool), None));
    changed.chain(gone).flatten().collect()
}

/// A pool in one of two compilations.
#[derive(Clone, Copy)]
struct Side<'a> {
    compilation: &'a Compilation,
    pool: &'a Arc<CompiledPool>,
}

fn sides(compilation: &Compilation) -> impl Iterator<Item = Side<'_>> {
    let pools = compilation.pools.iter();
    pools.map(move |pool| Side { compilation, pool })
}

fn by_worker_type(compilation: Option<&Compilation>) -> BTreeMap<&WorkerType, Side<'_>> {
    let pools = compilation.into_iter().flat_map(sides);
    pools.map(|side| (&side.pool.worker_type, side)).collect()
}

/// `None` if both are equal or absent.
fn pool_difference(before: Option<Side<'_>>, after: Option<Side<'_>>) -> Option<PoolDifference> {
    let (change, one) = match (before, after) {
        (None, Some(after)) => (PoolChange::Created, after.pool),
        (Some(_), Some(after)) => (PoolChange::Changed, after.pool),
        (Some(before), None) => (PoolChange::Removed, before.pool),
        (None, None) => return None,
    };
    let (old, new) = (ways(before), ways(after));
    let settings = value_changes(
        &settings(before.map(|side| &**side.pool)),
        &settings(after.map(|side| &**side.pool)),
    );
    let mut difference = PoolDifference::new(&one.worker_type, change, settings);
    difference.n_kept = old.keys().filter(|id| new.contains_key(*id)).count();
    for (id, after) in &new {
        let before = old.get(id);
        if let Some(before) = before.filter(|before| before.configuration != after.configuration) {
            difference.updated.push(replacement(before, after));
        }
    }
    // An unchanged launch config is not the previous launch config of another place, so it is no
    // replacement.
    let (mut gone, fresh) = (only_in(&old, &new), only_in(&new, &old));
    for (place, after) in fresh {
        match gone.remove(place) {
            Some(before) => difference.replaced.push(replacement(before, after)),
            None => difference.created.push(after.clone()),
        }
    }
    difference.archived.extend(gone.into_values().cloned());
    Some(difference)
}

fn replacement(before: &CompletedLaunchConfig, after: &CompletedLaunchConfig) -> Replacement {
    Replacement {
        values: value_changes(
            &Value::Object(before.configuration.clone()),
            &Value::Object(after.configuration.clone()),
        ),
        before: before.clone(),
        after: after.clone(),
    }
}

type Ways = BTreeMap<LaunchConfigId, CompletedLaunchConfig>;

/// The launch configs that the other side does not have, by place.
fn only_in<'a>(
    these: &'a Ways,
    others: &Ways,
) -> BTreeMap<&'a Attributes, &'a CompletedLaunchConfig> {
    let only = these.iter().filter(|(id, _)| !others.contains_key(*id));
    only.map(|(_, way)| (&way.attributes, way)).collect()
}

fn ways(side: Option<Side<'_>>) -> Ways {
    let Some(Side { compilation, pool }) = side else {
        return Ways::new();
    };
    let way = |(provider_id, config): (&ProviderId, &CompiledLaunchConfig)| {
        let id = compilation.known_id(pool, provider_id, config);
        let way = CompletedLaunchConfig {
            provider_id: provider_id.clone(),
            id: id.clone(),
            attributes: config.attributes.clone(),
            configuration: config.configuration.clone(),
        };
        (id, way)
    };
    pool.launch_configs().map(way).collect()
}

/// The settings of a pool without its launch configs.
fn settings(pool: Option<&CompiledPool>) -> Value {
    let Some(pool) = pool else {
        return Value::Null;
    };
    let providers: Vec<&str> = pool
        .providers
        .iter()
        .map(|provider| provider.id.as_str())
        .collect();
    let mut settings = json!({
        "owner": pool.owner,
        "description": pool.description,
        "emailOnError": pool.email_on_error,
        "providers": providers,
        "checkPayload": pool.check_payload,
        "config": pool.config,
    });
    if let Some(schema) = &pool.payload_schema {
        settings["payloadSchema"] = (**schema).clone();
    }
    for provider in &pool.providers {
        if !provider.declared.is_empty() {
            settings[provider.section.as_str()] = Value::Object(provider.declared.clone());
        }
    }
    settings
}

/// Compares objects member by member, and any other values as units.
pub fn value_changes(before: &Value, after: &Value) -> Vec<ValueChange> {
    let mut changes = Vec::new();
    compare("", Some(before), Some(after), &mut changes);
    changes
}

fn compare(
    pointer: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    changes: &mut Vec<ValueChange>,
) {
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                compare(&below(pointer, key), old.get(key), new.get(key), changes);
            }
        }
        (before, after) if before == after => {}
        (Some(Value::Null) | None, Some(Value::Object(new))) if pointer.is_empty() => {
            for (key, value) in new {
                compare(&below(pointer, key), None, Some(value), changes);
            }
        }
        (Some(Value::Object(old)), Some(Value::Null) | None) if pointer.is_empty() => {
            for (key, value) in old {
                compare(&below(pointer, key), Some(value), None, changes);
            }
        }
        (before, after) => changes.push(ValueChange {
            pointer: pointer.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

/// The change of one rule.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleChange {
    Added,
    Removed,
    /// Pointers are into the rule, or `/sets/NAME` for a set that its conditions name.
    Changed(Vec<ValueChange>),
    /// Its position among the rules of both versions changed.
    Moved,
}

/// The changes of the rules: first in the order of the new rules, then the removed rules.
pub fn rule_changes(before: &Configuration, after: &Configuration) -> Vec<(String, RuleChange)> {
    let mut changes = Vec::new();
    let known: BTreeMap<&str, usize> = before
        .rules
        .rules()
        .iter()
        .enumerate()
        .map(|(at, rule)| (rule.id(), at))
        .collect();
    let rules = after.rules.rules().iter();
    let places: Vec<usize> = rules
        .filter_map(|rule| known.get(rule.id()).copied())
        .collect();
    let in_order: BTreeSet<usize> = longest_ascending(&places, |place| *place)
        .into_iter()
        .collect();
    for rule in after.rules.rules() {
        let Some(old) = before.rules.get(rule.id()) else {
            changes.push((rule.id().to_owned(), RuleChange::Added));
            continue;
        };
        let sets = set_changes(old, rule, before, after);
        if old != rule || !sets.is_empty() {
            let mut values = value_changes(&old.to_value(), &rule.to_value());
            values.extend(sets);
            changes.push((rule.id().to_owned(), RuleChange::Changed(values)));
        }
        if !known.get(rule.id()).is_some_and(|at| in_order.contains(at)) {
            changes.push((rule.id().to_owned(), RuleChange::Moved));
        }
    }
    let gone = before
        .rules
        .rules()
        .iter()
        .filter(|rule| after.rules.get(rule.id()).is_none());
    changes.extend(gone.map(|rule| (rule.id().to_owned(), RuleChange::Removed)));
    changes
}

/// The changes of the sets that both versions of a rule name.
fn set_changes(
    old: &Rule,
    new: &Rule,
    before: &Configuration,
    after: &Configuration,
) -> Vec<ValueChange> {
    let names = |rule: &Rule| -> BTreeSet<String> {
        let mappings = rule.conditions().mappings().iter();
        let patterns = mappings.flat_map(|mapping| mapping.iter().map(|(_, patterns)| patterns));
        patterns
            .flat_map(|patterns| patterns.set_names().map(str::to_owned))
            .collect()
    };
    let both = names(old);
    let both = both.intersection(&names(new)).cloned().collect::<Vec<_>>();
    let changed = both.into_iter().filter_map(|name| {
        let value = |of: &Configuration| of.rules.sets().get(&name).map(|set| json!(set));
        let (before, after) = (value(before), value(after));
        (before != after).then(|| ValueChange {
            pointer: below("/sets", &name),
            before,
            after,
        })
    });
    changed.collect()
}
