//! One compilation: evaluates the rules for each worker type and place, and collects errors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rules::{Attributes, EvaluationError, Evaluator, Pattern};
use serde_json::{Map, Value};

use super::compiled::{CompiledLaunchConfig, CompiledPool, CompiledProvider};
use super::given_ids::{GivenIds, IdAssignment};
use super::places::{list_values, places};
use super::problem::{Problem, Problems, below};
use super::provider_catalog::{Place, ProviderCatalog, ProviderEntry, WorkerSource};
use super::settings::{PoolSettings, ProviderOptions, Reader, differing_key, is_setting};
use super::{WorkerType, named_providers};
use crate::id::{LaunchConfigId, ProviderId};
use crate::image_reference::references;
use crate::launch_config::{has_own_id, id_of, set_id};
use crate::pool::MAX_LAUNCH_CONFIGS;

/// Maximum number of evaluations of a configuration, in all places of all its worker types.
const MAX_EVALUATIONS: usize = 50_000;
/// The error about a setting that differs between the pool and a place.
const OF_THE_POOL: &str =
    "belongs to the pool and not to a place, so it can only depend on `workerType`";
/// Maximum size of all launch configs together.
const MAX_BYTES: usize = 128 << 20;

pub(super) struct Compiler<'a> {
    evaluator: &'a Evaluator,
    catalog: &'a ProviderCatalog,
    named: BTreeSet<String>,
    given_ids: IdAssignment<'a>,
    problems: Problems,
    n_evaluations: usize,
    n_bytes: usize,
    max_evaluations: usize,
    /// A limit was exceeded and reported: nothing more is compiled.
    is_too_large: bool,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(
        evaluator: &'a Evaluator,
        catalog: &'a ProviderCatalog,
        given_ids: &'a GivenIds,
    ) -> Self {
        Self {
            evaluator,
            catalog,
            given_ids: IdAssignment::of(given_ids),
            named: named_providers(evaluator.set().rules()),
            problems: Problems::default(),
            n_evaluations: 0,
            n_bytes: 0,
            max_evaluations: MAX_EVALUATIONS,
            is_too_large: false,
        }
    }

    pub(super) fn finish(self) -> Result<(), Problems> {
        self.problems.into_result()
    }

    /// A pool that is taken over counts towards the limits, too.
    pub(super) fn take_over(&mut self, pool: &CompiledPool) {
        self.count(pool.n_places(), pool.n_bytes);
    }

    fn count(&mut self, n_evaluations: usize, n_bytes: usize) {
        self.n_evaluations += n_evaluations;
        self.n_bytes += n_bytes;
        let text = if self.n_evaluations > self.max_evaluations {
            format!(
                "its worker types have more than {} places together: divide it into several configurations",
                self.max_evaluations
            )
        } else if self.n_bytes > MAX_BYTES {
            format!(
                "its launch configs weigh more than {} MiB together",
                MAX_BYTES >> 20
            )
        } else {
            return;
        };
        if !self.is_too_large {
            self.is_too_large = true;
            self.problems.add(Problem::at("", text));
        }
    }

    /// `None`: an error was found and reported.
    pub(super) fn pool(&mut self, worker_type: &WorkerType) -> Option<Arc<CompiledPool>> {
        if self.is_too_large {
            return None;
        }
        let attributes = worker_type.attributes();
        let values = self.evaluator.evaluate(&attributes);
        let errors = &values.errors;
        self.problems
            .add_evaluation(&attributes, errors, is_setting);
        let mut reader = Reader {
            evaluator: self.evaluator,
            attributes: &attributes,
            values: &values,
            named: &self.named,
            problems: &mut self.problems,
        };
        let settings = PoolSettings::read(&mut reader, self.catalog);
        let n_bytes_before = self.n_bytes;
        let mut regions = Regions::new(settings.regions.as_deref());
        let mut providers = Vec::with_capacity(settings.providers.len());
        for (id, options, entry) in &settings.providers {
            let opt_in = OptIn {
                worker_type,
                attributes: &attributes,
                values: &values,
                settings: &settings,
                id,
                options,
                entry,
            };
            providers.push(self.provider(&opt_in, &mut regions));
        }
        if settings.lacking.is_empty() {
            for problem in regions.unused() {
                self.wrong(&attributes, "/regions", problem);
            }
        }
        let n_launch_configs: usize = providers
            .iter()
            .map(|provider| provider.launch_configs.len())
            .sum();
        if n_launch_configs > MAX_LAUNCH_CONFIGS {
            let text = format!(
                "give {n_launch_configs} launch configs together; a pool has at most {MAX_LAUNCH_CONFIGS}"
            );
            self.wrong(&attributes, "/providers", text);
        }
        let n_bytes = self.n_bytes - n_bytes_before;
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
                n_bytes,
            })
        })
    }

    fn provider(&mut self, opt_in: &OptIn<'_>, regions: &mut Regions<'_>) -> CompiledProvider {
        let mut compiled = CompiledProvider {
            id: opt_in.id.clone(),
            takes: opt_in.entry.takes,
            section: opt_in.options.section.clone(),
            declared: Map::new(),
            declared_at: None,
            launch_configs: Vec::new(),
            disabled: Vec::new(),
            repeated: Vec::new(),
        };
        match opt_in.entry.takes {
            WorkerSource::Nothing => {}
            WorkerSource::Declarations => self.declared(opt_in, &mut compiled),
            WorkerSource::Launches => self.launch_configs(opt_in, regions, &mut compiled),
        }
        compiled
    }

    /// The section of a provider without launch configs. All its workers are in one place.
    fn declared(&mut self, opt_in: &OptIn<'_>, compiled: &mut CompiledProvider) {
        let place = opt_in.entry.places.first().cloned().unwrap_or_default();
        let attributes = opt_in.attributes_at(&place);
        let values = self.evaluator.evaluate(&attributes);
        self.add_errors(opt_in, &attributes, &values.errors);
        self.count(1, 0);
        if let Some(key) = differing_key(opt_in.values, &values) {
            self.wrong(&attributes, &below("", key), OF_THE_POOL);
        }
        match values.get(&opt_in.options.section) {
            Some(Value::Object(section)) => compiled.declared = section.clone(),
            Some(_) => {
                let pointer = below("", &compiled.section);
                self.wrong(&attributes, &pointer, "must be an object");
            }
            None => {}
        }
        compiled.declared_at = Some(attributes);
    }

    fn launch_configs(
        &mut self,
        opt_in: &OptIn<'_>,
        regions: &mut Regions<'_>,
        compiled: &mut CompiledProvider,
    ) {
        let Some(found) = self.places(opt_in, regions) else {
            return;
        };
        let mut known: BTreeMap<LaunchConfigId, usize> = BTreeMap::new();
        for place in &found {
            let attributes = opt_in.attributes_at(place);
            match self.launch_config(opt_in, place, &attributes) {
                Some(Outcome::Disabled) => {
                    self.count(1, 0);
                    compiled.disabled.push(attributes);
                }
                Some(Outcome::Made(config)) => {
                    let first = known.get(&config.id);
                    match first.and_then(|at| compiled.launch_configs.get(*at)) {
                        None => {
                            self.count(1, weight(&config.configuration));
                            known.insert(config.id.clone(), compiled.launch_configs.len());
                            compiled.launch_configs.push(config);
                        }
                        // If nothing depends on the place, one launch config stands for all places.
                        Some(first) if first.configuration == config.configuration => {
                            self.count(1, 0);
                            compiled.repeated.push(attributes);
                        }
                        Some(first) => self.refuse_duplicate_id(opt_in, first, &config),
                    }
                }
                None => self.count(1, 0),
            }
            if self.is_too_large {
                return;
            }
        }
    }

    fn places(&mut self, opt_in: &OptIn<'_>, regions: &mut Regions<'_>) -> Option<Vec<Place>> {
        let found = places(opt_in.entry, opt_in.options.places.as_ref());
        match found {
            Ok(found) => match regions.narrow(&found) {
                Ok(left) => Some(left),
                Err(text) => {
                    let text = format!("leaves nothing of the provider {}: {text}", opt_in.id);
                    self.wrong(opt_in.attributes, "/regions", text);
                    None
                }
            },
            Err((pointer, text)) => {
                let pointer = format!("{}/places{pointer}", opt_in.pointer());
                self.wrong(opt_in.attributes, &pointer, text);
                None
            }
        }
    }

    fn refuse_duplicate_id(
        &mut self,
        opt_in: &OptIn<'_>,
        first: &CompiledLaunchConfig,
        second: &CompiledLaunchConfig,
    ) {
        let pointer = format!("{}/workerManager", below("", &opt_in.options.section));
        let text = format!(
            "gives the launch config the id {}, which is also that of another one with {}. An id stands for one content, \
             of which `workerManager` is no part: `launchConfigIds` can give each an id of its own",
            second.id, first.attributes
        );
        self.wrong(&second.attributes, &pointer, text);
    }

    fn launch_config(
        &mut self,
        opt_in: &OptIn<'_>,
        place: &Place,
        attributes: &Attributes,
    ) -> Option<Outcome> {
        let result = self.evaluator.evaluate(attributes);
        self.add_errors(opt_in, attributes, &result.errors);
        let mut reader = Reader {
            evaluator: self.evaluator,
            attributes,
            values: &result,
            named: &self.named,
            problems: &mut self.problems,
        };
        let settings = opt_in.settings;
        reader.refuse_unknown(&settings.providers, &settings.lacking, self.catalog);
        if reader.flag("disabled") {
            return Some(Outcome::Disabled);
        }
        if let Some(key) = differing_key(opt_in.values, &result) {
            reader.wrong(&below("", key), OF_THE_POOL);
            return None;
        }
        let payload_schema = match result.get("payloadSchema") == opt_in.values.get("payloadSchema")
        {
            true => None,
            false => reader.payload_schema(),
        };
        let section = below("", &opt_in.options.section);
        let mut configuration = match result.get(&opt_in.options.section) {
            Some(Value::Object(configuration)) => configuration.clone(),
            Some(_) => {
                reader.wrong(&section, "must be an object: a launch config");
                return None;
            }
            None => {
                let text =
                    "this place has no launch config: set values for it, or set `disabled: true`";
                reader.wrong(&section, text);
                return None;
            }
        };
        if configuration
            .get("workerManager")
            .and_then(|steering| steering.get("providerId"))
            .is_some()
        {
            let text = "is set by `providers`";
            reader.wrong(&format!("{section}/workerManager/providerId"), text);
            return None;
        }
        if let Err(bad) = references(&configuration) {
            reader.wrong(&format!("{section}{}", bad.pointer), bad.message);
            return None;
        }
        fill(&mut configuration, opt_in.entry, place);
        match self.id(opt_in, &mut configuration) {
            Ok(id) => Some(Outcome::Made(CompiledLaunchConfig {
                id,
                attributes: attributes.clone(),
                configuration,
                payload_schema,
            })),
            Err(problem) => {
                let pointer = format!("{section}/workerManager/launchConfigId");
                self.wrong(attributes, &pointer, problem);
                None
            }
        }
    }

    /// The given id for this content, or else the computed id.
    fn id(
        &mut self,
        opt_in: &OptIn<'_>,
        configuration: &mut Map<String, Value>,
    ) -> Result<LaunchConfigId, String> {
        let own = has_own_id(configuration).then(|| configuration["workerManager"].take());
        let pool_id = opt_in.worker_type.pool_id();
        let computed = id_of(pool_id, configuration).map_err(|bad| bad.to_string())?;
        if let Some(own) = own {
            let own = &own["launchConfigId"];
            return Err(format!(
                "is not for rules, because it would hold for other content, too: write `launchConfigIds: \
                 {{{computed}: {own}}}` beside `rules`, or leave it out"
            ));
        }
        let Some(given) = self.given_ids.next(opt_in.id, &computed) else {
            return Ok(computed);
        };
        set_id(configuration, given);
        id_of(pool_id, configuration).map_err(|bad| bad.to_string())
    }

    /// Sections of other providers are not used.
    fn add_errors(&mut self, opt_in: &OptIn<'_>, at: &Attributes, errors: &[EvaluationError]) {
        let section = &opt_in.options.section;
        let is_used = |key: &str| key == section || is_setting(key);
        self.problems.add_evaluation(at, errors, is_used);
    }

    fn wrong(&mut self, attributes: &Attributes, pointer: &str, message: impl Into<String>) {
        self.problems
            .add_at(self.evaluator, attributes, pointer, message);
    }
}

