//! An ill launch config is paused, tried again, and used again.

use domain::launch::Cause;
use domain::plan::{
    Health, LONGEST_PAUSE_MS, MAX_TRIED, Offer, Plan, Refusals, Snapshot, StrategyName, Tries,
};
use domain::time::SECOND_MS;
use testing::sizes_around;

use crate::common::{decide, decide_with, launched, machines, offer, pool, seconds_ago};

/// All its launches failed for a wrong configuration, the last one this many seconds ago.
fn ill(id: &str, in_a_row: u64, seconds: i64) -> Offer {
    let health = Health {
        attempted: 4,
        failed: 4,
        last_failure: Some(seconds_ago(seconds)),
        ..Health::default()
    };
    Offer {
        health,
        ..offer(id).tried(refused(Cause::Configuration, in_a_row, seconds))
    }
}

fn refused(cause: Cause, in_a_row: u64, seconds: i64) -> Tries {
    Tries {
        refusals: Some(Refusals {
            in_a_row,
            cause,
            last: seconds_ago(seconds),
        }),
        last: Some(seconds_ago(seconds)),
        ..Tries::default()
    }
}

fn waiting(pending: u64, offers: Vec<Offer>) -> Snapshot {
    let mut snapshot = pool(0, 100);
    snapshot.demand.pending = pending;
    snapshot.offers = offers;
    snapshot
}

fn has(plan: &Plan, reason: &str) -> bool {
    plan.reasons.iter().any(|line| line == reason)
}

#[test]
fn one_that_is_ill_is_left_alone_until_its_pause_is_over() {
    let snapshot = waiting(5, vec![ill("a", 1, 59), offer("b")]);
    let plan = decide(&snapshot);
    assert_eq!(machines(&plan), "b:5");
    assert!(has(
        &plan,
        "a: skipped, 4 of 4 launches failed in the last hour, last launch was refused (configuration), \
         tried again at 14:13:21Z"
    ));
    let plan = decide(&waiting(5, vec![ill("a", 1, 60), offer("b")]));
    assert_eq!(machines(&plan), "a:1 b:4");
    assert!(has(
        &plan,
        "a: tried again, 4 of 4 launches failed in the last hour, last launch was refused (configuration)"
    ));
}

#[test]
fn a_pause_doubles_with_each_failed_launch_and_ends_at_eight_minutes() {
    for (failed_launches, pause) in [(1, 60), (2, 120), (3, 240), (4, 480), (50, 480)] {
        let resting = waiting(5, vec![ill("a", failed_launches, pause - 1)]);
        assert_eq!(launched(&decide(&resting)), 0);
        let due = waiting(5, vec![ill("a", failed_launches, pause)]);
        assert_eq!(launched(&decide(&due)), 1);
    }
}

#[test]
fn an_ill_launch_config_is_tried_with_one_machine_at_a_time() {
    // If nothing healthy exists, each offer whose pause is over; otherwise the one that waited
    // longest.
    let all = || vec![ill("a", 1, 70), ill("b", 1, 90), ill("c", 1, 5)];
    assert_eq!(machines(&decide(&waiting(50, all()))), "a:1 b:1");
    let mut some = all();
    some.push(offer("d"));
    assert_eq!(machines(&decide(&waiting(50, some))), "b:1 d:49");
    assert_eq!(machines(&decide(&waiting(1, all()))), "b:1");
}

#[test]
fn a_try_is_not_repeated_before_its_outcome_is_known() {
    let mut snapshot = waiting(5, vec![ill("a", 1, 100)]);
    assert_eq!(launched(&decide(&snapshot)), 1);
    // Requested, no answer yet: not again during a pause.
    snapshot.offers[0].tries.last = Some(seconds_ago(59));
    snapshot.offers[0].health.attempted = 5;
    assert_eq!(launched(&decide(&snapshot)), 0);
    // Made: not again before it registered or failed, or had half an hour for that.
    let tried = &mut snapshot.offers[0];
    tried.health.created = 1;
    tried.tries.last = Some(seconds_ago(1_799));
    tried.tries.refusals = None;
    let plan = decide(&snapshot);
    assert_eq!(launched(&plan), 0);
    assert!(has(
        &plan,
        "a: skipped, 4 of 5 launches failed in the last hour, tried again when it is known whether its last \
         machine starts"
    ));
    snapshot.offers[0].tries.last = Some(seconds_ago(1_800));
    assert_eq!(launched(&decide(&snapshot)), 1);
}

#[test]
fn one_that_came_up_again_is_used_again() {
    let mut snapshot = waiting(5, vec![ill("a", 1, 100)]);
    let health = &mut snapshot.offers[0].health;
    (health.attempted, health.created, health.registered) = (5, 1, 1);
    snapshot.offers[0].tries.refusals = None;
    let plan = decide(&snapshot);
    assert_eq!(launched(&plan), 5);
    assert!(has(
        &plan,
        "a: weight 0.2, 4 of 5 launches failed in the last hour"
    ));
}

