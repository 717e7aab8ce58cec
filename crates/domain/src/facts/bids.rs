//! The bids in a snapshot: the request for them, and one offer for each.

use super::{Facts, MarketFacts, Rooms, Starting};
use crate::id::OfferingId;
use crate::plan::{Bid, BidRequest, Bids, MAX_BIDS, Offer};
use crate::time::Timestamp;

impl Facts {
    /// What the pool needs, as far as it is known without bids.
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

/// Each bid, or why it does not count; at least one of these.
pub(super) fn separate(bids: &Bids, now: Timestamp) -> Vec<Result<Bid, String>> {
    match bids.as_deref() {
        Err(why) => vec![Err(why.clone())],
        Ok([]) => vec![Err("its provider makes no bid for it now".to_owned())],
        Ok([only]) => vec![only.clone().checked(now)],
        Ok(several) => {
            let checked = |bid: &Bid| {
                let place = bid.place.clone();
                let bid = bid.clone().checked(now);
                bid.map_err(|why| match place.is_empty() {
                    true => why,
                    false => format!("{place}: {why}"),
                })
            };
            several.iter().take(MAX_BIDS).map(checked).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_bounded_number_of_bids_counts_and_a_provider_without_any_is_named() {
        let now = Timestamp::from_millis(0);
        for size in sizes_around("domain::plan::bid::MAX_BIDS", MAX_BIDS) {
            let bids = separate(&Ok(vec![Bid::plain(String::new()); size]), now);
            assert_eq!(bids.len(), size.clamp(1, MAX_BIDS));
            assert_eq!(bids.iter().all(Result::is_ok), size > 0);
        }
    }

    #[test]
    fn one_of_several_bids_that_does_not_count_says_which_it_is() {
        let now = Timestamp::from_millis(0);
        let expired = Bid {
            expires: Some(now),
            ..Bid::plain("m5.large".to_owned())
        };
        let why = "its bid expired at 1970-01-01T00:00:00.000Z";
        let alone = separate(&Ok(vec![expired.clone()]), now);
        assert_eq!(alone, [Err(why.to_owned())]);
        let good = Bid::plain("m5.xlarge".to_owned());
        let both = separate(&Ok(vec![expired, good.clone()]), now);
        assert_eq!(both, [Err(format!("m5.large: {why}")), Ok(good)]);
    }
}
