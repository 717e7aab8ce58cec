//! `explain launch-config`: whether it is used, and how long its machines take to start.

use serde_json::Value;

use super::clock;
use crate::client::{Call, FLEETWRIGHT};
use crate::commands::launch_config::Name;
use crate::output::{self, Kind};

pub(super) fn call(name: &Name) -> Call {
    let Name { pool, id } = name;
    Call::get(FLEETWRIGHT, &["explain", "launch-config", pool, id])
        .to(format!("explain launch config {id} of {pool}"))
        .list_command("fleetwright launch-config list POOL")
}

const STEPS: &[(&str, Kind)] = &[
    ("REGION", Kind::Text),
    ("STEP", Kind::Text),
    ("MACHINES", Kind::Number),
    ("MEDIAN", Kind::Number),
    ("95 %", Kind::Number),
];

pub(super) fn text(reply: &Value) -> String {
    let word = |key: &str| output::printable(reply[key].as_str().unwrap_or_default());
    let mut text = format!(
        "Launch config {} of {} ({})\n  provider: {}\n",
        word("launchConfigId"),
        word("workerPoolId"),
        clock(&reply["time"]),
        word("providerId"),
    );
    let state = match reply["state"].as_str() {
        Some("active") => match reply["availability"].as_str() {
            Some(status) if status != "usable" => status.to_owned(),
            Some(_) | None => "active".to_owned(),
        },
        Some(other) => other.to_owned(),
        None => String::new(),
    };
    text.push_str(&format!("  state: {}\n", output::printable(&state)));
    for (key, title) in [("place", "machine"), ("reason", "why")] {
        if reply[key].is_string() {
            text.push_str(&format!("  {title}: {}\n", word(key)));
        }
    }
    if reply["nextTry"].is_string() {
        text.push_str(&format!("  next try: {}\n", clock(&reply["nextTry"])));
    }
    text.push_str(&format!(
        "\nMachines made in the last day: {}\n",
        reply["machines"]
    ));
    let rows = rows(reply);
    if !rows.is_empty() {
        text.push_str(&output::grid(STEPS, rows, None));
    }
    text
}

fn rows(reply: &Value) -> Vec<Vec<String>> {
    let regions = reply["regions"].as_array().into_iter().flatten();
    let rows = regions.flat_map(|region| {
        let phases = region["phases"].as_array().into_iter().flatten();
        phases.map(|step| {
            let word = |value: &Value| output::printable(value.as_str().unwrap_or_default());
            let (from, to) = (word(&step["from"]), word(&step["phase"]));
            vec![
                word(&region["region"]),
                format!("{from} to {}", to.replace('-', " ")),
                step["machines"].to_string(),
                duration(&step["medianMs"]),
                duration(&step["p95Ms"]),
            ]
        })
    });
    rows.collect()
}

/// Up to ten seconds with milliseconds.
fn duration(millis: &Value) -> String {
    match millis.as_f64() {
        Some(millis) if millis < 1e4 => format!("{:.3} s", millis / 1e3),
        Some(millis) => format!("{:.0} s", millis / 1e3),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_launch_config_shows_its_state_and_the_times_of_its_steps() {
        let step = |from, phase, median, p95| {
            json!({"from": from, "phase": phase, "machines": 12, "medianMs": median,
                "p95Ms": p95})
        };
        let reply = json!({
            "workerPoolId": "demo/linux", "launchConfigId": "lc-1", "providerId": "aws",
            "place": "us-west-2a m5.large spot", "state": "active", "availability": "shut-off",
            "reason": "quota, tried again at 14:36:00", "nextTry": "2026-11-21T14:36:00.000Z",
            "time": "2026-11-21T06:19:13.123Z", "since": "2026-11-20T06:19:13.123Z",
            "machines": 13,
            "regions": [{"region": "us-west-2", "phases": [
                step("decided", "requested", 4, 11), step("requested", "accepted", 1_234, 2_100),
                step("accepted", "registered", 74_000, 97_400),
                step("registered", "first-claim", 350, 900)]}],
        });
        insta::assert_snapshot!(text(&reply), @r"
        Launch config lc-1 of demo/linux (2026-11-21 06:19:13Z)
          provider: aws
          state: shut-off
          machine: us-west-2a m5.large spot
          why: quota, tried again at 14:36:00
          next try: 2026-11-21 14:36:00Z

        Machines made in the last day: 13
        REGION     STEP                       MACHINES   MEDIAN     95 %
        us-west-2  decided to requested             12  0.004 s  0.011 s
        us-west-2  requested to accepted            12  1.234 s  2.100 s
        us-west-2  accepted to registered           12     74 s     97 s
        us-west-2  registered to first claim        12  0.350 s  0.900 s
        ");
        let idle = json!({"state": "active", "availability": "usable", "machines": 0,
            "regions": [], "time": reply["time"], "since": reply["since"]});
        assert!(text(&idle).ends_with("Machines made in the last day: 0\n"));
        assert!(text(&idle).contains("state: active\n"));
    }
}
