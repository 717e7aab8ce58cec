//! From a worker configuration to pools and launch configs, again and again, doing only what an edit touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rules::{Change, Evaluator, Presented};
use serde_json::{Map, Value};

use super::market::{Market, Place, Takes, Wares};
use super::places::places;
use super::problem::{Problem, Problems, below, rules_behind};
use super::settings::{PoolSettings, ProviderOptions, Reader, differing_key};
use super::{Configuration, WorkerType, named_providers};
use crate::id::{LaunchConfigId, PoolId, ProviderId};
use crate::launch_config::id_of;

/// Of a whole configuration.
const MAX_LAUNCH_CONFIGS: usize = 50_000;

/// A configuration and all that follows from it.
#[derive(Clone, Debug)]
pub struct Compilation {
    pub configuration: Configuration,
    pub market: Arc<Market>,
    evaluator: Evaluator,
    /// One for each worker type, in their order. Those that an edit did not touch are the same as before.
    pub pools: Vec<Arc<CompiledPool>>,
}

#[derive(Debug, PartialEq)]
pub struct CompiledPool {
    pub worker_type: WorkerType,
    pub owner: String,
    pub description: String,
    pub email_on_error: bool,
    /// Without launch configs.
    pub config: Map<String, Value>,
    pub providers: Vec<CompiledProvider>,
    pub payload_schema: Option<Arc<Value>>,
    pub check_payload: bool,
}

#[derive(Debug, PartialEq)]
pub struct CompiledProvider {
    pub id: ProviderId,
    pub takes: Takes,
    pub section: String,
    /// What the pool's config holds for a provider whose workers are declared by people.
    pub declared: Map<String, Value>,
    pub launch_configs: Vec<CompiledLaunchConfig>,
    /// Evaluations in which a rule says `disabled: true`.
    pub disabled: Vec<Presented>,
    /// Evaluations that gave a launch config which another had given already.
    pub repeated: Vec<Presented>,
}

#[derive(Debug, PartialEq)]
pub struct CompiledLaunchConfig {
    pub id: LaunchConfigId,
    /// The first evaluation that gave it.
    pub presented: Presented,
    /// As its provider wants it.
    pub configuration: Map<String, Value>,
    /// Where it is another one than the pool's.
    pub payload_schema: Option<Arc<Value>>,
}

impl Compilation {
    pub fn new(configuration: Configuration, market: Arc<Market>) -> Result<Self, Problems> {
        let evaluator = Evaluator::new(&configuration.rules);
        let mut compiler = Compiler::new(&evaluator, &market);
        let worker_types = configuration.worker_types.iter();
        let pools: Vec<_> = worker_types
            .filter_map(|worker_type| compiler.pool(worker_type))
            .collect();
        compiler.finish(&pools)?;
        Ok(Self {
            configuration,
            market,
            evaluator,
            pools,
        })
    }

    /// Compiles the next version; pools to which the edit makes no difference are taken over.
    pub fn succeed(&self, next: Configuration, market: Arc<Market>) -> Result<Self, Problems> {
        let (evaluator, change) = self.evaluator.succeed(&next.rules);
        let known: BTreeMap<&WorkerType, &Arc<CompiledPool>> = self
            .pools
            .iter()
            .map(|pool| (&pool.worker_type, pool))
            .collect();
        let same_market = *self.market == *market;
        let mut compiler = Compiler::new(&evaluator, &market);
        let mut pools = Vec::with_capacity(next.worker_types.len());
        for worker_type in &next.worker_types {
            let before = known.get(worker_type).copied();
            let pool = match before {
                Some(before) if same_market && !before.is_touched(&change) => {
                    Some(Arc::clone(before))
                }
                Some(before) => {
                    let pool = compiler.pool(worker_type);
                    pool.map(|pool| {
                        if *pool == **before {
                            Arc::clone(before)
                        } else {
                            pool
                        }
                    })
                }
                None => compiler.pool(worker_type),
            };
            pools.extend(pool);
        }
        compiler.finish(&pools)?;
        Ok(Self {
            configuration: next,
            market,
            evaluator,
            pools,
        })
    }

    pub fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    pub fn pool(&self, id: &PoolId) -> Option<&Arc<CompiledPool>> {
        self.pools
            .iter()
            .find(|pool| pool.worker_type.pool_id() == id)
    }

    /// Everything that this configuration evaluates.
    pub fn presentations(&self) -> Vec<Presented> {
        let mut all = Vec::new();
        for pool in &self.pools {
            all.push(pool.worker_type.presented());
            for provider in &pool.providers {
                all.extend(
                    provider
                        .launch_configs
                        .iter()
                        .map(|config| config.presented.clone()),
                );
                all.extend(provider.disabled.iter().chain(&provider.repeated).cloned());
            }
        }
        all
    }
}

