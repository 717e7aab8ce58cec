//! Launch configs: each is one way to start workers, and only its `workerManager` part can change.
//!
//! The id is a hash of the content (RFC 191), computed as Taskcluster does, so a pool that moves
//! here keeps its ids.

use std::collections::{BTreeMap, BTreeSet};

use md5::{Digest, Md5};
use serde_json::{Map, Value};

use crate::Version;
use crate::id::{BadId, LaunchConfigId, PoolId, ProviderId, names};
use crate::json_text::canonical;
use crate::pool::Pool;
use crate::time::Timestamp;

/// The key of the part that is for us and not for the cloud.
const OWN_PART: &str = "workerManager";
const ID_KEY: &str = "launchConfigId";
const PROVIDER_KEY: &str = "providerId";
/// Marks a launch config of declared hosts. Only the server sets it; see [`HostConfigOrigin`].
const HOSTS_KEY: &str = "hosts";
const COST_KEY: &str = "costPerHour";
const CONTENT_KEY: &str = "workerConfig";

/// Where a launch config of declared hosts comes from. Nothing is launched from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostConfigOrigin {
    /// The `workerConfig` of the pool's config stands for it, as in Taskcluster's API.
    PoolConfig,
    /// The list of launch configs.
    LaunchConfigs,
}

names! {
    HostConfigOrigin, "not an origin of launch configs of hosts (poolConfig, launchConfigs)",
    PoolConfig = "poolConfig",
    LaunchConfigs = "launchConfigs",
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaunchConfig {
    pub pool_id: PoolId,
    pub id: LaunchConfigId,
    pub archived: bool,
    /// Its index in its pool's list, in the author's order.
    pub position: u32,
    /// As given; `workerManager.launchConfigId` is present only if the author wrote it.
    pub configuration: Map<String, Value>,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}

/// The changes of an edit of a pool to its launch configs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reconciliation {
    /// New rows, to insert.
    pub inserts: Vec<LaunchConfig>,
    /// Existing rows with their new content, to write under the version that they carry.
    pub rewrites: Vec<LaunchConfig>,
    /// Existing rows to archive.
    pub retirements: Vec<LaunchConfig>,
    /// The ids for events, in the order of the request.
    pub created: Vec<LaunchConfigId>,
    pub updated: Vec<LaunchConfigId>,
    pub archived: Vec<LaunchConfigId>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLaunchConfigs {
    #[error("launchConfigs must be an array of objects")]
    NotObjects,
    #[error(transparent)]
    Id(#[from] BadId),
    #[error("Launch config with ID `{0}` already exists with different configuration")]
    Clash(LaunchConfigId),
}

impl LaunchConfig {
    /// The configuration as clients see it, with its id.
    pub fn with_id(&self) -> Value {
        let mut configuration = self.configuration.clone();
        set_id(&mut configuration, &self.id);
        Value::Object(configuration)
    }

    /// The provider of its workers: the provider that `workerManager` names, or the first provider
    /// of the pool if the pool has no provider of that name.
    pub fn provider_id<'a>(&self, pool: &'a Pool) -> &'a ProviderId {
        let named = named_provider(&self.configuration).and_then(Value::as_str);
        pool.provider_ids()
            .find(|id| named == Some(id.as_str()))
            .unwrap_or(&pool.definition.provider_id)
    }

    /// Where it comes from, if it is one of declared hosts. `None`: machines are launched from it.
    pub fn host_origin(&self) -> Option<HostConfigOrigin> {
        let mark = self.configuration.get(OWN_PART)?.get(HOSTS_KEY)?;
        mark.as_str()?.parse().ok()
    }

    /// Whether declared hosts get its content, and nothing is launched from it.
    pub fn is_for_hosts(&self) -> bool {
        self.host_origin().is_some()
    }

    /// The configuration that a declared host gets.
    pub fn host_content(&self) -> Value {
        let content = self.configuration.get(CONTENT_KEY).cloned();
        content.unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// Dollars per hour of a host: its own price, or that of its pool; `None`: neither has one.
    pub fn host_price(&self, pool: &Pool) -> Option<f64> {
        let steering = self.configuration.get(OWN_PART);
        let own = steering.and_then(|steering| steering.get(COST_KEY));
        let price = own.or_else(|| pool.definition.config.get(COST_KEY));
        price.and_then(Value::as_f64)
    }

    /// Whether clients would see no difference.
    pub fn is_same_for_clients(&self, other: &Self) -> bool {
        self.archived == other.archived && self.with_id() == other.with_id()
    }

    fn same_content(&self, other: &Map<String, Value>) -> bool {
        let mut theirs = other.iter().filter(|(key, _)| *key != OWN_PART);
        let mut ours = self
            .configuration
            .iter()
            .filter(|(key, _)| *key != OWN_PART);
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (ours, theirs) if ours == theirs => {}
                _ => return false,
            }
        }
    }
}

