//! The examples of RFC 191, "Examples of weight adjusting", each under its name.

use domain::launch::Cause;
use domain::plan::{Health, Offer, OfferWeight, Refusals, Snapshot, Tries, Usability, weights};

use crate::common::{chances, decide_with, machines, offer, pool, seconds_ago};

/// A pool with these launch configs, and much work.
fn of(offers: Vec<Offer>) -> Snapshot {
    let mut snapshot = pool(0, 1_000);
    snapshot.demand.pending = 50;
    Snapshot { offers, ..snapshot }
}

fn running(id: &str, live: u64) -> Offer {
    Offer { live, ..offer(id) }
}

/// The chances of the launch configs, as the strategy draws them.
fn likelihood(snapshot: &Snapshot) -> Vec<f64> {
    rounded(chances(snapshot))
}

fn rounded(numbers: Vec<f64>) -> Vec<f64> {
    let rounded = |number: f64| (number * 100.0).round() / 100.0;
    numbers.into_iter().map(rounded).collect()
}

fn by(snapshot: &Snapshot, number: fn(&OfferWeight) -> f64) -> Vec<f64> {
    rounded(weights(snapshot).iter().map(number).collect())
}

#[test]
fn scenario_1_no_workers_yet_makes_half_and_half() {
    let new = of(vec![running("a", 0), running("b", 0)]);
    assert_eq!(by(&new, OfferWeight::weight), [1.0, 1.0]);
    assert_eq!(likelihood(&new), [0.5, 0.5]);
}

#[test]
fn scenario_1_ten_and_five_workers_make_0_33_and_0_67() {
    let snapshot = of(vec![running("a", 10), running("b", 5)]);
    assert_eq!(by(&snapshot, |weight| weight.balance), [0.33, 0.67]);
    assert_eq!(by(&snapshot, OfferWeight::weight), [0.33, 0.67]);
    assert_eq!(likelihood(&snapshot), [0.33, 0.67]);
}

/// Of this many launches, so many were refused for a quota, the last one some time ago.
fn over_quota(id: &str, failed: u64, total: u64, seconds: i64) -> Offer {
    let works = total - failed;
    let health = Health {
        attempted: works,
        quota: failed,
        created: works,
        registered: works,
        ..Health::default()
    };
    Offer {
        health,
        ..offer(id).tried(Tries {
            refusals: Some(Refusals {
                in_a_row: 1,
                cause: Cause::Quota,
                last: seconds_ago(seconds),
            }),
            last: Some(seconds_ago(seconds)),
            ..Tries::default()
        })
    }
}

#[test]
fn scenario_2_quota_errors_in_region_a_leave_1_minus_failed_of_total() {
    for (failed, total, share) in [(1, 100, 0.99), (8, 10, 0.2), (1, 2, 0.5), (3, 3, 0.0)] {
        let mut a = over_quota("a", failed, total, 5);
        // While the provider refuses, nothing is drawn from it; the number is known already.
        let refused = of(vec![a.clone(), offer("b"), offer("c")]);
        assert_eq!(by(&refused, |weight| weight.health), [share, 1.0, 1.0]);
        assert_eq!(likelihood(&refused), [0.0, 0.5, 0.5]);
        let until = seconds_ago(-5);
        let usability = weights(&refused)[0].usability;
        assert_eq!(usability, Usability::ShutOff { until });
        // After the next accepted launch it is drawn by this weight.
        a.tries.refusals = None;
        let snapshot = of(vec![a, offer("b"), offer("c")]);
        assert_eq!(by(&snapshot, OfferWeight::weight), [share, 1.0, 1.0]);
    }
    let mut a = over_quota("a", 8, 10, 5);
    a.tries.refusals = None;
    let snapshot = of(vec![a, offer("b"), offer("c")]);
    assert_eq!(likelihood(&snapshot), [0.09, 0.45, 0.45]);
}

#[test]
fn scenario_2_the_weight_recovers_after_the_window() {
    // Only launches of the last hour are counted: without them the launch config is as new.
    let mut later = over_quota("a", 8, 10, 3_700);
    (later.health, later.tries) = (Health::default(), Tries::default());
    let snapshot = of(vec![later, offer("b")]);
    assert_eq!(by(&snapshot, OfferWeight::weight), [1.0, 1.0]);
    assert_eq!(likelihood(&snapshot), [0.5, 0.5]);
    // It need not wait for that: once the pause is over, one machine tries it.
    let due = of(vec![over_quota("a", 8, 10, 10), offer("b")]);
    assert_eq!(weights(&due)[0].usability, Usability::Due);
    assert!(machines(&decide_with(&due, 1)).starts_with("a:1 "));
}

