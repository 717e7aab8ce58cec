//! Runs the benchmarks from beginning to end, with one request for each figure. Tests do not check
//! the figures.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_measurement_of_the_api_gives_every_figure() {
    let report = figures(&["api", "--requests", "1"]);
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 8);
    for scenario in scenarios {
        for pointer in [
            "/servers/fresh/requestsPerSecond",
            "/servers/fresh/ofBare",
            "/servers/fresh/processorTime/serverMs",
            "/bare/requestsPerSecond",
        ] {
            let figure = scenario.pointer(pointer);
            assert!(
                figure.is_some_and(Value::is_number),
                "{pointer}: {scenario}"
            );
        }
    }
    assert!(report["firstAnswerMs"]["emptyDatabase"].is_number());
}

#[test]
fn all_aims_are_measured_on_new_and_year_old_files() {
    assert_every_aim_has_figures("sqlite", "sqlite");
}

mod all_aims_are_measured_on_new_and_year_old_databases_of_a_server {
    mod long {
        #[test]
        fn without_fsync() {
            on_a_server("postgres", "postgres");
        }

        #[test]
        fn with_fsync() {
            on_a_server("postgres-fsync", "postgresFsync");
        }

        /// It starts a server of its own, which needs the same programs.
        #[expect(clippy::print_stdout, reason = "a skipped test must say so")]
        fn on_a_server(database: &str, key: &str) {
            if std::env::var_os("TEST_PG_URL").is_none() {
                println!("skipped: TEST_PG_URL is not set");
                return;
            }
            crate::assert_every_aim_has_figures(database, key);
        }
    }
}

#[track_caller]
fn assert_every_aim_has_figures(database: &str, key: &str) {
    let report = figures(&["all", "--quick", "--only", database]);
    let databases = report["databases"].as_object().expect("databases");
    assert_eq!(databases.keys().collect::<Vec<_>>(), [key]);
    let aims = databases[key]["aims"].as_object().expect("aims");
    assert!(aims.len() > 10, "{aims:?}");
    for (name, ages) in aims {
        assert!(ages["fresh"].is_number(), "{name}: {ages}");
        let year_old = ages.get("yearOld");
        assert!(year_old.is_none_or(Value::is_number), "{name}: {ages}");
    }
}

#[track_caller]
fn figures(arguments: &[&str]) -> Value {
    // All tests of the workspace build the measured program. If only this test runs, it builds it.
    let beside = Path::new(env!("CARGO_BIN_EXE_bench")).with_file_name("fleetwright");
    if std::env::var_os("FLEETWRIGHT_BINARY").is_none() && !beside.is_file() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--package", "fleetwright", "--locked"])
            .status();
        assert!(built.expect("cargo runs").success());
    }
    let done = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(arguments)
        .arg("--json")
        .output()
        .expect("the benchmark runs");
    let problem = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{problem}");
    serde_json::from_slice(&done.stdout).expect("it prints JSON")
}