/// The provider that a launch config names.
pub fn named_provider(configuration: &Map<String, Value>) -> Option<&Value> {
    let steering = configuration.get(OWN_PART)?;
    steering.get(PROVIDER_KEY)
}

/// The launch config of a provider for declared hosts that name none, or whose own was archived:
/// the one at the same place of the list, or the first.
pub fn host_successor<'a>(
    pool: &Pool,
    provider_id: &ProviderId,
    active: &'a [LaunchConfig],
    archived: Option<&LaunchConfig>,
) -> Option<&'a LaunchConfig> {
    let own =
        |config: &&LaunchConfig| config.is_for_hosts() && config.provider_id(pool) == provider_id;
    let position = archived.map(|config| config.position);
    let mut same = active.iter().filter(own);
    let same = same.find(|config| position == Some(config.position));
    same.or_else(|| active.iter().find(own))
}

/// Marks a launch config of declared hosts.
pub fn mark_for_hosts(configuration: &mut Map<String, Value>, origin: HostConfigOrigin) {
    set_key(configuration, HOSTS_KEY, origin.as_str());
}

/// The launch config that the `workerConfig` of a pool stands for.
pub fn implied_for_hosts(config: &Map<String, Value>) -> Map<String, Value> {
    let content = config.get(CONTENT_KEY).cloned();
    let content = content.unwrap_or_else(|| Value::Object(Map::new()));
    let mut implied = Map::from_iter([(CONTENT_KEY.to_owned(), content)]);
    mark_for_hosts(&mut implied, HostConfigOrigin::PoolConfig);
    implied
}

/// Removes the name of the provider, and the mark that only the server sets.
pub fn take_provider(configuration: &mut Map<String, Value>) {
    take_key(configuration, PROVIDER_KEY);
    take_host_mark(configuration);
}

/// Removes the mark of launch configs of declared hosts.
pub fn take_host_mark(configuration: &mut Map<String, Value>) {
    take_key(configuration, HOSTS_KEY);
}

fn take_key(configuration: &mut Map<String, Value>, key: &str) {
    if let Some(Value::Object(steering)) = configuration.get_mut(OWN_PART)
        && steering.remove(key).is_some()
        && steering.is_empty()
    {
        configuration.remove(OWN_PART);
    }
}

/// Sets the provider of its workers, if that is not the first provider of its pool.
pub fn set_provider(configuration: &mut Map<String, Value>, provider_id: &ProviderId) {
    set_key(configuration, PROVIDER_KEY, provider_id.as_str());
}

pub fn set_id(configuration: &mut Map<String, Value>, id: &LaunchConfigId) {
    set_key(configuration, ID_KEY, id.as_str());
}

fn set_key(configuration: &mut Map<String, Value>, key: &str, value: &str) {
    let steering = configuration
        .entry(OWN_PART)
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(steering) = steering {
        steering.insert(key.to_owned(), Value::String(value.to_owned()));
    }
}

