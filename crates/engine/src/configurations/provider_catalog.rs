//! The catalog of this deployment's providers, as input for rule sets.

use cloud::Provider;
use domain::configuration::{ProviderCatalog, ProviderEntry, WorkerSource};
use domain::id::ProviderId;

use crate::Engine;

pub(super) fn provider_catalog(engine: &Engine) -> ProviderCatalog {
    let mut catalog = ProviderCatalog::default();
    for (id, _) in engine.providers.listed() {
        match provider_entry(engine, id) {
            Ok(entry) => catalog.providers.insert(id.clone(), entry).map(drop),
            Err(problem) => catalog.out_of_service.insert(id.clone(), problem).map(drop),
        };
    }
    catalog
}

/// The entry of one provider, or why it is not available now.
pub fn provider_entry(engine: &Engine, id: &ProviderId) -> Result<ProviderEntry, String> {
    let provider = engine.providers.get(id);
    let provider = provider.map_err(|problem| problem.to_string())?;
    let places = provider.places().map_err(|unknown| unknown.to_string())?;
    Ok(ProviderEntry {
        takes: takes(provider.as_ref()),
        places: match provider.region() {
            Some(region) => region.complete(places),
            None => places,
        },
        fills: provider.fills(),
    })
}

fn takes(provider: &dyn Provider) -> WorkerSource {
    match (provider.machines(), provider.declarer()) {
        (Some(_), _) => WorkerSource::Launches,
        (None, Some(_)) => WorkerSource::Declarations,
        (None, None) => WorkerSource::Nothing,
    }
}
