//! The bids in a snapshot: the request for them, and one offer for each.

use super::{Facts, MarketFacts, Rooms, Starting};
use crate::id::OfferingId;
use crate::plan::{BidRequest, Offer};

impl Facts {
    /// The need of the pool, as far as it is known without bids.
    pub fn bid_request(&self) -> BidRequest {
        let now = self.horizon.now;
        let snapshot = self.snapshot(&[], &Rooms::new(), Vec::new());
        let units = snapshot.map_or(0, |snapshot| snapshot.missing_units());
        let announced = self.announced.iter();
        let ends = announced.map(|tasks| tasks.since.plus_millis(whole(tasks.run_ms)).max(now));
        let by = match self.demand.pending {
            0 => ends.min().unwrap_or(now),
            _ => now,
        };
        BidRequest { units, by }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is too large becomes the largest number"
)]
fn whole(millis: f64) -> i64 {
    millis as i64
}

impl MarketFacts {
    /// Of a launch config with several bids, each offer has the units of its offering.
    pub(super) fn split_held(&self, offers: &mut [Offer]) {
        for index in 0..offers.len() {
            let Some(offering) = offers[index]
                .offering()
                .filter(|_| has_others(offers, index))
            else {
                continue;
            };
            let key = (offers[index].launch_config_id.clone(), offering);
            offers[index].held = self.held.get(&key).copied().unwrap_or(0);
        }
    }
}

impl Starting {
    /// Whether its machines count for this offer of their launch config. Those of no bid that there
    /// is now count for the first.
    pub(super) fn is_of(&self, offers: &[Offer], index: usize) -> bool {
        if !has_others(offers, index) {
            return true;
        }
        let offer = &offers[index];
        let own = offer.offering();
        let is_known = |id: &OfferingId| {
            let same = |other: &&Offer| other.launch_config_id == offer.launch_config_id;
            let mut others = offers.iter().filter(same);
            others.any(|other| other.offering().is_some_and(|it| it.is_recorded_as(id)))
        };
        match &self.offering {
            Some(id) if is_known(id) => own.is_some_and(|own| own.is_recorded_as(id)),
            Some(_) | None => offer.bid_number == 0,
        }
    }
}

/// Whether there are further bids for the launch config of this offer.
fn has_others(offers: &[Offer], index: usize) -> bool {
    offers[index].bid_number > 0
        || offers
            .get(index + 1)
            .is_some_and(|next| next.bid_number > 0)
}
