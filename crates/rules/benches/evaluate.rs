//! Benchmark: evaluates the rules of a large fleet: 200 rules, 400 worker types, 6 regions with 3
//! zones.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its results"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleetwright_rules::{Attributes, Evaluated, Evaluator, Rule, RuleSet, assign, lint};
use serde_json::{Map, Value, json};

/// The allocator of the product: most of the time goes into building and freeing results.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const REGIONS: [&str; 6] = [
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
    "eu-central-1",
    "eu-west-1",
];
const ZONES: [&str; 3] = ["a", "b", "c"];
const N_RULES: usize = 200;
const ROUNDS: u32 = 10;
const N_TEAMS: usize = 40;

fn main() {
    let source = rules();
    let (set, parsing) = timed(|| RuleSet::parse(&source).unwrap());
    assert_eq!(set.rules().len(), N_RULES);
    let all = evaluations();
    println!("{N_RULES} rules, {} evaluations", all.len());
    println!("parse the set: {parsing:?}");
    let (_, making) = timed(|| Evaluator::new(&set));
    println!("make it ready: {making:?}");
    memory(&set, &all);

    let before = processor_time();
    let (cold, _) = best(|| evaluate(&Evaluator::new(&set), &all));
    println!("evaluate all, cold: {cold:?}");
    if let Some((before, after)) = before.zip(processor_time()) {
        let one = (after - before) / ROUNDS;
        println!("processor time of that, with giving the results back: {one:?}");
    }
    let evaluator = Evaluator::new(&set);
    let results = evaluate(&evaluator, &all);
    let (warm, again) = best(|| evaluate(&evaluator, &all));
    println!("evaluate all again: {warm:?}");
    assert!(again == results);
    let (naive, simple) = best(|| -> Vec<_> { all.iter().map(|one| naively(&set, one)).collect() });
    assert!(
        simple
            .iter()
            .zip(&results)
            .all(|(simple, result)| *simple == result.values)
    );
    let ratio = naive.as_secs_f64() / cold.as_secs_f64();
    println!("the same without preparation: {naive:?}, {ratio:.1} times as long as cold");

    edit_of_one_worker_type(&evaluator, &all);
    let (origins, _) = best(|| {
        for attributes in &all[..1_000] {
            black_box(evaluator.evaluate_with_origins(attributes));
        }
    });
    println!("one evaluation with origins: {:?}", origins / 1_000);
    let (linting, findings) = best(|| lint(&set, &all));
    println!("lint: {linting:?}, {} findings", findings.len());
}

/// Called before anything else has used and returned memory.
fn memory(set: &RuleSet, all: &[Attributes]) {
    let before = resident();
    let evaluator = Evaluator::new(set);
    for attributes in all {
        black_box(evaluator.evaluate(attributes));
    }
    let kept = resident();
    let results = evaluate(&evaluator, all);
    let held = resident();
    let mut distinct: Vec<_> = results.iter().map(Arc::as_ptr).collect();
    distinct.sort_unstable();
    distinct.dedup();
    if let (Some(before), Some(kept), Some(held)) = (before, kept, held) {
        let mebibytes = |kibibytes: u64| kibibytes as f64 / 1024.0;
        println!(
            "memory of what an evaluator keeps: {:.1} MiB",
            mebibytes(kept - before)
        );
        println!(
            "memory if all {} results are held: {:.1} MiB",
            distinct.len(),
            mebibytes(held - before)
        );
    }
}

/// The machine may have other work, so the best of several rounds counts.
fn best<T>(mut work: impl FnMut() -> T) -> (Duration, T) {
    let (value, mut best) = timed(&mut work);
    for _ in 1..ROUNDS {
        best = best.min(timed(&mut work).1);
    }
    (best, value)
}

fn edit_of_one_worker_type(evaluator: &Evaluator, all: &[Attributes]) {
    let mut times: Vec<(Duration, Duration, Duration)> = Vec::new();
    let mut current = evaluator.clone();
    let mut n_touched = 0;
    for round in 0..50 {
        let rule = json!({
            "ruleId": "team-7-worker-7",
            "conditions": { "workerType": "team-7-worker-7" },
            "values": { "maxCapacity": round },
        });
        let next = current.set().replace(Rule::parse(&rule).unwrap()).unwrap();
        let ((successor, change), succeeding) = timed(|| current.succeed(&next));
        let (touched, asking) = timed(|| {
            let touched = all.iter().filter(|attributes| change.affects(attributes));
            touched.collect::<Vec<_>>()
        });
        let (_, evaluating) = timed(|| {
            let results = touched
                .iter()
                .map(|attributes| successor.evaluate(attributes));
            results.collect::<Vec<_>>()
        });
        n_touched = touched.len();
        times.push((succeeding, asking, evaluating));
        current = successor;
    }
    times.sort_by_key(|(succeeding, asking, evaluating)| *succeeding + *asking + *evaluating);
    let (succeeding, asking, evaluating) = times[times.len() / 2];
    println!(
        "a rule of one worker type is edited: {:?} (succeed {succeeding:?}, ask whether each is touched {asking:?}, evaluate {n_touched} {evaluating:?})",
        succeeding + asking + evaluating
    );
}

