//! What a rule set says about a pool: read from its evaluation with the worker type alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use rules::{Attributes, Evaluator, Pattern};
use serde_json::{Map, Value};

use super::market::{Market, Takes, Wares};
use super::places;
use super::problem::{Problem, Problems, below, rules_behind};
use crate::id::ProviderId;
use crate::plan::{BadSettings, Settings};

/// What goes into the pool's config as it is.
pub const CONFIG_KEYS: [&str; 7] = [
    "minCapacity",
    "maxCapacity",
    "scalingRatio",
    "strategy",
    "minPrice",
    "maxPrice",
    "lifecycle",
];
/// What is taken apart here. With those above, all that may only depend on the worker type.
const OWN_KEYS: [&str; 6] = [
    "owner",
    "description",
    "emailOnError",
    "providers",
    "regions",
    "checkPayload",
];
/// Of a launch config or of a pool.
const SHARED_KEYS: [&str; 2] = ["payloadSchema", "disabled"];

/// How a worker type uses a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderOptions {
    /// Under which name its values stand.
    pub section: String,
    pub places: Option<Value>,
    /// There are no other places than those, whatever the provider presents.
    pub exact: bool,
}

pub(super) struct PoolSettings {
    pub(super) owner: String,
    pub(super) description: String,
    pub(super) email_on_error: bool,
    pub(super) config: Map<String, Value>,
    pub(super) providers: Vec<(ProviderId, ProviderOptions, Wares)>,
    pub(super) regions: Option<Vec<Pattern>>,
    pub(super) payload_schema: Option<Arc<Value>>,
    pub(super) check_payload: bool,
}

/// Reads values one after the other, and keeps what is wrong with them.
pub(super) struct Reader<'a> {
    pub(super) evaluator: &'a Evaluator,
    pub(super) presented: &'a Attributes,
    pub(super) values: &'a Map<String, Value>,
    /// Providers that some rule opts in to, for whichever worker type.
    pub(super) named: &'a BTreeSet<String>,
    pub(super) problems: &'a mut Problems,
}

impl PoolSettings {
    pub(super) fn read(reader: &mut Reader<'_>, market: &Market) -> Self {
        let providers = reader.providers(market);
        reader.refuse_unknown(&providers, market);
        let launches = |(_, _, wares): &(_, _, Wares)| wares.takes == Takes::Launches;
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
        }
    }
}

/// Would the same value stand for the pool as for each of its places?
pub(super) fn differing_key<'k>(
    pool: &Map<String, Value>,
    place: &Map<String, Value>,
) -> Option<&'k str> {
    let keys = CONFIG_KEYS.iter().chain(&OWN_KEYS);
    keys.copied().find(|key| pool.get(*key) != place.get(*key))
}

pub(super) fn out_of_service<'m>(market: &'m Market, name: &str) -> Option<&'m str> {
    let id = name.parse::<ProviderId>().ok()?;
    market.out_of_service.get(&id).map(String::as_str)
}

/// Whether rule sets give it a meaning, so that no section can be called so.
pub fn is_setting(key: &str) -> bool {
    let all = CONFIG_KEYS.iter().chain(&OWN_KEYS).chain(&SHARED_KEYS);
    all.into_iter().any(|known| *known == key)
}

impl Reader<'_> {
    pub(super) fn wrong(&mut self, pointer: &str, message: impl Into<String>) {
        if self.problems.are_enough() {
            return self.problems.add_unseen();
        }
        let rules = rules_behind(self.evaluator, self.presented, pointer);
        let problem = Problem::at(pointer, message).when(self.presented).by(rules);
        self.problems.add(problem);
    }

    fn text(&mut self, key: &str) -> String {
        match self.values.get(key) {
            Some(Value::String(text)) => return text.clone(),
            Some(_) => self.wrong(&below("", key), "must be a text"),
            None => {
                let text = "is mandatory, and no rule that applies sets it";
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
            let text = "is mandatory for what is launched, and no rule that applies sets it";
            self.wrong("/maxCapacity", text);
            return config;
        }
        config.entry("minCapacity").or_insert_with(|| 0.into());
        if let Err(bad) = Settings::parse(&config) {
            let pointer = match &bad {
                BadSettings::Value { key, .. } => below("", key),
                BadSettings::Strategy(_) => "/strategy".to_owned(),
            };
            self.wrong(&pointer, bad.to_string());
        }
        config
    }

    fn providers(&mut self, market: &Market) -> Vec<(ProviderId, ProviderOptions, Wares)> {
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
            let found = found.and_then(|id| market.of(&id).map(|wares| (id, wares)));
            match found {
                Some((id, wares)) if options.exact => {
                    let takes = wares.takes;
                    let nothing = Wares::launching(Vec::new());
                    providers.push((id, options, Wares { takes, ..nothing }));
                }
                Some((id, wares)) => providers.push((id, options, wares)),
                None if let Some(why) = out_of_service(market, name) => {
                    let text = format!("what the provider presents is not known now: {why}");
                    let problem = Problem::at(&pointer, text).when(self.presented);
                    self.problems.add_outage(problem);
                }
                None => {
                    let known: Vec<&str> =
                        market.providers.keys().map(ProviderId::as_str).collect();
                    let text = format!(
                        "there is no provider {name:?}; there are: {}",
                        known.join(", ")
                    );
                    self.wrong(&pointer, text);
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
            self.wrong(
                pointer,
                "must be an object of options; {} if there is nothing to say",
            );
            return read;
        };
        for (key, value) in options {
            match (key.as_str(), value) {
                ("section", Value::String(section)) if !is_setting(section) => {
                    read.section.clone_from(section);
                }
                ("section", _) => {
                    let text = "must be the name of a section, and of no other setting";
                    self.wrong(&below(pointer, key), text);
                }
                ("places", places) => read.places = Some(places.clone()),
                ("exact", Value::Bool(exact)) => read.exact = *exact,
                ("exact", _) => self.wrong(&below(pointer, key), "must be true or false"),
                (_, _) => {
                    let text =
                        "is not an option of providers; there are `places`, `exact` and `section`";
                    self.wrong(&below(pointer, key), text);
                }
            }
        }
        if read.exact && read.places.is_none() {
            self.wrong(
                &below(pointer, "exact"),
                "needs `places`, which are then all there are",
            );
        }
        read
    }

    /// A misspelt setting must not be taken for a section that nobody asks for.
    pub(super) fn refuse_unknown(
        &mut self,
        providers: &[(ProviderId, ProviderOptions, Wares)],
        market: &Market,
    ) {
        for key in self.values.keys() {
            let is_section = providers
                .iter()
                .any(|(_, options, _)| options.section == *key);
            let is_provider = self.named.contains(key) || market.knows(key);
            // Without a server, and with nobody opted in to, any name might be a provider's.
            let might_be = market.is_assumed && providers.is_empty();
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
