//! The course of events: ticks, queues, and the life of a worker.

use domain::launch::Cause;
use domain::time::SECOND_MS;
use domain::worker::WorkerState;
use simulate::planner::{Decision, LaunchOrder, Observation, Planner, View, WorkerAdvice};
use simulate::scenario::{Follower, Timing};
use simulate::simulate;

use crate::common::{Script, offering, order, scenario, tasks};

fn advice(worker: usize, stop: bool) -> WorkerAdvice {
    WorkerAdvice { worker, stop }
}

/// The seconds at which the tasks started and ended.
fn runs(history: &simulate::history::History) -> Vec<(Option<i64>, Option<i64>)> {
    let seconds = |ms: Option<i64>| ms.map(|ms| ms / 1_000);
    let tasks = history.tasks.iter();
    tasks
        .map(|task| (seconds(task.first_start_ms), seconds(task.end_ms)))
        .collect()
}

#[test]
fn a_worker_boots_works_idles_and_stops() {
    let scenario = scenario(vec![offering("a")], tasks(&[(0, 100)]));
    let mut script = Script::launching(1);
    let history = script.run(&scenario);
    assert_eq!(runs(&history), [(Some(60), Some(160))]);
    let observed: Vec<_> = script.observed.iter().skip(2).cloned().collect();
    let expected = [
        (60, Observation::Registered { worker: 0 }),
        (60, Observation::Started { worker: 0, task: 0 }),
        (
            160,
            Observation::Finished {
                worker: 0,
                duration_ms: 100_000,
            },
        ),
        // Idle for 300 s, then stopping for 60 s.
        (520, Observation::Ended { worker: 0 }),
    ];
    assert_eq!(observed, expected);
    let worker = &history.workers[0];
    assert_eq!(worker.state, WorkerState::Stopped);
    assert_eq!(worker.ended_ms, Some(460_000));
    // Paid for 20 s of the time in which it stops.
    assert_eq!(worker.bill.unwrap().until_ms, 480_000);
    assert!((worker.bill.unwrap().dollars - 480.0 / 3_600.0).abs() < 1e-12);
    assert_eq!(worker.useful_ms, 100_000);
}

#[test]
fn tasks_are_served_in_their_order() {
    let given = tasks(&[(0, 100), (1, 50), (2, 10)]);
    let history = Script::launching(1).run(&scenario(vec![offering("a")], given));
    let expected = [
        (Some(60), Some(160)),
        (Some(160), Some(210)),
        (Some(210), Some(220)),
    ];
    assert_eq!(runs(&history), expected);
}

#[test]
fn a_machine_runs_as_many_tasks_as_it_has_capacity() {
    let given = tasks(&[(0, 100), (1, 50), (2, 10), (300, 5)]);
    let mut scenario = scenario(vec![offering("a")], given);
    scenario.pools[0].launch_configs[0].capacity = 2;
    let history = Script::launching(1).run(&scenario);
    let expected = [
        (Some(60), Some(160)),
        (Some(60), Some(110)),
        (Some(110), Some(120)),
        (Some(300), Some(305)),
    ];
    assert_eq!(runs(&history), expected);
    assert_eq!(history.workers[0].useful_ms, 165_000);
}

#[test]
fn the_worker_that_is_idle_for_longest_gets_the_next_task() {
    let given = tasks(&[(200, 10), (220, 10), (240, 10)]);
    let mut script = Script {
        launches: vec![(0, order(0, 1)), (30, order(0, 1))],
        ..Script::launching(0)
    };
    script.run(&scenario(vec![offering("a")], given));
    let started = script.observed.iter().filter_map(|(_, it)| {
        let Observation::Started { worker, task } = it else {
            return None;
        };
        Some((*task, *worker))
    });
    assert_eq!(started.collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 0)]);
}

#[test]
fn a_busy_worker_that_is_asked_to_stop_stops_after_its_task() {
    let given = tasks(&[(0, 100), (1, 100)]);
    let scenario = scenario(vec![offering("a")], given);
    let mut script = Script {
        advice: vec![(90, advice(0, true))],
        launches: vec![(0, order(0, 1)), (180, order(0, 1))],
        ..Script::launching(0)
    };
    let history = script.run(&scenario);
    assert_eq!(runs(&history)[1], (Some(240), Some(340)));
    assert_eq!(history.workers[0].ended_ms, Some(160_000));
    // If it is asked to stay in time, it goes on.
    script = Script {
        advice: vec![(90, advice(0, true)), (120, advice(0, false))],
        ..Script::launching(1)
    };
    assert_eq!(runs(&script.run(&scenario))[1], (Some(160), Some(260)));
}

#[test]
fn an_idle_worker_that_is_asked_to_stop_stops_at_once() {
    let scenario = scenario(vec![offering("a")], tasks(&[(0, 10), (400, 10)]));
    let mut script = Script {
        advice: vec![(90, advice(0, true)), (120, advice(0, false))],
        launches: vec![(0, order(0, 1)), (390, order(0, 1))],
        ..Script::launching(0)
    };
    let history = script.run(&scenario);
    assert_eq!(history.workers[0].ended_ms, Some(90_000));
    // Nothing brings it back.
    assert_eq!(runs(&history)[1].0, Some(450));
}

