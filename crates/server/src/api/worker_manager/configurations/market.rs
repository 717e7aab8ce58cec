//! What the providers of this deployment present to rule sets.

use cloud::Provider;
use domain::configuration::{Market, Takes, Wares};
use domain::id::ProviderId;
use serde_json::{Value, json};

use super::super::super::call::Call;
use super::super::super::error::ApiError;
use super::super::super::reply::Reply;
use crate::app::App;

pub(super) fn market(app: &App) -> Market {
    let mut market = Market::default();
    for (id, _) in app.engine.providers.listed() {
        match wares(app, id) {
            Ok(wares) => market.providers.insert(id.clone(), wares).map(drop),
            Err(problem) => market.out_of_service.insert(id.clone(), problem).map(drop),
        };
    }
    market
}

/// What one provider presents, or why it cannot say so now.
fn wares(app: &App, id: &ProviderId) -> Result<Wares, String> {
    let provider = app.engine.providers.get(id);
    let provider = provider.map_err(|problem| problem.to_string())?;
    Ok(Wares {
        takes: takes(provider.as_ref()),
        places: provider.places().map_err(|unknown| unknown.to_string())?,
        fills: provider.fills(),
    })
}

fn takes(provider: &dyn Provider) -> Takes {
    match (provider.machines(), provider.by_hand()) {
        (Some(_), _) => Takes::Launches,
        (None, Some(_)) => Takes::Declarations,
        (None, None) => Takes::Nothing,
    }
}

/// For those who write rules.
pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let listed = call.app.engine.providers.listed().map(|(id, kind)| {
        let mut told = match wares(&call.app, id) {
            Ok(wares) => json!(wares),
            Err(problem) => json!({ "problem": problem }),
        };
        told["providerId"] = json!(id.as_str());
        told["providerType"] = json!(kind);
        told
    });
    Reply::json(&json!({ "providers": listed.collect::<Vec<Value>>() }))
}