/// The id of a launch config: the author's, or a hash of pool and content.
pub fn id_of(
    pool_id: &PoolId,
    configuration: &Map<String, Value>,
) -> Result<LaunchConfigId, BadId> {
    let given = configuration
        .get(OWN_PART)
        .and_then(|steering| steering.get(ID_KEY));
    if let Some(Value::String(given)) = given {
        return given.parse();
    }
    hashed(&[pool_id.as_str()], configuration)
}

/// The id of a launch config if another provider of the pool has one with the same content.
pub fn id_for_second_provider(
    pool_id: &PoolId,
    provider_id: &ProviderId,
    configuration: &Map<String, Value>,
) -> Result<LaunchConfigId, BadId> {
    hashed(&[pool_id.as_str(), provider_id.as_str()], configuration)
}

/// The configuration without an id that its author gave it.
pub fn without_id(configuration: &Map<String, Value>) -> Map<String, Value> {
    let mut content = configuration.clone();
    take_key(&mut content, ID_KEY);
    content
}

/// Whether its author gave it an id.
pub fn has_own_id(configuration: &Map<String, Value>) -> bool {
    let steering = configuration.get(OWN_PART);
    steering.is_some_and(|steering| steering.get(ID_KEY).is_some())
}

fn hashed(names: &[&str], configuration: &Map<String, Value>) -> Result<LaunchConfigId, BadId> {
    let mut content = configuration.clone();
    content.remove(OWN_PART);
    let mut hasher = Md5::new();
    for name in names {
        hasher.update(name);
    }
    hasher.update(canonical(&Value::Object(content)));
    let hex: String = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("lc-{}", &hex[..20]).parse()
}

/// Removes the launch configs from a pool's config; they are separate rows.
pub fn split_off(
    config: &mut Map<String, Value>,
) -> Result<Vec<Map<String, Value>>, BadLaunchConfigs> {
    match config.remove("launchConfigs") {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .into_iter()
            .map(|item| match item {
                Value::Object(item) => Ok(item),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_) => Err(BadLaunchConfigs::NotObjects),
            })
            .collect(),
        Some(_) => Err(BadLaunchConfigs::NotObjects),
    }
}

/// Compares the launch configs of a pool with the requested ones.
///
/// A known id with the same content is restored from the archive and rewritten, as its
/// `workerManager` part may have changed. An unknown id is created. The others are archived. An id
/// that already stands for another content is an error, and nothing changes.
pub fn reconcile(
    pool_id: &PoolId,
    existing: Vec<LaunchConfig>,
    wanted: Vec<Map<String, Value>>,
    now: Timestamp,
) -> Result<Reconciliation, BadLaunchConfigs> {
    let mut known: BTreeMap<LaunchConfigId, LaunchConfig> = existing
        .into_iter()
        .map(|config| (config.id.clone(), config))
        .collect();
    let mut kept = BTreeSet::new();
    let mut fresh = BTreeSet::new();
    let mut result = Reconciliation::default();
    for (position, configuration) in (0..).zip(wanted) {
        let id = id_of(pool_id, &configuration)?;
        if let Some(row) = known.get_mut(&id) {
            if !row.same_content(&configuration) {
                return Err(BadLaunchConfigs::Clash(id));
            }
            row.configuration = configuration;
            row.position = position;
            row.archived = false;
            row.last_modified = now;
            result.updated.push(id.clone());
        } else {
            result.created.push(id.clone());
            fresh.insert(id.clone());
            let row = LaunchConfig {
                pool_id: pool_id.clone(),
                id: id.clone(),
                archived: false,
                position,
                configuration,
                created: now,
                last_modified: now,
                version: Version::FIRST,
            };
            known.insert(id.clone(), row);
        }
        kept.insert(id);
    }
    for (id, mut row) in known {
        if fresh.contains(&id) {
            result.inserts.push(row);
        } else if kept.contains(&id) {
            result.rewrites.push(row);
        } else if !row.archived {
            row.archived = true;
            row.last_modified = now;
            result.archived.push(id);
            result.retirements.push(row);
        }
    }
    Ok(result)
}

