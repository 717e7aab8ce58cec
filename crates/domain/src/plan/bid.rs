//! Bids: what a provider offers for a launch config, and which bids count.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::ProviderId;
use crate::time::{DAY_MS, Timestamp};

/// The text with which an override refuses a bid begins like this.
pub const PAUSED: &str = "paused ";
/// The text about a provider that cannot bid at all ends like this.
const OUT_OF_SERVICE: &str = " is not configured or out of service";

/// A higher price is a typing error: dollars per hour and machine.
pub const MAX_PRICE: f64 = 1_000_000.0;
/// A higher utility is a typing error.
pub const MAX_UTILITY: f64 = 1_000_000.0;
/// A provider makes at most this many bids for one launch config; further ones are left out.
pub const MAX_BIDS: usize = 40;
/// More units of one machine are a typing error.
pub const MAX_CAPACITY_EACH: u32 = 100_000;
/// A longer time from launch to registration is a typing error.
pub const MAX_READY_MS: i64 = 7 * DAY_MS;

/// The bids of a provider for one launch config, which are alternatives and may be combined; or why
/// there is none.
pub type Bids = Result<Vec<Bid>, String>;

/// The need of a pool, for providers that bid by quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BidRequest {
    /// Capacity units that are missing, as far as this is known without bids.
    pub units: u64,
    /// When they are needed.
    pub by: Timestamp,
}

/// A provider's bid for a launch config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bid {
    /// Dollars per hour and machine now, if the provider knows.
    pub price: Option<f64>,
    /// The usefulness of a machine compared with others; 1 is usual.
    pub utility: f64,
    /// Location and type, for people: `us-west-2a m5.large spot`.
    pub place: String,
    /// Maximum number of machines now; `None`: not known.
    pub available: Option<u64>,
    /// Capacity units of a machine; `None`: as the launch config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_each: Option<u32>,
    /// The share of machines that the provider expects to register: above 0, at most 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reliability: Option<f64>,
    /// Expected time from launch to registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<i64>,
    /// From this moment on the bid is no bid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Opaque to us: the provider gets it back with the launch that the bid wins.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

impl Bid {
    /// A bid of a provider for which all launch configs are equal.
    pub fn plain(place: String) -> Self {
        Self {
            price: None,
            utility: 1.0,
            place,
            available: None,
            capacity_each: None,
            reliability: None,
            ready_ms: None,
            expires: None,
            data: Map::new(),
        }
    }

    /// The bid, if it counts at this moment. Its numbers are finite then, so that it can be stored.
    pub fn checked(self, now: Timestamp) -> Result<Self, String> {
        self.check(now).map(|()| self)
    }

    /// `Err`: why the bid is no bid at this moment.
    pub(super) fn check(&self, now: Timestamp) -> Result<(), String> {
        if let Some(expires) = self.expires.filter(|expires| *expires <= now) {
            return Err(format!("its bid expired at {expires}"));
        }
        if let Some(price) = self.price {
            check_price(price).map_err(|why| format!("its bid has {why}"))?;
        }
        if !(self.utility > 0.0 && self.utility <= MAX_UTILITY) {
            let utility = self.utility;
            return Err(format!(
                "its bid has the utility {utility}, which must be above 0 and at most {MAX_UTILITY}"
            ));
        }
        if let Some(units) = self
            .capacity_each
            .filter(|it| !(1..=MAX_CAPACITY_EACH).contains(it))
        {
            return Err(format!(
                "its bid has machines of {units} units, which must be from 1 to {MAX_CAPACITY_EACH}"
            ));
        }
        if let Some(share) = self.reliability.filter(|r| !(*r > 0.0 && *r <= 1.0)) {
            return Err(format!(
                "its bid has the reliability {share}, which must be above 0 and at most 1"
            ));
        }
        if let Some(ms) = self.ready_ms.filter(|ms| !(0..=MAX_READY_MS).contains(ms)) {
            return Err(format!(
                "its bid expects a machine to be ready in {ms} ms, which must be from 0 to \
                 {MAX_READY_MS}"
            ));
        }
        Ok(())
    }
}