impl CompiledPool {
    pub fn pool_id(&self) -> &PoolId {
        self.worker_type.pool_id()
    }

    /// Whether any of its providers launches workers.
    pub fn launches(&self) -> bool {
        let mut providers = self.providers.iter();
        providers.any(|provider| provider.takes == Takes::Launches)
    }

    /// With the provider of each.
    pub fn launch_configs(&self) -> impl Iterator<Item = (&ProviderId, &CompiledLaunchConfig)> {
        self.providers.iter().flat_map(|provider| {
            provider
                .launch_configs
                .iter()
                .map(|config| (&provider.id, config))
        })
    }

    fn n_launch_configs(&self) -> usize {
        self.providers
            .iter()
            .map(|provider| provider.launch_configs.len())
            .sum()
    }

    fn is_touched(&self, change: &Change) -> bool {
        change.touches(&self.worker_type.presented())
            || self.providers.iter().any(|provider| {
                let configs = provider
                    .launch_configs
                    .iter()
                    .map(|config| &config.presented);
                configs
                    .chain(&provider.disabled)
                    .chain(&provider.repeated)
                    .any(|presented| change.touches(presented))
            })
    }
}

struct Compiler<'a> {
    evaluator: &'a Evaluator,
    market: &'a Market,
    named: BTreeSet<String>,
    problems: Problems,
}

impl<'a> Compiler<'a> {
    fn new(evaluator: &'a Evaluator, market: &'a Market) -> Self {
        Self {
            evaluator,
            market,
            named: named_providers(evaluator.set().rules()),
            problems: Problems::default(),
        }
    }

    fn finish(mut self, pools: &[Arc<CompiledPool>]) -> Result<(), Problems> {
        let total: usize = pools.iter().map(|pool| pool.n_launch_configs()).sum();
        if total > MAX_LAUNCH_CONFIGS {
            let text =
                format!("gives {total} launch configs; at most {MAX_LAUNCH_CONFIGS} are possible");
            self.problems.add(Problem::at("", text));
        }
        self.problems.into_result()
    }

    /// `None`: something is wrong, and has been noted.
    fn pool(&mut self, worker_type: &WorkerType) -> Option<Arc<CompiledPool>> {
        let presented = worker_type.presented();
        let values = self.evaluator.evaluate(&presented);
        let mut reader = Reader {
            evaluator: self.evaluator,
            presented: &presented,
            values: &values,
            named: &self.named,
            problems: &mut self.problems,
        };
        let settings = PoolSettings::read(&mut reader, self.market);
        let mut providers = Vec::with_capacity(settings.providers.len());
        for (id, options, wares) in &settings.providers {
            let provider = Opted {
                worker_type,
                values: &values,
                settings: &settings,
                id,
                options,
                wares,
            };
            providers.push(self.provider(&provider));
        }
        self.problems.is_empty().then(|| {
            Arc::new(CompiledPool {
                worker_type: worker_type.clone(),
                owner: settings.owner,
                description: settings.description,
                email_on_error: settings.email_on_error,
                config: settings.config,
                providers,
                payload_schema: settings.payload_schema,
                check_payload: settings.check_payload,
            })
        })
    }

    fn provider(&mut self, opted: &Opted<'_>) -> CompiledProvider {
        let mut compiled = CompiledProvider {
            id: opted.id.clone(),
            takes: opted.wares.takes,
            section: opted.options.section.clone(),
            declared: Map::new(),
            launch_configs: Vec::new(),
            disabled: Vec::new(),
            repeated: Vec::new(),
        };
        match opted.wares.takes {
            Takes::Nothing => {}
            Takes::Declarations => {
                let section = opted.values.get(&opted.options.section);
                if let Some(Value::Object(section)) = section {
                    compiled.declared = section.clone();
                } else if section.is_some() {
                    self.wrong(
                        &opted.worker_type.presented(),
                        &below("", &compiled.section),
                        "must be an object",
                    );
                }
            }
            Takes::Launches => self.launch_configs(opted, &mut compiled),
        }
        compiled
    }

    fn launch_configs(&mut self, opted: &Opted<'_>, compiled: &mut CompiledProvider) {
        let found = places(
            opted.wares,
            opted.options.places.as_ref(),
            opted.settings.regions.as_deref(),
        );
        let found = match found {
            Ok(found) => found,
            Err((pointer, text)) => {
                let pointer = format!("{}/places{pointer}", below("/providers", opted.id.as_str()));
                return self.wrong(&opted.worker_type.presented(), &pointer, text);
            }
        };
        let ids = match &opted.options.launch_config_ids {
            Some(ids) if ids.len() != found.len() => {
                let text = format!(
                    "has {} ids for {} places; it must have one for each, in their order",
                    ids.len(),
                    found.len()
                );
                let pointer = below(&below("/providers", opted.id.as_str()), "launchConfigIds");
                return self.wrong(&opted.worker_type.presented(), &pointer, text);
            }
            Some(ids) => ids.iter().map(Option::as_deref).collect(),
            None => vec![None; found.len()],
        };
        let mut known = BTreeSet::new();
        for (place, id) in found.iter().zip(ids) {
            let presented = opted.presented(place);
            match self.launch_config(opted, place, &presented, id) {
                Some(Outcome::Disabled) => compiled.disabled.push(presented),
                Some(Outcome::Made(config)) => {
                    // Where nothing depends on the place, one launch config stands for all of them.
                    match known.insert(config.id.clone()) {
                        true => compiled.launch_configs.push(config),
                        false => compiled.repeated.push(presented),
                    }
                }
                None => {}
            }
        }
    }

