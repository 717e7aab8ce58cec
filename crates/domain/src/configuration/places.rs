//! The places where a provider can start workers of a pool: offered places, narrowed and refined by
//! options.

use std::collections::BTreeSet;

use rules::Pattern;
use serde_json::Value;

use super::provider_catalog::{Place, ProviderEntry};
use crate::pool::MAX_LAUNCH_CONFIGS;

/// Maximum number of places of a provider for a worker type: each may give a launch config.
const MAX_PLACES: usize = MAX_LAUNCH_CONFIGS;
/// Conditions that are always set.
const RESERVED: [&str; 2] = ["workerType", "provider"];

/// The places of a provider in their order, without duplicates; or an error with its pointer below
/// `places`.
pub(super) fn places(
    entry: &ProviderEntry,
    wanted: Option<&Value>,
) -> Result<Vec<Place>, (String, String)> {
    let nowhere_in_particular = [Place::new()];
    let offered: &[Place] = match entry.places.is_empty() {
        true => &nowhere_in_particular,
        false => &entry.places,
    };
    let mut found = PlaceSet::default();
    match wanted {
        None => offered
            .iter()
            .try_for_each(|place| found.add(place.clone())),
        // Each entry gives places of its own, or is redundant.
        Some(Value::Array(entries)) if entries.len() > MAX_PLACES => Err((
            String::new(),
            format!(
                "has {} entries; at most {MAX_PLACES} are possible",
                entries.len()
            ),
        )),
        Some(Value::Array(entries)) => entries.iter().enumerate().try_for_each(|(index, entry)| {
            let at = |(below, text): (String, String)| (format!("/{index}{below}"), text);
            refine(offered, entry, &mut found).map_err(at)
        }),
        Some(_) => {
            let text =
                "must be a list of mappings from condition names to a value or a list of values";
            Err((String::new(), text.to_owned()))
        }
    }?;
    Ok(found.places)
}

/// Parses a glob or a list of globs.
pub(super) fn patterns(value: &Value) -> Result<Vec<Pattern>, String> {
    texts(value)?
        .into_iter()
        .map(|text| Pattern::parse(text).map_err(|bad| bad.to_string()))
        .collect()
}

#[derive(Default)]
struct PlaceSet {
    places: Vec<Place>,
    known: BTreeSet<Place>,
}

impl PlaceSet {
    fn add(&mut self, place: Place) -> Result<(), (String, String)> {
        if self.known.insert(place.clone()) {
            self.places.push(place);
        }
        match self.places.len() > MAX_PLACES {
            true => Err((
                String::new(),
                format!("there are more than {MAX_PLACES} places"),
            )),
            false => Ok(()),
        }
    }
}

/// One entry: every offered place that it matches, with every combination of the conditions that it
/// adds.
fn refine(offered: &[Place], entry: &Value, found: &mut PlaceSet) -> Result<(), (String, String)> {
    let Value::Object(entry) = entry else {
        let text = "must be a mapping from condition names to a value or a list of values";
        return Err((String::new(), text.to_owned()));
    };
    let (mut filters, mut own) = (Vec::new(), Vec::new());
    for (name, value) in entry {
        let at = |text: String| (format!("/{name}"), text);
        if RESERVED.contains(&name.as_str()) {
            return Err(at(format!("`{name}` is always set; it cannot be a place")));
        }
        if offered.iter().any(|place| place.contains_key(name)) {
            filters.push((name, patterns(value).map_err(at)?));
        } else {
            own.push((name, deduplicate(texts(value).map_err(at)?)));
        }
    }
    let mut matched = vec![false; filters.len()];
    let mut any = false;
    for place in offered {
        let mut fits = true;
        for ((name, patterns), matched) in filters.iter().zip(&mut matched) {
            let value = place.get(*name);
            let one =
                value.is_some_and(|value| patterns.iter().any(|pattern| pattern.matches(value)));
            *matched |= one;
            fits &= one;
        }
        if fits {
            any = true;
            combine(place, &own, found)?;
        }
    }
    if any {
        return Ok(());
    }
    let unmatched = filters.iter().zip(&matched).find(|(_, matched)| !**matched);
    Err(match unmatched {
        Some(((name, _), _)) => (
            format!("/{name}"),
            format!(
                "matches no place of the provider, which offers {}",
                list_values(offered, name)
            ),
        ),
        None => {
            let text = "each condition matches a place, but no place matches all of them";
            (String::new(), text.to_owned())
        }
    })
}

