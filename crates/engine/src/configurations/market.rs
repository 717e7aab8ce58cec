//! What the providers of this deployment present to rule sets.

use cloud::Provider;
use domain::configuration::{Market, Takes, Wares};
use domain::id::ProviderId;

use crate::Engine;

pub(super) fn market(engine: &Engine) -> Market {
    let mut market = Market::default();
    for (id, _) in engine.providers.listed() {
        match wares(engine, id) {
            Ok(wares) => market.providers.insert(id.clone(), wares).map(drop),
            Err(problem) => market.out_of_service.insert(id.clone(), problem).map(drop),
        };
    }
    market
}

/// What one provider presents, or why it cannot say so now.
pub fn wares(engine: &Engine, id: &ProviderId) -> Result<Wares, String> {
    let provider = engine.providers.get(id);
    let provider = provider.map_err(|problem| problem.to_string())?;
    Ok(Wares {
        takes: takes(provider.as_ref()),
        places: provider.places().map_err(|unknown| unknown.to_string())?,
        fills: provider.fills(),
    })
}

fn takes(provider: &dyn Provider) -> Takes {
    match (provider.machines(), provider.declarer()) {
        (Some(_), _) => Takes::Launches,
        (None, Some(_)) => Takes::Declarations,
        (None, None) => Takes::Nothing,
    }
}
