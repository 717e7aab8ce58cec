//! The strategy `external`: the answer of a service is followed within the limits of the pool.

use domain::plan::{
    ExternalStrategy, Input, MAX_ANSWER_AGE_MS, MAX_LISTED_WORKERS, MAX_MACHINES, Offer, Proposal,
    ProposedLaunch, ProposedStop, ServiceAnswer, Snapshot, StrategyName,
};
use domain::time::SECOND_MS;
use serde_json::{Value, json};
use testing::sizes_around;

use crate::common::{
    advised, asked_to_stop, busy, decide, idle, launched, machines, offer, pool, priced,
    seconds_ago, source,
};

/// A pool of the service `brain`, with this fallback, up to this maximum.
pub(crate) fn served(fallback: StrategyName, max: u64) -> Snapshot {
    let mut snapshot = pool(0, max);
    snapshot.settings.strategy = StrategyName::External;
    snapshot.settings.external = Some(ExternalStrategy {
        service: "brain".parse().unwrap(),
        fallback,
    });
    snapshot.demand.pending = 3;
    snapshot.offers = vec![offer("a"), offer("b")];
    snapshot
}

pub(crate) fn answer(snapshot: &Snapshot, outcome: Result<Proposal, String>) -> ServiceAnswer {
    ServiceAnswer {
        service: "brain".parse().unwrap(),
        asked: seconds_ago(1),
        units: snapshot.capacity.all(),
        outcome,
    }
}

/// The same pool, for which the service answered these launches.
fn with_launches(mut snapshot: Snapshot, launches: &[(&str, u64)]) -> Snapshot {
    let proposal = Proposal {
        launches: proposed(launches),
        ..Proposal::default()
    };
    snapshot.answer = Some(answer(&snapshot, Ok(proposal)));
    snapshot
}

fn proposed(launches: &[(&str, u64)]) -> Vec<ProposedLaunch> {
    let launch = |(id, machines): &(&str, u64)| ProposedLaunch {
        bid_number: 0,
        launch_config_id: id.parse().unwrap(),
        machines: *machines,
    };
    launches.iter().map(launch).collect()
}

fn weighted(max: u64) -> Snapshot {
    served(StrategyName::Weighted, max)
}

/// The reasons of the plan that contain this text.
fn reasons(snapshot: &Snapshot, part: &str) -> Vec<String> {
    let reasons = decide(snapshot).reasons.into_iter();
    reasons.filter(|reason| reason.contains(part)).collect()
}

#[test]
fn the_service_decides_how_many_machines_start_and_of_which_launch_config() {
    let mut snapshot = with_launches(weighted(10), &[("b", 5), ("a", 1)]);
    if let Some(Ok(proposal)) = snapshot.answer.as_mut().map(|it| &mut it.outcome) {
        proposal.reasons = vec!["a push is coming".to_owned()];
    }
    let plan = decide(&snapshot);
    assert_eq!(machines(&plan), "a:1 b:5");
    assert_eq!((plan.change, plan.target), (6.0, 6.0));
    let text = plan.text();
    assert!(
        text.contains(
            "because the strategy service brain decides: start 6 machines, let 0 workers go\n\
             because brain: a push is coming\n"
        ),
        "{text}"
    );
}

#[test]
fn one_machine_is_not_called_machines() {
    let snapshot = with_launches(weighted(10), &[("a", 1)]);
    let told = reasons(&snapshot, "decides: start 1 machine, let 0 workers go");
    assert_eq!(told.len(), 1);
}

#[test]
fn more_than_the_maximum_is_cut_with_a_reason() {
    let snapshot = with_launches(weighted(4), &[("a", 3), ("b", 1_000_000_000)]);
    let plan = decide(&snapshot);
    assert_eq!(machines(&plan), "a:3 b:1");
    for part in [
        "capped: wanted 1000000003, room for 4 under the maximum of 4",
        "the service starts 1000000000 of b: 1, there is room for 0 more units under the maximum \
         of 4",
    ] {
        assert_eq!(reasons(&snapshot, part).len(), 1, "{}", plan.text());
    }
    let full = with_launches(weighted(0), &[("a", 1)]);
    assert_eq!(machines(&decide(&full)), "");
}

