//! What machines cost now: spot prices as EC2 tells them now and then, list prices from a table.
//!
//! Bids are made without a call outside. So what was asked about is remembered, and `refresh` asks EC2 for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::plan::Bid;
use domain::plan::spot_prices::PriceTable;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use serde_json::{Map, Value};

use super::launch::is_spot;
use super::list_prices::list_price;

/// A region's spot prices are asked for again after this time.
const FRESH_MS: i64 = 5 * MINUTE_MS;
/// Prices older than this are no longer spoken of.
const STALE_MS: i64 = HOUR_MS;
/// Unknown prices are not asked for again before this has passed.
const AGAIN_MS: i64 = 30 * SECOND_MS;
/// A kind of machine that nobody has asked about for so long is forgotten.
const FORGET_MS: i64 = DAY_MS;
/// No more kinds of machines (each in its region) are remembered.
const MAX_WANTED: usize = 2_000;

pub(crate) struct Prices {
    /// From the configuration: by `<region>/<type>` or `<type>`, in millionths of a dollar per hour.
    on_demand: BTreeMap<String, u64>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Region and type, and when a bid last wanted to know.
    wanted: BTreeMap<(String, String), Timestamp>,
    spot: BTreeMap<String, Spot>,
    /// A bid wanted to know what EC2 was not asked for yet.
    lacks_some: bool,
    last_asked: Option<Timestamp>,
}

/// The spot prices of a region.
struct Spot {
    at: Timestamp,
    /// What EC2 was asked about; it may know nothing of some.
    kinds: BTreeSet<String>,
    /// The highest of the last half hour: a machine will have to live with that.
    highest: PriceTable,
}

impl Prices {
    pub(crate) fn new(on_demand: BTreeMap<String, u64>) -> Self {
        Self {
            on_demand,
            known: Mutex::default(),
        }
    }

    /// What one machine of this launch config would cost, and what and where it would be.
    pub(crate) fn bid(&self, region: &str, asked: &Map<String, Value>, now: Timestamp) -> Bid {
        let zone = asked
            .get("Placement")
            .and_then(|placement| placement["AvailabilityZone"].as_str());
        let kind = asked.get("InstanceType").and_then(Value::as_str);
        let spot = is_spot(asked);
        let price = kind.and_then(|kind| {
            if spot {
                self.spot_price(region, kind, zone, now)
            } else {
                self.on_demand_price(region, kind)
            }
        });
        let place = format!(
            "{} {} {}",
            zone.unwrap_or(region),
            kind.unwrap_or("of EC2's choice"),
            if spot { "spot" } else { "on-demand" }
        );
        Bid {
            price,
            ..Bid::plain(place)
        }
    }

    /// Regions whose spot prices should be asked for now, with the types that matter there.
    pub(crate) fn due(&self, now: Timestamp) -> BTreeMap<String, BTreeSet<String>> {
        let mut known = self.known();
        known.lacks_some = false;
        known.last_asked = Some(now);
        known
            .wanted
            .retain(|_, asked| now.millis_since(*asked) < FORGET_MS);
        let mut due: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (region, kind) in known.wanted.keys() {
            let fresh = known.spot.get(region).is_some_and(|spot| {
                now.millis_since(spot.at) < FRESH_MS && spot.kinds.contains(kind)
            });
            if !fresh {
                due.entry(region.clone()).or_default().insert(kind.clone());
            }
        }
        // What is learnt replaces what was known of the region.
        for (region, kind) in known.wanted.keys() {
            if let Some(kinds) = due.get_mut(region) {
                kinds.insert(kind.clone());
            }
        }
        due
    }

    /// Whether a bid wanted a price that EC2 was not asked for, unless it was asked for some a moment ago.
    pub(crate) fn lacks_some(&self, now: Timestamp) -> bool {
        let known = self.known();
        let asked_lately = |asked: Timestamp| now.millis_since(asked) < AGAIN_MS;
        known.lacks_some && !known.last_asked.is_some_and(asked_lately)
    }

