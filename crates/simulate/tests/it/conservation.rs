//! Laws of every simulation, whatever the planner decides.

use std::collections::BTreeMap;

use domain::time::HOUR_MS;
use domain::worker::WorkerState;
use simulate::fleet::{Fleet, MachineCounts};
use simulate::metrics::Metrics;
use simulate::offering::Period;
use simulate::planner::{Decision, Observation, Planner, View};
use simulate::scenario::{Scenario, ScenarioName, Timing};
use simulate::simulate;
use simulate::strategy::SimulatedStrategy;

use crate::common::NoTraces;

/// Checks the fleet whenever its planner is asked.
struct Watched<'a> {
    scenario: &'a Scenario,
    planner: Box<dyn Planner>,
    n_finished: usize,
    n_checks: usize,
}

impl Watched<'_> {
    fn check(&mut self, fleet: &Fleet) {
        self.n_checks += 1;
        let mut of_offering: BTreeMap<usize, u64> = BTreeMap::new();
        for (index, pool) in fleet.pools.iter().enumerate() {
            let given = &self.scenario.pools[index];
            let mut machines = vec![MachineCounts::default(); given.launch_configs.len()];
            let (mut units, mut claimed) = (0, 0);
            for worker in pool.live.iter().map(|worker| &fleet.workers[*worker]) {
                let counts = &mut machines[worker.config];
                match (worker.state, worker.asked_to_stop) {
                    (WorkerState::Requested, _) => counts.requested += 1,
                    (WorkerState::Running, false) => counts.running += 1,
                    (WorkerState::Running, true) => counts.draining += 1,
                    (WorkerState::Stopping, _) => counts.stopping += 1,
                    (WorkerState::Stopped, _) => panic!("a stopped worker is live"),
                }
                units += u64::from(worker.capacity);
                claimed += worker.tasks.len() as u64;
                assert!(worker.tasks.len() <= worker.capacity as usize);
                *of_offering.entry(worker.offering).or_default() += 1;
            }
            assert_eq!(machines, pool.machines);
            assert_eq!(claimed, pool.n_claimed());
            assert!(units <= 1_000, "above the maximum");
        }
        for (offering, count) in of_offering {
            let quota = self.scenario.offerings[offering].quota;
            assert!(quota.is_none_or(|quota| count <= quota), "above the quota");
        }
    }
}

impl Planner for Watched<'_> {
    fn observe(&mut self, view: &View<'_>, observation: &Observation) {
        self.n_finished += usize::from(matches!(observation, Observation::Finished { .. }));
        self.planner.observe(view, observation);
    }

    fn plan(&mut self, view: &View<'_>, round: usize, decision: &mut Decision) {
        self.check(view.fleet);
        self.planner.plan(view, round, decision);
    }

    fn scan(&mut self, view: &View<'_>, decision: &mut Decision) {
        self.check(view.fleet);
        self.planner.scan(view, decision);
    }

    fn should_stop(&mut self, view: &View<'_>, worker: usize) -> bool {
        self.planner.should_stop(view, worker)
    }
}

/// The first hours of a scenario.
fn beginning(name: ScenarioName, hours: i64) -> Scenario {
    let mut scenario = name.build(3, &NoTraces).unwrap();
    scenario.arrivals.retain(|it| it.at_ms < hours * HOUR_MS);
    let n_arrivals = scenario.arrivals.len();
    scenario.followers.retain(|it| it.after < n_arrivals);
    scenario.timing.drain_ms = Timing::default().drain_ms;
    scenario
}

fn check(name: ScenarioName, strategy: SimulatedStrategy) {
    let scenario = beginning(name, 3);
    let mut watched = Watched {
        scenario: &scenario,
        planner: strategy.planner(&scenario, 3).unwrap(),
        n_finished: 0,
        n_checks: 0,
    };
    let history = simulate(&scenario, &mut watched, 3);
    assert!(watched.n_checks > 100);
    // Every task ends once, after its duration.
    let n_tasks = scenario.arrivals.len() + scenario.followers.len();
    assert_eq!(watched.n_finished, n_tasks);
    for task in &history.tasks {
        let start_ms = task.first_start_ms.unwrap();
        assert!(task.created_ms <= start_ms);
        assert!(start_ms + task.duration_ms <= task.end_ms.unwrap());
        assert!(task.n_runs >= 1);
    }
    // All machines have ended, and the cost is the sum of their bills.
    let mut cost = 0.0;
    for worker in &history.workers {
        assert_eq!(worker.state, WorkerState::Stopped);
        let Some(bill) = worker.bill else {
            assert!(worker.registered_ms.is_none());
            continue;
        };
        let paid = Period {
            from_ms: worker.launched_ms,
            to_ms: bill.until_ms.max(worker.launched_ms + 60_000),
        };
        let price = &scenario.offerings[worker.offering].price;
        assert_eq!(bill.dollars, price.cost(paid));
        cost += bill.dollars;
    }
    let metrics = Metrics::of(&scenario, &history);
    assert_eq!(metrics.cost, cost);
    let useful: i64 = history.workers.iter().map(|worker| worker.useful_ms).sum();
    let durations = scenario.arrivals.iter().map(|it| it.duration_ms);
    let following = scenario.followers.iter().map(|it| it.duration_ms);
    let durations: i64 = durations.chain(following).sum();
    assert_eq!(useful, durations);
}

#[test]
fn tasks_machines_and_money_are_conserved_with_every_strategy() {
    for strategy in SimulatedStrategy::all() {
        check(ScenarioName::Combined, strategy);
        check(ScenarioName::Spot, strategy);
    }
}

#[test]
fn tasks_machines_and_money_are_conserved_in_every_scenario() {
    let balanced = "balanced".parse().unwrap();
    for name in ScenarioName::ALL.into_iter().chain(ScenarioName::FURTHER) {
        if name.traces().is_empty() {
            check(name, balanced);
        }
    }
}
