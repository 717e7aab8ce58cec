//! Which bids a plan uses, and what its launches say of them.

use domain::plan::{Bid, Input, Offer, Snapshot, StrategyName};
use serde_json::json;

use crate::common::{decide, machines, offer, pool, priced, seconds_ago};

/// A pool with five waiting tasks, the launch config `bad` and the good one `good`.
fn beside(bad: Bid, strategy: StrategyName) -> Snapshot {
    let bad = Offer {
        bid: Ok(bad),
        ..offer("bad")
    };
    let mut snapshot = pool(0, 10);
    snapshot.settings.strategy = strategy;
    snapshot.settings.scaling_ratio = match strategy {
        StrategyName::AwsProvisioner => 0.0,
        StrategyName::Weighted | StrategyName::Balanced | StrategyName::External => 1.0,
    };
    snapshot.demand.pending = 5;
    snapshot.offers = vec![bad, priced("good", 0.5)];
    snapshot
}

#[test]
fn bids_that_do_not_count_are_skipped_with_their_reason() {
    let with = |price: f64| Bid {
        price: Some(price),
        ..Bid::plain(String::new())
    };
    let expired = Bid {
        expires: Some(seconds_ago(0)),
        ..with(0.1)
    };
    let cases = [
        (expired, "its bid expired at 2026-09-21T14:13:20.000Z"),
        (
            with(-1.0),
            "its bid has a price of $-1 an hour, which is negative",
        ),
        (
            with(f64::NAN),
            "its bid has a price of $NaN an hour, which is no number",
        ),
        (
            with(1e9),
            "its bid has a price of $1000000000 an hour, which is above $1000000",
        ),
    ];
    for (bid, why) in cases {
        for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
            let plan = decide(&beside(bid.clone(), strategy));
            assert_eq!(machines(&plan), "good:5");
            assert!(
                plan.reasons.contains(&format!("bad: skipped, {why}")),
                "{}",
                plan.text()
            );
        }
    }
}

#[test]
fn a_launch_has_the_price_and_the_data_of_its_bid() {
    let mut snapshot = pool(0, 10);
    snapshot.demand.pending = 2;
    let data = json!({"ticket": 7}).as_object().unwrap().clone();
    snapshot.offers[0].bid = Ok(Bid {
        price: Some(0.25),
        data: data.clone(),
        ..Bid::plain(String::new())
    });
    let plan = decide(&snapshot);
    assert_eq!(plan.awards[0].price, Some(0.25));
    assert_eq!(plan.awards[0].data, data);
    let input = Input { seed: 1, snapshot };
    assert_eq!(
        Input::unpack(&input.pack().unwrap()).unwrap().replay(),
        plan
    );
    assert_eq!(
        domain::plan::Plan::from_json(&plan.to_json()).unwrap(),
        plan
    );
}

#[test]
fn plans_and_snapshots_of_former_versions_are_read_still() {
    let mut snapshot = pool(0, 10);
    snapshot.demand.pending = 2;
    let document = snapshot.to_json();
    let bid = document.pointer("/snapshot/offers/0/bid/Ok").unwrap();
    let former = json!({"price": null, "utility": 1.0, "place": "", "available": null});
    assert_eq!(*bid, former);
    assert_eq!(Snapshot::from_json(&document).unwrap(), snapshot);
    let award = &decide(&snapshot).to_json()["plan"]["awards"][0];
    let members: Vec<&str> = award
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let former = [
        "capacityEach",
        "launchConfigId",
        "machines",
        "maxPrice",
        "providerId",
    ];
    assert_eq!(members, former);
}

/// The rows of a snapshot's plan, as text.
fn rows(snapshot: &Snapshot) -> String {
    let plan = decide(snapshot);
    let rows = snapshot.offer_rows(&plan).into_iter().map(|row| {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |n| format!("{n:.4}"));
        let ready = row
            .ready_ms
            .map_or("-".to_owned(), |ms| format!("{} s", ms / 1_000));
        format!(
            "{} {} | {} | {} | {ready} | {} | {} | {}",
            row.provider_id,
            row.launch_config_id,
            number(row.price),
            number(row.price_per_useful_hour),
            row.offered,
            row.taken,
            row.why
        )
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_offer_of_a_plan_says_what_it_was_and_why_it_was_used_or_not() {
    let mut snapshot = beside(Bid::plain(String::new()), StrategyName::Balanced);
    snapshot
        .sources
        .push(crate::common::source("racks", Some(2)));
    let bid = |price: f64| Bid {
        price: Some(price),
        ..Bid::plain(String::new())
    };
    let rich = Bid {
        utility: 2.0,
        reliability: Some(0.5),
        ready_ms: Some(74_000),
        available: Some(3),
        ..bid(0.04)
    };
    let with = |id: &str, bid: Result<Bid, String>| Offer { bid, ..offer(id) };
    snapshot.offers = vec![
        with("rich", Ok(rich)),
        crate::common::from("racks", with("rack", Ok(bid(0.04)))),
        with("dear", Ok(bid(4.0))),
        with("mute", Err("no prices yet".to_owned())),
        with(
            "old",
            Ok(Bid {
                expires: Some(seconds_ago(1)),
                ..bid(0.01)
            }),
        ),
        Offer {
            max_capacity: Some(0),
            ..with("full", Ok(bid(0.01)))
        },
    ];
    insta::assert_snapshot!(rows(&snapshot), @r"
    cloud rich | 0.0400 | 0.0400 | 74 s | 3 | 3 | taken
    racks rack | 0.0400 | 0.0400 | - | 2 | 2 | taken
    cloud dear | 4.0000 | 4.0000 | - | 10 | 0 | not needed: dearer
    cloud mute | - | - | - | 0 | 0 | no prices yet
    cloud old | 0.0100 | 0.0100 | - | 0 | 0 | its bid expired at 2026-09-21T14:13:19.000Z
    cloud full | 0.0100 | 0.0100 | - | 0 | 0 | full: 0 of 0 units exist, a machine has 1
    ");
    snapshot.demand.pending = 0;
    insta::assert_snapshot!(rows(&snapshot), @r"
    cloud rich | 0.0400 | 0.0400 | 74 s | 3 | 0 | not needed
    racks rack | 0.0400 | 0.0400 | - | 2 | 0 | not needed
    cloud dear | 4.0000 | 4.0000 | - | 10 | 0 | not needed
    cloud mute | - | - | - | 0 | 0 | no prices yet
    cloud old | 0.0100 | 0.0100 | - | 0 | 0 | its bid expired at 2026-09-21T14:13:19.000Z
    cloud full | 0.0100 | 0.0100 | - | 0 | 0 | full: 0 of 0 units exist, a machine has 1
    ");
}
