//! The places of a pool, written as short as they can be: `{zone: [a, b], machine: x}` instead of two places.
//!
//! The order of the places is that of the launch configs, so a product may only stand for places that follow
//! each other as products expand: names in their order, the first slowest, values as listed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// What is presented for one launch config beside the worker type and the provider.
pub(super) type Place = BTreeMap<String, String>;

/// No product is longer, so that looking for it stays quick.
const MAX_PRODUCT: usize = 200;

/// The option `places` that gives exactly these, in this order.
pub(super) fn encode(places: &[Place]) -> Value {
    let mut entries = Vec::new();
    let mut rest = places;
    while !rest.is_empty() {
        let longest = rest.len().min(MAX_PRODUCT);
        let (length, factors) = (1..=longest)
            .rev()
            .find_map(|length| Some((length, factors(&rest[..length])?)))
            .expect("one place is a product");
        entries.push(entry(factors));
        rest = &rest[length..];
    }
    Value::Array(entries)
}

/// The values by name whose product these places are, if they are one.
fn factors(places: &[Place]) -> Option<Vec<(&String, Vec<&String>)>> {
    let first = places.first()?;
    let mut factors: Vec<(&String, Vec<&String>)> = Vec::new();
    let mut product = 1;
    for name in first.keys() {
        let mut seen = BTreeSet::new();
        let mut values = Vec::new();
        for place in places {
            let value = place.get(name)?;
            if seen.insert(value) {
                values.push(value);
            }
        }
        product *= values.len();
        factors.push((name, values));
    }
    if product != places.len() {
        return None;
    }
    // The last name changes fastest.
    let mut period = 1;
    for (name, values) in factors.iter().rev() {
        let fits = |(index, place): (usize, &Place)| {
            place.get(*name) == Some(values[index / period % values.len()])
        };
        let is_complete = places.iter().all(|place| place.len() == first.len());
        if !is_complete || !places.iter().enumerate().all(fits) {
            return None;
        }
        period *= values.len();
    }
    Some(factors)
}

fn entry(factors: Vec<(&String, Vec<&String>)>) -> Value {
    let value = |values: Vec<&String>| match values.as_slice() {
        [one] => Value::from(one.as_str()),
        several => several.iter().map(|value| value.as_str()).collect(),
    };
    let factors = factors.into_iter();
    let entry: Map<_, _> = factors
        .map(|(name, values)| (name.clone(), value(values)))
        .collect();
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(text: &str) -> Place {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn encoded(places: &[&str]) -> Value {
        encode(&places.iter().map(|text| place(text)).collect::<Vec<_>>())
    }

    #[test]
    fn places_that_follow_each_other_as_products_do_are_one_entry() {
        assert_eq!(
            encoded(&["m=x z=a", "m=x z=b", "m=y z=a", "m=y z=b"]),
            json!([{"m": ["x", "y"], "z": ["a", "b"]}])
        );
        assert_eq!(encoded(&["z=b", "z=a"]), json!([{"z": ["b", "a"]}]));
    }

    #[test]
    fn another_order_needs_more_entries() {
        assert_eq!(
            encoded(&["m=x z=a", "m=y z=a", "m=x z=b", "m=y z=b"]),
            json!([{"m": ["x", "y"], "z": "a"}, {"m": ["x", "y"], "z": "b"}])
        );
        assert_eq!(
            encoded(&["z=a", "m=x", "z=c", "z=d m=x"]),
            json!([{"z": "a"}, {"m": "x"}, {"z": "c"}, {"m": "x", "z": "d"}])
        );
        assert_eq!(encoded(&[]), json!([]));
        assert_eq!(encoded(&[""]), json!([{}]));
    }
}
