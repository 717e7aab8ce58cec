//! Questions about a recorded time: changes, their answers, and what cannot be asked.

use domain::time::Timestamp;
use serde_json::{Value, json};
use simulate::recording::{
    BadQuestion, Change, Question, RecordedStudyError, Recording, RecordingReader, Report, WhatIf,
};
use simulate::study::Measure;
use testing::sizes_around;

const START_MS: i64 = 1_790_000_000_000;

fn at(seconds: i64) -> String {
    Timestamp::from_millis(START_MS + seconds * 1_000).to_string()
}

fn launch_config(id: &str, provider: &str) -> Value {
    json!({"launchConfigId": id, "providerId": provider, "place": id, "price": 0.5,
        "configuration": {"region": id, "workerManager": {"launchConfigId": id}}})
}

fn pool(id: &str, maximum: u32, configs: &[Value]) -> Value {
    json!({"pool": {"workerPoolId": id, "lastModified": at(-100), "launchConfigs": configs,
        "config": {"minCapacity": 0, "maxCapacity": maximum, "strategy": "weighted"}}})
}

fn run(pool: &str, since: i64, seconds: i64) -> Value {
    json!({"run": {"workerPoolId": pool, "waitingSince": at(since), "started": at(since + 60),
        "resolved": at(since + 60 + seconds), "reason": "completed", "priority": "low"}})
}

/// Bursts of ten tasks for a pool of at most two machines, and hosts of a datacentre.
fn recording() -> Recording {
    let header = json!({"recording": {"version": 1, "since": at(0), "until": at(36_000),
        "runsSince": at(60), "recordingDays": 8, "roundSeconds": 10, "scanSeconds": 20}});
    let hosts = json!({"provider": {"providerId": "hosts", "entry":
        {"takes": "declarations", "places": []}}});
    let configs = [
        launch_config("east", "fake"),
        launch_config("west", "other"),
    ];
    let mut entries = vec![
        header,
        hosts,
        pool("pp/ee", 2, &configs),
        pool("pp/hosts", 0, &[launch_config("rack", "hosts")]),
    ];
    for burst in 0..5 {
        for _ in 0..10 {
            entries.push(run("pp/ee", 100 + burst * 6_000, 300));
        }
        entries.push(run("pp/hosts", 100 + burst * 6_000, 300));
    }
    let mut reader = RecordingReader::default();
    for (number, entry) in entries.iter().enumerate() {
        reader.add_line(number + 1, &entry.to_string()).unwrap();
    }
    reader.finish().unwrap()
}

fn question(change: Value) -> Question {
    Question {
        change: serde_json::from_value(change).unwrap(),
        seeds: vec![1, 2, 3],
        ..Question::default()
    }
}

fn ask(change: Value) -> Report {
    let recording = recording();
    let what_if = WhatIf::new(&recording, question(change)).unwrap();
    what_if.run(1, &|_| (), &|| true).unwrap()
}

fn refusal(change: Value) -> String {
    let recording = recording();
    let Err(bad) = WhatIf::new(&recording, question(change)) else {
        panic!("it can be asked");
    };
    bad.to_string()
}

/// A measure of the changed configuration.
fn changed(report: &Report, measure: Measure) -> f64 {
    report.result.strategies[1].mean.get(measure).unwrap().mean
}

#[test]
fn more_machines_shorten_the_waits_and_the_sentence_says_so() {
    let report = ask(json!({"maxCapacity": 10}));
    let factor = ask(json!({"maxCapacityFactor": 5}));
    assert_eq!(report.result, factor.result);
    let start = "With a maximum of 10 instead of 2, 95 of 100 tasks would have waited at most ";
    assert!(report.sentence.starts_with(start), "{}", report.sentence);
    let start = "With 5 times the maximum of each pool, 95 of 100";
    assert!(factor.sentence.starts_with(start), "{}", factor.sentence);
    let present = report.result.strategies[0].mean.get(Measure::DelayP95);
    assert!(changed(&report, Measure::DelayP95) < present.unwrap().mean);
    let document = report.document();
    let series = document["series"].as_object().unwrap();
    assert_eq!(
        series.keys().collect::<Vec<_>>(),
        ["changed", "present", "recorded"]
    );
    assert_eq!(series["recorded"]["waiting"].as_array().unwrap().len(), 241);
    assert_eq!(document["recorded"]["delay"]["worst"], 60.0);
}

#[test]
fn hosts_that_nobody_launches_are_left_out() {
    let report = ask(json!({}));
    assert_eq!(report.past.tasks, 50);
    let tasks = report.result.strategies[0].seeds[0].metrics.unfinished;
    assert_eq!(tasks, 0);
    assert!(
        report
            .remarks
            .iter()
            .any(|remark| remark.contains("pp/hosts")),
        "{:?}",
        report.remarks
    );
    assert!(report.sentence.starts_with("As pools are configured now"));
}

#[test]
fn a_pool_without_launch_configs_keeps_its_tasks() {
    let report = ask(json!({"withoutProviders": ["fake", "other"]}));
    assert_eq!(changed(&report, Measure::Launches), 0.0);
    assert_eq!(changed(&report, Measure::Unfinished), 50.0);
    let end = "50 tasks would not have ended in this time; as now, 0.";
    assert!(report.sentence.ends_with(end), "{}", report.sentence);
    let one = ask(json!({"withoutLaunchConfigs": ["east"]}));
    assert_eq!(changed(&one, Measure::Unfinished), 0.0);
    assert!(one.sentence.contains("nothing launched from east"));
}

