//! The measurement runs from beginning to end. Its figures are no matter of tests.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_measurement_gives_every_figure() {
    // All tests of the workspace build the measured program. If only this one runs, it does.
    let beside = Path::new(env!("CARGO_BIN_EXE_bench")).with_file_name("fleetwright");
    if std::env::var_os("FLEETWRIGHT_BINARY").is_none() && !beside.is_file() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--package", "fleetwright", "--locked"])
            .status()
            .unwrap();
        assert!(built.success());
    }
    let done = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["api", "--seconds", "1", "--json"])
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{problem}");
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 5);
    for scenario in scenarios {
        assert!(scenario["ours"]["requestsPerSecond"].as_f64().unwrap() > 0.0);
        assert!(scenario["ratio"].as_f64().unwrap() > 0.0);
    }
    assert!(report["firstAnswerMs"]["emptyDatabase"].as_f64().unwrap() > 0.0);
}
