//! What an edit of a worker configuration changes: pools, launch configs and rules, value by value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rules::Attributes;
use serde_json::{Map, Value, json};

use super::problem::below;
use super::{Compilation, CompiledLaunchConfig, CompiledPool, Configuration, WorkerType};
use crate::id::{LaunchConfigId, ProviderId};

/// One value that differs; `None`: there is none.
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
    /// It was stored before any configuration had it.
    Adopted,
}

/// What happens to one pool.
#[derive(Clone, Debug)]
pub struct PoolDifference {
    pub worker_type: WorkerType,
    pub change: PoolChange,
    pub settings: Vec<ValueChange>,
    pub created: Vec<Way>,
    pub archived: Vec<Way>,
    /// Another launch config for the same place.
    pub replaced: Vec<Replaced>,
    /// Launch configs that keep their ids, and of which `workerManager` differs.
    pub updated: Vec<Replaced>,
    /// Those that keep their ids.
    pub n_kept: usize,
}

impl PoolDifference {
    /// Nothing differs but who the pool belongs to.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
            && self.created.is_empty()
            && self.archived.is_empty()
            && self.replaced.is_empty()
            && self.updated.is_empty()
    }
}

/// A launch config, and when it is the one.
#[derive(Clone, Debug)]
pub struct Way {
    pub provider_id: ProviderId,
    pub id: LaunchConfigId,
    pub presented: Attributes,
    pub configuration: Map<String, Value>,
}

#[derive(Clone, Debug)]
pub struct Replaced {
    pub before: Way,
    pub after: Way,
    /// Pointers are into the launch config.
    pub values: Vec<ValueChange>,
}

/// What happens to the pools, in the order of the new worker types, then those that go. Pools that stay as they are
/// are left out.
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

/// A pool, as one of two compilations has it.
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

/// `None`, if both are the same, or neither is there.
fn pool_difference(before: Option<Side<'_>>, after: Option<Side<'_>>) -> Option<PoolDifference> {
    let (change, one) = match (before, after) {
        (None, Some(after)) => (PoolChange::Created, after.pool),
        (Some(_), Some(after)) => (PoolChange::Changed, after.pool),
        (Some(before), None) => (PoolChange::Removed, before.pool),
        (None, None) => return None,
    };
    let (old, new) = (ways(before), ways(after));
    let mut difference = PoolDifference {
        worker_type: one.worker_type.clone(),
        change,
        settings: value_changes(
            &settings(before.map(|side| &**side.pool)),
            &settings(after.map(|side| &**side.pool)),
        ),
        created: Vec::new(),
        archived: Vec::new(),
        replaced: Vec::new(),
        updated: Vec::new(),
        n_kept: old.keys().filter(|id| new.contains_key(*id)).count(),
    };
    for (id, after) in &new {
        let before = old.get(id);
        if let Some(before) = before.filter(|before| before.configuration != after.configuration) {
            difference.updated.push(replacement(before, after));
        }
    }
    // What stays is not what another place had before, and so stands for no replacement.
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

fn replacement(before: &Way, after: &Way) -> Replaced {
    Replaced {
        values: value_changes(
            &Value::Object(before.configuration.clone()),
            &Value::Object(after.configuration.clone()),
        ),
        before: before.clone(),
        after: after.clone(),
    }
}

type Ways = BTreeMap<LaunchConfigId, Way>;

/// Those that the other side does not have, by the place of each.
fn only_in<'a>(these: &'a Ways, others: &Ways) -> BTreeMap<&'a Attributes, &'a Way> {
    let only = these.iter().filter(|(id, _)| !others.contains_key(*id));
    only.map(|(_, way)| (&way.presented, way)).collect()
}

fn ways(side: Option<Side<'_>>) -> Ways {
    let Some(Side { compilation, pool }) = side else {
        return Ways::new();
    };
    let way = |(provider_id, config): (&ProviderId, &CompiledLaunchConfig)| {
        let id = compilation.known_id(pool, provider_id, config);
        let way = Way {
            provider_id: provider_id.clone(),
            id: id.clone(),
            presented: config.presented.clone(),
            configuration: config.configuration.clone(),
        };
        (id, way)
    };
    pool.launch_configs().map(way).collect()
}

/// What a pool says apart from its launch configs.
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

/// Objects are compared member by member; anything else is the same or another.
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

/// What happens to one rule.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleChange {
    Added,
    Removed,
    /// Pointers are into the rule.
    Changed(Vec<ValueChange>),
    /// It stands elsewhere among the rules that both versions have.
    Moved,
}

/// Rule by rule, in the order of the new ones, then those that are gone.
pub fn rule_changes(before: &Configuration, after: &Configuration) -> Vec<(String, RuleChange)> {
    let mut changes = Vec::new();
    let known: BTreeMap<&str, usize> = before
        .rules
        .rules()
        .iter()
        .enumerate()
        .map(|(at, rule)| (rule.id(), at))
        .collect();
    let in_order = longest_rising(
        after
            .rules
            .rules()
            .iter()
            .filter_map(|rule| known.get(rule.id()).copied()),
    );
    for rule in after.rules.rules() {
        let Some(old) = before.rules.get(rule.id()) else {
            changes.push((rule.id().to_owned(), RuleChange::Added));
            continue;
        };
        if old != rule {
            let values = value_changes(&old.to_value(), &rule.to_value());
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

/// A longest selection of numbers that rise: those in it have not moved.
fn longest_rising(numbers: impl Iterator<Item = usize>) -> BTreeSet<usize> {
    let numbers: Vec<usize> = numbers.collect();
    // For each length, where the selection of that length with the smallest last number ends; and what came before each.
    let (mut ends, mut previous): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    for (at, number) in numbers.iter().enumerate() {
        let length = ends.partition_point(|end| numbers[*end] < *number);
        previous.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut selected = BTreeSet::new();
    let mut at = ends.last().copied();
    while let Some(here) = at {
        selected.insert(numbers[here]);
        at = previous[here];
    }
    selected
}
