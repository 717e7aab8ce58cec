//! The pools that become rules: the part of each that rules can express, and their sections.

use std::collections::{BTreeMap, BTreeSet};

use domain::configuration::{CONFIG_KEYS, is_setting};
use domain::id::{LaunchConfigId, PoolId};
use domain::launch_config::{id_of, set_id, without_id};
use domain::plan::Settings;
use domain::pool::MAX_LAUNCH_CONFIGS;
use serde_json::{Map, Value, json};

use super::cloud::{Cloud, places};
use super::leaves::leaves;
use super::places::{Place, encode};
use super::pool::Pool;
use super::table::{Ask, Row};

/// The provisioner of worker types with a short name.
const PROVISIONER: &str = "worker-manager/";

/// The part of a launch config that is for the server and not for the cloud.
const STEERING: &str = "workerManager";

/// A pool, divided into the parts that rules set.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) id: PoolId,
    pub(super) provider: String,
    pub(super) takes: Takes,
    /// The evaluation of its worker type, without `providers`.
    document: Map<String, Value>,
    /// The section of a provider that launches nothing.
    declared: Map<String, Value>,
    /// Without duplicates.
    pub(super) launch_configs: Vec<LaunchConfig>,
    places: Vec<Place>,
}

#[derive(Clone, Debug)]
pub(super) struct LaunchConfig {
    content: Map<String, Value>,
    /// Computed from pool and content.
    computed_id: LaunchConfigId,
    /// The author's id, or the computed id.
    id: LaunchConfigId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Launches,
    Declarations,
}

/// The name of each provider's section.
pub(super) type Sections = BTreeMap<String, String>;

impl Source {
    /// The error is a text for people.
    pub(super) fn new(id: &PoolId, pool: &Pool, takes: Takes) -> Result<Self, String> {
        let Value::Object(config) = &pool.config else {
            return Err("its config is not an object".to_owned());
        };
        let mut document = Map::new();
        document.insert("owner".to_owned(), json!(pool.owner));
        document.insert("description".to_owned(), json!(pool.description));
        if pool.email_on_error {
            document.insert("emailOnError".to_owned(), json!(true));
        }
        let mut declared = Map::new();
        for (key, value) in config {
            match key.as_str() {
                "launchConfigs" if takes == Takes::Launches => {}
                "minCapacity" if takes == Takes::Launches && value == 0 => {}
                "lifecycle" => {
                    document.insert(key.clone(), value.clone());
                }
                known if takes == Takes::Launches && CONFIG_KEYS.contains(&known) => {
                    document.insert(key.clone(), value.clone());
                }
                _ if takes == Takes::Declarations => {
                    declared.insert(key.clone(), value.clone());
                }
                unknown => {
                    return Err(format!(
                        "rules have no counterpart to {unknown} in its config"
                    ));
                }
            }
        }
        let launch_configs = match takes {
            Takes::Launches => launch_configs(id, config)?,
            Takes::Declarations => Vec::new(),
        };
        if takes == Takes::Launches {
            check_settings(config).map_err(|problem| format!("in its config {problem}"))?;
        }
        leaves(&document).map_err(|problem| format!("in its config {problem}"))?;
        leaves(&declared).map_err(|problem| format!("in its config {problem}"))?;
        if launch_configs.len() > MAX_LAUNCH_CONFIGS {
            return Err(format!(
                "it has more than {MAX_LAUNCH_CONFIGS} launch configs"
            ));
        }
        let contents = launch_configs
            .iter()
            .map(|config| Value::Object(config.content.clone()));
        let contents: Vec<Value> = contents.collect();
        Ok(Self {
            id: id.clone(),
            provider: pool.provider_id.clone(),
            takes,
            document,
            declared,
            launch_configs,
            places: places(&contents),
        })
    }

    /// Its name in rules.
    pub(super) fn worker_type(&self) -> &str {
        let id = self.id.as_str();
        id.strip_prefix(PROVISIONER).unwrap_or(id)
    }

    pub(super) fn owner(&self) -> Option<&str> {
        self.document.get("owner")?.as_str()
    }

