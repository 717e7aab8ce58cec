//! Bids by `aws-provisioner`: the published bids exactly, and our corrections.

use std::collections::BTreeMap;

use domain::plan::spot_bids::{Budget, Choice, NoBid, NoChoice, Pricing, Round, round};
use domain::plan::spot_prices::PriceTable;
use domain::plan::{Snapshot, StrategyName, plan};

use crate::common::{Script, decide, decide_with, machines, offer, pool, priced};

const LITERAL: Pricing = Pricing {
    min_price: 0.0,
    max_price: Some(6.0),
    literal: true,
};
const OURS: Pricing = Pricing {
    literal: false,
    ..LITERAL
};

/// Families of instance types that some zones do not have, although their prices are published.
const DENIED: [(&str, &str); 8] = [
    ("r3", "us-east-1b"),
    ("r3", "us-east-1f"),
    ("m3", "us-east-1b"),
    ("m3", "us-east-1f"),
    ("c3", "us-east-1b"),
    ("c3", "us-east-1f"),
    ("c5", "us-east-1e"),
    ("g2", "eu-central-1c"),
];

/// A spot market: a machine type in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SpotMarket {
    region: String,
    instance_type: String,
    zone: String,
}

/// The spot markets that a pool would use.
#[derive(Clone, Debug, Default)]
struct SpotRequest {
    regions: Vec<String>,
    /// Name, capacity, utility.
    instance_types: Vec<(String, u32, f64)>,
    /// Region and zone; a region without a zone in this list may use all its zones.
    zones: Vec<(String, String)>,
}

/// All choices in the requested markets, in the order of the request.
fn choices(
    request: &SpotRequest,
    markets: &BTreeMap<String, PriceTable>,
) -> Vec<(SpotMarket, Choice)> {
    let mut found = Vec::new();
    for region in &request.regions {
        let table = markets.get(region).into_iter();
        let table = table.flat_map(|table| table.iter());
        let prices: BTreeMap<_, _> = table.collect();
        let mut own_zones = request
            .zones
            .iter()
            .filter(|(of, _)| of == region)
            .peekable();
        let is_restricted = own_zones.peek().is_some();
        let own_zones: Vec<&String> = own_zones.map(|(_, zone)| zone).collect();
        for (instance_type, capacity, utility) in &request.instance_types {
            let zones = prices
                .get(instance_type)
                .into_iter()
                .flat_map(|zones| zones.iter());
            for (zone, price) in zones {
                if is_denied(instance_type, zone) || is_restricted && !own_zones.contains(&zone) {
                    continue;
                }
                let place = SpotMarket {
                    region: region.clone(),
                    instance_type: instance_type.clone(),
                    zone: zone.clone(),
                };
                let choice = Choice {
                    capacity: *capacity,
                    utility: *utility,
                    price: Some(*price),
                    limit: u64::MAX,
                    source: 0,
                };
                found.push((place, choice));
            }
        }
    }
    found
}

/// Whether this zone is known not to have this type.
fn is_denied(instance_type: &str, zone: &str) -> bool {
    let family = instance_type.split('.').next().unwrap_or_default();
    DENIED.contains(&(family, zone))
}

fn table(prices: &[(&str, &str, f64)]) -> PriceTable {
    let mut table = PriceTable::new();
    for (instance_type, zone, price) in prices {
        let zones = table.entry((*instance_type).to_owned()).or_default();
        zones.insert((*zone).to_owned(), *price);
    }
    table
}

fn markets() -> BTreeMap<String, PriceTable> {
    let first = [
        ("type1", "zone1", 5.0),
        ("type1", "zone2", 6.0),
        ("type2", "zone2", 3.0),
    ];
    let many = ["us-east-1a", "us-east-1b", "us-east-1e", "us-east-1f"];
    let many = many.into_iter().flat_map(|zone| {
        let types: &[&str] = match zone {
            "us-east-1a" => &["m3.large", "c5.large"],
            "us-east-1e" => &["c5.large"],
            _ => &["m3.large"],
        };
        types.iter().map(move |name| (*name, zone, 0.1))
    });
    [
        ("region1".to_owned(), table(&first)),
        ("region2".to_owned(), table(&[("type2", "zone3", 2.0)])),
        ("us-east-1".to_owned(), table(&many.collect::<Vec<_>>())),
    ]
    .into()
}

