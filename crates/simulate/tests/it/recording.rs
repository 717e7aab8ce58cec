//! Recordings: read entry by entry, and replayed.

use std::collections::BTreeSet;

use domain::time::Timestamp;
use serde_json::{Value, json};
use simulate::metrics::Metrics;
use simulate::planner::Production;
use simulate::recording::{
    Configuration, ConfiguredLaunchConfig, Past, RecordedStudy, Recording, RecordingError,
    RecordingReader, Replay, Variant,
};
use simulate::simulate;
use simulate::study::{Measure, StrategyResult};
use testing::sizes_around;

const START_MS: i64 = 1_790_000_000_000;

fn at(seconds: i64) -> String {
    Timestamp::from_millis(START_MS + seconds * 1_000).to_string()
}

fn header() -> Value {
    json!({"recording": {"version": 1, "since": at(0), "until": at(36_000), "runsSince": at(60),
        "recordingDays": 8, "roundSeconds": 10, "scanSeconds": 20, "waiting": 0, "running": 0}})
}

fn launch_config(id: &str) -> Value {
    json!({"launchConfigId": id, "providerId": "fake", "place": id, "price": 0.5,
        "configuration": {"region": id, "workerManager": {"launchConfigId": id}}})
}

fn pool(strategy: &str) -> Value {
    json!({"pool": {"workerPoolId": "pp/ee", "lastModified": at(-100),
        "config": {"minCapacity": 0, "maxCapacity": 10, "strategy": strategy},
        "launchConfigs": [launch_config("east")]}})
}

/// A run that waits for a minute.
fn run(since: i64, seconds: i64) -> Value {
    json!({"run": {"workerPoolId": "pp/ee", "waitingSince": at(since), "started": at(since + 60),
        "resolved": at(since + 60 + seconds), "reason": "completed", "priority": "low"}})
}

/// A worker that registers after a minute, and ends 20 seconds after it begins to stop.
fn worker(created: i64, stopped: i64) -> Value {
    json!({"worker": {"workerPoolId": "pp/ee", "providerId": "fake", "launchConfigId": "east",
        "capacity": 1, "price": 0.5, "created": at(created), "registered": at(created + 60),
        "stopping": at(stopped - 20), "stopped": at(stopped), "interrupted": false}})
}

fn read(entries: &[Value]) -> Result<Recording, RecordingError> {
    let mut reader = RecordingReader::default();
    for (number, entry) in entries.iter().enumerate() {
        reader.add_line(number + 1, &entry.to_string())?;
    }
    reader.finish()
}

fn recording(further: &[Value]) -> Recording {
    let mut entries = vec![header(), pool("weighted")];
    entries.extend(further.iter().cloned());
    read(&entries).unwrap()
}

fn metrics(recording: &Recording, seed: u64) -> Metrics {
    let configuration = Configuration::present(recording);
    let replay = Replay::new(recording, &configuration).unwrap();
    let mut planner = Production::new(&replay.scenario, None, seed).unwrap();
    let history = simulate(&replay.scenario, &mut planner, seed);
    Metrics::of(&replay.scenario, &history)
}

#[test]
fn a_recorded_worker_is_simulated_as_it_was() {
    // It boots for a minute, works for ten, is idle for a minute and asks, and stops.
    let recording = recording(&[worker(100, 860), run(100, 600)]);
    let past = Past::of(&recording, &Configuration::present(&recording).launching());
    let simulated = metrics(&recording, 1);
    assert_eq!((past.tasks, past.delay.mean), (1, 60.0));
    assert_eq!((simulated.tasks, simulated.unfinished), (1, 0));
    assert_eq!((simulated.launches, simulated.delay.mean), (1, 60.0));
    assert_eq!(past.machine_hours, 760.0 / 3_600.0);
    let over = past.over_provisioned_hours - 160.0 / 3_600.0;
    assert!(over.abs() < 1e-9, "{over}");
    let difference = simulated.cost / past.cost - 1.0;
    assert!(difference.abs() < 0.05, "{difference}");
}

