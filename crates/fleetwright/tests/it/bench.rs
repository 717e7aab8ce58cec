//! The measurement runs from beginning to end. What it finds is no matter of tests.

use serde_json::Value;

use crate::world::Home;

#[test]
fn a_measurement_gives_every_figure() {
    let done = Home::new().run(&["bench", "api", "--seconds", "1", "--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 5);
    for scenario in scenarios {
        assert!(scenario["ours"]["requestsPerSecond"].as_f64().unwrap() > 0.0);
        assert!(scenario["ratio"].as_f64().unwrap() > 0.0);
    }
    assert!(report["firstAnswerMs"]["emptyDatabase"].as_f64().unwrap() > 0.0);
}
