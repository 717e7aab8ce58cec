//! News of offerings, written in the transaction of what happened.
//!
//! Only launches of strategies that learn have an offering. Rows are inserted, never changed, so
//! transactions do not wait for each other here.

use domain::launch::{Cause, Launch, LaunchState};
use domain::market::{OfferingId, OfferingNews, Trouble};
use domain::plan::{Award, Snapshot};
use store::launches::LaunchOrigin;

use crate::change::Change;

/// Notes what happened to a machine of this launch.
pub(super) fn note(
    change: &mut Change<'_, '_>,
    origin: &LaunchOrigin,
    news: OfferingNews,
) -> store::Result<()> {
    match &origin.offering {
        Some(offering) => {
            let (tx, now) = (&mut *change.tx, change.now);
            store::offering_news::insert(tx, offering, &origin.provider_id, news, now)
        }
        None => Ok(()),
    }
}

/// A machine of this launch has registered.
pub(crate) fn note_registration(
    change: &mut Change<'_, '_>,
    origin: &LaunchOrigin,
) -> store::Result<()> {
    let after_ms = change.now.millis_since(origin.created).max(0);
    note(change, origin, OfferingNews::Registered { after_ms })
}

/// The offering of an award, if the pool's strategy or its shadow learns. A launch after a
/// failure is noted as a trial, so that later plans of other pools do not make the same trial.
/// Plans of two processes may still make it at the same moment.
pub(super) fn note_asked(
    change: &mut Change<'_, '_>,
    snapshot: &Snapshot,
    award: &Award,
) -> store::Result<Option<OfferingId>> {
    let Some((index, offer)) = snapshot.offer_of(award) else {
        return Ok(None);
    };
    // A failure of a canary is that of its image, and not of its kind of machine.
    let is_canary = offer.canary.is_some();
    let Some(offering) = offer.offering().filter(|_| !is_canary) else {
        return Ok(None);
    };
    let of_shadow = || {
        let shadow = snapshot.shadow.as_ref()?;
        Some((offering.for_shadows(), shadow.offers.get(index)?.memory?))
    };
    let own = offer.memory.map(|memory| (offering.clone(), memory));
    let Some((offering, memory)) = own.or_else(of_shadow) else {
        return Ok(None);
    };
    if memory.breaker.failures_in_a_row > 0 {
        let (tx, now) = (&mut *change.tx, change.now);
        let provider = &offer.provider_id;
        store::offering_news::insert(tx, &offering, provider, OfferingNews::Asked, now)?;
    }
    Ok(Some(offering))
}

/// The result of a launch is known. Of a launch of which only a part was made, the rest failed for
/// lack of capacity.
/// A launch whose answer was lost is news at once, and again only if it was accepted after all.
pub(super) fn note_answer(
    change: &mut Change<'_, '_>,
    launch: &Launch,
    was_lost: bool,
) -> store::Result<()> {
    let Some(offering) = &launch.offering else {
        return Ok(());
    };
    let failed = |cause: Cause| OfferingNews::Failed {
        trouble: Trouble::from(cause),
    };
    if was_lost && launch.state != LaunchState::Accepted {
        return Ok(());
    }
    let news = match &launch.state {
        LaunchState::Accepted if launch.made < launch.machines && !was_lost => {
            vec![OfferingNews::Accepted, failed(Cause::Capacity)]
        }
        LaunchState::Accepted => vec![OfferingNews::Accepted],
        LaunchState::Refused { cause, .. } => vec![failed(*cause)],
        // A cloud that fails must not be asked again and again.
        LaunchState::Unknown { .. } => vec![failed(Cause::Lost)],
        LaunchState::Open | LaunchState::Withdrawn { .. } => Vec::new(),
    };
    for news in news {
        let (tx, now) = (&mut *change.tx, change.now);
        store::offering_news::insert(tx, offering, &launch.provider_id, news, now)?;
    }
    Ok(())
}