#[test]
fn the_same_seed_gives_the_same_result_on_any_number_of_threads() {
    let entries: Vec<Value> = (0..50).map(|number| run(100 + number * 40, 300)).collect();
    let recording = recording(&[&[worker(100, 860)], &entries[..]].concat());
    let study = |n_threads| {
        let replay = |change: fn(&mut Configuration)| {
            let mut configuration = Configuration::present(&recording);
            change(&mut configuration);
            Replay::new(&recording, &configuration).unwrap()
        };
        let variant = |name: &str, replay| Variant {
            name: name.to_owned(),
            replay,
        };
        let study = RecordedStudy {
            name: "recorded".to_owned(),
            about: String::new(),
            variants: vec![
                variant("present", replay(|_| ())),
                variant("changed", replay(|it| it.set("maxCapacity", &json!(2)))),
            ],
            seeds: vec![1, 2, 3],
        };
        study.run(n_threads, &|_| ()).unwrap()
    };
    let (one, four) = (study(1), study(4));
    assert_eq!(one, four);
    let [present, changed] = &one.strategies[..] else {
        panic!("two configurations were simulated");
    };
    let wait = |result: &StrategyResult| result.mean.get(Measure::Delay).unwrap().mean;
    assert!(wait(changed) > 2.0 * wait(present));
    assert!(changed.difference.is_some());
}

#[test]
fn each_thing_that_is_no_recording_has_its_own_error() {
    let with = |key: &str, value: Value| {
        let mut header = header();
        header["recording"][key] = value;
        header
    };
    let error = |entries: &[Value]| read(entries).unwrap_err().to_string();
    for (entries, expected) in [
        (vec![], "it is empty"),
        (
            vec![run(1, 1)],
            "line 1: the first entry must be `recording`: it says what the others are",
        ),
        (
            vec![header(), header()],
            "line 2: a second `recording` entry; one file is one recording",
        ),
        (
            vec![with("version", json!(2))],
            "it has version 2, and this program reads version 1",
        ),
        (
            vec![header(), pool("weighted"), pool("weighted")],
            "line 3: the pool pp/ee is listed twice",
        ),
    ] {
        assert_eq!(error(&entries), expected);
    }
    for until in [0, -1, 401 * 86_400] {
        let text = error(&[with("until", json!(at(until)))]);
        assert!(text.starts_with("it begins at 2026-"), "{text}");
    }
    assert!(read(&[with("until", json!(at(400 * 86_400)))]).is_ok());
    for (entry, part) in [
        (json!({"task": {}}), "line 2: unknown variant `task`"),
        (
            json!({"gap": {"since": at(0)}}),
            "line 2: missing field `until`",
        ),
        (
            json!({"gap": {"since": "noon", "until": at(1)}}),
            "\"noon\" is not a date and time",
        ),
        (json!([1]), "line 2: "),
        (json!({"run": {}, "gap": {}}), "line 2: "),
        (with_run("workerPoolId", json!("none")), "line 2: "),
        (
            with_run("reason", json!("bored")),
            "unknown variant `bored`",
        ),
        (with_run("priority", json!("urgent")), "not a priority"),
    ] {
        let text = error(&[header(), entry.clone()]);
        assert!(text.contains(part), "{entry}: {text}");
    }
    let mut reader = RecordingReader::default();
    let text = reader.add_line(7, "{\"run\":").unwrap_err().to_string();
    assert!(text.starts_with("line 7: EOF while parsing"), "{text}");
    // Empty lines are no entries.
    assert!(reader.add_line(8, " \n").is_ok());
}

fn with_run(key: &str, value: Value) -> Value {
    let mut run = run(100, 60);
    run["run"][key] = value;
    run
}

fn with_worker(changes: Value) -> Value {
    let mut worker = worker(100, 860);
    for (key, value) in changes.as_object().unwrap() {
        worker["worker"][key] = value.clone();
    }
    worker
}