#[test]
fn the_only_machine_that_is_wanted_does_not_try_what_fails_slowly() {
    let mut slow = ill("slow", 1, 2_000);
    slow.health.never_registered = 1;
    slow.health.created = 1;
    let fast = ill("fast", 1, 100);
    // A refusal appears at once, so nothing waits long for it.
    assert_eq!(
        machines(&decide(&waiting(1, vec![fast, offer("b")]))),
        "fast:1"
    );
    assert_eq!(
        machines(&decide(&waiting(1, vec![slow.clone(), offer("b")]))),
        "b:1"
    );
    assert_eq!(
        machines(&decide(&waiting(2, vec![slow.clone(), offer("b")]))),
        "slow:1 b:1"
    );
    assert_eq!(
        machines(&decide(&waiting(1, vec![slow]))),
        "slow:1",
        "it is all there is"
    );
}

#[test]
fn while_work_waits_something_is_tried_within_eight_minutes() {
    for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
        let mut snapshot = waiting(3, vec![ill("a", 9, 0), ill("b", 9, 0)]);
        snapshot.settings.strategy = strategy;
        let start = snapshot.now;
        let mut waited_s = 0;
        while launched(&decide(&snapshot)) == 0 {
            waited_s += 1;
            snapshot.now = start.plus_millis(waited_s * SECOND_MS);
            assert!(waited_s * SECOND_MS <= LONGEST_PAUSE_MS, "{strategy:?}");
        }
        assert_eq!(waited_s, 480);
    }
}

#[test]
fn a_refusal_pauses_a_launch_config_however_well_it_did_before() {
    for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
        let mut snapshot = waiting(5, vec![offer("a")]);
        snapshot.settings.strategy = strategy;
        let health = &mut snapshot.offers[0].health;
        (health.attempted, health.created, health.registered) = (100, 99, 99);
        health.failed = 1;
        for (in_a_row, seconds) in [(1, 10), (2, 20), (3, 40), (6, 320), (60, 320)] {
            snapshot.offers[0].tries = refused(Cause::Capacity, in_a_row, seconds - 1);
            let plan = decide(&snapshot);
            assert_eq!(launched(&plan), 0);
            assert_eq!(plan.again_at, Some(seconds_ago(-1)));
            // One machine shows whether the cloud has any again.
            snapshot.offers[0].tries = refused(Cause::Capacity, in_a_row, seconds);
            assert_eq!(machines(&decide(&snapshot)), "a:1");
        }
        snapshot.offers[0].tries.refusals = None;
        let plan = decide(&snapshot);
        assert_eq!((launched(&plan), plan.again_at), (5, None));
    }
}

#[test]
fn a_pool_is_looked_at_again_when_the_first_pause_ends_and_something_is_missing() {
    let resting = |id, seconds| offer(id).tried(refused(Cause::Quota, 1, seconds));
    let offers = vec![resting("a", 2), resting("b", 7), resting("c", 1)];
    let mut snapshot = waiting(3, offers);
    assert_eq!(decide(&snapshot).again_at, Some(seconds_ago(-3)));
    snapshot.offers.push(offer("d"));
    assert_eq!(decide(&snapshot).again_at, None, "d gives all");
    snapshot.offers[3].max_capacity = Some(2);
    assert_eq!(decide(&snapshot).again_at, Some(seconds_ago(-3)));
    snapshot.demand.pending = 0;
    assert_eq!(decide(&snapshot).again_at, None);
}

#[test]
fn one_plan_tries_a_bounded_number_of_launch_configs_and_the_next_ones_the_others() {
    for count in sizes_around(
        "domain::plan::strategy::usable_offers::MAX_TRIED",
        MAX_TRIED,
    ) {
        let due = |number: usize| {
            let waited = 1_000 + i64::try_from(number).unwrap();
            offer(&format!("lc-{number:03}")).tried(refused(Cause::Capacity, 1, waited))
        };
        let mut snapshot = waiting(1_000, (0..count).map(due).collect());
        snapshot.settings.max_capacity = 2_000;
        let mut tried = 0;
        while tried < count {
            let plan = decide(&snapshot);
            assert_eq!(
                plan.awards.len(),
                MAX_TRIED.min(count - tried),
                "of {count}"
            );
            for award in &plan.awards {
                let found = snapshot.offers.iter_mut();
                let mut found =
                    found.filter(|offer| offer.launch_config_id == award.launch_config_id);
                found.next().unwrap().tries.last = Some(seconds_ago(0));
            }
            tried += plan.awards.len();
        }
        assert_eq!(launched(&decide(&snapshot)), 0, "all of {count} were tried");
    }
}

#[test]
fn nothing_is_tried_when_nothing_waits() {
    let plan = decide(&waiting(0, vec![ill("a", 1, 5_000)]));
    assert!(plan.is_idle());
    assert!(
        has(
            &plan,
            "a: 4 of 4 launches failed in the last hour, last launch was refused (configuration)"
        ),
        "but its failures are listed"
    );
}

#[test]
fn aws_provisioner_leaves_ill_ones_alone_unless_it_is_literal() {
    let mut snapshot = waiting(8, vec![ill("a", 1, 10), offer("b")]);
    snapshot.settings.strategy = StrategyName::AwsProvisioner;
    snapshot.settings.scaling_ratio = 0.0;
    assert_eq!(machines(&decide(&snapshot)), "b:8");
    snapshot.settings.literal = true;
    assert_eq!(machines(&decide(&snapshot)), "b:8", "it was just refused");
    snapshot.offers[0] = ill("a", 1, 60);
    let plans: Vec<_> = (0..20)
        .map(|seed| machines(&decide_with(&snapshot, seed)))
        .collect();
    assert!(
        plans.iter().any(|plan| plan.contains("a:")),
        "it has no memory of failures"
    );
}
