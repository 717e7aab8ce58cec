//! Prices of EC2 machines: spot prices, refreshed now and then, and list prices from a table. A
//! file of the operator overrides both.
//!
//! Bids must not call EC2. So bids record the machine types that they need prices of, and `refresh`
//! asks EC2. Until EC2 has answered about a type for the first time, there is no bid for it, but
//! not longer than [`MAX_WAIT_MS`]: a launch does not wait for ever for its price.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::plan::Bid;
use domain::plan::spot_prices::PriceTable;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use serde_json::{Map, Value};

use super::launch::is_spot;
use super::list_prices::list_price;
use crate::price_file::Market;
use crate::price_table::ConfiguredPrices;

/// Spot prices of a region are refreshed after this time. A little shorter than the time from one
/// refresh to the next, so that none is skipped.
const FRESH_MS: i64 = 4 * MINUTE_MS;
/// Prices older than this are not used.
const STALE_MS: i64 = HOUR_MS;
/// Bids of a type wait for its first spot price for this long at most.
const MAX_WAIT_MS: i64 = 30 * SECOND_MS;
/// Do not ask for unknown prices again before this time has passed.
const RETRY_MS: i64 = 30 * SECOND_MS;
/// Forget a machine type that no bid has asked about for this long.
const FORGET_MS: i64 = DAY_MS;
/// Machine types (each in its region) that are remembered at most.
const MAX_WANTED: usize = 2_000;

pub(crate) struct Prices {
    configured: ConfiguredPrices,
    state: Mutex<PriceState>,
}

#[derive(Default)]
struct PriceState {
    /// By region and type.
    wanted: BTreeMap<(String, String), Wanted>,
    spot: BTreeMap<String, RegionPrices>,
    /// A bid asked for the price of a type for the first time.
    has_new: bool,
    /// A bid asked for a price that EC2 was not asked for yet.
    lacks_some: bool,
    last_asked: Option<Timestamp>,
}

/// A type whose spot price bids ask for.
struct Wanted {
    first: Timestamp,
    last: Timestamp,
    /// EC2 was asked about it, and the call failed.
    has_failed: bool,
}

/// The present knowledge of a spot price.
enum SpotPrice {
    Known(f64),
    /// EC2 has none, or the last one is too old.
    Unknown,
    /// EC2 has not been asked yet.
    Awaited,
}

/// The spot prices of a region.
struct RegionPrices {
    at: Timestamp,
    /// The types that EC2 was asked about; it may have no price of some of them.
    kinds: BTreeSet<String>,
    /// The highest price of the last half hour, since a machine may have to pay that much.
    highest: PriceTable,
}

impl Prices {
    pub(crate) fn new(on_demand: BTreeMap<String, f64>, file: Option<PathBuf>) -> Self {
        Self {
            configured: ConfiguredPrices::new(on_demand, BTreeMap::new(), file),
            state: Mutex::default(),
        }
    }

    pub(crate) fn configured(&self) -> &ConfiguredPrices {
        &self.configured
    }

    /// The bid for one machine of this launch config: its price and its place. `chosen`: its type,
    /// if these parameters do not name it. `Err`: its price is awaited.
    pub(crate) fn bid(
        &self,
        region: &str,
        asked: &Map<String, Value>,
        chosen: Option<&str>,
        now: Timestamp,
    ) -> Result<Bid, String> {
        let zone = asked
            .get("Placement")
            .and_then(|placement| placement["AvailabilityZone"].as_str());
        let kind = chosen.or_else(|| asked.get("InstanceType").and_then(Value::as_str));
        let spot = is_spot(asked);
        let market = Market::of(spot);
        let price = match kind {
            None => None,
            Some(kind) => match (self.configured.price(region, zone, kind, market), market) {
                (Some(price), _) => Some(price),
                (None, Market::OnDemand) => list_price(region, kind),
                (None, Market::Spot) => match self.spot_price(region, kind, zone, now) {
                    SpotPrice::Known(price) => Some(price),
                    SpotPrice::Unknown => None,
                    SpotPrice::Awaited => {
                        let why = "its spot price is not known yet, and EC2 is asked for it";
                        return Err(why.to_owned());
                    }
                },
            },
        };
        let place = format!(
            "{} {} {}",
            zone.unwrap_or(region),
            kind.unwrap_or("of EC2's choice"),
            market.as_str()
        );
        Ok(Bid {
            price,
            ..Bid::plain(place)
        })
    }

