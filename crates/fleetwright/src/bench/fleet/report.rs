//! The figures for people.

use serde_json::Value;

/// A figure, what it is called, and what it is measured in.
const LINES: &[(&str, &str, &str)] = &[
    (
        "/latency/medianMs",
        "createTask to launch call, median",
        "ms",
    ),
    ("/latency/p99Ms", "createTask to launch call, p99", "ms"),
    ("/latency/launched", "  launches measured", ""),
    ("/claims/perSecond", "claims with 64 waiting workers", "/s"),
    ("/fill/seconds", "filling the database", "s"),
    ("/round/firstSeconds", "first round over all pools", "s"),
    ("/round/seconds", "a later round (median of 3)", "s"),
    ("/round/peakBytes", "  most memory ever", "bytes"),
    ("/scan/seconds", "a scan of all workers (median of 3)", "s"),
    ("/scan/cloudCalls", "  calls to the cloud in it", ""),
    ("/scan/peakBytes", "  most memory ever", "bytes"),
    (
        "/idle/cpuShareOfOneCore",
        "an idle `up`, share of one core",
        "share",
    ),
    ("/idle/residentBytes", "  its memory", "bytes"),
    (
        "/idle/firstLogLineWithNewWorkerMs",
        "task create to first log line, new worker",
        "ms",
    ),
    (
        "/idle/firstLogLineWithWaitingWorkerMs",
        "task create to first log line, waiting worker",
        "ms",
    ),
];

pub(super) fn text(figures: &Value) -> String {
    let mut text = format!(
        "{}: {} pools, {} workers\n\n",
        figures["database"].as_str().unwrap_or_default(),
        figures["pools"],
        figures["workers"],
    );
    for (place, name, unit) in LINES {
        if let Some(value) = figures.pointer(place).and_then(Value::as_f64) {
            text.push_str(&format!("{name:<48}{:>12}\n", shown(value, unit)));
        }
    }
    text
}

fn shown(value: f64, unit: &str) -> String {
    match unit {
        "ms" => format!("{value:.1} ms"),
        "s" => format!("{value:.2} s"),
        "/s" => format!("{value:.0}/s"),
        "share" => format!("{:.2} %", value * 100.0),
        "bytes" => format!("{:.0} MiB", value / f64::from(1 << 20)),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_measured_is_shown() {
        let figures = json!({"database": "sqlite", "pools": 10, "workers": 100,
            "claims": {"perSecond": 2_345.6}, "idle": {"cpuShareOfOneCore": 0.001_23}});
        insta::assert_snapshot!(text(&figures), @r"
        sqlite: 10 pools, 100 workers

        claims with 64 waiting workers                        2346/s
        an idle `up`, share of one core                       0.12 %
        ");
    }
}