    /// The evaluation of its worker type, without `providers`.
    pub(super) fn settings(&self) -> &Map<String, Value> {
        &self.document
    }

    pub(super) fn declared(&self) -> &Map<String, Value> {
        &self.declared
    }

    fn asks(&self, groups: &Groups) -> BTreeMap<Ask, String> {
        let name = self.worker_type();
        let mut asks = BTreeMap::from([(Ask::WorkerType, name.to_owned())]);
        let common = parts(name)
            .into_iter()
            .flatten()
            .filter(|part| groups.contains(part));
        asks.extend(common);
        asks
    }

    /// Its row in the table of pools.
    pub(super) fn row(&self, sections: &Sections, groups: &Groups) -> Row {
        let section = &sections[&self.provider];
        let mut options = Map::new();
        if *section != self.provider {
            options.insert("section".to_owned(), json!(section));
        }
        let mut document = self.document.clone();
        match self.takes {
            Takes::Launches => {
                options.insert("places".to_owned(), encode(&self.places));
                // Without this option, new places of the provider would add launch configs.
                options.insert("exact".to_owned(), json!(true));
            }
            Takes::Declarations if self.declared.is_empty() => {}
            Takes::Declarations => {
                document.insert(section.clone(), Value::Object(self.declared.clone()));
            }
        }
        document.insert("providers".to_owned(), json!({&self.provider: options}));
        Row {
            presented: self.asks(groups),
            document,
        }
    }

    /// The ids of its launch configs that differ from the computed ones.
    pub(super) fn given_ids(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut ids: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for config in &self.launch_configs {
            let same = ids.entry(config.computed_id.as_str()).or_default();
            same.push(config.id.as_str());
        }
        ids.retain(|computed, given| given != &[*computed]);
        ids
    }

    /// Its rows in the table of its section.
    pub(super) fn launch_config_rows(&self, groups: &Groups) -> impl Iterator<Item = Row> {
        self.launch_configs
            .iter()
            .zip(&self.places)
            .map(|(launch_config, place)| {
                let mut presented = self.asks(groups);
                presented.insert(Ask::Provider, self.provider.clone());
                for (number, name) in super::cloud::condition_names().enumerate() {
                    if let Some(value) = place.get(name) {
                        presented.insert(Ask::Condition(number, name), value.clone());
                    }
                }
                Row {
                    presented,
                    document: launch_config.content.clone(),
                }
            })
    }
}

/// Provisioners, and names within provisioners, that several worker types share.
pub(super) type Groups = BTreeSet<(Ask, String)>;

pub(super) fn groups(sources: &[Source]) -> Groups {
    let mut counts: BTreeMap<(Ask, String), usize> = BTreeMap::new();
    for part in sources
        .iter()
        .filter_map(|source| parts(source.worker_type()))
        .flatten()
    {
        *counts.entry(part).or_default() += 1;
    }
    counts
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(part, _)| part)
        .collect()
}

fn parts(worker_type: &str) -> Option<[(Ask, String); 2]> {
    let (provisioner, name) = worker_type.split_once('/')?;
    Some([
        (Ask::Provisioner, provisioner.to_owned()),
        (Ask::Name, name.to_owned()),
    ])
}

impl LaunchConfig {
    fn new(
        pool: &PoolId,
        launch_config: &Map<String, Value>,
        id: LaunchConfigId,
    ) -> Result<Self, String> {
        let content = without_id(launch_config);
        let computed_id = id_of(pool, &content).map_err(|problem| problem.to_string())?;
        Ok(Self {
            content,
            computed_id,
            id,
        })
    }

    /// The content with the id that its author gave it.
    pub(super) fn with_own_id(&self) -> Map<String, Value> {
        let mut with_own_id = self.content.clone();
        if self.id != self.computed_id {
            set_id(&mut with_own_id, &self.id);
        }
        with_own_id
    }

    /// Whether they are equal without the part for the server.
    fn is_as(&self, other: &Self) -> bool {
        let content = |config: &Self| {
            let mut content = config.content.clone();
            content.remove(STEERING);
            content
        };
        content(self) == content(other)
    }
}