/// The product of the values; the first name changes slowest.
fn combine(
    place: &Place,
    own: &[(&String, Vec<&str>)],
    found: &mut PlaceSet,
) -> Result<(), (String, String)> {
    let Some(((name, values), rest)) = own.split_first() else {
        return found.add(place.clone());
    };
    for value in values {
        let mut refined = place.clone();
        refined.insert((*name).clone(), (*value).to_owned());
        combine(&refined, rest, found)?;
    }
    Ok(())
}

fn texts(value: &Value) -> Result<Vec<&str>, String> {
    let wrong = || "must be a text or a list of texts, at least one".to_owned();
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(texts) if !texts.is_empty() => texts
            .iter()
            .map(|text| text.as_str().ok_or_else(wrong))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(wrong())
        }
    }
}

/// Removes repeated values, as all combinations of values are tried.
fn deduplicate(mut texts: Vec<&str>) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    texts.retain(|text| seen.insert(*text));
    texts
}

/// The values of a condition in these places, as many as people read.
pub(super) fn list_values(offered: &[Place], name: &str) -> String {
    const MAX_NAMED: usize = 20;
    let values: BTreeSet<&str> = offered
        .iter()
        .filter_map(|place| place.get(name))
        .map(String::as_str)
        .collect();
    let named: Vec<&str> = values.iter().copied().take(MAX_NAMED).collect();
    let more = values.len().saturating_sub(MAX_NAMED);
    match more {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("n{number}")).collect()
    }

    fn entry(count: usize) -> ProviderEntry {
        let place = |name: String| Place::from([("zone".to_owned(), name)]);
        ProviderEntry::launching(names(count).into_iter().map(place).collect())
    }

    /// Checks that `count` places are found, or the expected error above the limit.
    #[track_caller]
    fn gives(count: usize, found: Result<Vec<Place>, (String, String)>, expected: &str) {
        match found {
            Ok(found) => assert_eq!((found.len(), count <= MAX_PLACES), (count, true)),
            Err((_, problem)) => {
                assert!(count > MAX_PLACES, "{count}: {problem}");
                assert!(problem.contains(expected), "{problem}");
            }
        }
    }

    #[test]
    fn the_number_of_places_of_a_provider_is_limited() {
        let too_many = "there are more than 2000 places";
        for count in sizes_around("domain::configuration::places::MAX_PLACES", MAX_PLACES) {
            // A provider that offers no places has one place.
            gives(count.max(1), places(&entry(count), None), too_many);
            if count == 0 {
                continue;
            }
            let each = json!([{"zone": "n*", "size": "s"}]);
            gives(count, places(&entry(count), Some(&each)), too_many);
            let own = json!([{"size": names(count)}]);
            gives(count, places(&entry(0), Some(&own)), too_many);
            let one_by_one: Value = names(count).iter().map(|n| json!({"size": n})).collect();
            let too_long = "entries; at most 2000 are possible";
            gives(count, places(&entry(0), Some(&one_by_one)), too_long);
        }
    }

    #[test]
    fn repeated_values_give_no_further_places_and_cost_nothing() {
        // All combinations of these values would never end.
        let same = vec!["x"; 1_000];
        let conditions: serde_json::Map<_, _> = names(6)
            .into_iter()
            .map(|name| (name, json!(same)))
            .collect();
        let found = places(&entry(0), Some(&json!([conditions, conditions]))).unwrap();
        assert_eq!(found.len(), 1);
    }
}