#[test]
fn entries_that_cannot_be_used_are_left_out_and_named() {
    let launch = json!({"launch": {"workerPoolId": "pp/ee", "providerId": "fake",
        "launchConfigId": "east", "created": at(36_000), "machines": 1, "made": 1,
        "state": "accepted"}});
    for (entry, expected) in [
        (
            run(35_000, 3_600),
            "1 runs end after the recording, and are left out; the first is on line 3",
        ),
        (
            with_run("started", json!(at(99))),
            "1 runs end before they start, or start before their task waits, and are left out; the \
             first is on line 3",
        ),
        (
            run(-200, 60),
            "1 runs ended before the recording, and are left out; the first is on line 3",
        ),
        (
            with_worker(json!({"registered": at(861)})),
            "1 workers have times out of order, and are left out; the first is on line 3",
        ),
        (
            worker(36_000, 37_000),
            "1 workers were made after the recording, and are left out; the first is on line 3",
        ),
        (
            with_worker(json!({"capacity": 0})),
            "1 workers have an impossible capacity, and are left out; the first is on line 3",
        ),
        (
            launch,
            "1 launches were decided after the recording, and are left out; the first is on line 3",
        ),
        (
            json!({"gap": {"since": at(10), "until": at(5)}}),
            "1 gaps end before they begin, and are left out; the first is on line 3",
        ),
    ] {
        let read = recording(&[entry]);
        assert_eq!(read.notes, [expected]);
        assert_eq!((read.runs.len(), read.workers.len()), (0, 0));
        assert_eq!((read.launches.len(), read.gaps.len()), (0, 0));
    }
}

#[test]
fn absurd_prices_count_as_unknown() {
    for price in [-1.0, 1e9] {
        let read = recording(&[with_worker(json!({"price": price}))]);
        let note = "1 prices are negative or absurd, and count as unknown; the first is on line 3";
        assert_eq!(read.notes, [note]);
        assert_eq!(read.workers[0].price, None);
        let simulated: BTreeSet<_> = Configuration::present(&read).launching();
        let past = Past::of(&read, &simulated);
        assert_eq!(past.unpriced_hours, 760.0 / 3_600.0);
        let remarks = read.remarks(&simulated, &past);
        let said =
            "0.2 of 0.2 machine-hours have no price and cost nothing here; compare the hours";
        assert!(remarks.iter().any(|remark| remark == said), "{remarks:?}");
    }
}

#[test]
fn runs_out_of_order_are_sorted_and_named() {
    let [first, second, third] = [run(100, 60), run(200, 60), run(300, 60)];
    let sorted = recording(&[first.clone(), second.clone(), third.clone()]);
    let mixed = recording(&[second, third, first]);
    assert_eq!(sorted.runs, mixed.runs);
    let note = "1 runs are out of order; sorted by time; the first is on line 5";
    assert_eq!(
        (sorted.notes.len(), &mixed.notes[..]),
        (0, &[note.to_owned()][..])
    );
}

#[test]
fn workers_that_registered_before_their_launch_was_answered_are_kept() {
    let early = |seconds: i64| {
        let mut worker = worker(4_000, 5_000);
        worker["worker"]["registered"] = json!(at(4_000 - seconds));
        recording(&[worker])
    };
    for seconds in [0, 1, 3_600] {
        let read = early(seconds);
        assert_eq!(read.notes, [""; 0], "{seconds}");
        let created: Vec<_> = read
            .workers
            .iter()
            .map(|it| it.created.to_string())
            .collect();
        assert_eq!(created, [at(4_000 - seconds)], "{seconds}");
    }
    let read = early(3_601);
    assert_eq!((read.workers.len(), read.notes.len()), (0, 1));
}

#[test]
fn a_pool_of_a_strategy_service_is_planned_by_its_fallback_which_is_said() {
    let mut pool = pool("external");
    pool["pool"]["config"]["externalStrategy"] = json!("mine");
    pool["pool"]["config"]["fallbackStrategy"] = json!("balanced");
    let read = read(&[header(), pool]).unwrap();
    let simulated = Configuration::present(&read).launching();
    let remarks = read.remarks(&simulated, &Past::of(&read, &simulated));
    assert!(
        remarks
            .iter()
            .any(|remark| remark.ends_with("decide in its place: pp/ee (balanced)")),
        "{remarks:?}"
    );
}