/// Where the workers of each provider come from: without launch configs and a size in any pool, its
/// workers are declared.
pub(super) fn what_providers_take<'a>(
    pools: impl Iterator<Item = &'a Pool>,
) -> BTreeMap<&'a str, Takes> {
    let mut takes = BTreeMap::new();
    for pool in pools {
        let launches = ["launchConfigs", "maxCapacity"]
            .iter()
            .any(|key| pool.config.get(key).is_some());
        let known = takes
            .entry(pool.provider_id.as_str())
            .or_insert(Takes::Declarations);
        if launches {
            *known = Takes::Launches;
        }
    }
    takes
}

/// The clouds of the providers whose launch configs all have the format of one cloud.
pub(super) fn clouds(sources: &[Source]) -> BTreeMap<String, Cloud> {
    let mut found: BTreeMap<&str, BTreeSet<Option<Cloud>>> = BTreeMap::new();
    for source in sources {
        let of_one = |config: &LaunchConfig| Cloud::of(&Value::Object(config.content.clone()));
        let clouds = found.entry(&source.provider).or_default();
        clouds.extend(source.launch_configs.iter().map(of_one));
    }
    let of_one = found
        .into_iter()
        .filter_map(|(provider, clouds)| match clouds.len() {
            1 => Some((provider.to_owned(), clouds.into_iter().next()??)),
            _ => None,
        });
    of_one.collect()
}

/// Providers of the same cloud share a section, so that they can share values.
pub(super) fn sections(sources: &[Source]) -> Sections {
    let clouds = clouds(sources);
    let providers: BTreeSet<&str> = sources
        .iter()
        .map(|source| source.provider.as_str())
        .collect();
    let is_free = |name: &str, provider: &str| name == provider || !providers.contains(name);
    let section = |provider: &str| {
        let cloud = clouds.get(provider).map(|cloud| cloud.name());
        if let Some(name) = cloud.filter(|name| is_free(name, provider)) {
            return name.to_owned();
        }
        match is_setting(provider) {
            true => format!("by-{provider}"),
            false => provider.to_owned(),
        }
    };
    providers
        .iter()
        .map(|provider| ((*provider).to_owned(), section(provider)))
        .collect()
}

/// Checks settings that no rule set may have, and that servers of another kind may have accepted.
fn check_settings(config: &Map<String, Value>) -> Result<(), String> {
    if !config.contains_key("maxCapacity") {
        return Err("maxCapacity is missing".to_owned());
    }
    Settings::check(config).map_err(|bad| bad.to_string())
}

/// The launch configs as the server would have them: for duplicate ids the last one counts.
fn launch_configs(pool: &PoolId, config: &Map<String, Value>) -> Result<Vec<LaunchConfig>, String> {
    let listed = match config.get("launchConfigs") {
        None => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(_) => return Err("its launchConfigs are not a list".to_owned()),
    };
    let mut kept: Vec<(LaunchConfigId, LaunchConfig)> = Vec::new();
    for (number, item) in (1..).zip(listed) {
        let wrong = |problem: &str| format!("launch config number {number}: {problem}");
        let Value::Object(item) = item else {
            return Err(wrong("it is not an object"));
        };
        let id = id_of(pool, item).map_err(|problem| wrong(&problem.to_string()))?;
        let item = LaunchConfig::new(pool, item, id.clone()).map_err(|problem| wrong(&problem))?;
        leaves(&item.content).map_err(|problem| wrong(&problem))?;
        if item.content.is_empty() {
            return Err(wrong("it is empty"));
        }
        if item
            .content
            .get("workerManager")
            .is_some_and(|steering| steering.get("providerId").is_some())
        {
            return Err(wrong("it names another provider: write this pool by hand"));
        }
        if let Some(place) = kept.iter().position(|(known, _)| *known == id) {
            let (_, before) = kept.remove(place);
            if !before.is_as(&item) {
                return Err(wrong(&format!(
                    "it has the id {id} of a launch config with other content"
                )));
            }
        }
        kept.push((id, item));
    }
    Ok(kept.into_iter().map(|(_, item)| item).collect())
}
