//! The settings of a pool, read from the evaluation of the rules with the worker type alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use rules::{Attributes, Evaluator, Pattern, did_you_mean};
use serde_json::{Map, Value};

use super::places;
use super::problem::{Problem, Problems, below, rules_behind};
use super::provider_catalog::{ProviderCatalog, ProviderEntry, WorkerSource};
use crate::id::ProviderId;
use crate::plan::{BadSettings, Settings};

/// Keys that are copied to the pool's config unchanged.
pub const CONFIG_KEYS: [&str; 13] = [
    "minCapacity",
    "maxCapacity",
    "scalingRatio",
    "strategy",
    "shadowStrategy",
    "minPrice",
    "maxPrice",
    "waitPrice",
    "literal",
    "externalStrategy",
    "fallbackStrategy",
    "foresight",
    "lifecycle",
];
/// Keys that are parsed here. These and those above may only depend on the worker type.
const OWN_KEYS: [&str; 6] = [
    "owner",
    "description",
    "emailOnError",
    "providers",
    "regions",
    "checkPayload",
];
/// Keys of a launch config or of a pool.
const SHARED_KEYS: [&str; 2] = ["payloadSchema", "disabled"];

/// The keys of values that have a meaning for every provider.
pub fn value_keys() -> impl Iterator<Item = &'static str> {
    let all = CONFIG_KEYS.iter().chain(&OWN_KEYS).chain(&SHARED_KEYS);
    all.copied()
}

/// How a worker type uses a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderOptions {
    /// The key of the provider's values.
    pub section: String,
    pub places: Option<Value>,
    /// Use no places but these, whatever the provider offers.
    pub exact: bool,
}

pub(super) struct PoolSettings {
    pub(super) owner: String,
    pub(super) description: String,
    pub(super) email_on_error: bool,
    pub(super) config: Map<String, Value>,
    pub(super) providers: Vec<(ProviderId, ProviderOptions, ProviderEntry)>,
    /// The sections of providers that do not exist or do not work: other errors may follow.
    pub(super) lacking: BTreeSet<String>,
    pub(super) regions: Option<Vec<Pattern>>,
    pub(super) payload_schema: Option<Arc<Value>>,
    pub(super) check_payload: bool,
}

/// Reads values one by one, and collects errors.
pub(super) struct Reader<'a> {
    pub(super) evaluator: &'a Evaluator,
    pub(super) attributes: &'a Attributes,
    pub(super) values: &'a Map<String, Value>,
    /// Providers that a rule opts in to, for any worker type.
    pub(super) named: &'a BTreeSet<String>,
    pub(super) problems: &'a mut Problems,
}

impl PoolSettings {
    pub(super) fn read(reader: &mut Reader<'_>, catalog: &ProviderCatalog) -> Self {
        let mut lacking = BTreeSet::new();
        let providers = reader.providers(catalog, &mut lacking);
        reader.refuse_unknown(&providers, &lacking, catalog);
        let launches =
            |(_, _, entry): &(_, _, ProviderEntry)| entry.takes == WorkerSource::Launches;
        let config = reader.config(providers.iter().any(launches));
        Self {
            owner: reader.text("owner"),
            description: reader.text("description"),
            email_on_error: reader.flag("emailOnError"),
            config,
            regions: reader.regions(),
            payload_schema: reader.payload_schema(),
            check_payload: reader.flag("checkPayload"),
            providers,
            lacking,
        }
    }
}

/// A key whose value differs between the pool and a place.
pub(super) fn differing_key<'k>(
    pool: &Map<String, Value>,
    place: &Map<String, Value>,
) -> Option<&'k str> {
    let keys = CONFIG_KEYS.iter().chain(&OWN_KEYS);
    keys.copied().find(|key| pool.get(*key) != place.get(*key))
}

pub(super) fn out_of_service<'m>(catalog: &'m ProviderCatalog, name: &str) -> Option<&'m str> {
    let id = name.parse::<ProviderId>().ok()?;
    catalog.out_of_service.get(&id).map(String::as_str)
}

/// Whether the key is a setting of rule sets, so that no section can have this name.
pub fn is_setting(key: &str) -> bool {
    let all = CONFIG_KEYS.iter().chain(&OWN_KEYS).chain(&SHARED_KEYS);
    all.into_iter().any(|known| *known == key)
}

