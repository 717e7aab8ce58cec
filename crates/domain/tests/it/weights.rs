//! Weights by `weighted`, next to those of Taskcluster. The examples of RFC 191 are in `rfc_191`.

use domain::plan::{Health, Offer, Snapshot, plan};

use crate::common::{Script, chances, decide_with, machines, offer, pool, seconds_ago};

/// The input of Taskcluster's selector: initial weight, own maximum, capacity, errors.
type Known = (f64, Option<f64>, f64, f64);

/// Taskcluster's weights: the balance depends on the maximum, and all share the errors of all.
fn taskcluster(pool_max: f64, total_errors: f64, configs: &[Known]) -> Vec<f64> {
    let lines = configs.iter().map(|(initial, own_max, capacity, errors)| {
        let max = own_max.unwrap_or(pool_max);
        let (mut weight, mut remaining) = (*initial, max);
        if *capacity > 0.0 && max > 0.0 {
            weight -= capacity / max;
            remaining = (max - capacity).max(0.0);
        }
        if *errors > 0.0 {
            weight -= errors / total_errors;
        }
        (weight, remaining)
    });
    let mut lines: Vec<(f64, f64)> = lines.collect();
    for index in 0..lines.len() {
        let (weight, remaining) = lines[index];
        if remaining > 0.0 && weight <= 0.0 {
            let mut others = lines
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let viable = others.any(|(_, (weight, remaining))| *remaining > 0.0 && *weight > 0.0);
            lines[index].0 = if viable { 0.0 } else { 0.01 };
        }
    }
    let rounded = |weight: f64| (weight * 10_000.0).round() / 10_000.0;
    lines
        .into_iter()
        .map(|(weight, _)| rounded(weight))
        .collect()
}

/// A pool with these launch configs.
fn of(pool_max: u64, offers: Vec<Offer>) -> Snapshot {
    Snapshot {
        offers,
        ..pool(0, pool_max)
    }
}

fn live(id: &str, live: u64) -> Offer {
    Offer { live, ..offer(id) }
}

/// This many of its attempts failed, the others worked.
fn failing(id: &str, failed: u64, attempted: u64) -> Offer {
    let health = Health {
        attempted,
        failed,
        created: attempted - failed,
        registered: attempted - failed,
        last_failure: (failed > 0).then(|| seconds_ago(20)),
        ..Health::default()
    };
    Offer {
        health,
        ..offer(id)
    }
}

fn ours(snapshot: &Snapshot) -> Vec<f64> {
    let rounded = |chance: f64| (chance * 10_000.0).round() / 10_000.0;
    chances(snapshot).into_iter().map(rounded).collect()
}

fn weighing(id: &str, initial_weight: f64) -> Offer {
    Offer {
        initial_weight,
        ..offer(id)
    }
}

#[test]
fn initial_weights_are_shares_where_nothing_runs() {
    // W1 to W3.
    assert_eq!(ours(&of(100, vec![offer("a"), offer("b")])), [0.5, 0.5]);
    assert_eq!(
        ours(&of(100, vec![weighing("a", 1.0), weighing("b", 0.0)])),
        [1.0, 0.0]
    );
    let three = vec![weighing("a", 1.0), weighing("b", 0.5), weighing("c", 0.1)];
    assert_eq!(ours(&of(100, three)), [0.625, 0.3125, 0.0625]);
}

#[test]
fn ten_and_five_make_a_third_and_two_thirds_whatever_the_maximum() {
    let known = [(1.0, None, 10.0, 0.0), (1.0, None, 5.0, 0.0)];
    // W4 to W6: in Taskcluster only if the maximum equals the running capacity.
    assert_eq!(taskcluster(15.0, 0.0, &known), [0.3333, 0.6667]);
    assert_eq!(taskcluster(100.0, 0.0, &known), [0.9, 0.95]);
    assert_eq!(taskcluster(1000.0, 0.0, &known), [0.99, 0.995]);
    for max in [16, 100, 1000] {
        let snapshot = of(max, vec![live("a", 10), live("b", 5)]);
        assert_eq!(ours(&snapshot), [0.3333, 0.6667]);
    }
    let three = of(100, vec![live("a", 10), live("b", 5), live("c", 0)]);
    assert_eq!(ours(&three), [0.1667, 0.3333, 0.5]);
}

