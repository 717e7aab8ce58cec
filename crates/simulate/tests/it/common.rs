//! Small scenarios, and a planner that follows a script.

use std::path::PathBuf;

use domain::time::SECOND_MS;
use simulate::history::History;
use simulate::offering::{BootTime, Offering};
use simulate::planner::{Decision, LaunchOrder, Observation, Planner, View, WorkerAdvice};
use simulate::scenario::{Arrival, Scenario, SimulatedPool, Timing, TraceSource};
use simulate::simulate;

/// A boot of exactly this many seconds.
pub(crate) fn boot(seconds: f64) -> BootTime {
    BootTime {
        mean_seconds: seconds,
        sigma: 0.0,
    }
}

/// A dollar an hour, and a boot of a minute.
pub(crate) fn offering(name: &str) -> Offering {
    Offering::plain(name, 1.0, boot(60.0))
}

/// Tasks of one pool: their times and durations in seconds.
pub(crate) fn tasks(tasks: &[(i64, i64)]) -> Vec<Arrival> {
    tasks_of(0, tasks)
}

pub(crate) fn tasks_of(pool: usize, tasks: &[(i64, i64)]) -> Vec<Arrival> {
    let arrivals = tasks.iter().map(|(at, duration)| Arrival {
        at_ms: at * SECOND_MS,
        duration_ms: duration * SECOND_MS,
        pool,
        rank: 0,
    });
    arrivals.collect()
}

/// One pool of at most ten units with these offerings.
pub(crate) fn scenario(offerings: Vec<Offering>, arrivals: Vec<Arrival>) -> Scenario {
    let timing = Timing::default();
    let pool = SimulatedPool::new("test/pool", 0, 10, &offerings, &timing).unwrap();
    Scenario {
        pools: vec![pool],
        offerings,
        arrivals,
        followers: Vec::new(),
        timing,
    }
}

/// Decides what a script says, and writes down what it observes.
#[derive(Default)]
pub(crate) struct Script {
    /// At seconds: this many machines of a launch config.
    pub(crate) launches: Vec<(i64, LaunchOrder)>,
    /// At seconds: this advice.
    pub(crate) advice: Vec<(i64, WorkerAdvice)>,
    /// Orders for round 1, if the first round is refused.
    pub(crate) again: Vec<LaunchOrder>,
    /// Whether idle workers stop when they ask.
    pub(crate) stops_idle: bool,
    /// With seconds.
    pub(crate) observed: Vec<(i64, Observation)>,
    pub(crate) rounds: Vec<(i64, usize)>,
}

impl Planner for Script {
    fn observe(&mut self, view: &View<'_>, observation: &Observation) {
        self.observed
            .push((view.at_ms / SECOND_MS, observation.clone()));
    }

    fn plan(&mut self, view: &View<'_>, round: usize, decision: &mut Decision) {
        let at = view.at_ms / SECOND_MS;
        self.rounds.push((at, round));
        if round > 0 {
            decision.launches.append(&mut self.again);
            return;
        }
        let launches = self.launches.iter().filter(|(when, _)| *when == at);
        decision.launches.extend(launches.map(|(_, order)| *order));
        let advice = self.advice.iter().filter(|(when, _)| *when == at);
        decision.advice.extend(advice.map(|(_, advice)| *advice));
    }

    fn should_stop(&mut self, _view: &View<'_>, _worker: usize) -> bool {
        self.stops_idle
    }
}

pub(crate) fn order(config: usize, machines: u32) -> LaunchOrder {
    LaunchOrder {
        pool: 0,
        config,
        machines,
    }
}

impl Script {
    /// Launches this many machines of the first launch config at the start.
    pub(crate) fn launching(machines: u32) -> Self {
        Self {
            launches: vec![(0, order(0, machines))],
            stops_idle: true,
            ..Self::default()
        }
    }

    pub(crate) fn run(&mut self, scenario: &Scenario) -> History {
        simulate(scenario, self, 1)
    }

    /// The seconds of the observations that match.
    pub(crate) fn seconds(&self, is_wanted: impl Fn(&Observation) -> bool) -> Vec<i64> {
        let wanted = self.observed.iter().filter(|(_, it)| is_wanted(it));
        wanted.map(|(at, _)| *at).collect()
    }
}

/// For scenarios without traces.
pub(crate) struct NoTraces;

impl TraceSource for NoTraces {
    fn trace(&self, file: &str) -> Result<Vec<Arrival>, String> {
        Err(format!("{file} does not exist"))
    }
}

/// A file beside the repository; `None`: it does not exist, and the test has nothing to read.
pub(crate) fn beside(path: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    Some(folder.join(path)).filter(|path| path.exists())
}
