//! Availability zones: asked from EC2, cached, and complete or unknown.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::time::MINUTE_MS;
use serde_json::json;

use super::moto::OnMoto;
use super::proxy::{InjectedFailure, Proxy};
use crate::aws::{AwsConfig, AwsProvider};
use crate::tests::values::{TestClock, context_at};
use crate::{Machines as _, Place, Provider as _};

const ACTION: &str = "DescribeAvailabilityZones";
const USUAL_ZONES: [(&str, &str, &str); 2] = [
    ("west-a", "availability-zone", "opt-in-not-required"),
    ("west-b", "availability-zone", "opt-in-not-required"),
];

/// A provider that is not set up, with only the proxy behind it.
struct World {
    provider: AwsProvider,
    proxy: Proxy,
    clock: Arc<TestClock>,
    regions: Vec<&'static str>,
}

impl World {
    async fn new(regions: &[&'static str]) -> Self {
        let (proxy, clock) = (Proxy::start("").await, TestClock::new());
        let config: AwsConfig = serde_json::from_value(json!({
            "access_key_id": "AKID", "secret_access_key": "hush",
            "endpoint": proxy.url, "regions": regions,
        }))
        .unwrap();
        Self {
            provider: AwsProvider::new(&config, context_at("aws", &clock)),
            proxy,
            clock,
            regions: regions.to_vec(),
        }
    }

    async fn set_up(&self) {
        let region = |name: &&str| format!("<item><regionName>{name}</regionName></item>");
        let regions: String = self.regions.iter().map(region).collect();
        self.answer(
            "DescribeRegions",
            format!("<a><regionInfo>{regions}</regionInfo></a>"),
        );
        self.provider.setup().await.unwrap();
    }

    fn answer(&self, action: &'static str, body: String) {
        let status = 200;
        self.proxy
            .next(action, InjectedFailure::Answer { status, body });
    }

    fn zones_are(&self, zones: &[(&str, &str, &str)]) {
        let zone = |(name, kind, opt_in): &(&str, &str, &str)| {
            format!(
                "<item><zoneName>{name}</zoneName><zoneState>available</zoneState>\
                 <optInStatus>{opt_in}</optInStatus><zoneType>{kind}</zoneType></item>"
            )
        };
        let zones: String = zones.iter().map(zone).collect();
        let body = format!("<a><availabilityZoneInfo>{zones}</availabilityZoneInfo></a>");
        self.answer(ACTION, body);
    }

    fn refuse(&self, status: u16, code: &'static str) {
        self.proxy
            .next(ACTION, InjectedFailure::Refuse { status, code });
    }

    fn places(&self) -> Vec<String> {
        let text = |place: Place| format!("{} {}", place["region"], place["availabilityZone"]);
        let places = self.provider.places().unwrap();
        places.into_iter().map(text).collect()
    }

    fn unknown_error(&self) -> String {
        self.provider.places().unwrap_err().to_string()
    }

    fn n_asked(&self) -> usize {
        self.proxy.calls(ACTION).len()
    }
}

#[tokio::test]
async fn the_zones_of_our_regions_are_places() {
    let world = World::new(&["us-west-2"]).await;
    assert!(world.unknown_error().contains("before its set-up"));
    world.zones_are(&[
        ("west-b", "availability-zone", "opt-in-not-required"),
        ("west-lax-1a", "local-zone", "opted-in"),
        ("west-wl1", "wavelength-zone", "not-opted-in"),
        ("west-c", "availability-zone", "not-opted-in"),
        ("west-a", "availability-zone", "opt-in-not-required"),
    ]);
    world.set_up().await;
    assert_eq!(world.places(), ["us-west-2 west-a", "us-west-2 west-b"]);
    let asked = &world.proxy.calls(ACTION)[0];
    let filter = |number: u8| {
        let of = |part: &str| asked[&format!("Filter.{number}.{part}")].clone();
        (of("Name"), of("Value.1"))
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(filter(1), pair("zone-type", "availability-zone"));
}

#[tokio::test]
async fn an_impaired_zone_is_a_place_and_a_constrained_one_is_not() {
    let world = World::new(&["us-west-2"]).await;
    let zones = [
        "available",
        "information",
        "impaired",
        "unavailable",
        "constrained",
    ];
    let zone = |state: &&str| {
        format!("<item><zoneName>{state}</zoneName><zoneState>{state}</zoneState></item>")
    };
    let zones: String = zones.iter().map(zone).collect();
    let body = format!("<a><availabilityZoneInfo>{zones}</availabilityZoneInfo></a>");
    world.answer(ACTION, body);
    world.set_up().await;
    let places = ["available", "impaired", "information", "unavailable"];
    assert_eq!(
        world.places(),
        places.map(|zone| format!("us-west-2 {zone}"))
    );
}

#[tokio::test]
async fn an_empty_answer_leaves_the_zones_unknown() {
    let world = World::new(&["us-west-2"]).await;
    world.zones_are(&[]);
    world.set_up().await;
    let error = world.unknown_error();
    assert!(
        error.contains("zones of region us-west-2 are unknown"),
        "{error}"
    );
    assert!(error.contains("EC2 lists no zones"), "{error}");
    world.zones_are(&USUAL_ZONES);
    world.provider.refresh().await.unwrap();
    let before = world.places();
    world.clock.advance_ms(60 * MINUTE_MS);
    world.zones_are(&[]);
    world.provider.refresh().await.unwrap();
    assert_eq!(world.places(), before);
}

#[tokio::test]
async fn places_are_unknown_until_every_region_is_known() {
    let world = World::new(&["us-east-1", "us-west-2"]).await;
    world.zones_are(&USUAL_ZONES);
    world.refuse(403, "UnauthorizedOperation");
    world.set_up().await;
    let error = world.unknown_error();
    assert!(error.contains("zones of region us-"), "{error}");
    assert!(
        error.contains("allow ec2:DescribeAvailabilityZones there, or list"),
        "{error}"
    );
    // Only the missing region is asked again.
    world.zones_are(&USUAL_ZONES);
    world.provider.refresh().await.unwrap();
    assert_eq!(world.n_asked(), 3);
    assert_eq!(
        world.places(),
        [
            "us-east-1 west-a",
            "us-east-1 west-b",
            "us-west-2 west-a",
            "us-west-2 west-b"
        ]
    );
}

#[tokio::test]
async fn known_zones_stay_while_ec2_fails() {
    let world = World::new(&["us-west-2"]).await;
    world.zones_are(&USUAL_ZONES);
    world.set_up().await;
    let before = world.places();
    world.clock.advance_ms(59 * MINUTE_MS);
    world.provider.refresh().await.unwrap();
    assert_eq!(world.n_asked(), 1, "the last answer is recent");
    world.clock.advance_ms(MINUTE_MS);
    for (status, code) in [(503, "RequestLimitExceeded"), (500, "InternalError")] {
        world.refuse(status, code);
        world.provider.refresh().await.unwrap();
        assert_eq!(world.places(), before, "{code}");
    }
    world.answer(ACTION, "<html>".to_owned());
    world.provider.refresh().await.unwrap();
    assert_eq!(world.places(), before);
    world.zones_are(&[("west-d", "availability-zone", "opt-in-not-required")]);
    world.provider.refresh().await.unwrap();
    assert_eq!(world.places(), ["us-west-2 west-d"]);
    assert_eq!(world.n_asked(), 5);
}

#[tokio::test]
async fn a_failure_is_logged_when_it_begins_and_when_it_ends() {
    let zones = crate::aws::zones::Zones::default();
    let now = crate::tests::values::now();
    let trouble = || crate::CloudError::Unavailable("down".to_owned());
    assert!(zones.failed("us-west-2", trouble()));
    assert!(!zones.failed("us-west-2", trouble()));
    assert!(
        zones.failed("us-east-1", trouble()),
        "each region separately"
    );
    assert!(zones.learn("us-west-2", BTreeSet::new(), now));
    assert!(!zones.learn("us-west-2", BTreeSet::new(), now));
}

#[tokio::test]
async fn a_silent_region_does_not_delay_the_set_up() {
    let world = World::new(&["us-west-2"]).await;
    world.proxy.next(ACTION, InjectedFailure::Stall);
    world.set_up().await;
    // After the end of the call, the error would be another one.
    let error = world.unknown_error();
    assert!(
        error.ends_with("EC2 has not answered yet, try again in a few minutes"),
        "{error}"
    );
    let mut config = json!({"minCapacity": 0, "maxCapacity": 1,
        "launchConfigs": [{"region": "us-west-2", "launchConfig": {"ImageId": "ami-1"}}]});
    world.provider.validate(&mut config).unwrap();
    world.zones_are(&USUAL_ZONES);
    world.provider.refresh().await.unwrap();
    assert_eq!(world.places().len(), 2);
}

#[tokio::test]
async fn moto_has_zones_in_each_region() {
    let Some(moto) = OnMoto::start("zones").await else {
        return;
    };
    let places = moto.provider.places().unwrap();
    let regions: BTreeSet<&str> = places.iter().map(|it| it["region"].as_str()).collect();
    assert_eq!(regions.len(), 4);
    let first = [("region", "us-east-1"), ("availabilityZone", "us-east-1a")];
    let first = first.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert!(places.contains(&Place::from(first)), "{places:?}");
    moto.refuse(ACTION, 503, "RequestLimitExceeded");
    moto.clock.advance_ms(61 * MINUTE_MS);
    moto.provider.refresh().await.unwrap();
    assert_eq!(moto.provider.places(), Ok(places));
}
