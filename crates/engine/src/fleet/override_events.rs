//! Announces pauses, ends overrides, and wakes the pools that they concern.

use domain::event::{EventBody, PauseChange};
use domain::overrides::{Override, Target};

use crate::change::Change;

/// Announces a pause; limits have no event.
pub fn announce_pause(
    change: &mut Change<'_, '_>,
    given: &Override,
    news: PauseChange,
) -> store::Result<()> {
    if !given.is_pause() {
        return Ok(());
    }
    let provider_id = match &given.target {
        Target::LaunchConfig(pool_id, id) => {
            let pool = store::pools::get(change.tx, pool_id)?;
            let config = store::launch_configs::get(change.tx, pool_id, id)?;
            let both = pool.zip(config);
            both.map(|(pool, config)| config.provider_id(&pool).clone())
        }
        Target::Pool(_) | Target::Configuration(_) | Target::Provider(_) | Target::Region(_) => {
            None
        }
    };
    let event = EventBody::Pause {
        change: news,
        pause: Box::new(given.clone()),
        provider_id,
    };
    change.announce([event])
}

pub fn end_override(change: &mut Change<'_, '_>, given: &mut Override) -> store::Result<()> {
    given.ended = Some(change.now);
    given.version = store::overrides::update(change.tx, given)?;
    announce_pause(change, given, PauseChange::Resumed)
}

/// Wakes the pool of an override. Overrides of several pools take effect in the next round.
pub fn wake_target(change: &mut Change<'_, '_>, given: &Override) {
    if let Some(pool_id) = given.target.pool_id() {
        change.wake_pool(pool_id);
    }
}
