//! What the providers of this deployment present to rule sets.

use domain::configuration::{Market, Takes, Wares};

use crate::app::App;

pub(super) fn market(app: &App) -> Market {
    let mut market = Market::default();
    for (id, _) in app.providers.listed() {
        match app.providers.get(id) {
            Ok(provider) => {
                let places = match provider.places() {
                    Ok(places) => places,
                    Err(unknown) => {
                        market
                            .out_of_service
                            .insert(id.clone(), unknown.to_string());
                        continue;
                    }
                };
                let takes = match (provider.machines(), provider.by_hand()) {
                    (Some(_), _) => Takes::Launches,
                    (None, Some(_)) => Takes::Declarations,
                    (None, None) => Takes::Nothing,
                };
                let wares = Wares {
                    takes,
                    places,
                    fills: provider.fills(),
                };
                market.providers.insert(id.clone(), wares);
            }
            Err(problem) => {
                market
                    .out_of_service
                    .insert(id.clone(), problem.to_string());
            }
        }
    }
    market
}