    /// Regions whose spot prices should be refreshed now, with the types to ask about.
    pub(crate) fn due(&self, now: Timestamp) -> BTreeMap<String, BTreeSet<String>> {
        let mut state = self.state();
        state.has_new = false;
        state.lacks_some = false;
        state.last_asked = Some(now);
        state
            .wanted
            .retain(|_, wanted| now.millis_since(wanted.last) < FORGET_MS);
        let mut due: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (region, kind) in state.wanted.keys() {
            let fresh = state.spot.get(region).is_some_and(|spot| {
                // A negative time: the clock was set back.
                (0..FRESH_MS).contains(&now.millis_since(spot.at)) && spot.kinds.contains(kind)
            });
            if !fresh {
                due.entry(region.clone()).or_default().insert(kind.clone());
            }
        }
        // An answer replaces all known prices of a region, so ask about all its types.
        for (region, kind) in state.wanted.keys() {
            if let Some(kinds) = due.get_mut(region) {
                kinds.insert(kind.clone());
            }
        }
        due
    }

    /// Whether to refresh early: a bid asked for a price that EC2 was not asked for, for the first
    /// time or so long after the last refresh that EC2 may be asked again.
    pub(crate) fn lacks_some(&self, now: Timestamp) -> bool {
        let state = self.state();
        let asked_lately = |asked: Timestamp| (0..RETRY_MS).contains(&now.millis_since(asked));
        state.has_new || state.lacks_some && !state.last_asked.is_some_and(asked_lately)
    }

    pub(crate) fn learn(
        &self,
        region: &str,
        kinds: BTreeSet<String>,
        highest: PriceTable,
        now: Timestamp,
    ) {
        let spot = RegionPrices {
            at: now,
            kinds,
            highest,
        };
        self.state().spot.insert(region.to_owned(), spot);
    }

    /// EC2 could not be asked: bids do not wait any longer.
    pub(crate) fn note_failure(&self, region: &str, kinds: &BTreeSet<String>) {
        let mut state = self.state();
        for kind in kinds {
            let key = (region.to_owned(), kind.clone());
            if let Some(wanted) = state.wanted.get_mut(&key) {
                wanted.has_failed = true;
            }
        }
    }

    /// If EC2 chooses the zone, the price is that of the most expensive one.
    fn spot_price(
        &self,
        region: &str,
        kind: &str,
        zone: Option<&str>,
        now: Timestamp,
    ) -> SpotPrice {
        let mut state = self.state();
        let key = (region.to_owned(), kind.to_owned());
        let is_remembered = state.wanted.len() < MAX_WANTED || state.wanted.contains_key(&key);
        let mut waits = false;
        if is_remembered {
            let n_before = state.wanted.len();
            let wanted = state.wanted.entry(key).or_insert(Wanted {
                first: now,
                last: now,
                has_failed: false,
            });
            wanted.last = now;
            let waited_ms = now.millis_since(wanted.first);
            // A negative time: the clock was set back.
            waits = !wanted.has_failed && (0..MAX_WAIT_MS).contains(&waited_ms);
            state.has_new |= state.wanted.len() > n_before;
        }
        let is_asked_for = |spot: &RegionPrices| spot.kinds.contains(kind);
        let is_of_the_past = |spot: &RegionPrices| spot.at <= now;
        let known = state.spot.get(region).filter(|spot| is_asked_for(spot));
        // EC2 is asked only about remembered types, so another type is no reason to refresh.
        if is_remembered && !known.is_some_and(is_of_the_past) {
            state.lacks_some = true;
        }
        let Some(spot) = state.spot.get(region).filter(|spot| is_asked_for(spot)) else {
            return match waits {
                true => SpotPrice::Awaited,
                false => SpotPrice::Unknown,
            };
        };
        // After the clock was set back a little, prices stay in use until EC2 has answered again.
        if now.millis_since(spot.at).abs() >= STALE_MS {
            return SpotPrice::Unknown;
        }
        let zones = spot.highest.get(kind);
        let price = zones.and_then(|zones| match zone {
            Some(zone) => zones.get(zone).copied(),
            None => zones.values().copied().reduce(f64::max),
        });
        price.map_or(SpotPrice::Unknown, SpotPrice::Known)
    }