    pub(crate) fn learn(
        &self,
        region: &str,
        kinds: BTreeSet<String>,
        highest: PriceTable,
        now: Timestamp,
    ) {
        let spot = Spot {
            at: now,
            kinds,
            highest,
        };
        self.known().spot.insert(region.to_owned(), spot);
    }

    /// Where EC2 may choose the zone, the dearest one is what it may cost.
    fn spot_price(
        &self,
        region: &str,
        kind: &str,
        zone: Option<&str>,
        now: Timestamp,
    ) -> Option<f64> {
        let mut known = self.known();
        let key = (region.to_owned(), kind.to_owned());
        let is_remembered = known.wanted.len() < MAX_WANTED || known.wanted.contains_key(&key);
        if is_remembered {
            known.wanted.insert(key, now);
        }
        let is_asked_for = |spot: &Spot| spot.kinds.contains(kind);
        // EC2 is asked only about kinds that are remembered, so another kind is no reason to ask at once.
        if is_remembered && !known.spot.get(region).is_some_and(is_asked_for) {
            known.lacks_some = true;
        }
        let spot = known.spot.get(region)?;
        if now.millis_since(spot.at) >= STALE_MS {
            return None;
        }
        let zones = spot.highest.get(kind)?;
        match zone {
            Some(zone) => zones.get(zone).copied(),
            None => zones.values().copied().reduce(f64::max),
        }
    }

    fn on_demand_price(&self, region: &str, kind: &str) -> Option<f64> {
        let own = self
            .on_demand
            .get(&format!("{region}/{kind}"))
            .or_else(|| self.on_demand.get(kind));
        match own {
            Some(millionths) => u32::try_from(*millionths)
                .ok()
                .map(|millionths| f64::from(millionths) / 1e6),
            None => list_price(region, kind),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // What is known is whole after every statement, so a panic elsewhere does not spoil it.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;
    use serde_json::json;

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + minute * MINUTE_MS)
    }

    fn bid(prices: &Prices, asked: Value, minute: i64) -> Bid {
        prices.bid("us-west-2", asked.as_object().unwrap(), at(minute))
    }

    fn spot(kind: &str) -> Value {
        json!({"InstanceType": kind, "InstanceMarketOptions": {"MarketType": "spot"}})
    }

    #[test]
    fn a_spot_bid_learns_its_price_after_a_refresh_and_loses_it_when_it_is_stale() {
        let prices = Prices::new(BTreeMap::new());
        assert_eq!(bid(&prices, spot("m5.large"), 0).price, None);
        let due: Vec<_> = prices.due(at(0)).into_iter().collect();
        assert_eq!(
            due,
            [(
                "us-west-2".to_owned(),
                BTreeSet::from(["m5.large".to_owned()])
            )]
        );
        let zones = [("us-west-2a", 0.04), ("us-west-2b", 0.05)];
        let zones = zones.map(|(zone, price)| (zone.to_owned(), price)).into();
        let table = PriceTable::from([("m5.large".to_owned(), zones)]);
        let kinds = BTreeSet::from(["m5.large".to_owned()]);
        prices.learn("us-west-2", kinds, table, at(0));
        assert_eq!(bid(&prices, spot("m5.large"), 1).price, Some(0.05));
        let mut in_zone = spot("m5.large");
        in_zone["Placement"] = json!({"AvailabilityZone": "us-west-2a"});
        assert_eq!(
            bid(&prices, in_zone, 1),
            Bid {
                price: Some(0.04),
                ..Bid::plain("us-west-2a m5.large spot".to_owned())
            }
        );
        assert!(prices.due(at(4)).is_empty());
        assert_eq!(prices.due(at(5)).len(), 1);
        assert_eq!(bid(&prices, spot("m5.large"), 60).price, None);
    }

