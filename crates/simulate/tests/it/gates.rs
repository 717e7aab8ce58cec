//! Quick gates: `balanced` gets no worse in any scenario without a trace.
//!
//! Two seeds say little about a strategy, so each limit leaves some room beyond what they give.
//! `fleetwright simulate scenarios` makes the full comparison. Its means over the seeds 11 to 20
//! should keep these limits: p95 of burst and long below 255 s, of flaky below 180 s, of broken-one
//! below 195 s; machines without a task for less than 2 $ in broken-one and 6 $ in broken-all; in
//! fair, fewer than 1,500 refused machines and less than 300 s of mean delay for the small pool.
//! An offering should be used again within 180 s after an outage; in spot and combined it is not.

use simulate::scenario::ScenarioName;
use simulate::study::{Measure, ScenarioResult, Study};

use crate::common::NoTraces;

/// The mean difference of J from that of Taskcluster's strategy, in percent, is at most this.
const LIMITS: [(ScenarioName, f64); 16] = [
    (ScenarioName::Steady, 1.0),
    (ScenarioName::Burst, -9.0),
    (ScenarioName::Flaky, -17.0),
    (ScenarioName::FlakyAsync, -17.0),
    (ScenarioName::Quota, -2.5),
    (ScenarioName::BrokenOne, -6.0),
    (ScenarioName::BrokenAll, -6.0),
    (ScenarioName::SlowBoot, 1.0),
    (ScenarioName::Spot, -17.0),
    (ScenarioName::MixedPrice, -33.0),
    (ScenarioName::Short, -8.0),
    (ScenarioName::Long, -12.0),
    (ScenarioName::Combined, -15.0),
    (ScenarioName::LongAmongShort, 15.0),
    (ScenarioName::FullRegion, -3.0),
    (ScenarioName::Unreliable, -10.0),
];

/// Means of a measure of `balanced`, with its limit.
const FURTHER_LIMITS: [(ScenarioName, Measure, f64); 10] = [
    (ScenarioName::Burst, Measure::DelayP95, 265.0),
    (ScenarioName::Long, Measure::DelayP95, 265.0),
    (ScenarioName::Flaky, Measure::DelayP95, 195.0),
    (ScenarioName::Flaky, Measure::Recovery, 200.0),
    (ScenarioName::FlakyAsync, Measure::Recovery, 200.0),
    (ScenarioName::BrokenOne, Measure::DelayP95, 215.0),
    (ScenarioName::BrokenOne, Measure::WastedCost, 2.5),
    (ScenarioName::BrokenAll, Measure::WastedCost, 8.0),
    (ScenarioName::LongAmongShort, Measure::DelayP95, 260.0),
    (ScenarioName::FullRegion, Measure::DelayP95, 230.0),
];

/// Refused machines where three pools share a quota.
const FAIR_REFUSED: f64 = 2_500.0;

fn run(scenarios: Vec<ScenarioName>, strategies: &[&str]) -> Vec<ScenarioResult> {
    let strategies = strategies.iter().map(|name| name.parse().unwrap());
    let study = Study {
        scenarios,
        strategies: strategies.collect(),
        seeds: vec![1, 2],
    };
    study.run(&NoTraces, 2, &|_| ()).unwrap()
}

/// In percent of the first strategy.
fn difference(result: &ScenarioResult) -> f64 {
    let second = result.strategies[1].difference.as_ref().unwrap();
    second.percent(Measure::J).unwrap().mean
}

#[test]
fn balanced_is_as_much_better_than_taskcluster_as_it_should_be() {
    let scenarios = LIMITS.iter().map(|(name, _)| *name).collect();
    let results = run(scenarios, &["taskcluster", "balanced"]);
    let mut problems = Vec::new();
    for (result, (name, limit)) in results.iter().zip(LIMITS) {
        let found = difference(result);
        if found > limit {
            problems.push(format!(
                "{name}: J differs by {found:.1} %, not {limit} % or less"
            ));
        }
        let mean = &result.strategies[1].mean;
        for (_, measure, most) in FURTHER_LIMITS.iter().filter(|(of, ..)| *of == name) {
            let found = mean.get(*measure).unwrap().mean;
            if found > *most {
                let what = measure.as_str();
                problems.push(format!("{name}: {what} is {found:.1}, not {most} or less"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn pools_share_a_quota_fairly_and_few_machines_are_refused() {
    let results = run(vec![ScenarioName::Fair], &["balanced"]);
    let balanced = &results[0].strategies[0];
    let refused = balanced.mean.get(Measure::Refused).unwrap().mean;
    assert!(refused <= FAIR_REFUSED, "{refused} machines were refused");
    // The pool that wants less than its share hardly waits.
    for seed in &balanced.seeds {
        let small = &seed.metrics.pools[2];
        assert!(
            small.delay.mean <= 330.0,
            "{}: {}",
            small.pool,
            small.delay.mean
        );
    }
}

#[test]
fn tasks_that_are_announced_wait_less_for_less_money() {
    let results = run(
        vec![ScenarioName::Groups],
        &["balanced", "balanced-foresight"],
    );
    let found = difference(&results[0]);
    assert!(found < -8.0, "J differs by {found:.1} %");
    // Where nothing is announced, and days have not been seen yet, nothing changes.
    let results = run(
        vec![ScenarioName::Short],
        &["balanced", "balanced-foresight"],
    );
    assert_eq!(difference(&results[0]), 0.0);
}
