//! `simulate recorded`: saved recordings, changes in files and flags, and their errors.

use serde_json::{Value, json};
use simulate::recording::{Question, RecordingReader, WhatIf};

use crate::world::{Done, Home};

/// 2026-09-21T14:13:20Z and so many seconds.
fn at(seconds: i64) -> String {
    let (hours, minutes) = ((13 + seconds / 60) / 60, (13 + seconds / 60) % 60);
    let (days, hours) = ((14 + hours) / 24, (14 + hours) % 24);
    format!(
        "2026-09-{:02}T{hours:02}:{minutes:02}:{:02}.000Z",
        21 + days,
        seconds % 60
    )
}

fn header() -> Value {
    json!({"recording": {"version": 1, "since": at(0), "until": at(36_000), "runsSince": at(60),
        "recordingDays": 8, "roundSeconds": 10, "scanSeconds": 20}})
}

fn pool(id: &str) -> Value {
    json!({"pool": {"workerPoolId": id, "lastModified": at(0),
        "config": {"minCapacity": 0, "maxCapacity": 10, "strategy": "weighted"},
        "launchConfigs": [{"launchConfigId": "east", "providerId": "fake", "place": "east",
            "price": 0.5, "configuration": {"region": "east"}}]}})
}

fn worker(created: i64) -> Value {
    json!({"worker": {"workerPoolId": "pp/ee", "providerId": "fake", "launchConfigId": "east",
        "capacity": 1, "price": 0.5, "created": at(created), "registered": at(created + 60),
        "stopping": at(created + 740), "stopped": at(created + 760), "interrupted": false}})
}

fn run(since: i64) -> Value {
    json!({"run": {"workerPoolId": "pp/ee", "waitingSince": at(since), "started": at(since + 60),
        "resolved": at(since + 660), "reason": "completed", "priority": "low"}})
}

/// Twenty tasks, each with a worker of its own.
fn entries() -> Vec<Value> {
    let mut entries = vec![
        header(),
        json!({"provider": {"providerId": "fake", "entry": {"takes": "launches",
            "places": [{"region": "east"}, {"region": "west"}],
            "fills": {"region": "/region"}}}}),
        pool("pp/ee"),
    ];
    entries.extend((0..20).map(|number| worker(100 + number * 1_500)));
    entries.extend((0..20).map(|number| run(100 + number * 1_500)));
    entries
}

fn save(home: &Home, name: &str, entries: &[Value]) -> String {
    let lines = entries.iter().map(|entry| format!("{entry}\n"));
    home.write(name, &lines.collect::<String>())
}

fn recorded(home: &Home, more: &[&str]) -> Done {
    let file = save(home, "week.jsonl", &entries());
    home.run(&[&["simulate", "recorded", "--from", &file], more].concat())
}

fn usage_error(done: &Done, parts: &[&str]) {
    assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
    for part in parts {
        assert!(done.err.contains(part), "{part:?} is not in {}", done.err);
    }
}

