//! Studies: the same bytes for the same seeds, and differences that are paired.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::{Value, json};
use simulate::scenario::{Arrival, ScenarioName, TraceSource};
use simulate::statistics::Estimate;
use simulate::strategy::SimulatedStrategy;
use simulate::study::{Measure, ScenarioResult, Study};

use crate::common::NoTraces;

fn study(scenarios: &[ScenarioName], strategies: &[&str], seeds: &[u64]) -> Study {
    let strategies = strategies.iter().map(|name| name.parse().unwrap());
    Study {
        scenarios: scenarios.to_vec(),
        strategies: strategies.collect(),
        seeds: seeds.to_vec(),
    }
}

fn run(study: &Study, n_threads: usize) -> Vec<ScenarioResult> {
    study.run(&NoTraces, n_threads, &|_| ()).unwrap()
}

#[test]
fn the_same_seeds_give_the_same_bytes_on_any_number_of_threads() {
    let scenarios = [ScenarioName::Long, ScenarioName::Burst];
    let study = study(&scenarios, &["taskcluster", "balanced"], &[1, 2]);
    let text = |n_threads| {
        let results = run(&study, n_threads);
        let page = simulate::page::page(&study, &results);
        (serde_json::to_string(&results).unwrap(), page)
    };
    let alone = text(1);
    for n_threads in [0, 2, 5, 100] {
        assert!(text(n_threads) == alone, "{n_threads} threads");
    }
}

#[test]
fn each_seed_has_its_own_load_and_clouds() {
    for name in [
        ScenarioName::Burst,
        ScenarioName::Flaky,
        ScenarioName::MixedPrice,
    ] {
        let build = |seed| name.build(seed, &NoTraces).unwrap();
        let (first, second) = (build(1), build(2));
        assert_ne!(first.arrivals, second.arrivals, "{name}");
        assert_eq!(build(1), first, "{name}");
        if name != ScenarioName::Burst {
            assert_ne!(first.offerings, second.offerings, "{name}");
        }
    }
}

#[test]
fn loads_are_about_as_large_as_they_should_be() {
    // The number of tasks on average: rate times time, and bursts times their mean size.
    let burst_mean = |low: f64, high: f64| (high - low) / (high / low).ln() - 0.5;
    let expected = [
        (ScenarioName::Steady, 50.0 / 600.0 * 43_200.0),
        (ScenarioName::Burst, 24.0 * burst_mean(20.0, 300.0)),
        (
            ScenarioName::Diurnal,
            75.0 / 900.0 * 86_400.0 + 16.0 * burst_mean(10.0, 60.0),
        ),
        (
            ScenarioName::Spot,
            80.0 / 1_800.0 * 57_600.0 + 57_600.0 / 5_400.0 * burst_mean(20.0, 100.0),
        ),
        (
            ScenarioName::Short,
            28_800.0 * 0.2 + 32.0 * burst_mean(50.0, 400.0),
        ),
        (
            ScenarioName::Fair,
            135.0 / 900.0 * 28_800.0 + 16.0 * burst_mean(50.0, 150.0),
        ),
    ];
    for (name, expected) in expected {
        let n_seeds = 40;
        let n_tasks = (0..n_seeds).map(|seed| {
            let scenario = name.build(seed, &NoTraces).unwrap();
            let times = scenario.arrivals.iter().map(|it| it.at_ms);
            assert!(
                times.is_sorted() && scenario.arrivals.iter().all(|it| it.duration_ms >= 5_000)
            );
            scenario.arrivals.len() as f64
        });
        let mean = n_tasks.sum::<f64>() / n_seeds as f64;
        assert!(
            (mean / expected - 1.0).abs() < 0.1,
            "{name}: {mean} instead of {expected}"
        );
    }
}

#[test]
fn differences_are_taken_seed_by_seed() {
    let study = study(
        &[ScenarioName::Long],
        &["taskcluster", "weighted"],
        &[1, 2, 3],
    );
    let results = run(&study, 2);
    let [first, second] = &results[0].strategies[..] else {
        panic!("two strategies");
    };
    assert_eq!(first.difference, None);
    let j = |result: &simulate::study::StrategyResult| {
        result
            .seeds
            .iter()
            .map(|seed| seed.metrics.j)
            .collect::<Vec<f64>>()
    };
    let (bases, others) = (j(first), j(second));
    let differences: Vec<f64> = others.iter().zip(&bases).map(|(a, b)| a - b).collect();
    let mean = differences.iter().sum::<f64>() / 3.0;
    let squares: f64 = differences.iter().map(|it| (it - mean).powi(2)).sum();
    let margin = 4.303 * (squares / 2.0 / 3.0).sqrt();
    let difference = second.difference.as_ref().unwrap();
    let Estimate {
        mean: found,
        margin: found_margin,
    } = difference.get(Measure::J).unwrap();
    assert!((found - mean).abs() < 1e-9 && (found_margin.unwrap() - margin).abs() < 1e-9);
    let base = bases.iter().sum::<f64>() / 3.0;
    let percent = difference.percent(Measure::J).unwrap();
    assert!((percent.mean - 100.0 * mean / base).abs() < 1e-9);
    // No outage, so nothing to recover from.
    assert_eq!(difference.get(Measure::Recovery), None);
    assert_eq!(first.mean.get(Measure::Recovery), None);
}

