//! The production planner in the simulated world.

use domain::launch::Cause;
use domain::plan::StrategyName;
use domain::time::{MINUTE_MS, SECOND_MS};
use simulate::history::History;
use simulate::offering::{Offering, Period};
use simulate::planner::{Decision, Observation, Planner, Production, View};
use simulate::scenario::{BadPool, Scenario};
use simulate::simulate;

use crate::common::{offering, scenario, tasks};

/// Writes down what a planner observes.
struct Recorded {
    planner: Production,
    observed: Vec<(i64, Observation)>,
}

impl Planner for Recorded {
    fn observe(&mut self, view: &View<'_>, observation: &Observation) {
        self.observed
            .push((view.at_ms / SECOND_MS, observation.clone()));
        self.planner.observe(view, observation);
    }

    fn plan(&mut self, view: &View<'_>, round: usize, decision: &mut Decision) {
        self.planner.plan(view, round, decision);
    }

    fn scan(&mut self, view: &View<'_>, decision: &mut Decision) {
        self.planner.scan(view, decision);
    }
}

/// The strategies that ask no service.
const SIMULATED: [StrategyName; 3] = [
    StrategyName::Weighted,
    StrategyName::AwsProvisioner,
    StrategyName::Balanced,
];

fn run(scenario: &Scenario, strategy: StrategyName) -> (History, Recorded) {
    let mut recorded = Recorded {
        planner: Production::new(scenario, Some(strategy), 1).unwrap(),
        observed: Vec::new(),
    };
    let history = simulate(scenario, &mut recorded, 1);
    (history, recorded)
}

/// The answers to launches: when, from which launch config, how many of how many, why not more.
fn answers(recorded: &Recorded) -> Vec<(i64, usize, usize, u32, Option<Cause>)> {
    let answers = recorded.observed.iter().filter_map(|(at, it)| {
        let Observation::Answered {
            config,
            machines,
            made,
            refusal,
            ..
        } = it
        else {
            return None;
        };
        Some((*at, *config, made.len(), *machines, *refusal))
    });
    answers.collect()
}

/// Tasks of ten minutes, all created at the same second.
fn at_once(at: i64, count: usize) -> Vec<simulate::scenario::Arrival> {
    tasks(&vec![(at, 600); count])
}

#[test]
fn every_strategy_launches_a_machine_for_each_waiting_task() {
    for strategy in SIMULATED {
        let scenario = scenario(vec![offering("a")], at_once(10, 4));
        let (history, recorded) = run(&scenario, strategy);
        assert_eq!(answers(&recorded), [(30, 0, 4, 4, None)], "{strategy}");
        let ends = history
            .tasks
            .iter()
            .map(|it| it.end_ms.unwrap() / SECOND_MS);
        assert_eq!(ends.collect::<Vec<_>>(), [690; 4], "{strategy}");
    }
}

#[test]
fn refused_machines_are_launched_elsewhere_in_the_same_tick() {
    for strategy in [StrategyName::Weighted, StrategyName::Balanced] {
        let full = Offering {
            quota: Some(1),
            ..offering("full")
        };
        let scenario = scenario(vec![full, offering("b")], at_once(10, 8));
        let (history, recorded) = run(&scenario, strategy);
        let first: Vec<_> = answers(&recorded)
            .into_iter()
            .filter(|it| it.0 == 30)
            .collect();
        assert_eq!(
            first.iter().map(|it| it.2).sum::<usize>(),
            8,
            "{strategy}: {first:?}"
        );
        assert!(
            first.iter().any(|it| it.4 == Some(Cause::Quota)),
            "{first:?}"
        );
        assert_eq!(history.tasks.iter().filter_map(|it| it.end_ms).count(), 8);
    }
}

#[test]
fn one_launch_asks_for_fifty_machines_at_most() {
    let mut scenario = scenario(vec![offering("a")], at_once(10, 120));
    let config = &mut scenario.pools[0].pool.definition.config;
    config.insert("maxCapacity".to_owned(), 1_000.into());
    let (_, recorded) = run(&scenario, StrategyName::Weighted);
    let machines: Vec<u32> = answers(&recorded).iter().map(|it| it.3).collect();
    assert_eq!(machines, [50, 50, 20]);
}

#[test]
fn surplus_workers_stop_after_the_idle_time() {
    let scenario = scenario(vec![offering("a")], at_once(10, 2));
    let (history, _) = run(&scenario, StrategyName::Weighted);
    // Idle from 690 on; the next tick after 300 s is at 990.
    let ended = history
        .workers
        .iter()
        .map(|it| it.ended_ms.unwrap() / SECOND_MS);
    assert_eq!(ended.collect::<Vec<_>>(), [990, 990]);
}

#[test]
fn the_minimum_is_kept_while_the_load_lasts() {
    let mut scenario = scenario(vec![offering("a")], at_once(7_200, 1));
    let config = &mut scenario.pools[0].pool.definition.config;
    config.insert("minCapacity".to_owned(), 2.into());
    scenario.timing.drain_ms = 30 * MINUTE_MS;
    for strategy in SIMULATED {
        let (history, _) = run(&scenario, strategy);
        let n_early = history
            .workers
            .iter()
            .filter(|it| it.launched_ms == 0)
            .count();
        assert_eq!((n_early, history.workers.len()), (2, 2), "{strategy}");
        assert_eq!(
            history.tasks[0].first_start_ms,
            Some(7_200_000),
            "{strategy}"
        );
    }
}

#[test]
fn balanced_learns_where_machines_never_register() {
    let broken = Offering {
        broken_images: vec![Period {
            from_ms: 0,
            to_ms: 100_000 * SECOND_MS,
        }],
        ..offering("broken")
    };
    // Six tasks every twenty minutes, for four hours.
    let load: Vec<_> = (0..72).map(|number| (number / 6 * 1_200, 300)).collect();
    let scenario = scenario(vec![broken, offering("b")], tasks(&load));
    let (history, _) = run(&scenario, StrategyName::Balanced);
    let broken = history.workers.iter().filter(|it| it.offering == 0);
    let n_late = broken
        .clone()
        .filter(|it| it.launched_ms > 3_600_000)
        .count();
    let n_good = history.workers.iter().filter(|it| it.offering == 1).count();
    assert!(
        n_late < 5 && n_good > 5,
        "{n_late} of {} late, {n_good} good",
        broken.count()
    );
    assert!(history.tasks.iter().all(|task| task.end_ms.is_some()));
}

#[test]
fn balanced_prefers_what_is_cheap() {
    let dear = Offering {
        price: simulate::offering::Price::constant(2.0),
        ..offering("dear")
    };
    let load: Vec<_> = (0..60).map(|number| (number * 120, 600)).collect();
    let scenario = scenario(vec![dear, offering("cheap")], tasks(&load));
    let (history, _) = run(&scenario, StrategyName::Balanced);
    let n_dear = history.workers.iter().filter(|it| it.offering == 0).count();
    assert_eq!(n_dear, 0, "of {}", history.workers.len());
}

#[test]
fn a_pool_whose_config_cannot_be_planned_is_named() {
    let mut scenario = scenario(vec![offering("a")], at_once(10, 1));
    let config = &mut scenario.pools[0].pool.definition.config;
    config.insert("maxCapacity".to_owned(), (-1).into());
    let refused = Production::new(&scenario, Some(StrategyName::Weighted), 1)
        .err()
        .unwrap();
    assert!(matches!(refused, BadPool::Settings { .. }));
    assert_eq!(
        refused.to_string(),
        "the config of pool test/pool: maxCapacity must be a whole number from 0 to 1000000000, \
         not -1"
    );
}
