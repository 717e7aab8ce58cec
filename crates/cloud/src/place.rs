//! Places where a provider can start workers, each a set of conditions that rules can test.
//!
//! Values of places become part of launch configs, so what a provider offers is checked and
//! limited.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Deserializer};

/// One place: its conditions by name, like `region` and `us-east-1`.
pub type Place = BTreeMap<String, String>;
/// Maps the name of a condition to the JSON pointer in a launch config where its value belongs.
pub type Fills = BTreeMap<String, String>;

/// Places of one provider at most.
pub const MAX_PLACES: usize = 2_000;
/// Conditions of one place at most.
pub const MAX_CONDITIONS: usize = 16;
const MAX_NAME_CHARS: usize = 64;
const MAX_VALUE_CHARS: usize = 256;
/// Conditions that an evaluation sets itself.
const RESERVED: [&str; 2] = ["workerType", "provider"];

const REGION: &str = "region";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("region must have from 1 to {MAX_VALUE_CHARS} characters")]
pub struct BadRegion;

/// A provider that is in service does not know its places yet. This differs from having no places.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlacesUnknown(pub String);

/// A region that the operator gives to the places of a provider without regions, for rules.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ConfiguredRegion(String);

impl TryFrom<String> for ConfiguredRegion {
    type Error = BadRegion;

    fn try_from(text: String) -> Result<Self, BadRegion> {
        if (1..=MAX_VALUE_CHARS).contains(&text.chars().count()) {
            Ok(Self(text))
        } else {
            Err(BadRegion)
        }
    }
}

impl ConfiguredRegion {
    /// The places with this region where a place has none. A provider without places has one.
    pub fn complete(&self, mut places: Vec<Place>) -> Vec<Place> {
        if places.is_empty() {
            places.push(Place::new());
        }
        for place in &mut places {
            let region = place.entry(REGION.to_owned());
            region.or_insert_with(|| self.0.clone());
        }
        places
    }
}

/// Invalid places or fills. Texts come from the provider and are cut to the length of a name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPlaces {
    #[error("places: {0} exceed the limit of {MAX_PLACES}")]
    TooMany(usize),
    #[error("places[{place}]: {conditions} conditions exceed the limit of {MAX_CONDITIONS}")]
    TooManyConditions { place: usize, conditions: usize },
    #[error(
        "{within}: {name:?} is not a valid condition name: use a letter, then letters, digits, - and _, at most {MAX_NAME_CHARS} characters, but not workerType or provider"
    )]
    Name { within: String, name: String },
    #[error("places[{place}].{name}: must have from 1 to {MAX_VALUE_CHARS} characters")]
    Value { place: usize, name: String },
    #[error("places[{again}]: is the same as places[{first}]")]
    Twice { first: usize, again: usize },
    #[error("fills: {0} exceed the limit of {MAX_CONDITIONS}")]
    TooManyFills(usize),
    #[error("fills.{0}: must be a JSON pointer into a launch config, like /region")]
    Pointer(String),
    #[error("fills.{one} and fills.{other}: one value would overwrite the other")]
    Overlap { one: String, other: String },
}

/// Checks the places and fills that a provider offers.
pub(crate) fn check(places: &[Place], fills: &Fills) -> Result<(), BadPlaces> {
    check_places(places)?;
    check_fills(fills)
}

fn check_places(places: &[Place]) -> Result<(), BadPlaces> {
    if places.len() > MAX_PLACES {
        return Err(BadPlaces::TooMany(places.len()));
    }
    let mut seen = HashMap::new();
    for (index, place) in places.iter().enumerate() {
        if place.len() > MAX_CONDITIONS {
            let conditions = place.len();
            return Err(BadPlaces::TooManyConditions {
                place: index,
                conditions,
            });
        }
        for (name, value) in place {
            check_name(name, || format!("places[{index}]"))?;
            if !(1..=MAX_VALUE_CHARS).contains(&value.chars().count()) {
                let name = name.clone();
                return Err(BadPlaces::Value { place: index, name });
            }
        }
        if let Some(first) = seen.insert(place, index) {
            let again = index;
            return Err(BadPlaces::Twice { first, again });
        }
    }
    Ok(())
}

fn check_fills(fills: &Fills) -> Result<(), BadPlaces> {
    if fills.len() > MAX_CONDITIONS {
        return Err(BadPlaces::TooManyFills(fills.len()));
    }
    for (name, pointer) in fills {
        check_name(name, || "fills".to_owned())?;
        if !is_pointer(pointer) {
            return Err(BadPlaces::Pointer(name.clone()));
        }
    }
    for (one, within) in fills {
        for (other, pointer) in fills {
            let rest = pointer.strip_prefix(within.as_str());
            let is_inside = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            if one != other && is_inside {
                let (one, other) = (one.clone(), other.clone());
                return Err(BadPlaces::Overlap { one, other });
            }
        }
    }
    Ok(())
}

fn check_name(name: &str, within: impl Fn() -> String) -> Result<(), BadPlaces> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.len() <= MAX_NAME_CHARS
        && name.bytes().all(allowed)
        && !RESERVED.contains(&name)
    {
        return Ok(());
    }
    Err(BadPlaces::Name {
        within: within(),
        name: name.chars().take(MAX_NAME_CHARS).collect(),
    })
}

