//! Adoption: how a stored pool changes when a worker configuration takes it over.
//!
//! Both sides are compared in their stored form: the pool's launch configs with those that its
//! providers made from the rules.

use std::collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};

use rules::Attributes;
use serde_json::{Map, Value, json};

use super::difference::{PoolChange, PoolDifference, Replacement, value_changes};
use super::lineup::CompletedLaunchConfig;
use super::problem::below;
use super::{CompiledPool, WorkerType};
use crate::id::LaunchConfigId;
use crate::launch_config::{LaunchConfig, without_id};
use crate::pool::{Pool, PoolDefinition};

/// With more pairs of old and new launch configs than this, they are paired in their order.
const MAX_PAIRS: usize = 250_000;

/// A stored pool.
#[derive(Debug)]
pub struct StoredPool {
    pub pool: Pool,
    /// Archived launch configs may be among them.
    pub launch_configs: Vec<LaunchConfig>,
}

/// The pool that a worker configuration makes.
#[derive(Clone, Copy, Debug)]
pub struct WantedPool<'a> {
    pub compiled: &'a CompiledPool,
    pub definition: &'a PoolDefinition,
    pub launch_configs: &'a [CompletedLaunchConfig],
}

/// The differences. A pool without differences is adopted as well.
pub fn adoption(stored: &StoredPool, wanted: WantedPool<'_>) -> PoolDifference {
    let active = stored.launch_configs.iter();
    let mut old: BTreeMap<&LaunchConfigId, &LaunchConfig> = active
        .filter(|config| !config.archived)
        .map(|config| (&config.id, config))
        .collect();
    let worker_type = &wanted.compiled.worker_type;
    let settings = value_changes(
        &settings(&stored.pool.definition, None),
        &settings(wanted.definition, Some(wanted.compiled)),
    );
    let mut difference = PoolDifference::new(worker_type, PoolChange::Adopted, settings);
    let mut fresh = Vec::new();
    for config in wanted.launch_configs {
        let Some(known) = old.remove(&config.id) else {
            fresh.push(config);
            continue;
        };
        difference.n_kept += 1;
        let replaced = replacement(stored, known, config);
        if !replaced.values.is_empty() {
            difference.updated.push(replaced);
        }
    }
    let mut gone: Vec<&LaunchConfig> = old.into_values().collect();
    gone.sort_by_key(|config| config.position);
    let pairs = pairs(&gone, &fresh, MAX_PAIRS);
    for (old, new) in &pairs {
        let replaced = replacement(stored, gone[*old], fresh[*new]);
        difference.replaced.push(replaced);
    }
    let (olds, news): (BTreeSet<usize>, BTreeSet<usize>) = pairs.into_iter().unzip();
    let gone = gone.into_iter().enumerate();
    let gone = gone.filter(|(at, _)| !olds.contains(at));
    let archived = gone.map(|(_, config)| known_way(stored, config, worker_type));
    difference.archived = archived.collect();
    let fresh = fresh.into_iter().enumerate();
    let created = fresh.filter(|(at, _)| !news.contains(at));
    difference.created = created.map(|(_, config)| config.clone()).collect();
    difference
}

/// The settings of a pool without its launch configs. Only rules have settings about payloads.
fn settings(definition: &PoolDefinition, compiled: Option<&CompiledPool>) -> Value {
    let further = definition.further_provider_ids.iter();
    let providers = std::iter::once(&definition.provider_id).chain(further);
    let providers: Vec<&str> = providers.map(|id| id.as_str()).collect();
    let mut settings = json!({
        "owner": definition.owner,
        "description": definition.description,
        "emailOnError": definition.email_on_error,
        "providers": providers,
        "config": definition.config,
    });
    if let Some(schema) = compiled.and_then(|compiled| compiled.payload_schema.as_deref()) {
        settings["payloadSchema"] = schema.clone();
    }
    if compiled.is_some_and(|compiled| compiled.check_payload) {
        settings["checkPayload"] = json!(true);
    }
    settings
}

fn replacement(
    stored: &StoredPool,
    before: &LaunchConfig,
    after: &CompletedLaunchConfig,
) -> Replacement {
    let content = |config: &Map<String, Value>| Value::Object(without_id(config));
    Replacement {
        before: CompletedLaunchConfig {
            provider_id: before.provider_id(&stored.pool).clone(),
            id: before.id.clone(),
            attributes: after.attributes.clone(),
            configuration: before.configuration.clone(),
        },
        after: after.clone(),
        values: value_changes(
            &content(&before.configuration),
            &content(&after.configuration),
        ),
    }
}

/// A launch config that was created by hand belongs to no place of the rules.
fn known_way(
    stored: &StoredPool,
    config: &LaunchConfig,
    worker_type: &WorkerType,
) -> CompletedLaunchConfig {
    let provider_id = config.provider_id(&stored.pool).clone();
    let conditions = [
        ("workerType", worker_type.name()),
        ("provider", provider_id.as_str()),
    ];
    CompletedLaunchConfig {
        id: config.id.clone(),
        attributes: conditions.into_iter().collect::<Attributes>(),
        configuration: config.configuration.clone(),
        provider_id,
    }
}