fn request(regions: &[&str]) -> SpotRequest {
    SpotRequest {
        regions: regions.iter().map(|region| (*region).to_owned()).collect(),
        instance_types: vec![("type1".to_owned(), 1, 1.0), ("type2".to_owned(), 2, 2.0)],
        zones: Vec::new(),
    }
}

fn budget(wanted: f64) -> Budget {
    Budget {
        wanted,
        units: u64::MAX,
        machines: 1_000,
        rooms: Vec::new(),
    }
}

/// The bids as `price truePrice market`.
fn lines(found: &[(SpotMarket, Choice)], round: &Round) -> Vec<String> {
    let lines = round.bids.iter().map(|bid| {
        let place = &found[bid.choice].0;
        let (price, true_price) = (bid.price.unwrap(), bid.true_price.unwrap());
        format!(
            "{price} {true_price} {}/{}/{}",
            place.region, place.instance_type, place.zone
        )
    });
    lines.collect()
}

/// Bids for a request, with these draws out of this many choices each.
fn bids(
    request: &SpotRequest,
    pricing: Pricing,
    wanted: f64,
    of: usize,
    picks: &[usize],
) -> Vec<String> {
    let found = choices(request, &markets());
    let list: Vec<Choice> = found.iter().map(|(_, choice)| choice.clone()).collect();
    let picks: Vec<_> = picks.iter().map(|pick| (*pick, of)).collect();
    let mut rng = Script::picks(&picks);
    let round = round(&pricing, &list, budget(wanted), &mut rng).unwrap();
    assert!(rng.is_spent());
    lines(&found, &round)
}

/// One choice alone: its bid and its price for a unit of utility, for every bid made.
fn single(price: f64, utility: f64, capacity: u32, pricing: Pricing, wanted: f64) -> Round {
    let choice = Choice {
        capacity,
        utility,
        price: Some(price),
        limit: u64::MAX,
        source: 0,
    };
    let mut rng = Script::picks(&[(0, 1); 9]);
    round(&pricing, &[choice], budget(wanted), &mut rng).unwrap()
}

fn prices(round: &Round) -> Vec<(f64, f64)> {
    let bids = round.bids.iter();
    bids.map(|bid| (bid.price.unwrap(), bid.true_price.unwrap()))
        .collect()
}

#[test]
fn both_regions_are_bid_in_at_twice_the_price() {
    let both = request(&["region1", "region2"]);
    for pricing in [LITERAL, OURS] {
        // B1 and B2. One of the four choices is alarming, and ours never draws it.
        let (of, zone3, zone2) = if pricing.literal {
            (4, 3, 2)
        } else {
            (3, 2, 1)
        };
        assert_eq!(
            bids(&both, pricing, 1.0, of, &[zone3]),
            ["4 1 region2/type2/zone3"]
        );
        assert_eq!(
            bids(&both, pricing, 3.0, of, &[zone3, zone2]),
            ["4 1 region2/type2/zone3", "6 1.5 region1/type2/zone2"]
        );
    }
    // B3: ten dollars are not above ten dollars.
    let first = request(&["region1"]);
    assert_eq!(
        bids(&first, LITERAL, 1.0, 3, &[0]),
        ["10 5 region1/type1/zone1"]
    );
}

#[test]
fn an_alarming_draw_empties_the_round_only_if_it_is_literal() {
    let (both, first) = (request(&["region1", "region2"]), request(&["region1"]));
    // B4 and B5.
    assert!(bids(&first, LITERAL, 1.0, 3, &[1]).is_empty());
    assert!(bids(&both, LITERAL, 4.0, 4, &[3, 1]).is_empty());
    // Ours draws among the other three, whatever is drawn.
    assert_eq!(
        bids(&both, OURS, 4.0, 3, &[2, 0, 1]),
        [
            "4 1 region2/type2/zone3",
            "10 5 region1/type1/zone1",
            "6 1.5 region1/type2/zone2"
        ]
    );
}

