//! Rules for Prometheus.

use serde_json::{Value, json};

use super::table::{ALERTS, Alert};

/// As YAML.
pub(crate) fn alerts() -> String {
    let rules: Vec<Value> = ALERTS.iter().map(rule).collect();
    let rules = json!({"groups": [{"name": "fleetwright", "rules": rules}]});
    files::to_yaml(&rules, &["name", "alert", "expr", "for"])
}

fn rule(alert: &Alert) -> Value {
    json!({
        "alert": alert.name,
        "expr": alert.query,
        "for": format!("{}m", alert.minutes),
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.action},
    })
}
