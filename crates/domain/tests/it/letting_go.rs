//! Who is told to go, who is told to stay, and that it ends there.

use domain::plan::{Candidate, Snapshot, StrategyName};
use domain::time::{HOUR_MS, SECOND_MS};

use crate::common::{advised, busy, carried_out, decide, idle, launched, pool, seconds_ago, told};

/// A pool in which these run; their tasks are claimed, so many more wait.
fn with(pending: u64, workers: Vec<Candidate>) -> Snapshot {
    let mut snapshot = pool(0, 100);
    snapshot.demand.pending = pending;
    for worker in &workers {
        snapshot.demand.claimed += worker.claimed;
        let draining = worker
            .advice
            .as_ref()
            .is_some_and(|advice| advice.terminate);
        let capacity = &mut snapshot.capacity;
        let place = match (worker.quarantined_since, draining) {
            (Some(_), _) => &mut capacity.quarantined,
            (None, true) => &mut capacity.draining,
            (None, false) => &mut capacity.running,
        };
        *place += u64::from(worker.capacity);
    }
    snapshot.workers = workers;
    snapshot
}

fn of_capacity(capacity: u32, worker: Candidate) -> Candidate {
    Candidate { capacity, ..worker }
}

#[test]
fn idle_workers_go_when_there_is_nothing_to_do_and_the_minimum_stays() {
    let workers = || vec![idle("new", 10), idle("old", 90), idle("mid", 50)];
    let mut snapshot = with(0, workers());
    assert_eq!(
        advised(&decide(&snapshot)),
        [
            "new go over capacity",
            "old go over capacity",
            "mid go over capacity"
        ]
    );
    snapshot.settings.min_capacity = 1;
    let plan = decide(&snapshot);
    assert_eq!(
        advised(&plan),
        ["old go over capacity", "mid go over capacity"]
    );
    assert!(plan.reasons.contains(
        &"advised 2 to go: over capacity, longest idle first; 1 stay running, 1 wanted".to_owned()
    ));
    snapshot.settings.min_capacity = 3;
    assert!(decide(&snapshot).is_idle());
}

#[test]
fn the_longest_idle_goes_where_taskcluster_sends_the_oldest_that_works() {
    // [old 1, mid 1, new 1] with target 2: there the oldest goes, though it is the one with a task.
    let workers = vec![busy("old"), idle("mid", 60), idle("new", 20)];
    let snapshot = with(1, workers);
    let plan = decide(&snapshot);
    assert_eq!(plan.target, 2.0);
    assert_eq!(advised(&plan), ["mid go over capacity"]);
    // [old 1, mid 4, new 4] with target 5.
    let workers = vec![
        idle("old", 90),
        of_capacity(4, idle("mid", 60)),
        of_capacity(4, idle("new", 30)),
    ];
    assert_eq!(
        advised(&decide(&with(5, workers))),
        ["old go over capacity"]
    );
}

#[test]
fn a_worker_is_held_until_it_was_idle_for_as_long_as_it_was_told_to_be() {
    let held = Candidate {
        idle_hold_ms: 60 * SECOND_MS,
        ..idle("held", 59)
    };
    let mut snapshot = with(0, vec![held, idle("free", 5)]);
    assert_eq!(advised(&decide(&snapshot)), ["free go over capacity"]);
    snapshot.workers[0].idle_since = seconds_ago(60);
    assert_eq!(
        advised(&decide(&snapshot)),
        ["held go over capacity", "free go over capacity"]
    );
}

#[test]
fn those_that_waiting_tasks_will_take_are_not_too_many() {
    let mut snapshot = with(2, vec![idle("a", 90), idle("b", 60), idle("c", 30)]);
    assert_eq!(advised(&decide(&snapshot)), ["a go over capacity"]);
    // Nor is the only one, where the ratio wants nothing started.
    snapshot.settings.scaling_ratio = 0.0;
    assert_eq!(advised(&decide(&snapshot)), ["a go over capacity"]);
    let alone = with(1, vec![idle("a", 90)]);
    assert!(decide(&alone).is_idle());
}

#[test]
fn who_was_told_to_go_is_told_when_it_is_needed_again() {
    let leaving = |id, for_seconds| told(idle(id, for_seconds), "over capacity");
    let snapshot = with(
        1,
        vec![busy("w"), leaving("first", 90), leaving("last", 40)],
    );
    let plan = decide(&snapshot);
    assert_eq!(advised(&plan), ["last stay needed"]);
    assert_eq!(launched(&plan), 0);
    let plan = decide(&with(3, snapshot.workers));
    assert_eq!(advised(&plan), ["first stay needed", "last stay needed"]);
    assert_eq!(launched(&plan), 1, "only what is missing then");
}

#[test]
fn capacity_that_may_still_leave_blocks_no_launch_but_comes_back_at_the_maximum() {
    let mut snapshot = with(2, vec![told(idle("a", 90), "over capacity")]);
    snapshot.settings.max_capacity = 1;
    let plan = decide(&snapshot);
    assert_eq!(advised(&plan), ["a stay needed"]);
    assert_eq!(launched(&plan), 0);
}

#[test]
fn a_worker_that_got_a_task_is_not_too_many_any_more() {
    let snapshot = with(0, vec![told(busy("w"), "over capacity")]);
    assert_eq!(advised(&decide(&snapshot)), ["w stay needed"]);
}