#[test]
fn every_number_of_machines_around_the_limits_of_a_plan_is_kept_within() {
    for count in [
        0,
        1,
        MAX_MACHINES - 1,
        MAX_MACHINES,
        MAX_MACHINES + 1,
        10 * MAX_MACHINES,
        u64::MAX,
    ] {
        let snapshot = with_launches(weighted(1_000_000), &[("a", count), ("b", count)]);
        let plan = decide(&snapshot);
        assert_eq!(launched(&plan), count.saturating_mul(2).min(MAX_MACHINES));
        let cut = reasons(&snapshot, "one plan starts at most 1000 machines");
        assert_eq!(
            cut.is_empty(),
            count.saturating_mul(2) <= MAX_MACHINES,
            "{count}"
        );
    }
}

#[test]
fn launch_configs_that_cannot_be_used_are_left_out_with_their_reason() {
    let mut snapshot = weighted(100);
    snapshot.offers.push(Offer {
        bid: Err("paused until tomorrow".to_owned()),
        ..offer("paused")
    });
    snapshot.offers.push(Offer {
        max_capacity: Some(2),
        live: 1,
        capacity_each: 1,
        ..offer("small")
    });
    let launches = [("elsewhere", 4), ("paused", 5), ("small", 6), ("a", 1)];
    let snapshot = with_launches(snapshot, &launches);
    assert_eq!(machines(&decide(&snapshot)), "a:1 small:1");
    for part in [
        "the service starts 4 of elsewhere: none, it is no active launch config of the pool",
        "the service starts 5 of paused: none, paused until tomorrow",
        "the service starts 6 of small: 1, it can give no more now",
    ] {
        assert_eq!(reasons(&snapshot, part), [part]);
    }
}

#[test]
fn a_provider_without_room_gives_no_more() {
    let mut snapshot = weighted(100);
    snapshot.sources = vec![source("cloud", Some(2))];
    let snapshot = with_launches(snapshot, &[("a", 5)]);
    assert_eq!(machines(&decide(&snapshot)), "a:2");
    let part = "the service starts 5 of a: 2, the provider cloud accepts no more machines now";
    assert_eq!(reasons(&snapshot, part), [part]);
}

#[test]
fn what_was_added_since_the_question_is_not_started_again() {
    let mut snapshot = with_launches(weighted(100), &[("a", 5)]);
    snapshot.capacity.intended = 3;
    assert_eq!(machines(&decide(&snapshot)), "a:2");
    let part = "3 units were added since the service was asked: that much less is started";
    assert_eq!(reasons(&snapshot, part), [part]);
    snapshot.capacity.intended = 9;
    assert_eq!(machines(&decide(&snapshot)), "");
}

#[test]
fn a_pool_below_its_minimum_gets_the_rest_from_the_fallback() {
    let mut snapshot = weighted(10);
    snapshot.settings.min_capacity = 4;
    let snapshot = with_launches(snapshot, &[("a", 1)]);
    assert_eq!(launched(&decide(&snapshot)), 4);
    let part = "the minimum of 4 needs 3 more: the fallback weighted chooses";
    assert_eq!(reasons(&snapshot, part), [part]);
}

#[test]
fn without_a_valid_answer_the_fallback_decides_as_it_would_alone() {
    for fallback in [
        StrategyName::Weighted,
        StrategyName::AwsProvisioner,
        StrategyName::Balanced,
    ] {
        let mut alone = served(fallback, 10);
        alone.offers = vec![priced("a", 0.1), priced("b", 0.1)];
        let mut snapshot = alone.clone();
        alone.settings.strategy = fallback;
        alone.settings.external = None;
        let expected = decide(&alone);
        let late = answer(&snapshot, Err("no answer within 3 s".to_owned()));
        snapshot.answer = Some(late);
        let plan = decide(&snapshot);
        assert_eq!(
            (plan.awards, plan.change),
            (expected.awards, expected.change)
        );
        let line = format!(
            "the fallback {fallback} decides without the strategy service brain: no answer within \
             3 s"
        );
        assert_eq!(plan.reasons[0], line);
        assert_eq!(plan.reasons[1..], expected.reasons);
    }
}

