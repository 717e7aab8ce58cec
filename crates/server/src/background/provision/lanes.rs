//! Lanes: the pools of a strategy service wait for each other, and no other pool waits for them.
//!
//! A decision with a service takes as long as its answer. So each service has a lane with places of
//! its own, besides the lane of all pools that ask none.

use std::collections::{BTreeMap, VecDeque};

use domain::facts::{Facts, strategy_service};
use domain::id::StrategyServiceId;
use domain::time::{SECOND_MS, Timestamp};

use super::decisions::AT_ONCE;

/// Maximum number of pools of a strategy service that are decided on at the same time.
pub(super) const AT_ONCE_PER_SERVICE: usize = 8;
/// Facts that waited for longer are read again.
const FRESH_MS: i64 = 5 * SECOND_MS;

/// The pools that wait for a decision, and how many are decided on.
#[derive(Default)]
pub(super) struct Lanes {
    /// By service; `None` is the lane of all other pools.
    by_service: BTreeMap<Option<StrategyServiceId>, Lane>,
}

#[derive(Default)]
struct Lane {
    n_deciding: usize,
    waiting: VecDeque<Facts>,
}

/// The place of a decision in a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(Option<StrategyServiceId>);

impl Place {
    pub(super) fn asks_service(&self) -> bool {
        self.0.is_some()
    }
}

impl Lanes {
    pub(super) fn add(&mut self, facts: Facts) {
        let service = strategy_service(&facts.pool);
        let lane = self.by_service.entry(service).or_default();
        lane.waiting.push_back(facts);
    }

    /// The next facts to decide on, if their lane has a place left.
    pub(super) fn take(&mut self) -> Option<(Place, Facts)> {
        for (service, lane) in &mut self.by_service {
            let places = match service {
                None => AT_ONCE,
                Some(_) => AT_ONCE_PER_SERVICE,
            };
            if lane.n_deciding < places
                && let Some(facts) = lane.waiting.pop_front()
            {
                lane.n_deciding += 1;
                return Some((Place(service.clone()), facts));
            }
        }
        None
    }

    pub(super) fn leave(&mut self, place: &Place) {
        if let Some(lane) = self.by_service.get_mut(&place.0) {
            lane.n_deciding = lane.n_deciding.saturating_sub(1);
            if lane.n_deciding == 0 && lane.waiting.is_empty() {
                self.by_service.remove(&place.0);
            }
        }
    }

    /// How many pools wait that ask no service. Those of a service do not delay the reading of
    /// others: each pool waits once at most.
    pub(super) fn n_waiting(&self) -> usize {
        self.by_service
            .get(&None)
            .map_or(0, |lane| lane.waiting.len())
    }
}

/// Whether facts waited for so long that they are read again.
pub(super) fn is_stale(facts: &Facts, now: Timestamp) -> bool {
    now.millis_since(facts.horizon.now) > FRESH_MS
}

#[cfg(test)]
mod tests {
    use domain::demand::Demand;
    use domain::plan::StrategyDefaults;
    use domain::pool::{Pool, PoolDefinition};
    use domain::supply::Horizon;
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn facts(number: usize, service: Option<&str>) -> Facts {
        let config = match service {
            Some(name) => json!({"strategy": "external", "externalStrategy": name}),
            None => json!({"strategy": "balanced"}),
        };
        let now = Timestamp::from_millis(0);
        let definition = PoolDefinition {
            provider_id: "one".parse().unwrap(),
            further_provider_ids: Vec::new(),
            description: String::new(),
            config: config.as_object().unwrap().clone(),
            owner: String::new(),
            email_on_error: false,
        };
        let pool = Pool::new(format!("p/n{number}").parse().unwrap(), definition, now);
        Facts::new(
            pool,
            Demand::default(),
            Horizon::new(now, Some(now)),
            StrategyDefaults::default(),
        )
    }

    #[test]
    fn a_service_has_a_bounded_number_of_places_and_delays_no_other_pool() {
        let bound = AT_ONCE_PER_SERVICE;
        for count in sizes_around(
            "server::background::provision::lanes::AT_ONCE_PER_SERVICE",
            bound,
        ) {
            let mut lanes = Lanes::default();
            for number in 0..count {
                lanes.add(facts(number, Some("slow")));
            }
            lanes.add(facts(count, None));
            lanes.add(facts(count + 1, Some("other")));
            assert_eq!(lanes.n_waiting(), 1);
            let taken: Vec<_> = std::iter::from_fn(|| lanes.take()).collect();
            let places = |service: Option<&str>| {
                let service = service.map(|name| name.parse().unwrap());
                taken.iter().filter(|(place, _)| place.0 == service).count()
            };
            assert_eq!(places(Some("slow")), count.min(bound));
            assert_eq!((places(None), places(Some("other"))), (1, 1));
            for (place, _) in &taken {
                lanes.leave(place);
            }
            let rest = std::iter::from_fn(|| lanes.take()).count();
            assert_eq!(rest, count.saturating_sub(bound).min(bound));
        }
    }

    #[test]
    fn facts_that_waited_for_long_are_read_again() {
        let facts = facts(1, Some("slow"));
        let at = Timestamp::from_millis;
        assert!(!is_stale(&facts, at(FRESH_MS)));
        assert!(is_stale(&facts, at(FRESH_MS + 1)));
    }
}
