//! Snapshots and plans as documents and as text.

use domain::launch::Cause;
use domain::plan::{
    BadDocument, Bid, Health, Offer, Plan, Refusals, Snapshot, StrategyName, Tries,
};
use serde_json::{Value, json};

use crate::common::{asked_to_stop, busy, decide, idle, offer, pool, seconds_ago};

/// A snapshot with every field set.
fn snapshot() -> Snapshot {
    let mut snapshot = pool(1, 20);
    snapshot.settings.strategy = StrategyName::AwsProvisioner;
    snapshot.settings.scaling_ratio = -0.2;
    snapshot.settings.max_price = 1.25;
    snapshot.demand.pending = 4;
    snapshot.demand.claimed = 2;
    snapshot.capacity.running = 2;
    snapshot.capacity.draining = 1;
    snapshot.sources[0].room = Some(7);
    let bid = Bid {
        price: Some(0.0333333),
        utility: 2.0,
        place: "us-west-2a m5.large spot".to_owned(),
        available: Some(9),
        capacity_each: Some(2),
        reliability: Some(0.95),
        ready_ms: Some(90_000),
        expires: Some(seconds_ago(-600)),
        data: json!({"ticket": 7}).as_object().unwrap().clone(),
    };
    let ill = Offer {
        health: Health {
            attempted: 4,
            failed: 4,
            last_failure: Some(seconds_ago(20)),
            ..Health::default()
        },
        bid: Ok(bid.clone()),
        max_capacity: Some(5),
        ..offer("ill").tried(Tries {
            refusals: Some(Refusals {
                in_a_row: 2,
                cause: Cause::Lost,
                last: seconds_ago(20),
            }),
            plans_without_workers: 1,
            last: Some(seconds_ago(30)),
        })
    };
    let mute = Offer {
        bid: Err("no prices yet".to_owned()),
        ..offer("mute")
    };
    let good = Offer {
        bid: Ok(bid),
        capacity_each: 2,
        ..offer("good")
    };
    snapshot.offers = vec![good, ill, mute];
    let quarantined = domain::plan::Candidate {
        quarantined_since: Some(seconds_ago(7)),
        ..idle("q", 80)
    };
    let archived = domain::plan::Candidate {
        archived: true,
        ..busy("old")
    };
    let leaving = asked_to_stop(idle("leaving", 90), "over capacity");
    snapshot.workers = vec![busy("w"), archived, leaving, quarantined];
    snapshot
}

#[test]
fn a_snapshot_comes_back_as_it_was_and_plans_alike() {
    let snapshot = snapshot();
    let text = snapshot.to_json().to_string();
    let document: Value = serde_json::from_str(&text).unwrap();
    let read = Snapshot::from_json(&document).unwrap();
    assert_eq!(read, snapshot);
    assert_eq!(decide(&read), decide(&snapshot));
}

#[test]
fn a_plan_comes_back_as_it_was() {
    let plan = decide(&snapshot());
    assert!(!plan.awards.is_empty() && !plan.advice.is_empty());
    let text = plan.to_json().to_string();
    assert_eq!(
        Plan::from_json(&serde_json::from_str(&text).unwrap()).unwrap(),
        plan
    );
}

#[test]
fn documents_of_the_first_version_are_read_still() {
    let mut document = snapshot().to_json();
    document["version"] = json!(1);
    let fields = document["snapshot"].as_object_mut().unwrap();
    fields.remove("sources");
    fields.insert("providerId".to_owned(), json!("cloud"));
    fields.insert("room".to_owned(), json!(7));
    for offer in fields["offers"].as_array_mut().unwrap() {
        offer.as_object_mut().unwrap().remove("providerId");
    }
    assert_eq!(Snapshot::from_json(&document).unwrap(), snapshot());
    let plan = decide(&snapshot());
    let mut document = plan.to_json();
    document["version"] = json!(1);
    for award in document["plan"]["awards"].as_array_mut().unwrap() {
        award.as_object_mut().unwrap().remove("providerId");
    }
    assert_eq!(Plan::from_json(&document).unwrap(), plan);
    assert!(Snapshot::from_json(&json!({"version": 1, "snapshot": [1]})).is_err());
}

