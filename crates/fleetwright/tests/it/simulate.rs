//! `simulate`: the command line, its output and its errors.

use serde_json::Value;

use crate::world::{Done, Home};

/// Records of a time and a duration in seconds.
fn trace(records: &[(u32, u32)]) -> Vec<u8> {
    let records = records.iter();
    let numbers = records.flat_map(|(at, duration)| [at * 1_000, duration * 1_000]);
    numbers.flat_map(u32::to_be_bytes).collect()
}

/// Writes a file and returns its path.
fn file(home: &Home, name: &str, bytes: &[u8]) -> String {
    let path = home.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn json(done: &Done) -> Value {
    assert_eq!(done.code, 0, "{}", done.err);
    serde_json::from_str(&done.out).unwrap()
}

const LONG: [&str; 6] = ["simulate", "scenarios", "--only", "long", "--seeds", "1-2"];

#[test]
fn a_trace_is_simulated_with_the_given_settings() {
    let home = Home::new();
    let file = file(&home, "load.dat", &trace(&[(0, 60), (1, 60), (2, 60)]));
    let run = |strategy: &str| {
        let arguments = [
            "simulate",
            "trace",
            &file,
            "--startup",
            "20",
            "--idle",
            "900",
        ];
        let more = [
            "--loop",
            "1",
            "--max",
            "2",
            "--strategy",
            strategy,
            "--json",
        ];
        json(&home.run(&[&arguments[..], &more].concat()))
    };
    for strategy in ["taskcluster", "taskcluster-fixed", "weighted", "balanced"] {
        let document = run(strategy);
        assert_eq!(document["strategy"], strategy);
        assert_eq!(document["settings"]["maxCapacity"], 2);
        let report = &document["report"];
        assert_eq!(
            (&report["tasks"], &report["workers"]),
            (&3.into(), &2.into())
        );
        assert_eq!(report["wait"]["p99"], 78.0, "{strategy}");
        assert_eq!(report["peak"], 2);
    }
    let text = home.run(&["simulate", "trace", &file]);
    assert!(text.out.starts_with("TASKS  WAIT MEAN"), "{}", text.out);
}

#[test]
fn idle_workers_may_stop_at_once() {
    let home = Home::new();
    let file = file(&home, "load.dat", &trace(&[(0, 60), (600, 60)]));
    for strategy in ["taskcluster", "weighted", "aws-provisioner", "balanced"] {
        let command = ["simulate", "trace", &file, "--idle", "0", "--json"];
        let done = json(&home.run(&[&command[..], &["--strategy", strategy]].concat()));
        assert_eq!(done["report"]["tasks"], 2, "{strategy}");
    }
}

#[test]
fn tasks_outside_the_counted_hours_are_named() {
    let home = Home::new();
    let day = 24 * 3_600;
    let times = [(0, 60), (1, 60), (2 * day, 60), (7 * day, 60)];
    let file = file(&home, "load.dat", &trace(&times));
    let text = home.run(&["simulate", "trace", &file]);
    let expected = "3 tasks not counted: 2 before, 1 after.";
    assert!(text.out.contains(expected), "{}", text.out);
}

#[test]
fn a_bad_trace_is_a_usage_error_that_says_where() {
    let home = Home::new();
    let run = |name: &str, bytes: &[u8]| {
        let file = file(&home, name, bytes);
        let done = home.run(&["simulate", "trace", &file]);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
        assert!(done.err.contains(&file), "{}", done.err);
        done.err
    };
    assert!(run("empty.dat", &[]).contains("it is empty"));
    let cut = &trace(&[(0, 60), (1, 60)])[..11];
    assert!(run("cut.dat", cut).contains("its last record is cut off after 3 of 8 bytes"));
    let long = trace(&[(0, 60), (1, 2_000_000)]);
    assert!(run("long.dat", &long).contains("record 2 (at byte 8): the task runs 23 days"));
    let missing = home.run(&["simulate", "trace", "nowhere.dat"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("nowhere.dat"), "{}", missing.err);
}

#[test]
fn records_out_of_order_are_sorted_with_a_note() {
    let home = Home::new();
    let mixed = file(&home, "mixed.dat", &trace(&[(2, 60), (0, 60), (1, 60)]));
    let sorted = file(&home, "sorted.dat", &trace(&[(0, 60), (1, 60), (2, 60)]));
    let run = |file: &str| home.run(&["simulate", "trace", file]);
    let (mixed, sorted) = (run(&mixed), run(&sorted));
    assert_eq!(mixed.out, sorted.out);
    assert!(
        mixed.err.contains("sorted by time; out of order: 1 record"),
        "{}",
        mixed.err
    );
    assert_eq!(sorted.err, "");
}

#[test]
fn values_that_cannot_be_simulated_are_usage_errors() {
    let home = Home::new();
    let file = file(&home, "load.dat", &trace(&[(0, 60)]));
    let trace = ["simulate", "trace", &file];
    let scenarios = ["simulate", "scenarios"];
    let canary = ["simulate", "canary"];
    for (command, more, said) in [
        (
            &trace[..],
            ["--strategy", "best"],
            "use taskcluster, taskcluster-fixed, weighted",
        ),
        (&trace, ["--startup", "700000"], "--startup"),
        (&trace, ["--idle", "soon"], "not a number of seconds"),
        (&trace, ["--loop", "0"], "at least 0.1 seconds"),
        (&trace, ["--max", "0"], "--max"),
        (
            &scenarios,
            ["--only", "bursts"],
            "use steady, burst, diurnal",
        ),
        (
            &scenarios,
            ["--strategies", "taskcluster,best"],
            "\"best\" is not a strategy",
        ),
        (
            &scenarios,
            ["--seeds", "20-11"],
            "the range 20-11 ends before it begins",
        ),
        (&scenarios, ["--seeds", "x"], "neither a seed nor a range"),
        (&scenarios, ["--seeds", "1-5000"], "more than 1000 seeds"),
        (&scenarios, ["--threads", "0"], "--threads"),
        (
            &canary,
            ["--only", "good"],
            "\"good\" is not a canary scenario; there are equal-reliable, equal,",
        ),
        (&canary, ["--canaries", "0"], "--canaries"),
    ] {
        let done = home.run(&[command, &more].concat());
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{more:?}");
        assert!(done.err.contains(said), "{more:?}: {}", done.err);
    }
}

#[test]
fn canaries_are_simulated_alike_on_any_number_of_threads() {
    let home = Home::new();
    let canary = [
        "simulate",
        "canary",
        "--only",
        "never-registers,tasks-fail-all",
    ];
    let table = home.run(&[&canary[..], &["--canaries", "5"]].concat());
    assert_eq!(table.code, 0, "{}", table.err);
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(lines[0].starts_with("SCENARIO"), "{}", table.out);
    assert!(
        lines[1].starts_with("never-registers    0.00 %     100.00 %"),
        "{}",
        table.out
    );
    let document = |threads| {
        let more = [
            "--canaries",
            "5",
            "--seed",
            "7",
            "--json",
            "--threads",
            threads,
        ];
        home.run(&[&canary[..], &more].concat()).out
    };
    let one = document("1");
    assert_eq!(one, document("2"));
    let parsed: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(
        (&parsed["seed"], &parsed["canaries"]),
        (&7.into(), &5.into())
    );
    let first = &parsed["scenarios"][0];
    assert_eq!(
        (&first["promoted"], &first["rolledBack"]),
        (&0.into(), &5.into())
    );
    assert!(first["rollBack"]["starts95"].is_number(), "{first}");
}

#[test]
fn strategies_are_compared_in_a_table_and_as_json_alike_on_any_number_of_threads() {
    let home = Home::new();
    let run = |more: &[&str]| home.run(&[&LONG[..], more].concat());
    let strategies = ["--strategies", "taskcluster,balanced"];
    let table = run(&strategies);
    assert_eq!(table.code, 0, "{}", table.err);
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(lines[0].starts_with("SCENARIO  STRATEGY"), "{}", table.out);
    assert!(lines[2].starts_with("long      balanced") && lines[2].ends_with(" %"));
    let document = |threads| {
        run(&[
            "--strategies",
            "taskcluster,balanced",
            "--json",
            "--threads",
            threads,
        ])
        .out
    };
    let one = document("1");
    assert_eq!(one, document("2"));
    let parsed: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(parsed["seeds"], serde_json::json!([1, 2]));
    let second = &parsed["scenarios"][0]["strategies"][1];
    assert_eq!(second["strategy"], "balanced");
    assert!(second["difference"]["j"]["percent"].is_number());
    assert_eq!(second["seeds"].as_array().unwrap().len(), 2);
}

#[test]
fn the_page_is_written_beside_the_table() {
    let home = Home::new();
    let path = home.path("out.html");
    let path = path.to_str().unwrap();
    let done = home.run(&[&LONG[..], &["--html", path]].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains(&format!("charts: {path}")));
    assert!(home.read("out.html").starts_with("<!DOCTYPE html>"));
    let nowhere = home.path("no/such/folder.html");
    let done = home.run(&[&LONG[..], &["--html", nowhere.to_str().unwrap()]].concat());
    assert_eq!(done.code, 1);
    assert!(done.err.contains("cannot write"), "{}", done.err);
}

#[test]
fn scenarios_without_their_traces_are_refused_by_name_and_replayed_with_them() {
    let home = Home::new();
    let folder = home.path("recorded");
    let folder = folder.to_str().unwrap();
    let arguments = [
        "simulate",
        "scenarios",
        "--only",
        "trace-b-linux",
        "--seeds",
        "10",
    ];
    let done = home.run(&arguments);
    assert_eq!(done.code, 2);
    for part in ["traces/gecko-3-b-linux.dat", "hint: ", "--traces"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    let load = trace(&[(10, 60), (3_600, 60)]);
    file(&home, "recorded/gecko-3-b-linux.dat", &load);
    let done = home.run(&[&arguments[..], &["--traces", folder, "--json"]].concat());
    let document = json(&done);
    let seeds = &document["scenarios"][0]["strategies"][0]["seeds"];
    assert_eq!(seeds[0]["tasks"], 2);
}