#[test]
fn a_dear_draw_ends_the_round_only_if_it_is_literal() {
    let both = request(&["region1", "region2"]);
    let up_to = |max_price, literal| Pricing {
        max_price: Some(max_price),
        literal,
        ..LITERAL
    };
    // B6 and B7.
    assert_eq!(
        bids(&both, up_to(1.2, true), 4.0, 4, &[3, 2]),
        ["4 1 region2/type2/zone3"]
    );
    assert!(bids(&request(&["region1"]), up_to(0.1, true), 1.0, 3, &[2]).is_empty());
    // Ours takes the cheap one again, and nothing where all are too expensive.
    assert_eq!(
        bids(&both, up_to(1.2, false), 4.0, 1, &[0, 0]),
        ["4 1 region2/type2/zone3", "4 1 region2/type2/zone3"]
    );
    assert!(bids(&request(&["region1"]), up_to(0.1, false), 1.0, 1, &[]).is_empty());
}

#[test]
fn a_minimum_price_lowers_a_bid_only_if_it_is_literal() {
    let at_least = |min_price, max_price, literal| Pricing {
        min_price,
        max_price: Some(max_price),
        literal,
    };
    // B8: below the market, where it is always refused; ours bids as if there was no minimum.
    let literal = single(0.06, 3.0, 1, at_least(0.1, 6.0, true), 1.0);
    let ours = single(0.06, 3.0, 1, at_least(0.1, 6.0, false), 1.0);
    assert_eq!(
        (prices(&literal)[0].0, prices(&ours)[0].0),
        (0.033334, 0.12)
    );
    assert!((prices(&literal)[0].1 - 0.02).abs() < 1e-12);
    for literal in [true, false] {
        // B9, where it raises or keeps the bid.
        let round = single(2.0, 2.0, 2, at_least(8.0, 10.0, literal), 1.0);
        assert_eq!(prices(&round), [(4.0, 1.0)]);
        let round = single(0.1, 1.0, 1, at_least(3.0, 10.0, literal), 1.0);
        assert_eq!(prices(&round), [(3.0, 0.1)]);
    }
}

#[test]
fn nothing_to_bid_for_is_a_problem_and_nothing_wanted_is_none() {
    // B10: a region without prices.
    let nowhere = choices(&request(&["region3"]), &markets());
    assert!(nowhere.is_empty());
    let refused = round(&LITERAL, &[], budget(1.0), &mut Script::picks(&[]));
    assert_eq!(refused, Err(NoChoice));
    // B16: the original must not be called without a choice.
    assert_eq!(single(1.0, 1.0, 1, LITERAL, 0.0), Round::default());
}

#[test]
fn zones_that_are_not_wanted_or_known_to_be_empty_are_no_choice() {
    // B11.
    let mut restricted = request(&["region1", "region2"]);
    restricted.zones = vec![("region1".to_owned(), "zone2".to_owned())];
    let places = |request: &SpotRequest| -> Vec<String> {
        let found = choices(request, &markets()).into_iter();
        found
            .map(|(place, _)| format!("{} {}", place.instance_type, place.zone))
            .collect()
    };
    assert_eq!(
        places(&restricted),
        ["type1 zone2", "type2 zone2", "type2 zone3"]
    );
    restricted.regions.pop();
    assert!(bids(&restricted, LITERAL, 1.0, 2, &[0]).is_empty());
    // B12.
    let mut old = request(&["us-east-1"]);
    let types = ["m3.large", "c5.large"];
    old.instance_types = types.map(|name| (name.to_owned(), 1, 1.0)).to_vec();
    assert_eq!(places(&old), ["m3.large us-east-1a", "c5.large us-east-1a"]);
    assert_eq!(
        bids(&old, LITERAL, 2.0, 2, &[0, 1]),
        [
            "0.2 0.1 us-east-1/m3.large/us-east-1a",
            "0.2 0.1 us-east-1/c5.large/us-east-1a"
        ]
    );
    assert!(is_denied("g2.2xlarge", "eu-central-1c") && !is_denied("g2.2xlarge", "eu-central-1a"));
}