/// This many workers were created, of which so many registered, and so many launches failed.
fn created(id: &str, created: u64, registered: u64, errors: u64) -> Offer {
    let health = Health {
        attempted: created + errors,
        failed: errors,
        created,
        registered,
        last_failure: (errors > 0).then(|| seconds_ago(20)),
        ..Health::default()
    };
    Offer {
        health,
        ..offer(id)
    }
}

#[test]
fn scenario_3_1_where_no_worker_was_created_all_are_alike() {
    let snapshot = of(vec![created("a", 0, 0, 0), created("b", 0, 0, 0)]);
    assert_eq!(by(&snapshot, OfferWeight::weight), [1.0, 1.0]);
    // With errors, and nothing that works: all are tried alike, whatever the number of errors.
    let long_ago = |offer: Offer| Offer {
        health: Health {
            last_failure: Some(seconds_ago(500)),
            ..offer.health
        },
        ..offer
    };
    let offers = [created("a", 0, 0, 3), created("b", 0, 0, 90)];
    let snapshot = of(offers.map(long_ago).into());
    assert_eq!(machines(&decide_with(&snapshot, 1)), "a:1 b:1");
}

#[test]
fn scenario_3_2_created_and_none_registered_without_errors_changes_nothing() {
    let snapshot = of(vec![created("a", 3, 0, 0), offer("b")]);
    assert_eq!(by(&snapshot, OfferWeight::weight), [1.0, 1.0]);
    assert_eq!(likelihood(&snapshot), [0.5, 0.5]);
}

#[test]
fn scenario_3_2_created_and_none_registered_for_30_minutes_lowers_the_weight() {
    let mut late = created("a", 3, 0, 0);
    late.health.overdue = 3;
    late.tries.last = Some(seconds_ago(1_800));
    let snapshot = of(vec![late, offer("b")]);
    assert_eq!(by(&snapshot, OfferWeight::weight), [0.0, 1.0]);
    assert_eq!(likelihood(&snapshot), [0.0, 1.0]);
    // Some registered: the others count as failures.
    let mut some = created("a", 4, 2, 0);
    some.health.overdue = 2;
    let snapshot = of(vec![some, offer("b")]);
    assert_eq!(by(&snapshot, OfferWeight::weight), [0.5, 1.0]);
}

#[test]
fn scenario_3_3_created_and_none_registered_with_errors_makes_the_weight_0() {
    let snapshot = of(vec![created("a", 3, 0, 2), offer("b")]);
    assert_eq!(by(&snapshot, OfferWeight::weight), [0.0, 1.0]);
    assert_eq!(likelihood(&snapshot), [0.0, 1.0]);
    // A quota is no sign that the launch config is broken: its machines may still start.
    let mut starting = over_quota("a", 2, 5, 5);
    (starting.health.registered, starting.tries.refusals) = (0, None);
    let snapshot = of(vec![starting, offer("b")]);
    assert_eq!(by(&snapshot, OfferWeight::weight), [0.6, 1.0]);
}

#[test]
fn the_numbers_of_a_launch_config_that_is_not_used_say_why() {
    let full = Offer {
        max_capacity: Some(4),
        live: 4,
        ..offer("full")
    };
    let off = Offer {
        initial_weight: 0.0,
        ..offer("off")
    };
    let paused = Offer {
        bid: Err("paused until noon".to_owned()),
        ..offer("paused")
    };
    let awaited = Offer {
        tries: Tries {
            last: Some(seconds_ago(60)),
            ..Tries::default()
        },
        ..created("awaited", 1, 0, 2)
    };
    let snapshot = of(vec![full, off, paused, awaited, running("a", 10)]);
    let found = weights(&snapshot);
    let shown = |weight: &OfferWeight| {
        let reason = weight.reason.as_deref().unwrap_or("-");
        format!(
            "{} {:.2}: {reason}",
            weight.usability.as_str(),
            weight.balance
        )
    };
    let shown: Vec<String> = found.iter().map(shown).collect();
    assert_eq!(
        shown,
        [
            "unusable 0.71: full: 4 of 4 units exist, a machine has 1",
            "unusable 1.00: its initialWeight is 0",
            "unusable 1.00: paused until noon",
            "on-trial 1.00: 2 of 3 launches failed in the last hour, tried again when it is known \
             whether its last machine starts",
            "usable 1.00: -",
        ]
    );
    assert_eq!(found[4].chance, Some(1.0));
    assert!(weights(&of(Vec::new())).is_empty());
}

#[test]
fn the_next_pause_is_that_after_one_more_failure() {
    let next = |offer: Offer| weights(&of(vec![offer]))[0].next_pause_ms;
    assert_eq!(next(offer("a")), None);
    assert_eq!(next(created("a", 5, 5, 1)), None, "it works, mostly");
    assert_eq!(next(over_quota("a", 1, 2, 5)), Some(20_000));
    let mut late = created("a", 3, 0, 0);
    late.health.overdue = 3;
    late.tries.plans_without_workers = 1;
    assert_eq!(next(late), Some(120_000));
}