enum Outcome {
    Made(CompiledLaunchConfig),
    Disabled,
}

/// A worker type with a provider that it opt_in in to.
struct OptIn<'a> {
    worker_type: &'a WorkerType,
    /// Those of the pool, without a place.
    attributes: &'a Attributes,
    /// The values of the pool.
    values: &'a Map<String, Value>,
    settings: &'a PoolSettings,
    id: &'a ProviderId,
    options: &'a ProviderOptions,
    entry: &'a ProviderEntry,
}

impl OptIn<'_> {
    fn pointer(&self) -> String {
        below("/providers", self.id.as_str())
    }

    /// `workerType`, `provider` and `region` always have a value: a place without a region has the
    /// name of its provider as one.
    fn attributes_at(&self, place: &Place) -> Attributes {
        let own = [
            ("workerType", self.worker_type.name()),
            ("provider", self.id.as_str()),
            ("region", self.id.as_str()),
        ];
        let place = place
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        own.into_iter().chain(place).collect()
    }
}

/// Puts the conditions of a place where the provider wants them, unless the launch config has a
/// value there.
fn fill(configuration: &mut Map<String, Value>, entry: &ProviderEntry, place: &Place) {
    for (name, pointer) in &entry.fills {
        // For a condition that the configuration defined itself, its rules decide.
        let is_offered = entry.places.iter().any(|place| place.contains_key(name));
        if let Some(value) = place.get(name).filter(|_| is_offered) {
            insert_if_absent(configuration, pointer, value);
        }
    }
}