#[test]
fn bids_have_six_decimals_and_their_limits_belong_to_them() {
    for literal in [true, false] {
        let up_to = |max_price| Pricing {
            max_price: Some(max_price),
            literal,
            ..LITERAL
        };
        // B13 and B14.
        let three = single(0.033_333_3, 1.0, 3, up_to(6.0), 7.0);
        assert_eq!(prices(&three), [(0.066667, 0.033_333_3); 3]);
        assert_eq!(prices(&single(0.2, 1.0, 1, up_to(0.2), 1.0)), [(0.4, 0.2)]);
    }
    // B15.
    let alarming = single(
        5.000_000_1,
        1.0,
        1,
        Pricing {
            max_price: Some(100.0),
            ..LITERAL
        },
        1.0,
    );
    assert_eq!(alarming.alarm, Some(NoBid::Alarming { bid: 10.000_001 }));
    assert!(alarming.bids.is_empty());
}

fn spot(prices: &[(&str, f64)]) -> Snapshot {
    let mut snapshot = pool(0, 100);
    snapshot.settings.strategy = StrategyName::AwsProvisioner;
    snapshot.settings.scaling_ratio = 0.0;
    snapshot.offers = prices
        .iter()
        .map(|(id, price)| priced(id, *price))
        .collect();
    snapshot
}

#[test]
fn a_plan_bids_at_random_and_names_each_price() {
    let mut snapshot = spot(&[("a", 0.1), ("b", 0.2), ("c", 0.3)]);
    snapshot.demand.pending = 3;
    let mut rng = Script::picks(&[(2, 3), (0, 3), (2, 3)]);
    let plan = plan(&snapshot, &mut rng);
    assert_eq!(machines(&plan), "a:1 c:2");
    let prices: Vec<_> = plan.awards.iter().map(|award| award.max_price).collect();
    assert_eq!(prices, [Some(0.2), Some(0.6)]);
}

#[test]
fn a_plan_skips_expensive_and_alarming_offers_with_a_reason() {
    let mut snapshot = spot(&[("cheap", 0.1), ("dear", 1.5), ("mad", 7.0), ("mute", 0.1)]);
    snapshot.demand.pending = 5;
    snapshot.offers[3].bid.as_mut().unwrap().price = None;
    let plan = decide(&snapshot);
    let skipped = |plan: &domain::plan::Plan| {
        let skipped = plan
            .reasons
            .iter()
            .filter(|reason| reason.contains("skipped"));
        skipped.cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        skipped(&plan),
        ["mad: skipped, its bid of $14 an hour is above $10"]
    );
    assert_eq!(
        plan.alarm.as_deref(),
        Some("mad: its bid of $14 an hour is above $10")
    );
    snapshot.settings.max_price = 1.0;
    let plan = decide(&snapshot);
    assert_eq!(machines(&plan), "cheap:5");
    assert_eq!(
        skipped(&plan),
        [
            "dear: skipped, its price of $1.5 an hour for a unit of utility is above the maximum",
            "mad: skipped, its price of $7 an hour for a unit of utility is above the maximum",
            "mute: skipped, its price is not known, and the pool has a maxPrice"
        ]
    );
}

#[test]
fn a_literal_plan_has_the_flaws_of_the_original() {
    let mut snapshot = spot(&[("a", 0.1), ("mad", 7.0)]);
    snapshot.settings.literal = true;
    snapshot.demand.pending = 2;
    let mut rng = Script::picks(&[(0, 2), (1, 2)]);
    let plan = plan(&snapshot, &mut rng);
    assert!(
        plan.awards.is_empty(),
        "the second draw threw away the first"
    );
    assert_eq!(
        plan.alarm.as_deref(),
        Some("no bid is made: for a choice that was drawn, its bid of $14 an hour is above $10")
    );
}

#[test]
fn a_bid_stops_at_the_limits_of_its_launch_config() {
    let mut snapshot = spot(&[("a", 0.1), ("b", 0.1)]);
    snapshot.demand.pending = 20;
    snapshot.offers[0].max_capacity = Some(3);
    snapshot.offers[1].bid.as_mut().unwrap().available = Some(4);
    for seed in 0..20 {
        assert_eq!(machines(&decide_with(&snapshot, seed)), "a:3 b:4");
    }
}

#[test]
fn without_prices_and_without_a_maximum_price_machines_are_taken_as_they_come() {
    let mut snapshot = spot(&[]);
    snapshot.offers = vec![offer("a")];
    snapshot.demand.pending = 2;
    let plan = decide(&snapshot);
    assert_eq!(
        (machines(&plan).as_str(), plan.awards[0].max_price),
        ("a:2", None)
    );
}