    fn launch_config(
        &mut self,
        opted: &Opted<'_>,
        place: &Place,
        presented: &Presented,
        given_id: Option<&str>,
    ) -> Option<Outcome> {
        let result = self.evaluator.evaluate(presented);
        let mut reader = Reader {
            evaluator: self.evaluator,
            presented,
            values: &result,
            named: &self.named,
            problems: &mut self.problems,
        };
        reader.refuse_unknown(&opted.settings.providers, self.market);
        if reader.flag("disabled") {
            return Some(Outcome::Disabled);
        }
        if let Some(key) = differing_key(opted.values, &result) {
            let text = "belongs to the pool as a whole, so that it can only depend on `workerType`";
            reader.wrong(&below("", key), text);
            return None;
        }
        let payload_schema = match result.get("payloadSchema") == opted.values.get("payloadSchema")
        {
            true => None,
            false => reader.payload_schema(),
        };
        let section = below("", &opted.options.section);
        let mut configuration = match result.get(&opted.options.section) {
            Some(Value::Object(configuration)) => configuration.clone(),
            Some(_) => {
                reader.wrong(&section, "must be an object: a launch config");
                return None;
            }
            None => {
                let text = "there is no launch config for this place: give it values, or say `disabled: true`";
                reader.wrong(&section, text);
                return None;
            }
        };
        if configuration
            .get("workerManager")
            .and_then(|steering| steering.get("providerId"))
            .is_some()
        {
            let text = "is said by `providers`";
            reader.wrong(&format!("{section}/workerManager/providerId"), text);
            return None;
        }
        fill(&mut configuration, opted.wares, place);
        if let Some(id) = given_id {
            put_unless_there(&mut configuration, "/workerManager/launchConfigId", id);
        }
        match id_of(opted.worker_type.pool_id(), &configuration) {
            Ok(id) => Some(Outcome::Made(CompiledLaunchConfig {
                id,
                presented: presented.clone(),
                configuration,
                payload_schema,
            })),
            Err(bad) => {
                reader.wrong(
                    &format!("{section}/workerManager/launchConfigId"),
                    bad.to_string(),
                );
                None
            }
        }
    }

    fn wrong(&mut self, presented: &Presented, pointer: &str, message: impl Into<String>) {
        let rules = rules_behind(self.evaluator, presented, pointer);
        self.problems
            .add(Problem::at(pointer, message).when(presented).by(rules));
    }
}

enum Outcome {
    Made(CompiledLaunchConfig),
    Disabled,
}

/// A worker type and one of the providers that it opted in to.
struct Opted<'a> {
    worker_type: &'a WorkerType,
    /// Those of the pool.
    values: &'a Map<String, Value>,
    settings: &'a PoolSettings,
    id: &'a ProviderId,
    options: &'a ProviderOptions,
    wares: &'a Wares,
}

impl Opted<'_> {
    fn presented(&self, place: &Place) -> Presented {
        let own = [
            ("workerType", self.worker_type.name()),
            ("provider", self.id.as_str()),
        ];
        let place = place
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        own.into_iter().chain(place).collect()
    }
}

/// Puts what the place implies where the provider wants it, unless something is there.
fn fill(configuration: &mut Map<String, Value>, wares: &Wares, place: &Place) {
    for (name, pointer) in &wares.fills {
        // A condition of the configuration's own means what its rules make of it.
        let is_presented = wares.places.iter().any(|place| place.contains_key(name));
        if let Some(value) = place.get(name).filter(|_| is_presented) {
            put_unless_there(configuration, pointer, value);
        }
    }
}

fn put_unless_there(configuration: &mut Map<String, Value>, pointer: &str, value: &str) {
    let mut keys = pointer.split('/').skip(1).peekable();
    let mut object = configuration;
    while let Some(key) = keys.next() {
        if keys.peek().is_none() {
            object
                .entry(key)
                .or_insert_with(|| Value::String(value.to_owned()));
            return;
        }
        let next = object
            .entry(key)
            .or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(next) = next else {
            return;
        };
        object = next;
    }
}