/// Why a provider that is not configured, or could not be set up, has no bid.
pub fn out_of_service(id: &ProviderId) -> String {
    format!("the provider {id}{OUT_OF_SERVICE}")
}

/// Whether a bid is missing for that reason.
pub fn is_out_of_service(why: &str) -> bool {
    why.ends_with(OUT_OF_SERVICE)
}

/// Whether this can be a price, in dollars per hour. `Err` reads `a price of $-1 an hour, …`.
pub fn check_price(price: f64) -> Result<(), String> {
    if price.is_nan() || price.is_infinite() {
        return Err(format!("a price of ${price} an hour, which is no number"));
    }
    if price < 0.0 {
        return Err(format!("a price of ${price} an hour, which is negative"));
    }
    if price > MAX_PRICE {
        return Err(format!(
            "a price of ${price} an hour, which is above ${MAX_PRICE}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW_MS: i64 = 1_790_000_000_000;

    fn error(change: impl FnOnce(&mut Bid)) -> String {
        let mut bid = Bid::plain(String::new());
        change(&mut bid);
        let checked = bid.checked(Timestamp::from_millis(NOW_MS));
        checked.map_or_else(|why| why, |_| "a bid".to_owned())
    }

    #[test]
    fn a_bid_with_an_impossible_price_is_no_bid() {
        let with = |price| error(|bid| bid.price = Some(price));
        for good in [0.0, 0.000_001, MAX_PRICE] {
            assert_eq!(with(good), "a bid");
        }
        let bad = [
            (-0.5, "$-0.5 an hour, which is negative"),
            (f64::NAN, "$NaN an hour, which is no number"),
            (f64::INFINITY, "$inf an hour, which is no number"),
            (f64::NEG_INFINITY, "$-inf an hour, which is no number"),
            (1_000_000.5, "$1000000.5 an hour, which is above $1000000"),
        ];
        for (price, expected) in bad {
            assert_eq!(with(price), format!("its bid has a price of {expected}"));
        }
    }

    #[test]
    fn an_expired_bid_is_no_bid() {
        let expires = |ms| error(|bid| bid.expires = Some(Timestamp::from_millis(NOW_MS + ms)));
        assert_eq!(expires(1), "a bid");
        assert_eq!(expires(0), "its bid expired at 2026-09-21T14:13:20.000Z");
        assert_eq!(expires(-1), "its bid expired at 2026-09-21T14:13:19.999Z");
    }

    #[test]
    fn other_numbers_of_a_bid_have_limits_too() {
        for good in [f64::MIN_POSITIVE, 0.5, 1.0] {
            assert_eq!(error(|bid| bid.reliability = Some(good)), "a bid");
        }
        for bad in [0.0, -1.0, 1.01, f64::NAN] {
            let expected = "which must be above 0 and at most 1";
            assert!(error(|bid| bid.reliability = Some(bad)).ends_with(expected));
        }
        for bad in [0.0, -1.0, 1e7, f64::NAN] {
            let expected = "which must be above 0 and at most 1000000";
            assert!(error(|bid| bid.utility = bad).ends_with(expected));
        }
        for good in [0, MAX_READY_MS] {
            assert_eq!(error(|bid| bid.ready_ms = Some(good)), "a bid");
        }
        for bad in [-1, MAX_READY_MS + 1] {
            let expected = format!(
                "its bid expects a machine to be ready in {bad} ms, which must be from 0 to 604800000"
            );
            assert_eq!(error(|bid| bid.ready_ms = Some(bad)), expected);
        }
    }

    #[test]
    fn bids_of_former_versions_are_read_still() {
        let former = json!({"price": 0.5, "utility": 1.0, "place": "moon", "available": 3});
        let bid: Bid = serde_json::from_value(former.clone()).unwrap();
        assert_eq!(
            (bid.price, bid.reliability, bid.expires),
            (Some(0.5), None, None)
        );
        assert_eq!(serde_json::to_value(&bid).unwrap(), former);
    }
}