impl Reader<'_> {
    pub(super) fn wrong(&mut self, pointer: &str, message: impl Into<String>) {
        self.problems
            .add_at(self.evaluator, self.attributes, pointer, message);
    }

    fn text(&mut self, key: &str) -> String {
        match self.values.get(key) {
            Some(Value::String(text)) => return text.clone(),
            Some(_) => self.wrong(&below("", key), "must be a text"),
            None => {
                let text = "is required, and no rule that applies sets it";
                self.wrong(&below("", key), text);
            }
        }
        String::new()
    }

    pub(super) fn flag(&mut self, key: &str) -> bool {
        match self.values.get(key) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.wrong(&below("", key), "must be true or false");
                false
            }
        }
    }

    fn config(&mut self, launches: bool) -> Map<String, Value> {
        let mut config = Map::new();
        for key in CONFIG_KEYS {
            if let Some(value) = self.values.get(key) {
                config.insert(key.to_owned(), value.clone());
            }
        }
        if !launches {
            return config;
        }
        if !config.contains_key("maxCapacity") {
            let text =
                "is required for providers that launch workers, and no rule that applies sets it";
            self.wrong("/maxCapacity", text);
            return config;
        }
        config.entry("minCapacity").or_insert_with(|| 0.into());
        if let Err(bad) = Settings::check(&config) {
            let pointer = match &bad {
                BadSettings::Value { key, .. } => below("", key),
                BadSettings::Strategy(_) => "/strategy".to_owned(),
                BadSettings::UnknownShadow(_) | BadSettings::Shadow { .. } => {
                    "/shadowStrategy".to_owned()
                }
            };
            self.wrong(&pointer, bad.to_string());
        }
        config
    }

    /// `lacking` gets the sections of providers that do not exist or do not work.
    fn providers(
        &mut self,
        catalog: &ProviderCatalog,
        lacking: &mut BTreeSet<String>,
    ) -> Vec<(ProviderId, ProviderOptions, ProviderEntry)> {
        let listed = match self.values.get("providers") {
            None => return Vec::new(),
            Some(Value::Object(listed)) => listed,
            Some(_) => {
                let text = "must be a mapping from the ids of providers to their options, like {\"ec2\": {}}";
                self.wrong("/providers", text);
                return Vec::new();
            }
        };
        let mut providers = Vec::new();
        for (name, options) in listed {
            let pointer = below("/providers", name);
            let options = self.options(&pointer, name, options);
            let found = name.parse::<ProviderId>().ok();
            let found = found.and_then(|id| catalog.of(&id).map(|entry| (id, entry)));
            match found {
                Some((id, entry)) if options.exact => {
                    let takes = entry.takes;
                    let nothing = ProviderEntry::launching(Vec::new());
                    providers.push((id, options, ProviderEntry { takes, ..nothing }));
                }
                Some((id, entry)) => providers.push((id, options, entry)),
                None if let Some(why) = out_of_service(catalog, name) => {
                    let text = format!("the places of the provider are not known now: {why}");
                    let problem = Problem::at(&pointer, text).with_attributes(self.attributes);
                    self.problems.add_outage(problem);
                    lacking.insert(options.section);
                }
                None => {
                    let known: Vec<&str> =
                        catalog.providers.keys().map(ProviderId::as_str).collect();
                    let end = match did_you_mean(name, known.iter().copied()) {
                        meant if meant.is_empty() => ".".to_owned(),
                        meant => meant,
                    };
                    let text = format!(
                        "{name:?} is not a provider{end} The providers are: {}. Correct the name, \
                         or add the section [providers.{name}] to the configuration of the server \
                         (`fleetwright config example` has some)",
                        known.join(", ")
                    );
                    let rules = rules_behind(self.evaluator, self.attributes, &pointer);
                    let problem = Problem::at(&pointer, text).with_attributes(self.attributes);
                    let problem = Problem { rules, ..problem };
                    self.problems.add_missing_provider(problem);
                    lacking.insert(options.section);
                }
            }
        }
        providers
    }

    fn options(&mut self, pointer: &str, name: &str, options: &Value) -> ProviderOptions {
        let mut read = ProviderOptions {
            section: name.to_owned(),
            places: None,
            exact: false,
        };
        let Value::Object(options) = options else {
            self.wrong(pointer, "must be an object of options; {} for none");
            return read;
        };
        for (key, value) in options {
            match (key.as_str(), value) {
                ("section", Value::String(section)) if !is_setting(section) => {
                    read.section.clone_from(section);
                }
                ("section", _) => {
                    let text = "must be a section name, and not the name of a setting";
                    self.wrong(&below(pointer, key), text);
                }
                ("places", places) => read.places = Some(places.clone()),
                ("exact", Value::Bool(exact)) => read.exact = *exact,
                ("exact", _) => self.wrong(&below(pointer, key), "must be true or false"),
                (_, _) => {
                    let text = "is not an option of providers; the options are `places`, `exact` and `section`";
                    self.wrong(&below(pointer, key), text);
                }
            }
        }
        if read.exact && read.places.is_none() {
            self.wrong(
                &below(pointer, "exact"),
                "requires `places`, which are then the only places",
            );
        }
        read
    }

    /// A misspelt setting must not count as a section.
    pub(super) fn refuse_unknown(
        &mut self,
        providers: &[(ProviderId, ProviderOptions, ProviderEntry)],
        lacking: &BTreeSet<String>,
        catalog: &ProviderCatalog,
    ) {
        for key in self.values.keys() {
            let is_section = providers
                .iter()
                .any(|(_, options, _)| options.section == *key)
                || lacking.contains(key);
            let is_provider = self.named.contains(key) || catalog.knows(key);
            // Without a server and without an opt-in, any name may be a provider's.
            let might_be = catalog.is_assumed && providers.is_empty();
            if !(is_setting(key) || is_section || is_provider || might_be) {
                let text = "is neither a setting nor the section of a provider that this worker type opts in to \
                            with `providers`";
                self.wrong(&below("", key), text);
            }
        }
    }

    fn regions(&mut self) -> Option<Vec<Pattern>> {
        let value = self.values.get("regions")?;
        match places::patterns(value) {
            Ok(patterns) => Some(patterns),
            Err(problem) => {
                self.wrong("/regions", problem);
                None
            }
        }
    }

    pub(super) fn payload_schema(&mut self) -> Option<Arc<Value>> {
        match self.values.get("payloadSchema")? {
            schema @ (Value::Object(_) | Value::Bool(_)) => Some(Arc::new(schema.clone())),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.wrong("/payloadSchema", "must be a JSON Schema: an object");
                None
            }
        }
    }
}