/// The processor time of this thread, from `/proc` if it exists.
fn processor_time() -> Option<Duration> {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = statistics.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

fn evaluate(evaluator: &Evaluator, all: &[Attributes]) -> Vec<Arc<Evaluated>> {
    all.iter()
        .map(|attributes| evaluator.evaluate(attributes))
        .collect()
}

/// Evaluates without the evaluator.
fn naively(set: &RuleSet, attributes: &Attributes) -> Map<String, Value> {
    let mut result = Map::new();
    let applying = set
        .rules()
        .iter()
        .filter(|rule| rule.conditions().hold(attributes));
    for rule in applying {
        assign(&mut result, rule.values());
    }
    result
}

/// The resident memory of this process in KiB, from `/proc` if it exists.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Each worker type alone, and in each place.
fn evaluations() -> Vec<Attributes> {
    let mut all = Vec::new();
    for number in 0..400 {
        let worker_type = format!("team-{}-worker-{}", number % N_TEAMS, number / N_TEAMS);
        let alone = Attributes::nothing().with("workerType", worker_type);
        for region in REGIONS {
            for zone in ZONES {
                let place = alone.clone().with("provider", "ec2").with("region", region);
                all.push(place.with("availabilityZone", format!("{region}{zone}")));
            }
        }
        all.push(alone);
    }
    all
}

/// Common values, the needs of each image, region and zone, those of each team, and exceptions.
fn rules() -> Value {
    let mut rules = vec![json!({
        "ruleId": "common",
        "description": "What all workers have",
        "conditions": null,
        "values": {
            "owner": "builds@example.com",
            "description": "builds",
            "scalingRatio": 1,
            "minCapacity": 0,
            "maxCapacity": 40,
            "providers": { "ec2": {} },
            "ec2": {
                "capacityPerInstance": 1,
                "launchConfig": { "EbsOptimized": true, "InstanceMarketOptions": { "MarketType": "spot" } },
                "workerConfig": { "genericWorker": { "config": { "idleTimeoutSecs": 600, "wstAudience": "example" } } },
            },
        },
    })];
    let mut rule = |rule_id: String, conditions: Value, values: Value| {
        let rule = json!({ "ruleId": rule_id, "conditions": conditions, "values": values });
        rules.push(rule);
    };
    for region in REGIONS {
        let in_region = |more: Value| {
            let mut conditions = json!({ "provider": "ec2", "region": region });
            conditions
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            conditions
        };
        let image = |image: &str| json!({ "ec2": { "launchConfig": { "ImageId": format!("ami-{image}-{region}") } } });
        rule(
            format!("{region} image"),
            in_region(json!({})),
            image("linux"),
        );
        let windows = in_region(json!({ "workerType": ["*-worker-8", "*-worker-9"] }));
        rule(
            format!("{region} image for Windows"),
            windows,
            image("windows"),
        );
        for zone in ZONES {
            rule(
                format!("{region}{zone} subnet"),
                json!({ "provider": "ec2", "availabilityZone": format!("{region}{zone}") }),
                json!({ "ec2": { "launchConfig": {
                    "SubnetId": format!("subnet-{region}-{zone}"),
                    "SecurityGroupIds": [format!("sg-{region}-1"), format!("sg-{region}-2")],
                    "Placement": { "AvailabilityZone": format!("{region}{zone}") },
                } } }),
            );
        }
    }
    rules.extend(rules_of_teams());
    Value::Array(rules)
}

fn rules_of_teams() -> Vec<Value> {
    let mut rules = Vec::new();
    let mut rule = |rule_id: String, conditions: Value, values: Value| {
        let rule = json!({ "ruleId": rule_id, "conditions": conditions, "values": values });
        rules.push(rule);
    };
    for team in 0..N_TEAMS {
        rule(
            format!("team-{team}"),
            json!({ "workerType": format!("team-{team}-*") }),
            json!({ "owner": format!("team-{team}@example.com"), "ec2": { "launchConfig": { "KeyName": format!("team-{team}") } } }),
        );
        rule(
            format!("team-{team} large"),
            json!([{ "workerType": format!("team-{team}-worker-[0-3]") }, { "workerType": format!("team-{team}-worker-{{5,6}}") }]),
            json!({ "ec2": { "launchConfig": { "InstanceType": "m5.4xlarge", "BlockDeviceMappings": [
                { "DeviceName": "/dev/xvda", "Ebs": { "VolumeType": "gp3", "VolumeSize": 120, "DeleteOnTermination": true } },
            ] } } }),
        );
    }
    for number in 0..10 {
        rule(
            format!("worker-{number}"),
            json!({ "workerType": format!("*-worker-{number}") }),
            json!({ "ec2": { "launchConfig": { "TagSpecifications": [{ "Value": number }] } } }),
        );
    }
    for number in 0..(N_RULES - 1 - 6 * 5 - 2 * N_TEAMS - 10) {
        let worker_type = format!("team-{}-worker-{}", number % N_TEAMS, 7 - number / N_TEAMS);
        let values = json!({ "maxCapacity": number, "ec2": { "launchConfig": { "InstanceMarketOptions": null } } });
        rule(
            worker_type.clone(),
            json!({ "workerType": worker_type }),
            values,
        );
    }
    rules
}