#[test]
fn archived_workers_and_those_of_a_provider_that_was_left_go_even_if_they_work() {
    let archived = Candidate {
        archived: true,
        ..busy("archived")
    };
    let left = Candidate {
        deprovisioned: true,
        ..idle("left", 0)
    };
    let both = Candidate {
        archived: true,
        deprovisioned: true,
        ..idle("both", 0)
    };
    let snapshot = with(5, vec![archived, left, both]);
    let plan = decide(&snapshot);
    assert_eq!(
        advised(&plan),
        [
            "archived go launch config archived",
            "left go provider left by the pool",
            "both go launch config archived"
        ]
    );
    assert_eq!(launched(&plan), 5, "they are no supply for what waits");
}

#[test]
fn the_reason_is_told_anew_when_it_changes() {
    let worker = told(idle("w", 90), "over capacity");
    let archived = Candidate {
        archived: true,
        ..worker.clone()
    };
    assert_eq!(
        advised(&decide(&with(0, vec![archived]))),
        ["w go launch config archived"]
    );
    // The launch config came back, and nobody needs the worker.
    let back = told(worker, "launch config archived");
    assert_eq!(
        advised(&decide(&with(0, vec![back.clone()]))),
        ["w go over capacity"]
    );
    assert_eq!(advised(&decide(&with(1, vec![back]))), ["w stay needed"]);
}

#[test]
fn a_quarantined_worker_is_kept_for_a_day_and_only_when_idle_told_to_go() {
    let since = |hours: i64, worker: Candidate| Candidate {
        quarantined_since: Some(seconds_ago(0).plus_millis(-hours * HOUR_MS)),
        ..worker
    };
    let plan_of = |worker| decide(&with(0, vec![worker]));
    assert!(plan_of(since(24, idle("w", 90))).is_idle());
    assert_eq!(
        advised(&plan_of(since(25, idle("w", 90)))),
        ["w go quarantined for too long"]
    );
    assert!(plan_of(since(25, busy("w"))).is_idle());
    let over = told(since(1, idle("w", 90)), "over capacity");
    assert_eq!(advised(&plan_of(over)), ["w stay needed"]);
}

#[test]
fn quarantined_and_draining_workers_are_no_supply_and_take_room() {
    let quarantined = Candidate {
        quarantined_since: Some(seconds_ago(10)),
        ..idle("q", 90)
    };
    let archived = told(
        Candidate {
            archived: true,
            ..idle("d", 90)
        },
        "launch config archived",
    );
    let mut snapshot = with(2, vec![quarantined, archived]);
    assert_eq!(launched(&decide(&snapshot)), 2);
    snapshot.settings.max_capacity = 3;
    assert_eq!(launched(&decide(&snapshot)), 1);
}

#[test]
fn the_task_of_a_worker_that_is_no_supply_occupies_nobody_else() {
    let quarantined = Candidate {
        quarantined_since: Some(seconds_ago(10)),
        ..busy("q")
    };
    let snapshot = with(1, vec![quarantined, idle("w", 90)]);
    assert!(decide(&snapshot).is_idle(), "w takes the task that waits");
}

#[test]
fn a_lowered_maximum_lets_idle_workers_go_and_nobody_else() {
    let mut snapshot = with(9, vec![idle("a", 90), idle("b", 60), busy("c"), busy("d")]);
    snapshot.settings.max_capacity = 3;
    assert_eq!(advised(&decide(&snapshot)), ["a go over capacity"]);
    snapshot.settings.max_capacity = 0;
    assert_eq!(
        advised(&decide(&snapshot)),
        ["a go over capacity", "b go over capacity"]
    );
}

#[test]
fn aws_provisioner_lets_nobody_go_while_tasks_wait() {
    let mut snapshot = with(1, vec![busy("a"), idle("b", 60), idle("c", 30)]);
    snapshot.settings.strategy = StrategyName::AwsProvisioner;
    snapshot.settings.scaling_ratio = 0.2;
    let plan = decide(&snapshot);
    assert!(plan.advice.is_empty());
    snapshot.demand.pending = 0;
    assert_eq!(
        advised(&decide(&snapshot)),
        ["b go over capacity", "c go over capacity"]
    );
}

#[test]
fn aws_provisioner_does_not_let_go_after_launching_what_idle_workers_would_have_done() {
    // Its formula does not see that three are idle, so it starts two for the two tasks.
    let workers = vec![idle("a", 90), idle("b", 60), idle("c", 30)];
    let mut snapshot = with(2, workers);
    snapshot.settings.strategy = StrategyName::AwsProvisioner;
    snapshot.settings.scaling_ratio = 0.0;
    let plan = decide(&snapshot);
    assert_eq!(launched(&plan), 2);
    assert!(decide(&carried_out(snapshot, &plan)).is_idle());
}

#[test]
fn aws_provisioner_keeps_its_spare_capacity() {
    let workers = (0..12).map(|n| match n {
        0..10 => busy(&format!("w{n}")),
        _ => idle(&format!("w{n}"), 90),
    });
    let mut snapshot = with(0, workers.collect());
    snapshot.settings.strategy = StrategyName::AwsProvisioner;
    snapshot.settings.scaling_ratio = -0.2;
    assert!(decide(&snapshot).is_idle());
    snapshot.workers.push(idle("spare", 100));
    snapshot.capacity.running += 1;
    assert_eq!(advised(&decide(&snapshot)), ["spare go over capacity"]);
}

#[test]
fn a_plan_that_was_carried_out_is_followed_by_none() {
    let archived = Candidate {
        archived: true,
        ..busy("archived")
    };
    let workers = vec![archived, busy("busy"), idle("a", 90), idle("b", 50)];
    for pending in [0, 1, 2, 3, 9] {
        let snapshot = with(pending, workers.clone());
        let plan = decide(&snapshot);
        assert!(!plan.is_idle());
        let after = decide(&carried_out(snapshot, &plan));
        assert!(after.is_idle(), "{pending} pending: {}", after.text());
    }
}