#[test]
fn one_that_only_fails_is_not_used() {
    // W7.
    assert_eq!(
        taskcluster(
            100.0,
            5.0,
            &[
                (1.0, None, 0.0, 5.0),
                (1.0, None, 0.0, 0.0),
                (1.0, None, 0.0, 0.0)
            ]
        ),
        [0.0, 1.0, 1.0]
    );
    let snapshot = of(100, vec![failing("a", 5, 5), offer("b"), offer("c")]);
    assert_eq!(ours(&snapshot), [0.0, 0.5, 0.5]);
}

#[test]
fn one_error_among_many_launches_is_no_black_out() {
    // W8.
    let known = [(1.0, None, 0.0, 1.0), (1.0, None, 0.0, 0.0)];
    assert_eq!(taskcluster(100.0, 1.0, &known), [0.0, 1.0]);
    let snapshot = of(10_000, vec![failing("a", 1, 1_000), failing("b", 0, 1_000)]);
    let found = chances(&snapshot);
    assert!((found[0] - 0.999 / 1.999).abs() < 1e-9, "{found:?}");
}

#[test]
fn errors_of_one_never_change_another() {
    // W9 to W11 and W18: in Taskcluster each weight depends on the errors of all.
    let two = |a: f64, b: f64| [(1.0, None, 0.0, a), (1.0, None, 0.0, b)];
    assert_eq!(taskcluster(100.0, 10.0, &two(6.0, 4.0)), [0.4, 0.6]);
    assert_eq!(
        taskcluster(100.0, 1001.0, &two(1000.0, 1.0)),
        [0.001, 0.999]
    );
    assert_eq!(taskcluster(100.0, 6.0, &two(3.0, 3.0)), [0.5, 0.5]);
    assert_eq!(taskcluster(100.0, 10.0, &two(1.0, 0.0)), [0.9, 1.0]);
    // Ours: a's rate depends on a alone, however often b fails.
    let ratio = |b_failed| {
        let snapshot = of(
            100,
            vec![failing("a", 6, 10), failing("b", b_failed, 10), offer("c")],
        );
        let found = chances(&snapshot);
        found[0] / found[2]
    };
    for b_failed in [0, 4, 9, 10] {
        assert!((ratio(b_failed) - 0.4).abs() < 1e-9);
    }
    let rare = of(
        100,
        vec![failing("a", 1000, 10_000), failing("b", 1, 1), offer("c")],
    );
    assert_eq!(ours(&rare), [0.4737, 0.0, 0.5263]);
}

#[test]
fn half_used_and_half_failing_launch_configs_stay_in_use() {
    // W12: Taskcluster uses c alone.
    let known = |errors| (1.0, None, 50.0, errors);
    assert_eq!(
        taskcluster(100.0, 10.0, &[known(5.0), known(5.0), known(0.0)]),
        [0.0, 0.0, 0.5]
    );
    let half = |id| Offer {
        live: 50,
        ..failing(id, 5, 10)
    };
    assert_eq!(
        ours(&of(100, vec![half("a"), half("b"), live("c", 50)])),
        [0.25, 0.25, 0.5]
    );
    // W13: Taskcluster gives all to the first by name.
    let known = (1.0, None, 60.0, 5.0);
    assert_eq!(taskcluster(100.0, 10.0, &[known, known]), [0.01, 0.0]);
    assert_eq!(ours(&of(200, vec![half("a"), half("b")])), [0.5, 0.5]);
    // W14: a single launch config is used in both.
    assert_eq!(
        taskcluster(100.0, 100.0, &[(1.0, None, 60.0, 50.0)]),
        [0.01]
    );
    assert_eq!(ours(&of(100, vec![half("a")])), [1.0]);
}

#[test]
fn one_that_is_full_is_not_used_and_a_maximum_of_zero_is_always_full() {
    // W15.
    let of_ten = |id, live: u64| Offer {
        live,
        max_capacity: Some(10),
        ..offer(id)
    };
    let mut snapshot = of(1000, vec![of_ten("a", 10), of_ten("b", 5), of_ten("c", 10)]);
    assert_eq!(ours(&snapshot), [0.0, 1.0, 0.0]);
    snapshot.demand.pending = 100;
    assert_eq!(machines(&decide_with(&snapshot, 1)), "b:5");
    // W16: Taskcluster ignores a zero while nothing runs.
    let known = [(1.0, Some(0.0), 0.0, 0.0), (1.0, Some(10.0), 0.0, 0.0)];
    assert_eq!(taskcluster(1000.0, 0.0, &known), [1.0, 1.0]);
    let closed = Offer {
        max_capacity: Some(0),
        ..offer("a")
    };
    assert_eq!(ours(&of(1000, vec![closed, of_ten("b", 0)])), [0.0, 1.0]);
}