/// A JSON pointer to something below the root.
fn is_pointer(text: &str) -> bool {
    let escapes = || text.split('~').skip(1);
    text.starts_with('/')
        && text.chars().count() <= MAX_VALUE_CHARS
        && escapes().all(|rest| rest.starts_with(['0', '1']))
}

/// Reads and checks places in settings.
pub(crate) fn from_settings<'de, D: Deserializer<'de>>(
    settings: D,
) -> Result<Vec<Place>, D::Error> {
    let places = Vec::deserialize(settings)?;
    check_places(&places).map_err(serde::de::Error::custom)?;
    Ok(places)
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Place {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn places_with_different_conditions_may_stand_side_by_side() {
        let places = [
            map(&[("region", "us-east-1"), ("zone", "a")]),
            map(&[("region", "us-east-1"), ("zone", "b")]),
            map(&[("region", "us-east-1")]),
            map(&[]),
            map(&[(&"n".repeat(64), &"é".repeat(256))]),
        ];
        let fills = map(&[("region", "/region"), ("zone", "/region2/a~1b~0")]);
        assert_eq!(check(&places, &fills), Ok(()));
        assert_eq!(check(&[], &Fills::new()), Ok(()));
    }

    fn message(outcome: Result<(), BadPlaces>) -> String {
        outcome.map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn a_configured_region_is_that_of_places_without_one() {
        let region: ConfiguredRegion = serde_json::from_value("dc1".into()).unwrap();
        assert_eq!(region.complete(vec![]), [map(&[("region", "dc1")])]);
        let places = vec![map(&[("rack", "7")]), map(&[("region", "dc2")])];
        let expected = [
            map(&[("rack", "7"), ("region", "dc1")]),
            map(&[("region", "dc2")]),
        ];
        assert_eq!(region.complete(places), expected);
        for bad in ["", &"x".repeat(257)] {
            let read = serde_json::from_value::<ConfiguredRegion>(bad.into());
            let error = read.unwrap_err().to_string();
            assert_eq!(error, "region must have from 1 to 256 characters");
        }
    }

    #[test]
    fn the_number_of_places_has_a_limit() {
        for count in sizes_around("cloud::place::MAX_PLACES", MAX_PLACES) {
            let place = |number: usize| map(&[("rack", &number.to_string())]);
            let places: Vec<Place> = (0..count).map(place).collect();
            let expected = if count <= MAX_PLACES {
                "fine".to_owned()
            } else {
                format!("places: {count} exceed the limit of 2000")
            };
            assert_eq!(message(check(&places, &Fills::new())), expected);
        }
    }

    #[test]
    fn the_number_of_conditions_has_a_limit() {
        for count in sizes_around("cloud::place::MAX_CONDITIONS", MAX_CONDITIONS) {
            let pair = |number: usize| (format!("n{number}"), format!("/n{number}"));
            let wide: Place = (0..count).map(pair).collect();
            let (mut place, mut fills) = ("fine".to_owned(), "fine".to_owned());
            if count > MAX_CONDITIONS {
                place = format!("places[1]: {count} conditions exceed the limit of 16");
                fills = format!("fills: {count} exceed the limit of 16");
            }
            let other = map(&[("rack", "1")]);
            assert_eq!(message(check(&[other, wide.clone()], &Fills::new())), place);
            assert_eq!(message(check(&[], &wide)), fills);
        }
    }

    #[test]
    fn invalid_places_are_named() {
        let long = "n".repeat(65);
        for name in [
            "",
            "1a",
            "-a",
            "a b",
            "a.b",
            "é",
            &long,
            "workerType",
            "provider",
        ] {
            let places = [map(&[("ok", "x")]), map(&[(name, "x")])];
            let error = check_places(&places).unwrap_err().to_string();
            assert!(error.starts_with("places[1]: "), "{error}");
            let error = check_fills(&map(&[(name, "/x")])).unwrap_err().to_string();
            assert!(error.starts_with("fills: "), "{error}");
        }
        for value in ["", &"x".repeat(257)] {
            let error = check_places(&[map(&[("zone", value)])])
                .unwrap_err()
                .to_string();
            assert_eq!(error, "places[0].zone: must have from 1 to 256 characters");
        }
        let twice = [map(&[("zone", "a")]), map(&[]), map(&[("zone", "a")])];
        let (first, again) = (0, 2);
        assert_eq!(check_places(&twice), Err(BadPlaces::Twice { first, again }));
    }

    #[test]
    fn fills_point_into_a_launch_config_and_not_into_each_other() {
        for pointer in [
            "",
            "region",
            "/a~",
            "/a~2",
            &format!("/{}", "x".repeat(256)),
        ] {
            let error = check_fills(&map(&[("zone", pointer)])).unwrap_err();
            assert_eq!(error, BadPlaces::Pointer("zone".to_owned()), "{pointer}");
        }
        for (one, other) in [("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a")] {
            let error = check_fills(&map(&[("one", one), ("other", other)])).unwrap_err();
            assert!(matches!(error, BadPlaces::Overlap { .. }), "{error}");
        }
        let apart = map(&[("one", "/a"), ("other", "/ab"), ("third", "/b/a")]);
        assert_eq!(check_fills(&apart), Ok(()));
    }
}
