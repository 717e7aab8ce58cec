//! The zones of the project: the places of launch configs, and the regions that are listed.
//!
//! Rules ask for places without a call outside, so Google's answer is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::time::{HOUR_MS, Timestamp};

use super::responses::Zone;
use super::row::last_part;
use crate::{CloudError, Fills, Place, PlacesUnknown};

/// The zones are refreshed after this time.
const FRESH_MS: i64 = HOUR_MS;

/// Zones by their regions.
pub(super) type ZonesByRegion = BTreeMap<String, BTreeSet<String>>;

#[derive(Default)]
pub(super) struct Zones(Mutex<State>);

#[derive(Default)]
struct State {
    /// Google's last answer, and its time.
    known: Option<(Timestamp, Arc<ZonesByRegion>)>,
    /// The error of the last try, if it failed.
    error: Option<CloudError>,
}

impl Zones {
    pub(super) fn known(&self) -> Option<Arc<ZonesByRegion>> {
        let state = self.state();
        let known = state.known.as_ref();
        known.map(|(_, zones)| Arc::clone(zones))
    }

    pub(super) fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        let state = self.state();
        let Some((_, known)) = &state.known else {
            let error = state.error.as_ref();
            let why = error.map_or("Google has not answered yet".to_owned(), |error| {
                error.to_string()
            });
            return Err(PlacesUnknown(format!("the zones are unknown: {why}")));
        };
        let place = |region: &String, zone: &String| {
            Place::from([
                ("region".to_owned(), region.clone()),
                ("zone".to_owned(), zone.clone()),
            ])
        };
        let of = |(region, zones): (&String, &BTreeSet<String>)| -> Vec<Place> {
            zones.iter().map(|zone| place(region, zone)).collect()
        };
        Ok(known.iter().flat_map(of).collect())
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let state = self.state();
        let known = state.known.as_ref();
        // A negative time: the clock was set back.
        known.is_none_or(|(at, _)| !(0..FRESH_MS).contains(&now.millis_since(*at)))
    }

    /// Stores an answer. Returns whether the last try had failed.
    pub(super) fn learn(&self, zones: ZonesByRegion, now: Timestamp) -> bool {
        let mut state = self.state();
        state.known = Some((now, Arc::new(zones)));
        state.error.take().is_some()
    }

    /// Stores the error of a try and keeps the known zones. Returns whether the try before had
    /// succeeded.
    pub(super) fn failed(&self, error: CloudError) -> bool {
        self.state().error.replace(error).is_none()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every statement leaves the state consistent, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The zones of the wanted regions, or of all. `Err`: a wanted region has no zone, or there is none
/// at all.
pub(super) fn by_region(zones: Vec<Zone>, wanted: &[String]) -> Result<ZonesByRegion, String> {
    let mut found = ZonesByRegion::new();
    for zone in zones {
        let state = zone.deprecated.as_ref().map(|it| it.state.as_str());
        if matches!(state, Some("OBSOLETE" | "DELETED")) {
            continue;
        }
        let region = last_part(&zone.region).to_owned();
        if wanted.is_empty() || wanted.contains(&region) {
            found.entry(region).or_default().insert(zone.name);
        }
    }
    if let Some(missing) = wanted.iter().find(|region| !found.contains_key(*region)) {
        return Err(format!(
            "regions names {missing}, which the project may not use: correct the name, or remove it from regions"
        ));
    }
    // Believing an empty list would remove the fleet.
    if found.is_empty() {
        return Err("Google lists no zones".to_owned());
    }
    Ok(found)
}

/// Where in a launch config the values of a place belong.
pub(super) fn fills() -> Fills {
    Fills::from([
        ("region".to_owned(), "/region".to_owned()),
        ("zone".to_owned(), "/zone".to_owned()),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::values::now;

    fn zones() -> Vec<Zone> {
        let at = "https://compute.example/projects/p/regions";
        serde_json::from_value(json!([
            {"name": "us-central1-a", "region": format!("{at}/us-central1")},
            {"name": "us-central1-b", "region": format!("{at}/us-central1"),
                "deprecated": {"state": "OBSOLETE"}},
            {"name": "europe-west1-b", "region": format!("{at}/europe-west1")},
        ]))
        .unwrap()
    }

    #[test]
    fn zones_are_those_of_the_wanted_regions() {
        let all = by_region(zones(), &[]).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all["us-central1"].len(), 1);
        let one = by_region(zones(), &["europe-west1".to_owned()]).unwrap();
        assert_eq!(one.len(), 1);
        let error = by_region(zones(), &["mars-1".to_owned()]).unwrap_err();
        assert!(error.starts_with("regions names mars-1"), "{error}");
        assert_eq!(
            by_region(Vec::new(), &[]).unwrap_err(),
            "Google lists no zones"
        );
    }

    #[test]
    fn known_zones_stay_while_google_does_not_answer() {
        let known = Zones::default();
        let outage = || CloudError::Unavailable("down".to_owned());
        assert!(known.failed(outage()) && !known.failed(outage()));
        let error = known.places().unwrap_err().to_string();
        assert!(
            error.contains("the zones are unknown: the cloud is"),
            "{error}"
        );
        assert!(known.learn(by_region(zones(), &[]).unwrap(), now()));
        assert!(known.failed(outage()));
        assert_eq!(known.places().unwrap().len(), 2);
        assert!(!known.is_due(now()));
        assert!(known.is_due(now().plus_millis(FRESH_MS)));
    }
}
