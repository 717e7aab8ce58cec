//! Replies of the API as the charts take them: one time range for all charts of a page.

use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use maud::{Markup, html};
use serde_json::Value;

use crate::charts::{CapacityChart, Mark, MomentLinks, Scrubber, Series, TimeRange, WorkerStates};
use crate::json::Json as _;
use crate::parts::choices;
use crate::view::Visit;

/// The ranges that a person chooses from, in the parameter `range`.
const RANGES: &[(&str, &str)] = &[
    ("6h", "6 hours"),
    ("", "Day"),
    ("7d", "Week"),
    ("30d", "30 days"),
    ("1y", "Year"),
];

/// The moment that the address of the page names.
pub(super) fn moment(visit: &Visit<'_>) -> Option<Timestamp> {
    let at_ms: i64 = visit.query("at").parse().ok()?;
    // Later moments than those of charts do not exist yet.
    Some(Timestamp::from_millis(
        at_ms.clamp(0, visit.now.as_millis()),
    ))
}

/// The time that the charts of a page show, and the moment of their cursor.
pub(super) fn range(visit: &Visit<'_>) -> TimeRange {
    let until = visit.now.as_millis();
    let range = TimeRange::new(until - length_ms(visit), until);
    match moment(visit) {
        Some(at) => range.at(at.as_millis()),
        None => range,
    }
}

fn length_ms(visit: &Visit<'_>) -> i64 {
    match visit.query("range") {
        "6h" => 6 * HOUR_MS,
        "7d" => 7 * DAY_MS,
        "30d" => 30 * DAY_MS,
        "1y" => 365 * DAY_MS,
        _ => DAY_MS,
    }
}

/// The beginning of the time, for calls of the API.
pub(super) fn since(visit: &Visit<'_>) -> String {
    visit.now.plus_millis(-length_ms(visit)).to_string()
}

/// The choice of the time range, and the cursor of all charts.
pub(super) fn controls(visit: &Visit<'_>) -> Markup {
    let range = range(visit);
    let kept = visit.query.iter().filter(|(name, _)| name != "at");
    let kept: Vec<(&str, &str)> = kept
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let scrubber = Scrubber {
        range,
        step_ms: (range.to_ms() - range.from_ms()) / 240,
        label: "Moment of the charts",
        keep: &kept,
    };
    html! {
        (choices(visit, "range", "Time range", RANGES))
        (scrubber)
    }
}

/// A member of all points of a series; points without a record are gaps.
pub(super) fn member(reply: &Value, name: &str) -> Series {
    let points = reply.list("points");
    let moment = |point: &Value| point.moment("time").map_or(0, Timestamp::as_millis);
    let step_ms = match reply.text("step") {
        "day" => DAY_MS,
        "hour" => HOUR_MS,
        _ => domain::time::MINUTE_MS,
    };
    Series {
        from_ms: points.first().map_or(0, moment),
        step_ms,
        values: points.iter().map(|point| point.number(name)).collect(),
    }
}

/// Values of a list in parts of equal length, from this moment on.
pub(super) fn parts(from: Option<Timestamp>, part_ms: i64, values: &[Value]) -> Series {
    Series {
        from_ms: from.map_or(0, Timestamp::as_millis),
        step_ms: part_ms,
        values: values.iter().map(Value::as_f64).collect(),
    }
}

/// Workers by state against waiting tasks and limits.
pub(super) fn capacity(
    title: &str,
    range: TimeRange,
    reply: &Value,
    marks: &[Mark<'_>],
    moments: MomentLinks<'_>,
) -> Markup {
    let all = [
        "busy",
        "idle",
        "booting",
        "requested",
        "leaving",
        "waiting",
        "maximum",
        "refused",
    ]
    .map(|name| member(reply, name));
    let [
        busy,
        idle,
        booting,
        requested,
        leaving,
        waiting,
        maximum,
        refused,
    ] = &all;
    let chart = CapacityChart {
        title,
        range,
        states: WorkerStates {
            busy,
            idle,
            booting,
            requested,
            leaving,
        },
        waiting,
        max: Some(maximum),
        refused,
        marks,
        moments: Some(moments),
    };
    html! { (chart) }
}

/// Rows of a report by time, as a series for each name: rows are sparse and in any order.
pub(super) fn by_name(
    range: TimeRange,
    step_ms: i64,
    rows: impl IntoIterator<Item = (i64, String, f64)>,
) -> Vec<(String, Series)> {
    let from_ms = range.from_ms() / step_ms * step_ms;
    let n = usize::try_from((range.to_ms() - from_ms) / step_ms + 1).unwrap_or(0);
    let mut found: Vec<(String, Series)> = Vec::new();
    for (at_ms, name, value) in rows {
        let Ok(place) = usize::try_from((at_ms - from_ms).div_euclid(step_ms)) else {
            continue;
        };
        let known = found.iter().position(|(known, _)| *known == name);
        let index = known.unwrap_or_else(|| {
            let series = Series::new(from_ms, step_ms, vec![0.0; n]);
            found.push((name, series));
            found.len() - 1
        });
        if let Some(Some(slot)) = found[index].1.values.get_mut(place) {
            *slot += value;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_rows_become_series_of_one_length() {
        let range = TimeRange::new(0, 3 * HOUR_MS);
        let rows = [
            (0, "a".to_owned(), 1.0),
            (2 * HOUR_MS, "a".to_owned(), 2.0),
            (2 * HOUR_MS, "a".to_owned(), 3.0),
            (HOUR_MS, "b".to_owned(), 4.0),
            (99 * HOUR_MS, "b".to_owned(), 5.0),
            (-HOUR_MS, "b".to_owned(), 6.0),
        ];
        let series = by_name(range, HOUR_MS, rows);
        let values = |index: usize| series[index].1.values.iter().map(|it| it.unwrap());
        assert_eq!(values(0).collect::<Vec<_>>(), [1.0, 0.0, 5.0, 0.0]);
        assert_eq!(values(1).collect::<Vec<_>>(), [0.0, 4.0, 0.0, 0.0]);
    }

    #[test]
    fn points_without_a_record_are_gaps() {
        let reply = serde_json::json!({"step": "hour", "points": [
            {"time": "1970-01-01T01:00:00.000Z", "recorded": true, "busy": 3},
            {"time": "1970-01-01T02:00:00.000Z", "recorded": false},
        ]});
        let series = member(&reply, "busy");
        assert_eq!((series.from_ms, series.step_ms), (HOUR_MS, HOUR_MS));
        assert_eq!(series.values, [Some(3.0), None]);
    }
}
