//! The figures for people.

use serde_json::Value;

/// A figure, what it is called, and what it is measured in.
const LINES: &[(&str, &str, &str)] = &[
    ("/pools", "pools", ""),
    ("/workers", "workers", ""),
    ("/loadBefore", "load of the machine before", "load"),
    ("/loadAfter", "load of the machine after", "load"),
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
    ("/scan/cloudSeconds", "  time spent in them", "s"),
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

pub(crate) fn text(figures: &Value) -> String {
    let mut text = format!("{}\n\n", figures["database"].as_str().unwrap_or_default());
    let mut add = |name: &str, value: Option<f64>, unit: &str| {
        if let Some(value) = value {
            text.push_str(&format!("{name:<48}{:>12}\n", shown(value, unit)));
        }
    };
    for (place, name, unit) in LINES {
        add(name, figures.pointer(place).and_then(Value::as_f64), unit);
    }
    for point in figures["curve"].as_array().into_iter().flatten() {
        let name = format!(
            "a round: {} pools, {} workers",
            point["pools"], point["workers"]
        );
        add(&name, point["round"]["seconds"].as_f64(), "s");
        add(
            "  the first one",
            point["round"]["firstSeconds"].as_f64(),
            "s",
        );
        add(
            "  most memory ever",
            point["round"]["peakBytes"].as_f64(),
            "bytes",
        );
        add("  filled in", point["fill"]["seconds"].as_f64(), "s");
    }
    text
}

fn shown(value: f64, unit: &str) -> String {
    match unit {
        "ms" => format!("{value:.1} ms"),
        "s" => format!("{value:.2} s"),
        "/s" => format!("{value:.0}/s"),
        "load" => format!("{value:.1}"),
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
        let figures = json!({"database": "sqlite", "pools": 10, "workers": 100, "loadBefore": 0.25,
            "claims": {"perSecond": 2_345.6}, "idle": {"cpuShareOfOneCore": 0.001_23}});
        insta::assert_snapshot!(text(&figures), @r"
        sqlite

        pools                                                     10
        workers                                                  100
        load of the machine before                               0.2
        claims with 64 waiting workers                        2346/s
        an idle `up`, share of one core                       0.12 %
        ");
    }

    #[test]
    fn a_curve_is_shown_point_by_point() {
        let point = |pools, seconds| {
            json!({"pools": pools, "workers": pools * 100, "fill": {"seconds": 1.0},
                "round": {"seconds": seconds, "firstSeconds": 2.0, "peakBytes": 104_857_600}})
        };
        let figures = json!({"database": "sqlite", "curve": [point(10, 0.01), point(100, 0.1)]});
        insta::assert_snapshot!(text(&figures), @r"
        sqlite

        a round: 10 pools, 1000 workers                       0.01 s
          the first one                                       2.00 s
          most memory ever                                   100 MiB
          filled in                                           1.00 s
        a round: 100 pools, 10000 workers                     0.10 s
          the first one                                       2.00 s
          most memory ever                                   100 MiB
          filled in                                           1.00 s
        ");
    }
}