fn insert_if_absent(configuration: &mut Map<String, Value>, pointer: &str, value: &str) {
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

/// The approximate number of bytes of its JSON.
fn weight(configuration: &Map<String, Value>) -> usize {
    let members = configuration.iter();
    members
        .map(|(key, value)| key.len() + 4 + weight_of(value))
        .sum()
}

fn weight_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| 1 + weight_of(item)).sum(),
        Value::Object(members) => weight(members),
    }
}

/// The regions that a worker type wants, and which of them exist.
struct Regions<'a> {
    wanted: Option<&'a [Pattern]>,
    is_used: Vec<bool>,
    seen: BTreeSet<String>,
}

impl<'a> Regions<'a> {
    fn new(wanted: Option<&'a [Pattern]>) -> Self {
        Self {
            wanted,
            is_used: vec![false; wanted.map_or(0, <[Pattern]>::len)],
            seen: BTreeSet::new(),
        }
    }

    /// The places in wanted regions or in no region; or the existing regions, if no place is left.
    fn narrow(&mut self, found: &[Place]) -> Result<Vec<Place>, String> {
        let Some(wanted) = self.wanted else {
            return Ok(found.to_vec());
        };
        let mut left = Vec::new();
        for place in found {
            let Some(region) = place.get("region") else {
                left.push(place.clone());
                continue;
            };
            self.seen.insert(region.clone());
            let mut fits = false;
            for (pattern, is_used) in wanted.iter().zip(&mut self.is_used) {
                if pattern.matches(region) {
                    (*is_used, fits) = (true, true);
                }
            }
            if fits {
                left.push(place.clone());
            }
        }
        match left.is_empty() && !found.is_empty() {
            true => Err(format!("its regions are {}", list_values(found, "region"))),
            false => Ok(left),
        }
    }