/// Old and new launch configs with most of their values in common, the best pairs first.
fn pairs(
    gone: &[&LaunchConfig],
    fresh: &[&CompletedLaunchConfig],
    max_pairs: usize,
) -> Vec<(usize, usize)> {
    let shorter = gone.len().min(fresh.len());
    if gone.len().saturating_mul(fresh.len()) > max_pairs {
        return (0..shorter).map(|at| (at, at)).collect();
    }
    let old: Vec<_> = gone
        .iter()
        .map(|config| values(&config.configuration))
        .collect();
    let new: Vec<_> = fresh
        .iter()
        .map(|config| values(&config.configuration))
        .collect();
    let mut candidates = Vec::new();
    for (at_old, old) in old.iter().enumerate() {
        for (at_new, new) in new.iter().enumerate() {
            let n_common = old.intersection(new).count();
            if 2 * n_common > old.len().max(new.len()) {
                let distance = at_old.abs_diff(at_new);
                candidates.push((std::cmp::Reverse(n_common), distance, at_old, at_new));
            }
        }
    }
    candidates.sort_unstable();
    let (mut olds, mut news) = (BTreeSet::new(), BTreeSet::new());
    let mut pairs = Vec::with_capacity(shorter);
    for (_, _, old, new) in candidates {
        if !olds.contains(&old) && !news.contains(&new) {
            olds.insert(old);
            news.insert(new);
            pairs.push((old, new));
        }
    }
    pairs.sort_by_key(|(_, new)| *new);
    pairs
}

