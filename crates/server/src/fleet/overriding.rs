//! Overrides as the fleet sees them: who hears of a pause, and how one ends.

use domain::event::{EventBody, PauseChange};
use domain::overrides::{Override, Target};
use domain::time::Timestamp;
use store::{StoreError, Tx};

use crate::app::App;

/// Tells of a pause; limits are nobody's event.
pub fn tell_pause(
    app: &App,
    tx: &mut Tx<'_>,
    given: &Override,
    change: PauseChange,
    now: Timestamp,
) -> Result<(), StoreError> {
    if !given.is_pause() {
        return Ok(());
    }
    let provider_id = match &given.target {
        Target::LaunchConfig(pool_id, id) => {
            let pool = store::pool_get(tx, pool_id)?;
            let config = store::launch_config_get(tx, pool_id, id)?;
            let both = pool.zip(config);
            both.map(|(pool, config)| config.provider_id(&pool).clone())
        }
        Target::Pool(_) | Target::Provider(_) | Target::Region(_) => None,
    };
    let event = EventBody::Pause {
        change,
        pause: Box::new(given.clone()),
        provider_id,
    };
    app.announce(tx, now, [event])
}

/// Writes down that an override has ended, so that it stays ended.
pub fn end_override(
    app: &App,
    tx: &mut Tx<'_>,
    given: &mut Override,
    now: Timestamp,
) -> Result<(), StoreError> {
    given.ended = Some(now);
    given.version = store::override_update(tx, given)?;
    tell_pause(app, tx, given, PauseChange::Resumed, now)
}