#[test]
fn a_machine_that_is_asked_to_stop_before_it_registers_is_given_up() {
    let scenario = scenario(vec![offering("a")], tasks(&[(0, 10)]));
    let mut script = Script {
        advice: vec![(30, advice(0, true))],
        launches: vec![(0, order(0, 1)), (30, order(0, 1))],
        ..Script::launching(0)
    };
    let history = script.run(&scenario);
    let given_up = script.seconds(|it| *it == Observation::NeverRegistered { worker: 0 });
    assert_eq!(given_up, [30]);
    assert_eq!(history.workers[0].registered_ms, None);
    // A machine is paid for a minute at least.
    assert!((history.workers[0].bill.unwrap().dollars - 60.0 / 3_600.0).abs() < 1e-12);
    assert_eq!(runs(&history), [(Some(90), Some(100))]);
}

#[test]
fn a_tick_plans_again_while_launches_are_refused() {
    let full = simulate::offering::Offering {
        quota: Some(2),
        ..offering("full")
    };
    let scenario = scenario(vec![full, offering("b")], tasks(&[(0, 10)]));
    let mut script = Script {
        again: vec![order(1, 1)],
        ..Script::launching(3)
    };
    let history = script.run(&scenario);
    assert_eq!(script.rounds[..3], [(0, 0), (0, 1), (30, 0)]);
    let answers = script.observed.iter().filter_map(|(at, it)| {
        let Observation::Answered {
            config,
            made,
            refusal,
            ..
        } = it
        else {
            return None;
        };
        Some((*at, *config, made.clone(), *refusal))
    });
    let expected = [(0, 0, 0..2, Some(Cause::Quota)), (0, 1, 2..3, None)];
    assert_eq!(answers.collect::<Vec<_>>(), expected);
    assert_eq!(history.attempts.n_refused, 1);
    // A planner that asks for what is always refused is not asked for ever.
    let mut stubborn = Stubborn(0);
    simulate(&scenario, &mut stubborn, 1);
    assert_eq!(stubborn.0, 20);
}

/// Asks for more than a quota in each round of the first tick, and counts the rounds.
struct Stubborn(usize);

impl Planner for Stubborn {
    fn plan(&mut self, view: &View<'_>, round: usize, decision: &mut Decision) {
        if view.at_ms == 0 {
            self.0 = self.0.max(round + 1);
            decision.launches.push(order(0, 3));
        }
    }

    fn should_stop(&mut self, _view: &View<'_>, _worker: usize) -> bool {
        true
    }
}

#[test]
fn the_simulation_ends_with_the_last_machine_or_when_its_time_is_over() {
    let mut scenario = scenario(vec![offering("a")], tasks(&[(0, 10), (50, 10)]));
    let mut script = Script::launching(1);
    script.run(&scenario);
    assert_eq!(script.observed.last().unwrap().0, 60 + 10 + 10 + 300 + 60);
    // Without machines the tasks wait until the end.
    scenario.timing = Timing {
        drain_ms: 100_000,
        ..scenario.timing
    };
    let mut idle = Script::default();
    let history = idle.run(&scenario);
    assert_eq!(history.end_ms, 150_000);
    assert_eq!(runs(&history), [(None, None), (None, None)]);
    assert_eq!(idle.rounds.last(), Some(&(150, 0)));
    // A machine that still exists then is paid for until then.
    let mut late = Script {
        launches: vec![(120, order(0, 1))],
        ..Script::default()
    };
    let history = late.run(&scenario);
    assert_eq!(history.workers[0].ended_ms, Some(150_000));
    assert_eq!(history.workers[0].state, WorkerState::Requested);
}

#[test]
fn an_empty_load_takes_no_time() {
    let history = Script::default().run(&scenario(vec![offering("a")], Vec::new()));
    assert!(history.tasks.is_empty() && history.workers.is_empty());
}

#[test]
fn a_follower_is_announced_while_its_task_runs_and_created_when_it_ends() {
    let mut scenario = scenario(vec![offering("a")], tasks(&[(0, 100)]));
    let follower = |after, duration| Follower {
        after,
        duration_ms: duration * SECOND_MS,
        pool: 0,
    };
    // Task 2 follows task 1, which follows task 0; task 4 follows a task that does not exist.
    scenario.followers = vec![
        follower(0, 10),
        follower(1, 20),
        follower(0, 30),
        follower(99, 5),
    ];
    let mut watched = Announcements::default();
    let history = simulate(&scenario, &mut watched, 1);
    let start_ms = history.tasks[0].first_start_ms.unwrap();
    let end = |task: usize| history.tasks[task].end_ms.unwrap() - start_ms;
    assert_eq!(history.tasks.len(), 4);
    assert_eq!(
        (end(0), end(1), end(3), end(2)),
        (100_000, 110_000, 140_000, 160_000)
    );
    let created = history.tasks.iter().map(|task| task.created_ms - start_ms);
    assert_eq!(
        created.skip(1).collect::<Vec<_>>(),
        [100_000, 110_000, 100_000]
    );
    // Two tasks while task 0 runs, one while task 1 runs.
    assert_eq!(watched.counts, [0, 2, 0, 1, 0]);
}

/// Launches a machine, and notes how many tasks are announced at each start and end of a task.
#[derive(Default)]
struct Announcements {
    counts: Vec<u64>,
}

impl Planner for Announcements {
    fn observe(&mut self, view: &View<'_>, _observation: &Observation) {
        let announced = view.fleet.pools[0].announced.values();
        let count = announced.map(|tasks| tasks.count).sum();
        if self.counts.last() != Some(&count) {
            self.counts.push(count);
        }
    }

    fn plan(&mut self, view: &View<'_>, _round: usize, decision: &mut Decision) {
        if view.at_ms == 0 {
            decision.launches.push(LaunchOrder {
                pool: 0,
                config: 0,
                machines: 1,
            });
        }
    }
}
