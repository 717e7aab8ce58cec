//! The metrics of small simulations, computed by hand.

use simulate::metrics::Metrics;
use simulate::offering::{Offering, Period};
use simulate::scenario::{Scenario, SimulatedPool, Timing};

use crate::common::{Script, offering, order, scenario, tasks, tasks_of};

fn metrics(scenario: &Scenario, mut script: Script) -> Metrics {
    Metrics::of(scenario, &script.run(scenario))
}

fn near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 1e-9,
        "{found} instead of {expected}"
    );
}

#[test]
fn delay_is_the_time_to_the_end_without_one_run() {
    // One worker from 60 on: the tasks end at 160, 210 and 220.
    let scenario = scenario(vec![offering("a")], tasks(&[(0, 100), (1, 50), (2, 10)]));
    let found = metrics(&scenario, Script::launching(1));
    assert_eq!((found.tasks, found.unfinished), (3, 0));
    let delay = found.delay;
    // Delays of 60, 159 and 208 s.
    near(delay.mean, (60.0 + 159.0 + 208.0) / 3.0);
    assert_eq!((delay.p50, delay.p95, delay.p99), (159.0, 208.0, 208.0));
    // It stops at 520, and is paid for until 540.
    near(found.cost, 540.0 / 3_600.0);
    near(found.j, (540.0 + 60.0 + 159.0 + 208.0) / 3_600.0);
    near(found.over_provisioned_hours, (540.0 - 160.0) / 3_600.0);
    assert_eq!((found.launches, found.refused, found.wasted), (1, 0, 0));
    assert_eq!(
        (found.wasted_cost, found.recovery, found.fairness),
        (0.0, None, None)
    );
}

#[test]
fn repeated_work_is_delay() {
    let stormy = Offering {
        storms: vec![simulate::offering::Storm {
            at_ms: 100_000,
            share: 1.0,
        }],
        ..offering("stormy")
    };
    let scenario = scenario(vec![stormy, offering("b")], tasks(&[(0, 1_000)]));
    let mut script = Script::launching(1);
    script.launches.push((300, order(1, 1)));
    let found = metrics(&scenario, script);
    // It runs again from 360 on.
    assert_eq!(found.delay.mean, 360.0);
    assert_eq!(found.interrupted, 1);
}

#[test]
fn a_task_that_is_not_finished_has_waited_until_the_end() {
    let mut scenario = scenario(vec![offering("a")], tasks(&[(0, 10), (100, 10)]));
    scenario.timing = Timing {
        drain_ms: 900_000,
        ..scenario.timing
    };
    let found = metrics(&scenario, Script::default());
    assert_eq!(found.unfinished, 2);
    near(found.delay.mean, (1_000.0 + 900.0) / 2.0);
    near(found.j, 1_900.0 / 3_600.0);
}

#[test]
fn launches_without_use_are_wasted() {
    let small = Offering {
        quota: Some(3),
        ..offering("small")
    };
    let late = Offering {
        outages: vec![Period {
            from_ms: 0,
            to_ms: 1_000,
        }],
        fails_late: true,
        ..offering("late")
    };
    let scenario = scenario(vec![small, late], tasks(&[(0, 100)]));
    let mut script = Script::launching(5);
    script.launches.push((0, order(1, 2)));
    let found = metrics(&scenario, script);
    // Three machines of five were made in one launch that was refused in part; two others failed.
    assert_eq!((found.launches, found.refused), (7, 2));
    // Refused: two. Failed: two. Without a task: two, until 360 and 20 s longer.
    assert_eq!(found.wasted, 6);
    near(found.wasted_cost, 2.0 * 380.0 / 3_600.0);
    near(found.cost, (2.0 * 380.0 + 480.0) / 3_600.0);
}

#[test]
fn recovery_is_the_time_from_the_first_launch_after_an_outage_to_a_machine() {
    let outage = |from: i64, to: i64| Period {
        from_ms: from * 1_000,
        to_ms: to * 1_000,
    };
    let flaky = Offering {
        outages: vec![outage(10, 100), outage(1_000, 1_100), outage(2_000, 2_100)],
        ..offering("flaky")
    };
    let scenario = scenario(vec![flaky, offering("b")], tasks(&[(0, 10), (5_000, 10)]));
    let mut script = Script::launching(0);
    // After the first outage: launched elsewhere at 120, and there at 210.
    script
        .launches
        .extend([(120, order(1, 1)), (210, order(0, 1))]);
    // After the second: launched there at once. After the third: nothing.
    script.launches.extend([(1_110, order(0, 1))]);
    assert_eq!(metrics(&scenario, script).recovery, Some(45.0));
    let mut script = Script::launching(0);
    // Never there again: until the next outage, and until the last task.
    script
        .launches
        .extend([(300, order(1, 1)), (2_400, order(1, 1))]);
    let expected = ((1_000.0 - 300.0) + (5_000.0 - 2_400.0)) / 2.0;
    assert_eq!(metrics(&scenario, script).recovery, Some(expected));
    assert_eq!(metrics(&scenario, Script::default()).recovery, None);
}

#[test]
fn each_pool_has_its_delay() {
    let offerings = vec![offering("a")];
    let timing = Timing::default();
    let pool = |id| SimulatedPool::new(id, 0, 10, &offerings, &timing).unwrap();
    let mut arrivals = tasks_of(0, &[(0, 10)]);
    arrivals.extend(tasks_of(1, &[(0, 10), (30, 10)]));
    let scenario = Scenario {
        pools: vec![pool("test/a"), pool("test/b")],
        offerings,
        arrivals,
        timing,
    };
    let mut script = Script::launching(1);
    let second = simulate::planner::LaunchOrder {
        pool: 1,
        ..order(0, 1)
    };
    script.launches.push((120, second));
    let found = metrics(&scenario, script);
    let pools: Vec<_> = found
        .pools
        .iter()
        .map(|it| (it.pool.as_str(), it.delay.mean))
        .collect();
    // The second pool has a worker from 180 on: delays of 180 and 160 s.
    assert_eq!(pools, [("test/a", 60.0), ("test/b", 170.0)]);
    assert_eq!(found.pools[1].delay.p95, 180.0);
    // Jain's index of 60 and 170.
    near(
        found.fairness.unwrap(),
        230.0 * 230.0 / (2.0 * (3_600.0 + 28_900.0)),
    );
}
