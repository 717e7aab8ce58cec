//! Supply in a plan: workers that ask for work, and only their tasks.

use domain::demand::Demand;
use domain::plan::{Candidate, Snapshot, StrategyName};

use crate::common::{advised, asked_to_stop, decide, idle, launched, pool, priced};

fn silent(id: &str) -> Candidate {
    Candidate {
        silent: true,
        ..idle(id, 600)
    }
}

#[test]
fn silent_workers_take_room_and_no_tasks() {
    let mut snapshot = pool(0, 10);
    snapshot.capacity.silent = 3;
    snapshot.demand.pending = 2;
    let plan = decide(&snapshot);
    assert_eq!(launched(&plan), 2);
    assert!(
        plan.reasons[0].contains("2 tasks wait; 3 units ask for no work"),
        "{}",
        plan.text()
    );
    snapshot.settings.max_capacity = 4;
    assert_eq!(launched(&decide(&snapshot)), 1);
    // A minimum is a minimum of workers that do work.
    snapshot.demand.pending = 0;
    snapshot.settings.min_capacity = 1;
    assert_eq!(launched(&decide(&snapshot)), 1);
}

#[test]
fn nothing_is_decided_about_silent_workers_but_that_they_must_go() {
    let archived = Candidate {
        archived: true,
        ..silent("archived")
    };
    let mut snapshot = pool(0, 10);
    snapshot.capacity.silent = 2;
    snapshot.capacity.draining = 1;
    snapshot.workers = vec![
        silent("mute"),
        asked_to_stop(silent("told"), "over capacity"),
        archived,
    ];
    for pending in [0, 5] {
        snapshot.demand.pending = pending;
        let plan = decide(&snapshot);
        assert_eq!(advised(&plan), ["archived stop launch config archived"]);
        assert_eq!(launched(&plan), pending);
    }
}

#[test]
fn workers_that_leave_take_away_all_of_their_tasks() {
    let leaving = (0..10).map(|number| Candidate {
        capacity: 8,
        claimed: 8,
        archived: true,
        ..asked_to_stop(idle(&format!("old-{number}"), 50), "launch config archived")
    });
    let mut snapshot = pool(0, 1_000);
    snapshot.workers = leaving.collect();
    snapshot.capacity.draining = 80;
    // Ten idle workers of eight units each take the waiting tasks.
    snapshot.capacity.running = 80;
    snapshot.demand = Demand {
        pending: 80,
        claimed: 80,
    };
    assert_eq!(launched(&decide(&snapshot)), 0);
    snapshot.demand.pending = 81;
    assert_eq!(launched(&decide(&snapshot)), 1);
}

/// A pool of the strategy `aws-provisioner` with this many running units, some of them fresh.
fn bidding(literal: bool, running: u64, fresh: u64) -> Snapshot {
    let mut snapshot = pool(0, 1_000);
    snapshot.settings.strategy = StrategyName::AwsProvisioner;
    snapshot.settings.scaling_ratio = 0.0;
    snapshot.settings.literal = literal;
    snapshot.offers = vec![priced("a", 0.1)];
    snapshot.capacity.running = running;
    snapshot.capacity.fresh = fresh;
    snapshot
}

#[test]
fn workers_that_are_about_to_claim_are_counted_unless_literally() {
    let of = |literal, fresh, claimed| {
        let mut snapshot = bidding(literal, 5, fresh);
        snapshot.demand = Demand {
            pending: 5,
            claimed,
        };
        launched(&decide(&snapshot))
    };
    assert_eq!((of(false, 5, 0), of(true, 5, 0)), (0, 5));
    assert_eq!((of(false, 0, 5), of(true, 0, 5)), (5, 5));
    // A worker that has claimed in the meantime is not about to claim.
    assert_eq!((of(false, 5, 3), of(false, 2, 0)), (3, 3));
}

/// How many machines are launched for 100 tasks, if each boots a tick after the previous one,
/// claims five ticks later, and each registration is followed by a plan.
fn machines_for_a_hundred_tasks(literal: bool) -> u64 {
    const N_TASKS: u64 = 100;
    const TO_CLAIM: u64 = 5;
    let mut coming = 0;
    let mut n_launched = 0;
    for tick in 0..=N_TASKS + TO_CLAIM {
        let registered = tick.min(N_TASKS);
        let claimed = tick.saturating_sub(TO_CLAIM);
        let mut snapshot = bidding(literal, registered, registered - claimed);
        snapshot.demand = Demand {
            pending: N_TASKS - claimed,
            claimed,
        };
        snapshot.capacity.requested = coming - registered.min(coming);
        let more = launched(&decide(&snapshot));
        coming += more;
        n_launched += more;
    }
    n_launched
}

#[test]
fn a_machine_is_launched_for_each_task_and_none_for_each_registration() {
    assert_eq!(machines_for_a_hundred_tasks(false), 100);
    assert!(machines_for_a_hundred_tasks(true) > 100);
}

#[test]
fn tasks_for_which_nothing_can_ever_be_launched_raise_an_alarm() {
    let mut snapshot = pool(0, 10);
    snapshot.offers[0].initial_weight = 0.0;
    assert!(decide(&snapshot).is_idle(), "no task waits");
    snapshot.demand.pending = 1;
    let plan = decide(&snapshot);
    let alarm = "tasks wait, and each launch config of the pool has the initialWeight 0";
    assert_eq!((plan.unserved, plan.alarm.as_deref()), (true, Some(alarm)));
    snapshot.offers.clear();
    let plan = decide(&snapshot);
    let alarm = "tasks wait, and the pool has no active launch config";
    assert_eq!((plan.unserved, plan.alarm.as_deref()), (true, Some(alarm)));
    // Another launch config, or workers that take the task, or no room for any.
    let mut other = snapshot.clone();
    other.offers = pool(0, 1).offers;
    assert!(!decide(&other).unserved);
    let mut other = snapshot.clone();
    other.capacity.running = 1;
    assert!(!decide(&other).unserved);
    snapshot.settings.max_capacity = 0;
    assert!(!decide(&snapshot).unserved);
}