    fn state(&self) -> MutexGuard<'_, PriceState> {
        // Every statement leaves the state consistent, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn bid_or_reason(prices: &Prices, asked: Value, minute: i64) -> Result<Bid, String> {
        prices.bid("us-west-2", asked.as_object().unwrap(), None, at(minute))
    }

    /// Without a price while it is awaited.
    fn bid(prices: &Prices, asked: Value, minute: i64) -> Bid {
        let bid = bid_or_reason(prices, asked, minute);
        bid.unwrap_or_else(|_| Bid::plain(String::new()))
    }

    fn spot(kind: &str) -> Value {
        json!({"InstanceType": kind, "InstanceMarketOptions": {"MarketType": "spot"}})
    }

    #[test]
    fn a_spot_bid_has_a_price_from_a_refresh_until_it_is_stale() {
        let prices = Prices::new(BTreeMap::new(), None);
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
            bid_or_reason(&prices, in_zone, 1).unwrap(),
            Bid {
                price: Some(0.04),
                ..Bid::plain("us-west-2a m5.large spot".to_owned())
            }
        );
        assert!(prices.due(at(3)).is_empty());
        assert_eq!(prices.due(at(4)).len(), 1);
        assert_eq!(bid(&prices, spot("m5.large"), 60).price, None);
    }

    #[test]
    fn a_type_without_a_spot_price_waits_for_the_first_answer_and_not_for_ever() {
        let awaited = Err("its spot price is not known yet, and EC2 is asked for it".to_owned());
        let price = |prices: &Prices, second: i64| {
            let asked = spot("m5.large");
            let now = at(0).plus_seconds(second);
            let bid = prices.bid("us-west-2", asked.as_object().unwrap(), None, now);
            bid.map(|bid| bid.price)
        };
        // No answer comes.
        let prices = Prices::new(BTreeMap::new(), None);
        assert_eq!(price(&prices, 0), awaited);
        assert_eq!(price(&prices, 29), awaited);
        assert_eq!(price(&prices, 30), Ok(None));
        // The call fails.
        let prices = Prices::new(BTreeMap::new(), None);
        assert_eq!(price(&prices, 0), awaited);
        let kinds = BTreeSet::from(["m5.large".to_owned(), "c5.large".to_owned()]);
        prices.note_failure("us-west-2", &kinds);
        assert_eq!(price(&prices, 1), Ok(None));
        // EC2 has no price of it.
        let prices = Prices::new(BTreeMap::new(), None);
        assert_eq!(price(&prices, 0), awaited);
        prices.learn("us-west-2", kinds, PriceTable::new(), at(0));
        assert_eq!(price(&prices, 1), Ok(None));
    }

    #[tokio::test]
    async fn a_price_of_the_operator_goes_before_all_others_and_waits_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        let text = "[[prices]]\ntype = \"m5.large\"\nmarket = \"spot\"\nprice = 0.01\n\
            [[prices]]\ntype = \"c5.large\"\nregion = \"us-west-2\"\nprice = 0.02\n";
        std::fs::write(&path, text).unwrap();
        let configured = BTreeMap::from([("c5.large".to_owned(), 0.3)]);
        let prices = Prices::new(configured, Some(path));
        prices.configured().reread(&"aws".parse().unwrap()).await;
        assert_eq!(bid(&prices, spot("m5.large"), 0).price, Some(0.01));
        assert!(!prices.lacks_some(at(0)));
        let price = |kind: &str| bid(&prices, json!({"InstanceType": kind}), 0).price;
        assert_eq!(price("m5.large"), Some(0.096));
        assert_eq!(price("c5.large"), Some(0.02));
    }

    #[test]
    fn a_new_type_is_asked_about_early_but_not_again_at_once() {
        let prices = Prices::new(BTreeMap::new(), None);
        assert!(!prices.lacks_some(at(0)));
        bid(&prices, spot("m5.large"), 0);
        assert!(prices.lacks_some(at(0)));
        // EC2 did not answer: ask again, but not at every bid.
        prices.due(at(0));
        bid(&prices, spot("m5.large"), 0);
        assert!(!prices.lacks_some(at(0)));
        assert!(prices.lacks_some(at(1)));
        let kinds = prices.due(at(1))["us-west-2"].clone();
        prices.learn("us-west-2", kinds, PriceTable::new(), at(1));
        bid(&prices, spot("m5.large"), 1);
        assert!(!prices.lacks_some(at(2)), "EC2 knows no price of it");
        // Another type in a region that was asked about a moment ago.
        bid(&prices, spot("c5.large"), 2);
        assert!(prices.lacks_some(at(2)));
        let due = prices.due(at(2));
        assert_eq!(
            due["us-west-2"].len(),
            2,
            "known types are asked about again"
        );
    }

    #[test]
    fn prices_are_asked_for_again_after_the_clock_was_set_back() {
        let prices = Prices::new(BTreeMap::new(), None);
        bid(&prices, spot("m5.large"), 100);
        let kinds = prices.due(at(100))["us-west-2"].clone();
        let zones = BTreeMap::from([("us-west-2a".to_owned(), 0.04)]);
        let table = PriceTable::from([("m5.large".to_owned(), zones)]);
        prices.learn("us-west-2", kinds, table, at(100));
        assert_eq!(bid(&prices, spot("m5.large"), 100).price, Some(0.04));
        assert!(!prices.lacks_some(at(100)));
        // By a little: the price is still good.
        assert_eq!(bid(&prices, spot("m5.large"), 99).price, Some(0.04));
        assert!(prices.lacks_some(at(99)));
        // By so much that its age is unknown.
        assert_eq!(bid(&prices, spot("m5.large"), 40).price, None);
        assert_eq!(prices.due(at(40)).len(), 1);
    }

    #[test]
    fn a_type_that_no_bid_asks_about_is_forgotten() {
        let prices = Prices::new(BTreeMap::new(), None);
        bid(&prices, spot("m5.large"), 0);
        assert!(prices.due(at(24 * 60)).is_empty());
    }

    #[test]
    fn the_number_of_remembered_types_has_a_limit_and_others_cause_no_refresh() {
        for count in sizes_around("cloud::aws::prices::MAX_WANTED", MAX_WANTED) {
            let prices = Prices::new(BTreeMap::new(), None);
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
                "{count} types, and all remembered ones were asked for"
            );
        }
    }

    #[test]
    fn a_type_above_the_limit_is_remembered_once_another_is_forgotten() {
        let prices = Prices::new(BTreeMap::new(), None);
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
    fn configured_prices_override_the_table_and_those_of_a_region_override_both() {
        let prices = Prices::new(
            BTreeMap::from([
                ("m5.large".to_owned(), 0.2),
                ("us-west-2/m5.large".to_owned(), 0.3),
                ("eu-west-1/c5.large".to_owned(), 1.0),
            ]),
            None,
        );
        let price = |kind: &str| bid(&prices, json!({"InstanceType": kind}), 0).price;
        assert_eq!(price("m5.large"), Some(0.3));
        assert_eq!(price("c5.large"), Some(0.085));
        assert_eq!(price("u9.enormous"), None);
    }

    #[test]
    fn a_bid_names_the_place_and_the_type() {
        let prices = Prices::new(BTreeMap::new(), None);
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