#[test]
fn a_strategy_that_is_compared_with_itself_does_not_differ() {
    let study = study(&[ScenarioName::Long], &["weighted", "weighted"], &[4, 5]);
    let results = run(&study, 1);
    let second = results[0].strategies[1].difference.as_ref().unwrap();
    for measure in Measure::ALL {
        let mean = second.get(measure).map_or(0.0, |it| it.mean);
        assert_eq!(mean, 0.0, "{}", measure.as_str());
    }
}

#[test]
fn the_document_names_everything() {
    let study = study(&[ScenarioName::Long], &["taskcluster", "weighted"], &[1]);
    let document = serde_json::to_value(run(&study, 1)).unwrap();
    let result = &document[0];
    assert_eq!(result["scenario"], "long");
    let second = &result["strategies"][1];
    assert_eq!(second["strategy"], "weighted");
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<BTreeSet<_>>()
    };
    let measures: BTreeSet<String> = Measure::ALL.map(|it| it.as_str().to_owned()).into();
    assert_eq!(keys(&second["mean"]), measures);
    assert_eq!(keys(&second["difference"]), measures);
    assert_eq!(second["mean"]["j"]["margin"], Value::Null);
    let seed = &second["seeds"][0];
    assert_eq!(seed["seed"], 1);
    assert_eq!(seed["j"], second["mean"]["j"]["mean"]);
    assert_eq!(seed["delay"]["p95"], second["mean"]["delayP95"]["mean"]);
    assert_eq!(seed["pools"][0]["pool"], "simulated/pool");
    assert_eq!(second["difference"]["recovery"], json!(null));
}

#[test]
fn progress_counts_every_simulation() {
    let study = study(&[ScenarioName::Long], &["taskcluster"], &[1, 2, 3, 4]);
    let seen = Mutex::new(Vec::new());
    study
        .run(&NoTraces, 3, &|n_done| seen.lock().unwrap().push(n_done))
        .unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert_eq!((seen, study.n_simulations()), (vec![1, 2, 3, 4], 4));
}

/// A trace of one task at each of these hours.
struct Hours(Vec<i64>);

impl TraceSource for Hours {
    fn trace(&self, _file: &str) -> Result<Vec<Arrival>, String> {
        let tasks = self.0.iter().map(|hour| Arrival {
            at_ms: hour * 3_600_000,
            duration_ms: 1_000,
            pool: 0,
            rank: 0,
        });
        Ok(tasks.collect())
    }
}

#[test]
fn a_trace_scenario_replays_a_day_that_depends_on_the_seed() {
    let traces = Hours((0..140).collect());
    let hours = |name: ScenarioName, seed| {
        let scenario = name.build(seed, &traces).unwrap();
        scenario
            .arrivals
            .iter()
            .map(|it| it.at_ms)
            .collect::<Vec<_>>()
    };
    let first = hours(ScenarioName::TraceBLinux, 10);
    assert_eq!((first.len(), first[0]), (24, 0));
    // Seed 11 begins 0.35 days later, at 8.4 hours: the first task is 36 minutes later.
    assert_eq!(hours(ScenarioName::TraceBLinux, 11)[0], 36 * 60_000);
    // Seed 19 begins 3.15 days later, at 75.6 hours.
    assert_eq!(hours(ScenarioName::TraceBLinux, 19)[0], 24 * 60_000);
    // Two traces together.
    assert_eq!(hours(ScenarioName::TraceDecision, 10).len(), 48);
    let scenario = ScenarioName::TraceBLinux.build(1, &traces).unwrap();
    assert!(scenario.arrivals.iter().all(|it| it.duration_ms == 5_000));
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let scenario = "bursts".parse::<ScenarioName>().unwrap_err().to_string();
    assert!(
        scenario.starts_with("\"bursts\" is not a scenario; use steady, burst, "),
        "{scenario}"
    );
    let strategy = "best".parse::<SimulatedStrategy>().unwrap_err().to_string();
    assert_eq!(
        strategy,
        "\"best\" is not a strategy; use taskcluster, taskcluster-fixed, weighted, \
         aws-provisioner, balanced, balanced-foresight"
    );
    let study = study(
        &[ScenarioName::Long, ScenarioName::TraceDecision],
        &["weighted"],
        &[1],
    );
    let error = study.run(&NoTraces, 2, &|_| ()).unwrap_err().to_string();
    assert_eq!(
        error,
        "the scenario trace-decision needs a trace: mobile-3-decision.dat does not exist"
    );
}

#[test]
fn every_scenario_and_strategy_has_a_name_that_is_parsed() {
    assert_eq!(ScenarioName::ALL.len(), 20);
    for name in ScenarioName::ALL.into_iter().chain(ScenarioName::FURTHER) {
        assert_eq!(name.as_str().parse::<ScenarioName>().unwrap(), name);
        assert!(!name.about().is_empty());
    }
    for strategy in SimulatedStrategy::all() {
        assert_eq!(strategy.to_string().parse(), Ok(strategy));
    }
}