#[test]
fn an_answer_is_not_followed_when_it_is_old_expired_or_of_another_service() {
    let fresh = with_launches(weighted(10), &[("a", 7)]);
    let with = |change: &dyn Fn(&mut ServiceAnswer)| {
        let mut snapshot = fresh.clone();
        change(snapshot.answer.as_mut().unwrap());
        let plan = decide(&snapshot);
        (launched(&plan), plan.reasons[0].clone())
    };
    let why = |text: &str| {
        (
            3,
            format!("the fallback weighted decides without the strategy service brain: {text}"),
        )
    };
    let now = seconds_ago(0);
    let age = MAX_ANSWER_AGE_MS;
    assert_eq!(with(&|it| it.asked = now.plus_millis(-age)).0, 7);
    assert_eq!(
        with(&|it| it.asked = now.plus_millis(-age - SECOND_MS)),
        why("its answer is 61 s old")
    );
    // The clock was set back.
    assert_eq!(
        with(&|it| it.asked = now.plus_millis(age + SECOND_MS)),
        why("its answer is -61 s old")
    );
    let expires = |at| {
        move |it: &mut ServiceAnswer| {
            it.outcome.as_mut().unwrap().expires = Some(at);
        }
    };
    assert_eq!(with(&expires(now.plus_millis(1))).0, 7);
    assert_eq!(
        with(&expires(now)),
        why("its answer expired at 2026-09-21T14:13:20.000Z")
    );
    assert_eq!(
        with(&|it| it.service = "other".parse().unwrap()),
        why("the answer is from other")
    );
    let mut unasked = fresh.clone();
    unasked.answer = None;
    assert_eq!(decide(&unasked).reasons[0], why("it was not asked").1);
}

fn stop(id: &str) -> ProposedStop {
    ProposedStop {
        worker_group: "g".parse().unwrap(),
        worker_id: id.parse().unwrap(),
    }
}

fn with_stops(mut snapshot: Snapshot, ids: &[&str]) -> Snapshot {
    let proposal = Proposal {
        stop: ids.iter().copied().map(stop).collect(),
        ..Proposal::default()
    };
    snapshot.answer = Some(answer(&snapshot, Ok(proposal)));
    snapshot
}

#[test]
fn idle_workers_that_the_service_lists_stop_and_all_others_stay() {
    let mut snapshot = weighted(10);
    snapshot.capacity.running = 4;
    snapshot.capacity.draining = 1;
    let held = domain::plan::Candidate {
        idle_hold_ms: 100 * SECOND_MS,
        ..idle("held", 50)
    };
    let asked = asked_to_stop(idle("asked", 90), "over capacity");
    snapshot.workers = vec![idle("one", 60), idle("two", 70), busy("busy"), held, asked];
    let snapshot = with_stops(snapshot, &["two", "busy", "held", "nobody", "two"]);
    let plan = decide(&snapshot);
    assert_eq!(
        advised(&plan),
        [
            "two stop let go by the strategy service",
            "asked stay needed"
        ]
    );
    for part in [
        "the service lets g/busy go: not asked to stop, it has a task",
        "the service lets g/held go: not asked to stop, it has not been idle for long enough",
        "the service lets g/nobody go: not asked to stop, it is no running worker that can be asked",
        "asked 1 to stop: let go by the strategy service",
    ] {
        assert_eq!(reasons(&snapshot, part), [part]);
    }
}

#[test]
fn no_worker_stops_below_the_minimum() {
    let mut snapshot = weighted(10);
    snapshot.settings.min_capacity = 2;
    snapshot.capacity.running = 3;
    snapshot.workers = vec![idle("one", 60), idle("two", 70), idle("six", 80)];
    let snapshot = with_stops(snapshot, &["one", "two", "six"]);
    let plan = decide(&snapshot);
    assert_eq!(advised(&plan), ["one stop let go by the strategy service"]);
    let part =
        "the service lets g/two go: not asked to stop, the minimum of 2 units would not be left";
    assert_eq!(reasons(&snapshot, part), [part]);
}

