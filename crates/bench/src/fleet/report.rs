//! The figures of the fleet as text.

use serde_json::Value;

/// A figure: its JSON pointer, its name, its unit.
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
    ("/claims/0/workers", "claims: waiting workers", ""),
    ("/claims/0/perSecond", "  claims of one task each", "/s"),
    ("/claims/1/workers", "claims: waiting workers", ""),
    ("/claims/1/perSecond", "  claims of one task each", "/s"),
    ("/claims/2/workers", "claims: waiting workers", ""),
    ("/claims/2/perSecond", "  claims of one task each", "/s"),
    ("/fill/seconds", "filling the database", "s"),
    ("/round/firstSeconds", "first round over all pools", "s"),
    ("/round/seconds", "a later round (median of 3)", "s"),
    ("/round/peakBytes", "  peak memory", "bytes"),
    ("/scan/seconds", "a scan of all workers (median of 3)", "s"),
    ("/scan/workers", "  workers", ""),
    ("/scan/cloudCalls", "  calls to the cloud in it", ""),
    ("/scan/cloudSeconds", "  time of the cloud in it", "s"),
    (
        "/scan/ownSecondsPer100000",
        "  other time, for 100,000 workers",
        "s",
    ),
    (
        "/scan/processorSecondsPer100000",
        "  processor time, for 100,000 workers",
        "s",
    ),
    ("/scan/peakBytes", "  peak memory", "bytes"),
    (
        "/series/recordMs",
        "a minute of series (median of 20)",
        "ms",
    ),
    ("/series/pointsPerMinute", "  points in it", ""),
    ("/series/bytesPerMinute", "  bytes in it", "bytes"),
    (
        "/series/quietMs",
        "a minute without workers and tasks",
        "ms",
    ),
    ("/series/readDayMs", "a day of minutes of one pool", "ms"),
    ("/series/linesMs", "24 parts of a day of 100 pools", "ms"),
    (
        "/series/fineLinesMs",
        "48 parts of a day of 100 pools",
        "ms",
    ),
    ("/series/statusMs", "the status", "ms"),
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
    let year_old = figures.get("yearOld");
    if year_old.is_some() {
        let [fresh, year_old, slower] = ["FRESH", "YEAR-OLD", "SLOWER"];
        text.push_str(&format!("{:<48}{fresh:>12}{year_old:>12}{slower:>8}\n", ""));
    }
    for (place, name, unit) in LINES {
        let value = |of: &Value| of.pointer(place).and_then(Value::as_f64);
        let Some(fresh) = value(figures) else {
            continue;
        };
        text.push_str(&format!("{name:<48}{:>12}", shown(fresh, unit)));
        if let Some(later) = year_old.and_then(value) {
            let factor = slowdown(fresh, later, unit);
            let factor = factor.map(|factor| format!("{:>8}", format!("{factor:.2}x")));
            let factor = factor.unwrap_or_default();
            text.push_str(&format!("{:>12}{factor}", shown(later, unit)));
        }
        text.push('\n');
    }
    let mut add = |name: &str, value: Option<f64>, unit: &str| {
        if let Some(value) = value {
            text.push_str(&format!("{name:<48}{:>12}\n", shown(value, unit)));
        }
    };
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
            "  peak memory",
            point["round"]["peakBytes"].as_f64(),
            "bytes",
        );
        add("  filled in", point["fill"]["seconds"].as_f64(), "s");
    }
    text
}

/// How many times as long something takes as before. `None`: the unit is none of speed.
pub(crate) fn slowdown(before: f64, after: f64, unit: &str) -> Option<f64> {
    match unit {
        "/s" => Some(before / after.max(f64::MIN_POSITIVE)),
        "ms" | "s" => Some(after / before.max(f64::MIN_POSITIVE)),
        _ => None,
    }
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
            "claims": [{"workers": 64, "perSecond": 2_345.6}], "idle": {"cpuShareOfOneCore": 0.001_23}});
        insta::assert_snapshot!(text(&figures), @r"
        sqlite

        pools                                                     10
        workers                                                  100
        load of the machine before                               0.2
        claims: waiting workers                                   64
          claims of one task each                             2346/s
        an idle `up`, share of one core                       0.12 %
        ");
    }

    #[test]
    fn a_year_old_database_is_shown_beside_a_new_one() {
        let figures = json!({"database": "sqlite",
            "latency": {"p99Ms": 5.0, "launched": 1_000},
            "claims": [{"workers": 64, "perSecond": 6_000.0}],
            "yearOld": {"latency": {"p99Ms": 6.0, "launched": 1_000},
                "claims": [{"workers": 64, "perSecond": 4_000.0}]}});
        insta::assert_snapshot!(text(&figures), @r"
        sqlite

                                                               FRESH    YEAR-OLD  SLOWER
        createTask to launch call, p99                        5.0 ms      6.0 ms   1.20x
          launches measured                                     1000        1000
        claims: waiting workers                                   64          64
          claims of one task each                             6000/s      4000/s   1.50x
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
          peak memory                                        100 MiB
          filled in                                           1.00 s
        a round: 100 pools, 10000 workers                     0.10 s
          the first one                                       2.00 s
          peak memory                                        100 MiB
          filled in                                           1.00 s
        ");
    }
}
