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
        StrategyName::Weighted | StrategyName::Balanced => 1.0,
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