    #[test]
    fn a_price_that_nobody_asked_for_yet_is_asked_for_soon_and_not_again_at_once() {
        let prices = Prices::new(BTreeMap::new());
        assert!(!prices.lacks_some(at(0)));
        bid(&prices, spot("m5.large"), 0);
        assert!(prices.lacks_some(at(0)));
        // EC2 did not answer: it is asked again, and not by every bid.
        prices.due(at(0));
        bid(&prices, spot("m5.large"), 0);
        assert!(!prices.lacks_some(at(0)));
        assert!(prices.lacks_some(at(1)));
        let kinds = prices.due(at(1))["us-west-2"].clone();
        prices.learn("us-west-2", kinds, PriceTable::new(), at(1));
        bid(&prices, spot("m5.large"), 1);
        assert!(!prices.lacks_some(at(2)), "EC2 knows no price of it");
        // Another kind in a region that was asked about a moment ago.
        bid(&prices, spot("c5.large"), 2);
        assert!(prices.lacks_some(at(2)));
        let due = prices.due(at(2));
        assert_eq!(due["us-west-2"].len(), 2, "what was known is kept");
    }

    #[test]
    fn what_nobody_asks_about_any_more_is_forgotten() {
        let prices = Prices::new(BTreeMap::new());
        bid(&prices, spot("m5.large"), 0);
        assert!(prices.due(at(24 * 60)).is_empty());
    }

    #[test]
    fn so_many_kinds_are_remembered_and_for_more_nobody_hurries() {
        for count in sizes_around("cloud::aws::prices::MAX_WANTED", MAX_WANTED) {
            let prices = Prices::new(BTreeMap::new());
            let bid_for_all = |minute: i64| {
                for number in 0..count {
                    bid(&prices, spot(&format!("x{number}.large")), minute);
                }
            };
            bid_for_all(0);
            assert_eq!(prices.lacks_some(at(0)), count > 0);
            let due = prices.due(at(0)).remove("us-west-2").unwrap_or_default();
            assert_eq!(due.len(), count.min(MAX_WANTED));
            prices.learn("us-west-2", due, PriceTable::new(), at(0));
            bid_for_all(1);
            assert!(
                !prices.lacks_some(at(1)),
                "{count} kinds, and all of them asked for that will be"
            );
        }
    }

    #[test]
    fn a_kind_that_found_no_room_gets_that_of_one_that_is_forgotten() {
        let prices = Prices::new(BTreeMap::new());
        for number in 0..MAX_WANTED {
            bid(&prices, spot(&format!("x{number}.large")), 0);
        }
        bid(&prices, spot("late.large"), 0);
        assert!(!prices.due(at(0))["us-west-2"].contains("late.large"));
        assert!(prices.due(at(24 * 60)).is_empty());
        bid(&prices, spot("late.large"), 24 * 60);
        assert!(prices.due(at(24 * 60))["us-west-2"].contains("late.large"));
    }

    #[test]
    fn configured_prices_come_before_the_table_and_those_of_a_region_first() {
        let prices = Prices::new(BTreeMap::from([
            ("m5.large".to_owned(), 200_000),
            ("us-west-2/m5.large".to_owned(), 300_000),
            ("eu-west-1/c5.large".to_owned(), 1),
        ]));
        let price = |kind: &str| bid(&prices, json!({"InstanceType": kind}), 0).price;
        assert_eq!(price("m5.large"), Some(0.3));
        assert_eq!(price("c5.large"), Some(0.085));
        assert_eq!(price("u9.enormous"), None);
    }

    #[test]
    fn a_bid_says_what_and_where() {
        let prices = Prices::new(BTreeMap::new());
        assert_eq!(
            bid(&prices, json!({"InstanceType": "m5.large"}), 0).place,
            "us-west-2 m5.large on-demand"
        );
        assert_eq!(
            bid(&prices, json!({"LaunchTemplate": {}}), 0).place,
            "us-west-2 of EC2's choice on-demand"
        );
    }
}
