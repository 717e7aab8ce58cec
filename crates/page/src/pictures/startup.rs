//! The start of machines: from the decision to the first request for work, by place.

use api_client::{Call, FLEETWRIGHT};
use maud::{Markup, html};
use serde_json::Value;

use super::drawn;
use crate::charts::{Bin, HeatMap, HeatRow, Histogram, Tone, Unit};
use crate::json::Json as _;
use crate::numbers;
use crate::parts::{choices, empty};
use crate::view::{Part, Shown, View, Visit};
use crate::words::counted;

const RANGES: &[(&str, &str)] = &[("6h", "6 hours"), ("", "Day")];
/// Places that a person chooses from; those with the most machines come first.
const PLACES: usize = 12;
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
            (distribution(visit, &reply))
            h2 { "By place, nine of ten within" }
            (map("Start of machines by place", reply.list("places"), place_name))
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
        numbers::duration(total)
    )
}

/// How many machines took how long, for a step and a place that the person chooses.
fn distribution(visit: &Visit<'_>, reply: &Value) -> Markup {
    let place = visit.query("place");
    let named = reply.list("places").iter().map(|it| (place_name(it), it));
    let named: Vec<(String, &Value)> = named.collect();
    let chosen = named.iter().find(|(name, _)| name == place);
    let of = chosen.map_or(reply, |(_, row)| row);
    let (phase, text) = match PHASES.iter().find(|(it, _)| *it == visit.query("phase")) {
        Some((phase, text)) => (*phase, *text),
        None => ("total", "from the decision to work"),
    };
    let bins = bins(
        reply.list("spansMs"),
        of.list(&format!("histograms.{phase}")),
    );
    let phases: Vec<(&str, &str)> = std::iter::once(("", "from the decision to work"))
        .chain(PHASES)
        .collect();
    let places = named
        .iter()
        .take(PLACES)
        .map(|(name, _)| (name.as_str(), name.as_str()));
    let places: Vec<(&str, &str)> = std::iter::once(("", "All places")).chain(places).collect();
    let of_phase = |it: &&Value| it.text("phase") == phase;
    let known = of.list("phases").iter().find(of_phase);
    let quantiles = [("half within", "p50Ms"), ("nine of ten within", "p90Ms")];
    let quantiles = quantiles.map(|(name, member)| (name, known.and_then(|it| it.number(member))));
    let quantiles: Vec<(&str, f64)> = quantiles
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    let title = format!(
        "Time {text}{}",
        if chosen.is_some() {
            format!(", {place}")
        } else {
            String::new()
        }
    );
    html! {
        h2 { (title) }
        (choices(visit, "phase", "Step", &phases))
        @if named.len() > 1 { (choices(visit, "place", "Place", &places)) }
        @if bins.is_empty() {
            (empty("No machine has made this step in this time."))
        } @else {
            (Histogram {
                title: &title,
                unit: Unit::Duration,
                tone: Tone::Booting,
                bins: &bins,
                quantiles: &quantiles,
            })
        }
    }
}

fn place_name(row: &Value) -> String {
    format!("{} {}", row.text("providerId"), row.text("region"))
}

/// The spans with their counts, without the empty ones at both ends.
fn bins(spans: &[Value], counts: &[Value]) -> Vec<Bin> {
    let begins: Vec<f64> = spans.iter().filter_map(Value::as_f64).collect();
    let ends = begins.iter().skip(1).copied().chain([f64::INFINITY]);
    let all = begins.iter().zip(ends).zip(counts);
    let bins = all.map(|((from, to), count)| Bin {
        from: *from,
        to,
        count: count.as_f64().unwrap_or_default(),
    });
    let mut bins: Vec<Bin> = bins.skip_while(|bin| bin.count == 0.0).collect();
    while bins.last().is_some_and(|bin| bin.count == 0.0) {
        bins.pop();
    }
    bins
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_spans_at_the_ends_are_left_out() {
        let spans = [json!(0), json!(10), json!(20), json!(50), json!(100)];
        let counts = [json!(0), json!(3), json!(0), json!(1), json!(0)];
        let found = bins(&spans, &counts);
        let shown: Vec<(f64, f64, f64)> =
            found.iter().map(|it| (it.from, it.to, it.count)).collect();
        assert_eq!(
            shown,
            [(10.0, 20.0, 3.0), (20.0, 50.0, 0.0), (50.0, 100.0, 1.0)]
        );
        assert!(bins(&spans, &[]).is_empty());
        let last = bins(&spans, &[json!(0), json!(0), json!(0), json!(0), json!(2)]);
        assert_eq!(last[0].to, f64::INFINITY);
    }
}