#[test]
fn what_is_missing_is_said_with_its_length() {
    let gap = |from, to| json!({"gap": {"since": at(from), "until": at(to)}});
    let read = recording(&[gap(-500, 3_600), gap(7_200, 9_000), gap(40_000, 41_000)]);
    let simulated = Configuration::present(&read).launching();
    let past = Past::of(&read, &simulated);
    let remarks = read.remarks(&simulated, &past);
    let expected = format!(
        "nothing was recorded for 1 h 30 min of 10 h 0 min: no server worked, or its clock was set \
         (2 gaps; the longest from {} to {})",
        at(0),
        at(3_600)
    );
    assert_eq!(remarks, [expected]);

    let mut header = header();
    header["recording"]["runsSince"] = json!(at(18_000));
    header["recording"]["waiting"] = json!(3);
    let mut changed = pool("weighted");
    changed["pool"]["lastModified"] = json!(at(50));
    let mut stranger = run(20_000, 60);
    stranger["run"]["workerPoolId"] = json!("pp/gone");
    let read = self::read(&[header, changed, worker(-100, 860), stranger]).unwrap();
    let past = Past::of(&read, &simulated);
    let remarks = read.remarks(&simulated, &past);
    let parts = [
        "the first 5 h 0 min of 10 h 0 min are empty (the history is kept for 8 days)",
        "1 worker existed at the start: simulations begin without workers",
        "1 run of pools that are not simulated are left out: pp/gone",
        "pools were created or changed during the recording",
        "at the end 3 tasks still waited: their durations are not known",
    ];
    assert_eq!(remarks.len(), parts.len(), "{remarks:#?}");
    for (remark, part) in remarks.iter().zip(parts) {
        assert!(remark.contains(part), "{remark}");
    }
    let mut header = self::header();
    header["recording"]
        .as_object_mut()
        .unwrap()
        .remove("runsSince");
    let read = self::read(&[header, pool("weighted")]).unwrap();
    let remarks = read.remarks(&simulated, &Past::of(&read, &simulated));
    assert!(
        remarks[0].starts_with("no run of a task is recorded"),
        "{remarks:?}"
    );
}

#[test]
fn an_offering_is_simulated_as_it_was_observed() {
    let launch = |seconds: i64, made: u32, cause: Value| {
        json!({"launch": {"workerPoolId": "pp/ee", "providerId": "fake", "launchConfigId": "east",
            "created": at(seconds), "machines": 1, "made": made, "state": "refused",
            "cause": cause}})
    };
    let read = recording(&[
        launch(1_000, 0, json!("capacity")),
        launch(1_100, 0, json!("unavailable")),
        launch(1_130, 1, Value::Null),
        launch(2_000, 0, json!("capacity")),
        launch(3_000, 0, json!("quota")),
        worker(100, 5_000),
        with_worker(
            json!({"created": at(2_900), "registered": null, "stopping": at(3_500),
            "stopped": at(3_520)}),
        ),
        with_worker(
            json!({"created": at(4_000), "registered": at(4_120), "price": 0.7,
            "stopping": null, "stopped": null, "interrupted": true}),
        ),
    ]);
    let configuration = Configuration::present(&read);
    let replay = Replay::new(&read, &configuration).unwrap();
    assert_eq!(replay.notes, Vec::<String>::new());
    let [offering] = &replay.scenario.offerings[..] else {
        panic!("there is one offering");
    };
    assert_eq!(offering.name, "fake east");
    assert_eq!(offering.boot.mean_seconds, 90.0);
    assert!(offering.boot.sigma > 0.3 && offering.boot.sigma < 0.4);
    assert_eq!(offering.failing_boots, 1.0 / 3.0);
    let periods: Vec<(i64, i64)> = offering
        .outages
        .iter()
        .map(|outage| (outage.from_ms / 1_000, outage.to_ms / 1_000))
        .collect();
    assert_eq!(periods, [(1_000, 1_130), (2_000, 2_060)]);
    assert_eq!(offering.quota, Some(2));
    assert_eq!(
        (offering.price.at(0), offering.price.at(4_000_000)),
        (0.5, 0.7)
    );
    let hours = (4_980.0 - 160.0 + 36_000.0 - 4_120.0) / 3_600.0;
    assert!((offering.interruptions_per_hour - 1.0 / hours).abs() < 1e-9);
}

