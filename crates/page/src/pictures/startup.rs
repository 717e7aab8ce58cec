//! The start of machines: from the decision to the first request for work, by place.

use api_client::{Call, FLEETWRIGHT};
use maud::{Markup, html};
use serde_json::Value;

use super::drawn;
use crate::charts::{HeatMap, HeatRow, Unit};
use crate::json::Json as _;
use crate::parts::{choices, empty};
use crate::view::{Part, Shown, View, Visit};
use crate::words::{counted, duration};

const RANGES: &[(&str, &str)] = &[("6h", "6 hours"), ("", "Day")];
/// The phases of a start, as the API names them, and as people read them.
const PHASES: [(&str, &str); 4] = [
    ("requested", "until asked"),
    ("accepted", "until made"),
    ("registered", "until registered"),
    ("first-claim", "until work"),
];

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let pool = visit.query("pool");
    let call = Call::get(FLEETWRIGHT, &["startup"])
        .query("since", Some(drawn::since(visit)))
        .query("workerPoolId", (!pool.is_empty()).then_some(pool));
    let reply = visit.api.call(call).await?;
    let content = html! {
        h1 { "Start-up" }
        p .lede { (sentence(&reply)) }
        (choices(visit, "range", "Time range", RANGES))
        @if reply.count("machines") == 0 {
            (empty("No machine started in this time."))
        } @else {
            h2 { "By place, nine of ten within" }
            (map("Start of machines by place", reply.list("places"), |it| format!("{} {}", it.text("providerId"), it.text("region"))))
            h2 { "By launch config, nine of ten within" }
            (map("Start of machines by launch config", reply.list("launchConfigs"), |it| {
                format!("{} of {}", it.text("launchConfigId"), it.text("workerPoolId"))
            }))
        }
    };
    let view = View::new(Part::Health, "Start-up").section("startup", content);
    Ok(view.command("fleetwright startup"))
}

fn sentence(reply: &Value) -> String {
    let machines = counted(reply.count("machines"), "machine");
    let total: f64 = reply
        .list("phases")
        .iter()
        .filter_map(|it| it.number("p50Ms"))
        .sum();
    format!(
        "{machines} started; half of them asked for work within about {}.",
        duration(super::pool::whole(total))
    )
}

fn map(title: &str, rows: &[Value], name: impl Fn(&Value) -> String) -> Markup {
    let named: Vec<(String, Vec<Option<f64>>)> = rows
        .iter()
        .map(|row| {
            let value = |phase: &str| {
                let found = row
                    .list("phases")
                    .iter()
                    .find(|it| it.text("phase") == phase);
                found.and_then(|it| it.number("p90Ms"))
            };
            (name(row), PHASES.map(|(phase, _)| value(phase)).to_vec())
        })
        .collect();
    let rows: Vec<HeatRow<'_>> = named
        .iter()
        .map(|(name, values)| HeatRow {
            name,
            href: None,
            values,
        })
        .collect();
    html! {
        (HeatMap {
            title,
            unit: Unit::Duration,
            row_head: "Where",
            columns: &PHASES.map(|(_, text)| text),
            rows: &rows,
        })
    }
}