#[test]
fn idle_time_price_and_strategy_change_the_simulated_fleet() {
    let launches = |change| changed(&ask(change), Measure::Launches);
    let usual = launches(json!({"minCapacity": 0}));
    assert!(launches(json!({"idleSeconds": 20_000})) < usual);
    assert_eq!(
        launches(json!({"maxPrice": 0.1, "strategy": "balanced"})),
        0.0
    );
    let report = ask(json!({"idleSeconds": 90, "strategy": "balanced", "maxPrice": 2}));
    let start = "With a maximum price of $2 and an idle time of 1 min 30 s and the strategy \
                 balanced, ";
    assert!(report.sentence.starts_with(start), "{}", report.sentence);
}

#[test]
fn definitions_come_before_settings() {
    let definition = json!({"providerId": "fake", "config": {"maxCapacity": 5, "minCapacity": 1,
        "launchConfigs": [{"region": "east"}]}});
    let report = ask(json!({"workerPools": {"pp/ee": definition}, "minCapacity": 0}));
    assert!(report.sentence.contains("and the changed definitions, "));
    let bad = refusal(
        json!({"workerPools": {"pp/ee": {"providerId": "fake", "config":
        {"maxCapacity": -1, "launchConfigs": []}}}}),
    );
    assert!(bad.starts_with("pool pp/ee: config: maxCapacity must be"));
    let bad = refusal(json!({"workerConfigurations": {"it": {"rules": 3}}}));
    assert!(bad.starts_with("worker configuration it: "), "{bad}");
}

#[test]
fn a_change_that_cannot_be_is_refused_with_all_its_errors() {
    let bad = refusal(
        json!({"withoutProviders": ["nobody"], "withoutLaunchConfigs": ["none"],
        "maxCapacityFactor": 2, "maxCapacity": 3, "idleSeconds": 0, "strategy": "external"}),
    );
    let lines: Vec<&str> = bad.lines().collect();
    assert_eq!(lines.len(), 5, "{bad}");
    for part in [
        "nobody",
        "none",
        "exclude each other",
        "idleSeconds",
        "external",
    ] {
        assert!(bad.contains(part), "{part}: {bad}");
    }
    assert!(refusal(json!({"maxCapacityFactor": -1})).contains("from 0 to 1000"));
    for hostile in [
        json!({"unknown": 1}),
        json!({"maxCapacity": -1}),
        json!({"maxCapacity": 1e300}),
        json!({"maxCapacityFactor": "2"}),
        json!({"withoutProviders": "all"}),
        json!({"strategy": "none"}),
        json!({"workerPools": {"no-slash": {}}}),
    ] {
        assert!(
            serde_json::from_value::<Change>(hostile.clone()).is_err(),
            "{hostile}"
        );
    }
    // Workers' own settings may be anything.
    for settings in [json!(null), json!("x"), json!({"genericWorker": 1})] {
        let definition = json!({"providerId": "fake", "config": {"maxCapacity": 2,
            "launchConfigs": [{"region": "east", "workerConfig": settings}]}});
        ask(json!({"workerPools": {"pp/ee": definition}, "idleSeconds": 60}));
    }
}

#[test]
fn only_some_errors_of_a_change_are_named() {
    for size in sizes_around("simulate::recording::change::MAX_NAMED", 20) {
        if size == 0 {
            continue;
        }
        let names: Vec<String> = (0..size).map(|number| format!("p-{number:03}")).collect();
        let bad = refusal(json!({"withoutProviders": names}));
        assert_eq!(bad.matches("no simulated pool").count(), size.min(20));
        let more = format!("and {} further problems", size.saturating_sub(20));
        assert_eq!(bad.ends_with(&more), size > 20);
    }
}

#[test]
fn unknown_pools_are_refused_and_pools_without_launches_say_so() {
    let recording = recording();
    let of = |pool: &str| {
        let question = Question {
            pools: [pool.parse().unwrap()].into(),
            ..question(json!({"maxCapacity": 1}))
        };
        WhatIf::new(&recording, question).err().unwrap()
    };
    assert!(matches!(of("pp/no"), BadQuestion::UnknownPool(_)));
    assert!(matches!(of("pp/hosts"), BadQuestion::NothingLaunches));
}

#[test]
fn a_simulation_can_be_stopped() {
    let recording = recording();
    let asked = std::sync::atomic::AtomicUsize::new(0);
    for limit in [0, 1, 5] {
        asked.store(0, std::sync::atomic::Ordering::Relaxed);
        let what_if = WhatIf::new(&recording, question(json!({"maxCapacity": 1}))).unwrap();
        let goes_on = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < limit;
        let ended = what_if.run(1, &|_| (), &goes_on);
        assert!(matches!(ended, Err(RecordedStudyError::Stopped)));
    }
}

#[test]
fn one_seed_says_nothing_about_chance() {
    let recording = recording();
    let question = Question {
        seeds: vec![1],
        ..question(json!({"maxCapacity": 10}))
    };
    let what_if = WhatIf::new(&recording, question).unwrap();
    let report = what_if.run(1, &|_| (), &|| true).unwrap();
    let said = "one seed does not say how much is chance".to_owned();
    assert!(report.remarks.contains(&said));
    assert!(report.sentence.contains("about as long"));
}