#[test]
fn a_launch_config_that_was_never_observed_is_as_others_of_its_provider() {
    let read = recording(&[worker(100, 860), worker(200, 960)]);
    let mut configuration = Configuration::present(&read);
    let pool = configuration.0.values_mut().next().unwrap();
    let further = |id: &str, region: &str| ConfiguredLaunchConfig {
        id: id.parse().unwrap(),
        provider_id: "fake".parse().unwrap(),
        configuration: json!({"region": region, "image": "new"})
            .as_object()
            .unwrap()
            .clone(),
    };
    pool.launch_configs.push(further("newer-image", "east"));
    pool.launch_configs.push(further("elsewhere", "west"));
    let replay = Replay::new(&read, &configuration).unwrap();
    let offerings = &replay.scenario.offerings;
    let configs = &replay.scenario.pools[0].launch_configs;
    let of: Vec<usize> = configs.iter().map(|config| config.offering).collect();
    assert_eq!((of, offerings.len()), (vec![0, 0, 1], 2));
    assert_eq!(offerings[1].boot, offerings[0].boot);
    assert_eq!(offerings[1].price.at(0), 0.5);
    assert_eq!(
        replay.notes,
        [
            "no machine was observed of fake elsewhere: they are assumed to boot and fail as other \
             machines of the same provider do on average"
        ]
    );
}

#[test]
fn a_config_that_no_planner_takes_is_an_error_with_its_pool_and_key() {
    let read = recording(&[run(100, 60)]);
    for (key, value, expected) in [
        (
            "maxCapacity",
            json!(-1),
            "maxCapacity must be a whole number from 0 to 1000000000",
        ),
        ("strategy", json!("best"), "\"best\" is not a strategy"),
    ] {
        let mut configuration = Configuration::present(&read);
        configuration.set(key, &value);
        let error = Replay::new(&read, &configuration).unwrap_err().to_string();
        assert!(error.starts_with("the config of pool pp/ee: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn tasks_of_a_higher_priority_are_first() {
    let mut tasks: Vec<Value> = (0..4).map(|_| run(100, 600)).collect();
    tasks.push(with_run("priority", json!("highest")));
    let read = recording(&tasks);
    let mut configuration = Configuration::present(&read);
    configuration.set("maxCapacity", &json!(1));
    let replay = Replay::new(&read, &configuration).unwrap();
    let mut planner = Production::new(&replay.scenario, None, 1).unwrap();
    let history = simulate(&replay.scenario, &mut planner, 1);
    let first = history
        .tasks
        .iter()
        .min_by_key(|task| task.first_start_ms)
        .unwrap();
    assert_eq!(first.duration_ms, 60_000);
}

#[test]
fn recordings_of_all_sizes_are_simulated() {
    for n_tasks in [0, 1, 2, 999, 1_000, 1_001] {
        let tasks: Vec<Value> = (0..n_tasks)
            .map(|number| run(100 + number * 20, 60))
            .collect();
        let read = recording(&tasks);
        let simulated = metrics(&read, 1);
        assert_eq!(simulated.tasks as i64, n_tasks);
        assert_eq!(simulated.unfinished, 0, "{n_tasks}");
    }
}

#[test]
fn the_number_of_entries_is_bounded() {
    for size in sizes_around("simulate::recording::reader::MAX_ENTRIES", 3) {
        let mut reader = RecordingReader::with_limit(3);
        let mut entries = vec![header()];
        entries.extend((1..size).map(|_| run(100, 60)));
        entries.truncate(size);
        let mut all = entries.into_iter().enumerate();
        let added =
            all.try_for_each(|(number, entry)| reader.add_line(number + 1, &entry.to_string()));
        if size <= 3 {
            assert_eq!(added, Ok(()));
        } else {
            let text = added.unwrap_err().to_string();
            assert_eq!(text, "it has more than 3 entries");
        }
    }
}