#[test]
fn an_answer_that_wants_nothing_makes_an_idle_plan() {
    let mut snapshot = weighted(10);
    snapshot.capacity.running = 1;
    snapshot.workers = vec![idle("one", 60)];
    assert!(decide(&with_launches(snapshot.clone(), &[])).is_idle());
    assert!(decide(&with_launches(snapshot, &[("a", 0)])).is_idle());
}

#[test]
fn a_plan_by_a_service_is_made_again_byte_for_byte() {
    let snapshot = with_launches(weighted(10), &[("b", 5), ("nosuch", 1)]);
    let input = Input { seed: 9, snapshot };
    let plan = input.replay();
    let unpacked = Input::unpack(&input.pack().unwrap()).unwrap();
    assert_eq!(unpacked, input);
    let bytes = |plan: &domain::plan::Plan| plan.to_json().to_string();
    assert_eq!(bytes(&unpacked.replay()), bytes(&plan));
    let failed = answer(&input.snapshot, Err("status 500".to_owned()));
    let mut snapshot = input.snapshot.clone();
    snapshot.answer = Some(failed);
    let input = Input { seed: 9, snapshot };
    assert_eq!(Input::unpack(&input.pack().unwrap()).unwrap(), input);
}

#[test]
fn inputs_of_other_strategies_have_no_word_of_services_and_are_read_without() {
    let snapshot = pool(1, 9);
    let document = snapshot.to_json();
    let text = document.to_string();
    assert!(
        !text.contains("answer") && !text.contains("external"),
        "{text}"
    );
    assert_eq!(Snapshot::from_json(&document).unwrap(), snapshot);
}

#[test]
fn a_request_lists_a_bounded_number_of_idle_workers() {
    for count in sizes_around(
        "domain::plan::service_request::MAX_LISTED_WORKERS",
        MAX_LISTED_WORKERS,
    ) {
        let mut snapshot = weighted(10);
        let worker = |n: usize| idle(&format!("w{n}"), i64::try_from(n).unwrap());
        snapshot.workers = (0..count).map(worker).collect();
        snapshot.workers.push(busy("busy"));
        let request = snapshot.service_request(1);
        let listed = request["workers"].as_array().unwrap();
        assert_eq!(listed.len(), count.min(MAX_LISTED_WORKERS));
        assert_eq!(
            request["workersOmitted"],
            count.saturating_sub(MAX_LISTED_WORKERS)
        );
        // Those that have been idle longest come first.
        let first = listed
            .first()
            .map_or(Value::Null, |it| it["workerId"].clone());
        assert_eq!(
            first,
            count
                .checked_sub(1)
                .map_or(Value::Null, |n| json!(format!("w{n}")))
        );
    }
}

#[test]
fn a_request_says_what_each_launch_config_can_give_and_why_not() {
    let mut snapshot = weighted(5);
    snapshot.demand.pending = snapshot.settings.most_pending();
    snapshot.capacity.requested = 2;
    let broken = Offer {
        bid: Err("sold out".to_owned()),
        ..offer("broken")
    };
    snapshot.offers = vec![priced("a", 0.25), broken];
    let request = snapshot.service_request(u64::MAX);
    assert_eq!(request["seed"], "18446744073709551615");
    assert_eq!(
        (&request["room"], &request["capacity"]["requested"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(request["demand"]["pendingIsLowerBound"], true);
    let [a, broken] = [0, 1].map(|n| &request["offers"][n]);
    assert_eq!(
        (&a["maxMachines"], &a["bid"]["price"]),
        (&json!(5), &json!(0.25))
    );
    assert_eq!(
        (&broken["maxMachines"], &broken["skipped"]),
        (&json!(0), &json!("sold out"))
    );
}
