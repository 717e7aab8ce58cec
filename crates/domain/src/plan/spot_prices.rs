//! Spot prices from their history: the highest of the last half hour counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::{MINUTE_MS, Timestamp};

/// For how long a price counts.
pub const WINDOW_MS: i64 = 30 * MINUTE_MS;

/// By instance type and zone, in dollars per hour and machine.
pub type PriceTable = BTreeMap<String, BTreeMap<String, f64>>;

/// A price that is valid until the next point.
#[derive(Clone, Debug, PartialEq)]
pub struct PricePoint {
    pub instance_type: String,
    pub zone: String,
    /// As the cloud writes it.
    pub price: String,
    pub at: Timestamp,
}

/// The highest price of each type in each zone, except zones that do not have the type. Considers
/// the points in the window and the last point before it, which was valid when the window began.
/// Skips invalid prices.
pub fn highest<'a>(
    history: impl IntoIterator<Item = &'a PricePoint>,
    zones: &BTreeSet<String>,
    now: Timestamp,
) -> PriceTable {
    let start = now.plus_millis(-WINDOW_MS);
    let mut before: BTreeMap<(&str, &str), (Timestamp, f64)> = BTreeMap::new();
    let mut table = PriceTable::new();
    for point in history {
        let price = point.price.trim().parse().ok();
        let price = price.filter(|price: &f64| price.is_finite() && *price >= 0.0);
        let Some(price) = price.filter(|_| zones.contains(&point.zone)) else {
            continue;
        };
        if point.at >= start {
            raise(&mut table, &point.instance_type, &point.zone, price);
            continue;
        }
        let key = (point.instance_type.as_str(), point.zone.as_str());
        let last = before.entry(key).or_insert((point.at, price));
        if point.at >= last.0 {
            *last = (point.at, price);
        }
    }
    for ((instance_type, zone), (_, price)) in before {
        raise(&mut table, instance_type, zone, price);
    }
    table
}

fn raise(table: &mut PriceTable, instance_type: &str, zone: &str, price: f64) {
    let zones = table.entry(instance_type.to_owned()).or_default();
    let known = zones.entry(zone.to_owned()).or_insert(price);
    *known = known.max(price);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 100_000_000;

    fn point(instance_type: &str, zone: &str, price: &str, minutes_ago: i64) -> PricePoint {
        PricePoint {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            price: price.to_owned(),
            at: Timestamp::from_millis(NOW - minutes_ago * MINUTE_MS),
        }
    }

    fn table(history: &[PricePoint]) -> String {
        let zones = ["a", "b"].map(str::to_owned).into();
        let table = highest(history, &zones, Timestamp::from_millis(NOW));
        format!("{table:?}")
    }

    #[test]
    fn the_highest_price_of_zones_that_work_counts() {
        // Vector B17.
        let history = [
            point("t1", "a", ".1", 1),
            point("t1", "a", ".3", 2),
            point("t1", "a", "0.2", 3),
            point("t1", "z-gone", "9", 1),
            point("t2", "b", ".05", 29),
        ];
        assert_eq!(table(&history), r#"{"t1": {"a": 0.3}, "t2": {"b": 0.05}}"#);
    }

    #[test]
    fn of_the_time_before_the_window_the_last_price_counts() {
        let history = [
            point("t1", "a", "9", 90),
            point("t1", "a", "2", 31),
            point("t1", "a", "5", 60),
            point("t1", "a", "1", 3),
        ];
        assert_eq!(table(&history), r#"{"t1": {"a": 2.0}}"#);
    }

    #[test]
    fn invalid_prices_are_skipped() {
        let none = ["", "free", "-1", "inf", "NaN"];
        let history = none.map(|price| point("t1", "a", price, 1));
        assert_eq!(table(&history), "{}");
    }
}