#[test]
fn a_snapshot_is_readable() {
    let document = snapshot().to_json();
    let content = &document["snapshot"];
    assert_eq!(document["version"], 2);
    assert_eq!(content["now"], "2026-09-21T14:13:20.000Z");
    assert_eq!(content["settings"]["strategy"], "aws-provisioner");
    assert_eq!(content["demand"], json!({"pending": 4, "claimed": 2}));
    assert_eq!(content["workers"][0]["key"], "proj/linux/g/w");
    assert_eq!(content["offers"][2]["bid"], json!({"Err": "no prices yet"}));
}

fn problem(document: &Value) -> String {
    match Snapshot::from_json(document).unwrap_err() {
        BadDocument::Content { kind, problem } => format!("{kind}: {problem}"),
        other @ BadDocument::Version { .. } => other.to_string(),
    }
}

#[test]
fn an_invalid_document_is_refused() {
    let good = snapshot().to_json();
    let broken = |pointer: &str, value: Value| {
        let mut document = good.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        problem(&document)
    };
    assert_eq!(
        broken("/version", json!(3)),
        "the snapshot document has version 3, and this program reads versions up to 2"
    );
    assert_eq!(
        problem(&Value::Null),
        "the snapshot document has version null, and this program reads versions up to 2"
    );
    assert!(problem(&json!({"version": 2})).starts_with("snapshot: invalid type: null"));
    assert!(broken("/snapshot/now", json!("noon")).contains("\"noon\" is not a date and time"));
    assert!(
        broken("/snapshot/workers/0/key", json!("a/b/c"))
            .contains("\"a/b/c\" is not the key of a worker")
    );
    assert!(broken("/snapshot/poolId", json!("a b")).contains("is not a worker pool id"));
    let mut extra = good.clone();
    extra["snapshot"]["settings"]["maxCapcity"] = json!(5);
    assert!(problem(&extra).contains("unknown field `maxCapcity`"));
    assert!(Plan::from_json(&good).is_err());
}

#[test]
fn a_plan_reads_well() {
    let mut snapshot = snapshot();
    snapshot.settings.max_price = 0.5;
    insta::assert_snapshot!(decide(&snapshot).text(), @r"
    the pool wants 3 more units, 6 in all
    launch 2 x good (2 units each, $0.0333333 an hour each, at most $0.066667)
    ask proj/linux/g/old to stop: launch config archived
    ask proj/linux/g/leaving to stay: needed
    because 3 more units are needed: 4 tasks wait, 1 runs; 2 units run, 1 was asked to stop; minimum 1, maximum 20, scaling ratio -0.2
    because us-west-2a m5.large spot (ill): skipped, 4 of 4 launches failed in the last hour, last 2 launches were refused (lost), tried again at 14:15:00Z
    because mute: skipped, no prices yet
    because us-west-2a m5.large spot (good): 2 machines, at most $0.066667 an hour each
    because asked 1 to stop: launch config archived
    because asked 1 to stay: needed after all
    ");
}

#[test]
fn a_weighted_plan_reads_well() {
    let mut snapshot = pool(2, 40);
    snapshot.demand.pending = 10;
    snapshot.demand.claimed = 3;
    snapshot.capacity.running = 3;
    snapshot.capacity.requested = 2;
    insta::assert_snapshot!(decide(&snapshot).text(), @r"
    the pool wants 8 more units, 13 in all
    launch 8 x a (1 unit each)
    because 8 more units are needed: 10 tasks wait, 3 run; 3 units run, 2 start; minimum 2, maximum 40
    because a: 8 machines
    ");
    let mut empty = pool(0, 5);
    empty.workers = vec![idle("w", 60)];
    empty.capacity.running = 1;
    insta::assert_snapshot!(decide(&empty).text(), @r"
    the pool wants no more units: 0 in all are enough
    ask proj/linux/g/w to stop: over capacity
    because no more units are needed: 0 tasks wait; 1 unit was asked to stop; maximum 5
    because asked 1 to stop: over capacity, longest idle first; 0 stay running, 0 wanted
    ");
}
