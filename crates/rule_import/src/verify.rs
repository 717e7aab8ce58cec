//! Verification before a file is written: the rules compile to exactly the pools that they were
//! made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::configuration::{
    CONFIG_KEYS, Compilation, CompiledPool, Configuration, ProviderCatalog, ProviderEntry,
    value_changes,
};
use domain::id::{PoolId, ProviderId};
use serde_json::{Map, Value, json};

use super::source::{Source, Takes};

/// Compiles a document as a server does.
pub(super) fn compiled(document: &Value, sources: &[Source]) -> Result<Compilation, String> {
    let mut content = document.clone();
    if let Some(content) = content.as_object_mut() {
        // It is part of the URL under which the document is stored.
        content.remove("workerConfigurationId");
    }
    let configuration = Configuration::parse(&content).map_err(|problems| problems.to_string())?;
    let catalog = Arc::new(catalog(sources)?);
    Compilation::new(configuration, catalog).map_err(|problems| problems.to_string())
}

/// Compares the pools and returns the first difference as an error.
pub(super) fn compare(compiled: &Compilation, sources: &[Source]) -> Result<(), String> {
    if compiled.pools.len() != sources.len() {
        return Err(format!(
            "{} pools became {}",
            sources.len(),
            compiled.pools.len()
        ));
    }
    let pools: BTreeMap<&PoolId, &Arc<CompiledPool>> = compiled
        .pools
        .iter()
        .map(|pool| (pool.pool_id(), pool))
        .collect();
    sources.iter().try_for_each(|source| {
        let differs = |what: &str| format!("worker pool {}: its {what} would differ", source.id);
        let pool = pools.get(&source.id).ok_or_else(|| differs("id"))?;
        difference(source, pool).map_or(Ok(()), |what| Err(differs(&what)))
    })
}

/// A catalog in which the providers offer a place that no pool uses: all places are in the rules.
fn catalog(sources: &[Source]) -> Result<ProviderCatalog, String> {
    let mut providers: BTreeMap<ProviderId, ProviderEntry> = BTreeMap::new();
    let clouds = super::source::clouds(sources);
    for source in sources {
        let id: ProviderId = source
            .provider
            .parse()
            .map_err(|problem| format!("{problem}"))?;
        let elsewhere = super::cloud::condition_names()
            .map(|name| (name.to_owned(), format!("another-{name}")))
            .collect();
        let mut entry = ProviderEntry::launching(vec![elsewhere]);
        if source.takes == Takes::Declarations {
            entry.takes = domain::configuration::WorkerSource::Declarations;
        }
        if let Some(cloud) = clouds.get(&source.provider) {
            entry.fills = cloud.fills();
        }
        providers.insert(id, entry);
    }
    Ok(ProviderCatalog {
        providers,
        ..ProviderCatalog::default()
    })
}

fn difference(source: &Source, pool: &CompiledPool) -> Option<String> {
    let settings = Value::Object(source.settings().clone());
    let expected = |key: &str| settings.get(key);
    if expected("owner") != Some(&json!(pool.owner)) {
        return Some("owner".to_owned());
    }
    if expected("description") != Some(&json!(pool.description)) {
        return Some("description".to_owned());
    }
    if expected("emailOnError").unwrap_or(&json!(false)) != &json!(pool.email_on_error) {
        return Some("emailOnError".to_owned());
    }
    let [provider] = pool.providers.as_slice() else {
        return Some("provider".to_owned());
    };
    if provider.id.as_str() != source.provider || provider.declared != *source.declared() {
        return Some("provider".to_owned());
    }
    if let Some(key) = differing_key(&pool.config, source) {
        return Some(key.clone());
    }
    let (given, wanted) = (&provider.launch_configs, &source.launch_configs);
    if given.len() != wanted.len() {
        return Some("number of launch configs".to_owned());
    }
    let mut pairs = (1..).zip(given.iter().zip(wanted));
    pairs.find_map(|(number, (given, wanted))| {
        let given = Value::Object(given.configuration.clone());
        let changes = value_changes(&given, &Value::Object(wanted.with_own_id()));
        let pointer = &changes.first()?.pointer;
        Some(format!("launch config number {number} at {pointer}"))
    })
}

fn differing_key<'a>(config: &'a Map<String, Value>, source: &'a Source) -> Option<&'a String> {
    let settings = source.settings();
    let none = json!(0);
    let expected = |key: &String| match settings.get(key) {
        None if key == "minCapacity" && source.takes == Takes::Launches => Some(&none),
        value => value,
    };
    let is_config = |key: &&String| CONFIG_KEYS.contains(&key.as_str());
    let mut keys = config.keys().chain(settings.keys().filter(is_config));
    keys.find(|key| config.get(*key) != expected(key))
}