#[test]
fn a_large_initial_weight_does_not_outweigh_failures() {
    // W17.
    let known = [(5.0, None, 0.0, 10.0), (1.0, None, 0.0, 0.0)];
    assert_eq!(taskcluster(100.0, 10.0, &known), [4.0, 1.0]);
    let heavy = Offer {
        initial_weight: 5.0,
        ..failing("a", 10, 10)
    };
    assert_eq!(ours(&of(100, vec![heavy, offer("b")])), [0.0, 1.0]);
}

#[test]
fn one_that_has_everything_leaves_the_next_to_the_other() {
    // W19.
    let known = [(0.3, None, 35.0, 0.0), (0.3, None, 0.0, 0.0)];
    assert_eq!(taskcluster(100.0, 0.0, &known), [0.0, 0.3]);
    let mut offers = vec![weighing("a", 0.3), weighing("b", 0.3)];
    offers[0].live = 35;
    assert_eq!(ours(&of(100, offers)), [0.0, 1.0]);
}

#[test]
fn limits_hold_within_one_plan() {
    // W20.
    let mut snapshot = of(1000, vec![offer("a"), offer("b"), offer("c")]);
    snapshot.offers[0].max_capacity = Some(1);
    snapshot.offers[1].max_capacity = Some(2);
    snapshot.demand.pending = 100;
    for seed in 0..20 {
        assert_eq!(machines(&decide_with(&snapshot, seed)), "a:1 b:2 c:97");
    }
    // W21, and contract I: capacity rounds up to machines.
    for (each, wanted, expected) in [(2, 5, "a:3"), (3, 6, "a:2"), (5, 25, "a:5")] {
        let mut snapshot = pool(0, 1000);
        snapshot.offers[0].capacity_each = each;
        snapshot.demand.pending = wanted;
        assert_eq!(machines(&decide_with(&snapshot, 1)), expected);
    }
}

#[test]
fn draws_fall_as_published() {
    // W22.
    let three = vec![weighing("a", 1.0), weighing("b", 0.5), weighing("c", 0.1)];
    let mut snapshot = of(100, three);
    snapshot.demand.pending = 1;
    let cases = [
        (0.0, "c"),
        (0.0624, "c"),
        (0.0625, "b"),
        (0.374, "b"),
        (0.376, "a"),
        (0.99, "a"),
    ];
    for (fraction, expected) in cases {
        let plan = plan(&snapshot, &mut Script::fraction(fraction));
        assert_eq!(machines(&plan), format!("{expected}:1"), "{fraction}");
    }
}

#[test]
fn many_draws_follow_the_weights_and_keep_the_balance() {
    let three = vec![weighing("a", 1.0), weighing("b", 0.5), weighing("c", 0.1)];
    let mut snapshot = of(1000, three);
    snapshot.demand.pending = 500;
    for seed in 0..10 {
        let plan = decide_with(&snapshot, seed);
        let counts: Vec<u32> = plan.awards.iter().map(|award| award.machines).collect();
        assert!(counts[0] > counts[1] && counts[1] > counts[2], "{counts:?}");
    }
    // A large need is not all launched where nothing runs yet.
    let mut snapshot = of(1000, vec![live("a", 1), live("b", 0)]);
    snapshot.demand.pending = 100;
    let plan = decide_with(&snapshot, 7);
    assert!(
        plan.awards.iter().all(|award| award.machines > 30),
        "{}",
        machines(&plan)
    );
}

#[test]
fn prices_do_not_count() {
    let mut snapshot = of(100, vec![offer("a"), offer("b")]);
    for (offer, price) in snapshot.offers.iter_mut().zip([0.01, 100.0]) {
        offer.bid.as_mut().unwrap().price = Some(price);
    }
    snapshot.demand.pending = 2;
    assert_eq!(ours(&snapshot), [0.5, 0.5]);
    let plan = decide_with(&snapshot, 1);
    assert_eq!(machines(&plan), "a:1 b:1");
    assert!(plan.awards.iter().all(|award| award.max_price.is_none()));
}