#[test]
fn the_present_is_compared_with_what_was_recorded() {
    let home = Home::new();
    let done = recorded(&home, &["--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let document: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(document["recorded"]["tasks"], 20);
    let hours = 20.0 * 760.0 / 3_600.0;
    let cost = document["recorded"]["cost"].as_f64().unwrap();
    assert!((cost - hours / 2.0).abs() < 1e-9, "{cost}");
    let percent = &document["differencePercent"];
    for measure in ["cost", "delayMean", "launches"] {
        let percent = percent[measure].as_f64().unwrap();
        assert!(percent.abs() < 5.0, "{measure}: {percent}");
    }
    let text = recorded(&home, &[]);
    assert!(text.out.contains("CONFIGURATION"), "{}", text.out);
    assert!(
        text.out.contains("differs from what was recorded by"),
        "{}",
        text.out
    );
}

#[test]
fn the_same_recording_and_seeds_give_the_same_bytes_with_any_number_of_threads() {
    let home = Home::new();
    let page = home.path("page.html");
    let run = |threads: &str| {
        let html = page.to_str().unwrap();
        let flags = [
            "--json",
            "--strategy",
            "balanced",
            "--threads",
            threads,
            "--html",
            html,
        ];
        let done = recorded(&home, &flags);
        assert_eq!(done.code, 0, "{}", done.err);
        (done.out, home.read("page.html"))
    };
    let (one, four) = (run("1"), run("4"));
    assert_eq!(one, four);
    assert!(one.1.contains("<svg") && !one.1.contains("<script"));
    let document: Value = serde_json::from_str(&one.0).unwrap();
    let names = [0, 1].map(|place| document["configurations"][place]["strategy"].clone());
    assert_eq!(names, ["present", "changed"]);
    assert!(document["configurations"][1]["difference"]["cost"]["mean"].is_number());
}

#[test]
fn limits_change_the_simulated_fleet() {
    let home = Home::new();
    let launches = |flags: &[&str]| {
        let done = recorded(&home, &[&["--json", "--seeds", "1"], flags].concat());
        assert_eq!(done.code, 0, "{}", done.err);
        let document: Value = serde_json::from_str(&done.out).unwrap();
        document["configurations"][1]["mean"]["launches"]["mean"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(launches(&["--max-capacity", "0"]), 0.0);
    assert_eq!(launches(&["--min-capacity", "1"]), 1.0);
    assert_eq!(launches(&["--pool", "pp/ee", "--max-capacity", "10"]), 20.0);
}

#[test]
fn flags_ask_the_question_that_the_api_takes_as_a_document() {
    let home = Home::new();
    let flags = [
        "--json",
        "--seeds",
        "1-2",
        "--max-capacity-factor",
        "0.5",
        "--min-capacity",
        "1",
        "--max-price",
        "2",
        "--idle",
        "120",
        "--strategy",
        "balanced",
        "--pool",
        "pp/ee",
    ];
    let change = json!({"maxCapacityFactor": 0.5, "minCapacity": 1, "maxPrice": 2,
        "idleSeconds": 120, "strategy": "balanced"});
    let done = recorded(&home, &flags);
    assert_eq!(done.code, 0, "{}", done.err);
    let mut reader = RecordingReader::default();
    for (number, entry) in entries().iter().enumerate() {
        reader.add_line(number + 1, &entry.to_string()).unwrap();
    }
    let recording = reader.finish().unwrap();
    let question = Question {
        pools: ["pp/ee".parse().unwrap()].into(),
        change: serde_json::from_value(change).unwrap(),
        seeds: vec![1, 2],
    };
    let what_if = WhatIf::new(&recording, question).unwrap();
    let report = what_if.run(1, &|_| (), &|| true).unwrap();
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(read(&done.out), read(&report.document().to_string()));
}

#[test]
fn nothing_is_launched_where_flags_say_so() {
    let home = Home::new();
    let done = recorded(&home, &["--without-provider", "fake"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let said = "20 tasks would not have ended in this time; as now, 0.";
    assert!(done.out.contains(said), "{}", done.out);
    let unknown = recorded(&home, &["--without-launch-config", "north"]);
    usage_error(&unknown, &["no simulated pool has a launch config north"]);
}

#[test]
fn pools_and_worker_configurations_in_files_are_simulated() {
    let home = Home::new();
    let pool = home.write(
        "pool.yaml",
        "workerPoolId: pp/ee\nproviderId: fake\nowner: o@example.com\nconfig:\n  minCapacity: 0\n  \
         maxCapacity: 5\n  strategy: balanced\n  launchConfigs:\n    - region: north\n",
    );
    let done = recorded(&home, &["--change", &pool]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("changed"), "{}", done.out);
    assert!(
        done.err
            .contains("changed: no machine was observed of fake lc-"),
        "{}",
        done.err
    );

    let rules = home.write(
        "rules.json",
        &json!({"workerConfigurationId": "ci", "workerTypes": ["pp/ee"], "rules": [
            {"ruleId": "all", "values": {"owner": "o@example.com", "description": "",
                "minCapacity": 0, "maxCapacity": 3, "providers": {"fake": {}}, "fake": {"stock": 5}}}]})
        .to_string(),
    );
    let done = recorded(&home, &["--change", &rules, "--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    // The place in the east was observed, the one in the west was not.
    assert!(
        done.out.contains("no machine was observed of fake lc-"),
        "{}",
        done.out
    );
}

#[test]
fn a_change_with_an_error_names_its_file_and_place() {
    let home = Home::new();
    let change = |name: &str, text: &str| {
        let file = home.write(name, text);
        recorded(&home, &["--change", &file])
    };
    usage_error(&change("a.yaml", "workerPools: [\n"), &["a.yaml"]);
    usage_error(
        &change(
            "b.yaml",
            "workerPoolId: pp/ee\nproviderId: fake\nowner: o@x.com\nmaxCapacity: 3\n",
        ),
        &["b.yaml", "/maxCapacity"],
    );
    usage_error(
        &change(
            "c.yaml",
            "workerPoolId: pp/ee\nproviderId: fake\nowner: o@x.com\nconfig: {strategy: best}\n",
        ),
        &["c.yaml", "pool pp/ee", "\"best\" is not a strategy"],
    );
    usage_error(
        &change(
            "d.json",
            "{\"workerConfigurationId\": \"ci\", \"workerTypes\": [\"a b\"], \"rules\": []}",
        ),
        &["d.json", "/workerTypes/0"],
    );
    usage_error(
        &change(
            "e.json",
            &json!({"workerConfigurationId": "ci", "workerTypes": ["a"], "rules": [
                {"ruleId": "r", "values": {"owner": "o@x.com", "providers": {"gone": {}}}}]})
            .to_string(),
        ),
        &["e.json", "worker configuration ci", "gone"],
    );
    usage_error(
        &recorded(&home, &["--change", "nowhere.yaml"]),
        &["nowhere.yaml"],
    );
}

#[test]
fn a_file_that_is_no_recording_is_named_with_its_line() {
    let home = Home::new();
    let run = |name: &str, text: &str| {
        let file = home.write(name, text);
        home.run(&["simulate", "recorded", "--from", &file])
    };
    usage_error(
        &run("empty", ""),
        &["empty is not a recording: it is empty"],
    );
    usage_error(
        &run("text", "hello\n"),
        &["text is not a recording: line 1: "],
    );
    let version = header()
        .to_string()
        .replace("\"version\":1", "\"version\":9");
    usage_error(
        &run("new", &version),
        &["it has version 9, and this program reads version 1"],
    );
    let cut = format!("{}\n{}", header(), &run_text()[..30]);
    usage_error(&run("cut", &cut), &["cut is not a recording: line 2: EOF"]);
    let missing = home.run(&["simulate", "recorded", "--from", "nowhere.jsonl"]);
    usage_error(&missing, &["nowhere.jsonl"]);
    std::fs::write(home.path("bytes"), [0xff, 0xfe, b'\n']).unwrap();
    let bytes = home.path("bytes");
    let bytes = home.run(&["simulate", "recorded", "--from", bytes.to_str().unwrap()]);
    usage_error(&bytes, &["line 1 must be UTF-8"]);
}

fn run_text() -> String {
    run(100).to_string()
}

#[test]
fn runs_from_the_future_are_named_and_left_out() {
    let home = Home::new();
    let mut entries = entries();
    entries.push(run(36_000));
    let file = save(&home, "future.jsonl", &entries);
    let done = home.run(&["simulate", "recorded", "--from", &file, "--seeds", "1"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let note = "note: 1 runs end after the recording, and are left out; the first is on line 44";
    assert!(done.err.contains(note), "{}", done.err);
    assert!(done.out.contains("20 tasks"), "{}", done.out);
}

#[test]
fn values_that_cannot_be_simulated_are_usage_errors() {
    let home = Home::new();
    for (flags, part) in [
        (
            &["--strategy", "best"][..],
            "use weighted, aws-provisioner, balanced",
        ),
        (&["--max-capacity", "few"], "--max-capacity"),
        (&["--max-capacity", "1000001"], "--max-capacity"),
        (&["--pool", "nothing"], "--pool"),
        (&["--pool", "pp/gone"], "the recording has no pool pp/gone"),
        (&["--seeds", "x"], "--seeds"),
        (&["--threads", "0"], "--threads"),
        (&["--save", "x.jsonl"], "--save"),
        (&["--last", "1d"], "--last"),
    ] {
        usage_error(&recorded(&home, flags), &[part]);
    }
    let file = save(&home, "static.jsonl", &[header()]);
    let done = home.run(&["simulate", "recorded", "--from", &file]);
    assert_eq!(done.code, 1);
    assert!(
        done.err.contains("no pool that launches workers"),
        "{}",
        done.err
    );
}
