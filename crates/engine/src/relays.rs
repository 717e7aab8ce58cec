//! Announcements of relays.

use std::sync::Arc;

use domain::relay::Relay;

use crate::Engine;

/// Notes the announcement of a relay. It is no event: the next one comes soon.
pub async fn announce(engine: &Arc<Engine>, relay: Relay) -> store::Result<()> {
    let written = engine.change("relay_announce", relay.last_seen, move |change| {
        store::relays::write(change.tx, &relay)
    });
    written.await
}
