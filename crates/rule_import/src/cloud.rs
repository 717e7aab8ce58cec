//! What a launch config says about its place, whichever cloud it is for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::places::Place;

/// Which cloud's form launch configs have; it names the section in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cloud {
    Aws,
    Azure,
    Google,
}

/// Where a condition's value is found: the first of these that is there. Of what looks like a path, the last part.
///
/// Providers put a `region` where their launch configs want it. What says where it is in another place must not be
/// called so, or it would come to stand in both.
const CONDITIONS: [(&str, &[&str]); 5] = [
    ("region", &["/region"]),
    ("location", &["/armDeployment/parameters/location/value"]),
    (
        "availabilityZone",
        &["/launchConfig/Placement/AvailabilityZone"],
    ),
    ("zone", &["/zone"]),
    (
        "machine",
        &[
            "/machineType",
            "/launchConfig/InstanceType",
            "/hardwareProfile/vmSize",
            "/armDeployment/parameters/vmSize/value",
        ],
    ),
];
/// A condition of our own, where the others do not tell the launch configs of a pool apart.
pub(super) const VARIANT: &str = "variant";
const MAX_VALUE: usize = 120;

/// The names of all conditions, from the widest to the narrowest.
pub(super) fn condition_names() -> impl Iterator<Item = &'static str> {
    CONDITIONS.iter().map(|(name, _)| *name).chain([VARIANT])
}

impl Cloud {
    pub(super) fn of(launch_config: &Value) -> Option<Self> {
        let has = |key: &str| launch_config.get(key).is_some();
        if has("launchConfig") {
            Some(Self::Aws)
        } else if has("armDeployment") || has("hardwareProfile") || has("location") {
            Some(Self::Azure)
        } else if has("machineType") || has("zone") {
            Some(Self::Google)
        } else {
            None
        }
    }

    /// What its provider puts into launch configs, if a place says it: by condition, where.
    pub(super) fn fills(self) -> BTreeMap<String, String> {
        let region = match self {
            Self::Azure => "/location",
            Self::Aws | Self::Google => "/region",
        };
        let zone = CONDITIONS[2].1[0];
        let all = [
            ("region", region),
            ("zone", "/zone"),
            ("availabilityZone", zone),
        ];
        all.map(|(name, pointer)| (name.to_owned(), pointer.to_owned()))
            .into()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Google => "google",
        }
    }
}

/// The places of a pool's launch configs: no two are the same, and all have the same names.
pub(super) fn places(launch_configs: &[Value]) -> Vec<Place> {
    let mut places: Vec<Place> = launch_configs.iter().map(place).collect();
    let Some(first) = places.first() else {
        return places;
    };
    let same_names = places.iter().all(|place| place.keys().eq(first.keys()));
    let different: BTreeSet<&Place> = places.iter().collect();
    if same_names && different.len() == places.len() {
        return places;
    }
    let mut seen: BTreeMap<Place, u32> = BTreeMap::new();
    for (number, place) in (1..).zip(&mut places) {
        let seen = seen.entry(place.clone()).or_default();
        *seen += 1;
        // Where some places say less than others, only a number of its own tells them apart for sure.
        let number = if same_names { *seen } else { number };
        place.insert(VARIANT.to_owned(), number.to_string());
    }
    places
}

fn place(launch_config: &Value) -> Place {
    let found = CONDITIONS.iter().filter_map(|(name, pointers)| {
        let pointers = match (*name, Cloud::of(launch_config)) {
            ("region", Some(Cloud::Azure)) => &["/location"][..],
            (_, _) => pointers,
        };
        let mut pointers = pointers.iter();
        let value = pointers.find_map(|pointer| launch_config.pointer(pointer)?.as_str())?;
        let value = value.rsplit('/').next().unwrap_or(value);
        is_plain(value).then(|| ((*name).to_owned(), value.to_owned()))
    });
    found.collect()
}

/// What means the same as a text and as a glob.
fn is_plain(value: &str) -> bool {
    !value.is_empty()
        && value.len() <= MAX_VALUE
        && !value.contains(|c: char| "*?[]{}!\\,".contains(c) || c.is_control())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(places: &[Place]) -> Vec<String> {
        let pairs = |place: &Place| {
            let pairs = place.iter().map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join(" ")
        };
        places.iter().map(pairs).collect()
    }

    #[test]
    fn each_cloud_says_in_its_own_words_where_and_on_what() {
        let google =
            json!({"region": "r", "zone": "r-a", "machineType": "zones/r-a/machineTypes/n2"});
        let aws = json!({"region": "r", "launchConfig": {
            "InstanceType": "m5", "Placement": {"AvailabilityZone": "ra"}}});
        let azure = json!({"armDeployment": {"parameters": {
            "location": {"value": "east"}, "vmSize": {"value": "F8"}}}});
        let older = json!({"location": "east", "hardwareProfile": {"vmSize": "F8"}});
        let said = [&google, &aws, &azure, &older].map(place);
        assert_eq!(
            text(&said),
            [
                "machine=n2 region=r zone=r-a",
                "availabilityZone=ra machine=m5 region=r",
                "location=east machine=F8",
                "machine=F8 region=east",
            ]
        );
        let clouds =
            [&google, &aws, &azure, &older].map(|config| Cloud::of(config).unwrap().name());
        assert_eq!(clouds, ["google", "aws", "azure", "azure"]);
        assert_eq!(Cloud::of(&json!({"workerConfig": {}})), None);
    }

    #[test]
    fn what_the_place_does_not_tell_apart_is_numbered() {
        let at = |zone: &str, weight: u32| json!({"zone": zone, "weight": weight});
        assert_eq!(
            text(&places(&[at("a", 1), at("b", 1)])),
            ["zone=a", "zone=b"]
        );
        assert_eq!(
            text(&places(&[at("a", 1), at("a", 2), at("b", 1)])),
            ["variant=1 zone=a", "variant=2 zone=a", "variant=1 zone=b"]
        );
        assert_eq!(
            text(&places(&[at("a", 1), json!({})])),
            ["variant=1 zone=a", "variant=2"]
        );
        assert_eq!(text(&places(&[at("a*", 1)])), [""]);
    }
}