impl Pool {
    /// The config as its author wrote it, with the ids of the active launch configs. Those that
    /// stand in the list are there; `workerConfig` has the other ones.
    pub fn assembled_config(&self, active: &[LaunchConfig]) -> Map<String, Value> {
        let mut config = self.definition.config.clone();
        let is_listed =
            |config: &&LaunchConfig| config.host_origin() != Some(HostConfigOrigin::PoolConfig);
        let list: Vec<Value> = active
            .iter()
            .filter(is_listed)
            .map(|launch_config| {
                let mut written = launch_config.configuration.clone();
                take_host_mark(&mut written);
                set_id(&mut written, &launch_config.id);
                Value::Object(written)
            })
            .collect();
        if !list.is_empty() {
            config.insert("launchConfigs".to_owned(), Value::Array(list));
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::pool::PoolDefinition;

    fn pool() -> PoolId {
        "a/b".parse().unwrap()
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000)
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn with(id: &str, ami: &str) -> Map<String, Value> {
        object(json!({"ami": ami, "workerManager": {"launchConfigId": id}}))
    }

    fn after(wanted: Vec<Map<String, Value>>, existing: Vec<LaunchConfig>) -> Vec<LaunchConfig> {
        let done = reconcile(&pool(), existing, wanted, now()).unwrap();
        [done.inserts, done.rewrites, done.retirements].concat()
    }

    fn names(ids: &[LaunchConfigId]) -> Vec<&str> {
        ids.iter().map(LaunchConfigId::as_str).collect()
    }

    #[test]
    fn every_published_id_is_computed_alike() {
        let vectors: Value =
            serde_json::from_str(include_str!("../tests/vectors/launch-config-ids.json")).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        assert!(cases.len() >= 3);
        for case in cases {
            let pool_id = case["workerPoolId"].as_str().unwrap().parse().unwrap();
            let mut content = object(case["config"].clone());
            // The vectors are about the hash: a given id would replace it.
            content.remove(OWN_PART);
            assert_eq!(
                id_of(&pool_id, &content).unwrap().as_str(),
                case["launchConfigId"]
            );
            assert_eq!(canonical(&Value::Object(content)), case["canonicalText"]);
        }
    }

    #[test]
    fn an_edit_creates_updates_and_archives() {
        let rows = after(vec![with("lc1", "x"), with("lc2", "y")], vec![]);
        let done = reconcile(
            &pool(),
            rows,
            vec![with("lc1", "x"), with("lc3", "z")],
            now(),
        )
        .unwrap();
        assert_eq!(names(&done.updated), ["lc1"]);
        assert_eq!(names(&done.created), ["lc3"]);
        assert_eq!(names(&done.archived), ["lc2"]);
    }

    #[test]
    fn an_archived_launch_config_comes_back_under_its_id() {
        let rows = after(vec![], after(vec![with("lc1", "x")], vec![]));
        assert!(rows[0].archived);
        let done = reconcile(&pool(), rows, vec![with("lc1", "x")], now()).unwrap();
        assert_eq!(names(&done.updated), ["lc1"]);
        assert!(!done.rewrites[0].archived);
    }

    #[test]
    fn one_id_for_two_contents_is_a_clash() {
        let refused = reconcile(
            &pool(),
            vec![],
            vec![with("lc1", "x"), with("lc1", "y")],
            now(),
        );
        assert_eq!(
            refused.unwrap_err().to_string(),
            "Launch config with ID `lc1` already exists with different configuration"
        );
    }

    #[test]
    fn the_order_of_the_author_is_kept() {
        let rows = after(vec![with("lc2", "y"), with("lc1", "x")], vec![]);
        let position = |rows: &[LaunchConfig], id: &str| {
            rows.iter()
                .find(|row| row.id.as_str() == id)
                .unwrap()
                .position
        };
        assert_eq!((position(&rows, "lc2"), position(&rows, "lc1")), (0, 1));
        let rows = after(vec![with("lc1", "x"), with("lc2", "y")], rows);
        assert_eq!((position(&rows, "lc2"), position(&rows, "lc1")), (1, 0));
    }

    #[test]
    fn a_config_looks_like_itself_with_its_id_filled_in() {
        let given = after(vec![object(json!({"ami": "x"}))], vec![]).remove(0);
        let read_back = object(given.with_id());
        let again = after(vec![read_back], vec![]).remove(0);
        assert!(given.is_same_for_clients(&again));
        let steered = object(json!({"ami": "x", "workerManager": {"maxCapacity": 3}}));
        assert!(!given.is_same_for_clients(&after(vec![steered], vec![])[0]));
    }

    #[test]
    fn steering_changes_without_a_new_id() {
        let rows = after(vec![object(json!({"ami": "x"}))], vec![]);
        let steered = object(json!({"ami": "x", "workerManager": {"maxCapacity": 3}}));
        let done = reconcile(&pool(), rows.clone(), vec![steered.clone()], now()).unwrap();
        assert_eq!(done.updated, [rows[0].id.clone()]);
        assert_eq!(done.rewrites[0].configuration, steered);
        assert_eq!(
            done.rewrites[0].with_id()["workerManager"]["maxCapacity"],
            3
        );
    }

    #[test]
    fn two_entries_that_differ_only_in_steering_become_one() {
        let twice = vec![
            object(json!({"ami": "x"})),
            object(json!({"ami": "x", "workerManager": {"initialWeight": 0.5}})),
        ];
        let done = reconcile(&pool(), vec![], twice, now()).unwrap();
        assert_eq!(
            (done.created.len(), done.updated.len(), done.inserts.len()),
            (1, 1, 1)
        );
    }

    #[test]
    fn a_launch_config_comes_from_the_provider_of_its_pool_that_it_names() {
        let definition = PoolDefinition {
            provider_id: "one".parse().unwrap(),
            further_provider_ids: vec!["two".parse().unwrap()],
            description: String::new(),
            config: Map::new(),
            owner: String::new(),
            email_on_error: false,
        };
        let owner = Pool::new(pool(), definition, now());
        let provider = |steering: Value| {
            let config = after(vec![object(json!({"workerManager": steering}))], vec![]).remove(0);
            config.provider_id(&owner).to_string()
        };
        assert_eq!(provider(json!({"providerId": "two"})), "two");
        assert_eq!(provider(json!({"providerId": "one"})), "one");
        for steering in [json!({}), json!({"providerId": "three"}), json!(["two"])] {
            assert_eq!(provider(steering), "one");
        }
    }

    #[test]
    fn launch_configs_that_are_no_list_of_objects_are_refused() {
        for config in [json!({"launchConfigs": 3}), json!({"launchConfigs": [3]})] {
            assert_eq!(
                split_off(&mut object(config)),
                Err(BadLaunchConfigs::NotObjects)
            );
        }
    }

    proptest! {
        #[test]
        fn reconciling_twice_creates_and_archives_nothing_more(
            first in proptest::collection::vec(0..6_u8, 0..6),
            second in proptest::collection::vec(0..6_u8, 0..6),
        ) {
            let configs = |list: &[u8]| -> Vec<_> {
                list.iter().map(|n| object(json!({"n": n}))).collect()
            };
            let rows = after(configs(&first), vec![]);
            let rows = after(configs(&second), rows);
            let again = reconcile(&pool(), rows.clone(), configs(&second), now()).unwrap();
            prop_assert!(again.created.is_empty() && again.archived.is_empty());
            let active: BTreeSet<_> = rows.iter().filter(|r| !r.archived).map(|r| &r.id).collect();
            let wanted: BTreeSet<_> = second.iter().collect();
            prop_assert_eq!(active.len(), wanted.len());
        }
    }
}