    /// The patterns that match nothing: typing errors, most likely.
    fn unused(&self) -> Vec<String> {
        let Some(wanted) = self.wanted.filter(|_| !self.seen.is_empty()) else {
            return Vec::new();
        };
        let pairs = wanted.iter().zip(&self.is_used);
        let unused = pairs.filter(|(_, is_used)| !**is_used);
        unused
            .map(|(pattern, _)| {
                format!(
                    "{:?} matches none of the regions of its providers",
                    pattern.as_str()
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::super::Configuration;
    use super::*;

    const TOO_MANY: &str = "have more than 20 places together";

    /// With a limit of 20.
    fn compiled(worker_types: &[String], places: &[String]) -> Result<Vec<usize>, String> {
        let options = json!({"other": {"places": [{"zone": places}]}});
        let values = json!({"owner": "o@example.com", "description": "d", "maxCapacity": 1,
            "providers": options, "other": {"x": 1}});
        let rule = json!({"ruleId": "all", "conditions": null, "values": values});
        let document = json!({"workerTypes": worker_types, "rules": [rule]});
        let configuration = Configuration::parse(&document).map_err(|bad| bad.to_string())?;
        let evaluator = Evaluator::new(&configuration.rules);
        let (catalog, ids) = (ProviderCatalog::assumed(), GivenIds::default());
        let within = || Compiler {
            max_evaluations: 20,
            ..Compiler::new(&evaluator, &catalog, &ids)
        };
        let (mut compiler, mut heir) = (within(), within());
        let types = configuration.worker_types.iter();
        let pools: Vec<_> = types.filter_map(|name| compiler.pool(name)).collect();
        compiler.finish().map_err(|problems| problems.to_string())?;
        // A pool that is taken over counts as much.
        pools.iter().for_each(|pool| heir.take_over(pool));
        assert!(!heir.is_too_large);
        heir.count(20 - heir.n_evaluations, 0);
        assert!(!heir.is_too_large);
        heir.count(1, 0);
        assert!(heir.finish().unwrap_err().to_string().contains(TOO_MANY));
        Ok(pools.iter().map(|pool| pool.n_places()).collect())
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("n{number}")).collect()
    }

    #[test]
    fn the_number_of_places_of_a_configuration_is_limited() {
        let limit = 20;
        let sizes = sizes_around("domain::configuration::compiler::MAX_EVALUATIONS", limit);
        let check = |count: usize, compiled: Result<Vec<usize>, String>| match compiled {
            Ok(n_places) => {
                assert!(count <= limit, "{count}");
                assert_eq!(n_places.iter().sum::<usize>(), count);
            }
            Err(problem) => {
                assert!(count > limit, "{count}: {problem}");
                assert_eq!(problem.matches(TOO_MANY).count(), 1, "{problem}");
            }
        };
        for count in sizes {
            check(count, compiled(&names(count), &names(1)));
            if count > 0 {
                check(count, compiled(&names(1), &names(count)));
            }
        }
        let evaluator = Evaluator::new(&rules::RuleSet::parse(&json!([])).unwrap());
        let (catalog, ids) = (ProviderCatalog::assumed(), GivenIds::default());
        let mut compiler = Compiler::new(&evaluator, &catalog, &ids);
        compiler.count(MAX_EVALUATIONS, 0);
        assert!(!compiler.is_too_large);
        compiler.count(1, 0);
        assert!(compiler.is_too_large);
    }
}
