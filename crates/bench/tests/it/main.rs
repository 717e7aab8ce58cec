//! Runs the benchmarks from beginning to end. Tests do not check their figures.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_measurement_of_the_api_gives_every_figure() {
    let report = figures(&["api", "--seconds", "1"]);
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 8);
    for scenario in scenarios {
        let fresh = &scenario["servers"]["fresh"];
        assert!(is_positive(&fresh["requestsPerSecond"]), "{scenario}");
        assert!(is_positive(&fresh["ofBare"]), "{scenario}");
        assert!(
            is_positive(&fresh["processorTime"]["serverMs"]),
            "{scenario}"
        );
        assert!(
            is_positive(&scenario["bare"]["requestsPerSecond"]),
            "{scenario}"
        );
    }
    assert!(is_positive(&report["firstAnswerMs"]["emptyDatabase"]));
}

#[test]
fn all_aims_are_measured_on_new_and_year_old_files() {
    assert_every_aim_has_figures("sqlite");
}

#[test]
fn all_aims_are_measured_on_new_and_year_old_databases_of_a_server() {
    if std::env::var_os("TEST_PG_URL").is_none() {
        println!("skipped: TEST_PG_URL is not set");
        return;
    }
    // It starts a server of its own, which needs the same programs.
    assert_every_aim_has_figures("postgres-fsync");
}

#[track_caller]
fn assert_every_aim_has_figures(database: &str) {
    let report = figures(&["all", "--quick", "--only", database]);
    let databases = report["databases"].as_object().expect("databases");
    assert_eq!(databases.len(), 1);
    for (name, figures) in databases {
        for scenario in figures["api"]["scenarios"].as_array().expect("scenarios") {
            for server in ["fresh", "year-old"] {
                let side = &scenario["servers"][server];
                assert!(
                    is_positive(&side["requestsPerSecond"]),
                    "{name}: {scenario}"
                );
            }
        }
        for part in ["fleet", "rounds"] {
            for of_age in [&figures[part], &figures[part]["yearOld"]] {
                for pointer in pointers(part) {
                    let figure = of_age.pointer(pointer).unwrap_or(&Value::Null);
                    assert!(is_positive(figure), "{name}: {part}{pointer}: {figure}");
                }
            }
        }
    }
}

fn pointers(part: &str) -> &'static [&'static str] {
    match part {
        "rounds" => &["/round/seconds"],
        _ => &[
            "/latency/p99Ms",
            "/claims/0/perSecond",
            "/claims/2/perSecond",
            "/scan/seconds",
        ],
    }
}

fn is_positive(figure: &Value) -> bool {
    figure.as_f64().is_some_and(|figure| figure > 0.0)
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