/// A number for each value together with its pointer.
fn values(configuration: &Map<String, Value>) -> BTreeSet<u64> {
    fn add(pointer: &str, value: &Value, found: &mut BTreeSet<u64>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    add(&below(pointer, key), value, found);
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => {
                let mut hasher = DefaultHasher::new();
                (pointer, value.to_string()).hash(&mut hasher);
                found.insert(hasher.finish());
            }
        }
    }
    let mut found = BTreeSet::new();
    for (key, value) in without_id(configuration) {
        add(&below("", &key), &value, &mut found);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::configuration::{
        Compilation, Configuration, Lineup, ProviderCatalog, ProviderEntry,
    };
    use crate::launch_config::{id_of, reconcile};
    use crate::time::Timestamp;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000)
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    /// As somebody created it by hand.
    fn stored(launch_configs: Vec<Value>) -> StoredPool {
        let definition = PoolDefinition {
            provider_id: "ec2".parse().unwrap(),
            further_provider_ids: Vec::new(),
            description: "d".to_owned(),
            config: object(json!({"minCapacity": 0, "maxCapacity": 3})),
            owner: "o@example.com".to_owned(),
            email_on_error: false,
        };
        let pool = Pool::new("p/a".parse().unwrap(), definition, now());
        let wanted = launch_configs.into_iter().map(object).collect();
        let done = reconcile(&pool.id, Vec::new(), wanted, now()).unwrap();
        StoredPool {
            pool,
            launch_configs: done.inserts,
        }
    }

    fn in_zone(zone: usize, ami: &str, steering: Value) -> Value {
        json!({"zone": format!("z{zone}"), "ami": ami, "disk": {"size": 8}, "kind": "m", "workerManager": steering})
    }

    /// Rules for its replacement, in this many zones.
    fn compared(
        stored: &StoredPool,
        n_zones: usize,
        values: Value,
        launch_config: Value,
    ) -> PoolDifference {
        let zones: Vec<_> = (0..n_zones).map(|zone| format!("z{zone}")).collect();
        let options = json!({"ec2": {"places": [{"zone": zones}], "exact": true}});
        let mut basics = json!({"owner": "o@example.com", "description": "d", "maxCapacity": 3,
            "providers": options, "ec2": launch_config});
        for (key, value) in object(values) {
            basics[key] = value;
        }
        let mut rules = vec![json!({"ruleId": "all", "values": basics})];
        rules.extend(zones.iter().map(|zone| {
            json!({"ruleId": zone, "conditions": {"zone": zone}, "values": {"ec2": {"zone": zone}}})
        }));
        let document = json!({"workerTypes": ["p/a"], "rules": rules});
        let configuration = Configuration::parse(&document).unwrap();
        let catalog = ProviderCatalog {
            providers: [("ec2".parse().unwrap(), ProviderEntry::launching(Vec::new()))].into(),
            ..ProviderCatalog::default()
        };
        let compiled = Compilation::new(configuration, Arc::new(catalog)).unwrap();
        let compiled = &compiled.pools[0];
        let mut definition = stored.pool.definition.clone();
        definition.owner.clone_from(&compiled.owner);
        definition.config.clone_from(&compiled.config);
        let mut lineup = Lineup::new(compiled.pool_id());
        for config in &compiled.providers[0].launch_configs {
            let content = config.configuration.clone();
            lineup
                .add(&compiled.providers[0], &config.attributes, true, content)
                .unwrap();
        }
        let wanted = WantedPool {
            compiled,
            definition: &definition,
            launch_configs: &lineup.into_configs(),
        };
        adoption(stored, wanted)
    }

    fn common(ami: &str, steering: Value) -> Value {
        json!({"ami": ami, "disk": {"size": 8}, "kind": "m", "workerManager": steering})
    }

    fn counts(difference: &PoolDifference) -> [usize; 6] {
        [
            difference.settings.len(),
            difference.created.len(),
            difference.replaced.len(),
            difference.updated.len(),
            difference.archived.len(),
            difference.n_kept,
        ]
    }

    #[test]
    fn a_pool_that_equals_its_rules_is_adopted_unchanged() {
        let stored = stored(vec![in_zone(0, "a", json!({})), in_zone(1, "a", json!({}))]);
        let difference = compared(&stored, 2, json!({}), common("a", json!({})));
        assert_eq!(difference.change, PoolChange::Adopted);
        assert_eq!(counts(&difference), [0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn every_difference_to_what_the_pool_has_is_named() {
        let stored = stored((0..3).map(|zone| in_zone(zone, "a", json!({}))).collect());
        let more = json!({"owner": "x@example.com", "maxCapacity": 9, "lifecycle": {"queueInactivityTimeout": 60}});
        let difference = compared(&stored, 4, more, common("b", json!({})));
        let pointers: Vec<_> = difference
            .settings
            .iter()
            .map(|value| value.pointer.as_str())
            .collect();
        assert_eq!(
            pointers,
            ["/config/lifecycle", "/config/maxCapacity", "/owner"]
        );
        assert_eq!(counts(&difference), [3, 1, 3, 0, 0, 0]);
        for (zone, replaced) in difference.replaced.iter().enumerate() {
            let zone = format!("z{zone}");
            assert_eq!(replaced.before.configuration["zone"], zone);
            assert_eq!(replaced.after.configuration["zone"], zone);
            assert_eq!(replaced.values.len(), 1);
            assert_eq!(replaced.values[0].pointer, "/ami");
        }
        assert_eq!(difference.created[0].configuration["zone"], "z3");
    }

    #[test]
    fn a_changed_own_part_is_an_update_and_a_removed_launch_config_is_archived() {
        let stored = stored(vec![in_zone(0, "a", json!({})), json!({"other": 1})]);
        let difference = compared(
            &stored,
            1,
            json!({}),
            common("a", json!({"maxCapacity": 2})),
        );
        assert_eq!(counts(&difference), [0, 0, 0, 1, 1, 1]);
        let updated = &difference.updated[0];
        assert_eq!(updated.before.id, updated.after.id);
        assert_eq!(updated.values[0].pointer, "/workerManager/maxCapacity");
    }

    #[test]
    fn another_id_alone_replaces_a_launch_config_without_other_values() {
        let stored = stored(vec![in_zone(0, "a", json!({"launchConfigId": "mine"}))]);
        let content = json!({"ami": "a", "disk": {"size": 8}, "kind": "m"});
        let difference = compared(&stored, 1, json!({}), content);
        assert_eq!(counts(&difference), [0, 0, 1, 0, 0, 0]);
        let replaced = &difference.replaced[0];
        assert_eq!(replaced.before.id.as_str(), "mine");
        let content = object(in_zone(0, "a", json!({})));
        assert_eq!(replaced.after.id, id_of(&stored.pool.id, &content).unwrap());
        assert_eq!(replaced.values, []);
    }

    #[test]
    fn launch_configs_are_paired_by_their_values_and_many_of_them_by_their_order() {
        let max_pairs = 16;
        let sizes = testing::sizes_around("domain::configuration::adoption::MAX_PAIRS", max_pairs);
        let counts = [(0, 4), (1, 1), (3, 5), (4, 4), (17, 1), (16, 10)];
        assert_eq!(counts.map(|(old, new)| old * new).to_vec(), sizes);
        for (n_old, n_new) in counts {
            let old = stored(
                (0..n_old)
                    .map(|zone| in_zone(zone, "a", json!({})))
                    .collect(),
            );
            let old: Vec<_> = old.launch_configs.iter().collect();
            let new = (0..n_new).rev().map(|zone| CompletedLaunchConfig {
                id: format!("lc-{zone}").parse().unwrap(),
                provider_id: "ec2".parse().unwrap(),
                attributes: Attributes::default(),
                configuration: object(in_zone(zone, "b", json!({}))),
            });
            let new: Vec<_> = new.collect();
            let new: Vec<_> = new.iter().collect();
            let pairs = pairs(&old, &new, max_pairs);
            assert_eq!(pairs.len(), n_old.min(n_new), "{n_old} {n_new}");
            let zone = |configuration: &Map<String, Value>| configuration["zone"].clone();
            let is_same = |(at, with): &(usize, usize)| {
                zone(&old[*at].configuration) == zone(&new[*with].configuration)
            };
            let is_by_values = n_old * n_new <= max_pairs;
            // In another order of the old launch configs, their positions decide.
            if n_old <= n_new || !is_by_values {
                assert_eq!(pairs.iter().all(is_same), is_by_values, "{n_old} {n_new}");
            }
        }
    }
}
