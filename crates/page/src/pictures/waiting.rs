//! Waiting time: by cause, over time, and what would change each cause.

use api_client::{Call, FLEETWRIGHT};
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use futures_util::future::join;
use maud::{Markup, html};
use serde_json::Value;

use crate::charts::{BarPart, Gather, TimeBars, TimeRange, Tone, Unit};
use crate::json::Json as _;
use crate::links;
use crate::numbers;
use crate::parts::{choices, empty, heads, may_ask_what_if, table};
use crate::view::{Part, Shown, View, Visit};
use crate::words::{percent, time_taken};

const RANGES: &[(&str, &str)] = &[
    ("", "Day"),
    ("3d", "3 days"),
    ("7d", "Week"),
    ("30d", "30 days"),
];
const ROWS: u32 = 50;
/// Hours of three days, or days of a month.
const MOMENTS: u32 = 100;

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let by = match visit.query("by") {
        known @ ("queue" | "owner" | "day" | "hour" | "cause") => known,
        _ => "pool",
    };
    let pool = visit.query("pool");
    let call = Call::get(FLEETWRIGHT, &["waits"])
        .query("by", Some(by))
        .query("top", Some(ROWS))
        .query("since", Some(since(visit)))
        .query("workerPoolId", (!pool.is_empty()).then_some(pool));
    let step = if matches!(visit.query("range"), "7d" | "30d") {
        "day"
    } else {
        "hour"
    };
    let over_time = Call::get(FLEETWRIGHT, &["waits"])
        .query("by", Some(step))
        .query("top", Some(MOMENTS))
        .query("since", Some(since(visit)))
        .query("workerPoolId", (!pool.is_empty()).then_some(pool));
    let (waits, over_time) = join(visit.api.call(call), visit.api.call(over_time)).await;
    let waits = waits?;
    let total = waits.number("totalMs").unwrap_or_default();
    let head = html! {
        h1 { "Waiting" @if !pool.is_empty() { " for " a href=(links::pool(pool)) { (pool) } } }
        p .lede { (sentence(&waits, total)) }
        div .filter {
            (choices(visit, "range", "Time range", RANGES))
            (choices(visit, "by", "By", &[("", "Pool"), ("owner", "Owner"), ("day", "Day"), ("hour", "Hour")]))
        }
    };
    let view = View::new(Part::Waiting, "Waiting")
        .section("head", head)
        .section("chart", chart(visit, step, over_time.as_ref().ok()))
        .section("causes", causes(visit, &waits, total))
        .section("rows", rows(&waits, by));
    let pool = if pool.is_empty() {
        String::new()
    } else {
        format!(" --pool {pool}")
    };
    Ok(view.command(format!("fleetwright wait --by {by}{pool}")))
}

/// The waiting time by cause, over time.
fn chart(visit: &Visit<'_>, step: &str, waits: Option<&Value>) -> Markup {
    let until = visit.now.as_millis();
    let from: Option<Timestamp> = since(visit).parse().ok();
    let range = TimeRange::new(from.map_or(until, Timestamp::as_millis), until);
    let step_ms = if step == "day" { DAY_MS } else { HOUR_MS };
    let rows = waits
        .into_iter()
        .flat_map(|waits| waits.list("rows"))
        .flat_map(|row| {
            let at = moment(row.text("key"));
            row.list("causes").iter().filter_map(move |cause| {
                let ms = cause.number("ms").unwrap_or_default();
                Some((at?.as_millis(), cause.text("label").to_owned(), ms))
            })
        });
    let series = super::drawn::by_name(range, step_ms, rows);
    let parts: Vec<BarPart<'_>> = series
        .iter()
        .enumerate()
        .map(|(index, (name, series))| BarPart {
            name,
            tone: Tone::Category(index),
            series,
        })
        .collect();
    html! {
        (TimeBars { title: "Waiting time by cause", range, unit: Unit::Duration, gather: Gather::Sum, parts: &parts })
    }
}

/// The moment of a row by time: a day, or an hour.
fn moment(key: &str) -> Option<Timestamp> {
    key.parse()
        .or_else(|_| format!("{key}T00:00:00.000Z").parse())
        .or_else(|_| format!("{}:00:00.000Z", key.replace(' ', "T")).parse())
        .ok()
}

/// The beginning of the time range.
fn since(visit: &Visit<'_>) -> String {
    let days = match visit.query("range") {
        "3d" => 3,
        "7d" => 7,
        "30d" => 30,
        _ => 1,
    };
    visit.now.plus_millis(-days * DAY_MS).to_string()
}

fn sentence(waits: &Value, total: f64) -> String {
    let Some(first) = waits.list("causes").first() else {
        return "No task waited.".to_owned();
    };
    let share = percent(first.number("ms").unwrap_or_default(), total);
    format!(
        "Tasks waited {} in all, {share} of it for one cause: {}.",
        numbers::duration(total),
        first.text("label")
    )
}

/// The remedy for a cause, as docs/waiting.md has it.
fn remedy(cause: &str) -> &'static str {
    match cause {
        "dependencies" => "The tasks that it depends on end.",
        "unknown-queue" => "Create the pool, or correct the task.",
        "deciding" | "planner-late" => {
            "The next decision; look at the log of the server if it is late."
        }
        "asked" | "booting" => "Machines start faster with a smaller image or a nearer region.",
        "claim" => "Workers ask for work more often.",
        "busy" => "A lower scaling ratio, or a strategy that learns.",
        "maximum" => "Raise the maximum of the pool, its launch configs or its provider.",
        "paused" => "Remove the override, or wait for its end.",
        "budget" => "Raise the budget, or wait for the next period.",
        "quota" => "Ask the provider for a larger quota, or add a region.",
        "refused" => "Add launch configs of other kinds or regions.",
        "price" => "Raise the maximum price, or add cheaper kinds.",
        "out-of-service" => "Mend the settings of the provider.",
        "no-launch-config" => "Give the pool a launch config with a weight.",
        "silent" => "Look at the workers that do not ask for work.",
        "quarantined" => "End the quarantine of workers.",
        _ => "",
    }
}

/// The pool of the page, as a parameter.
fn pool_of(visit: &Visit<'_>) -> Vec<(String, String)> {
    let pool = Some(visit.query("pool")).filter(|pool| !pool.is_empty());
    let pairs = pool.map(|pool| ("pool".to_owned(), pool.to_owned()));
    pairs.into_iter().collect()
}

/// A change to simulate for a cause: its question, its parameter and its value.
fn question(cause: &str) -> Option<(&'static str, &'static str, &'static str)> {
    match cause {
        "maximum" => Some(("What if the maximum were doubled?", "factor", "2")),
        "busy" => Some(("What if pools used `balanced`?", "strategy", "balanced")),
        "asked" | "booting" => Some(("What if idle workers were kept longer?", "idle", "900")),
        "price" => Some(("What if prices had no limit?", "price", "1000")),
        _ => None,
    }
}

fn causes(visit: &Visit<'_>, waits: &Value, total: f64) -> Markup {
    let causes = waits.list("causes");
    let may_ask = may_ask_what_if(visit);
    let rows = html! {
        @for cause in causes {
            @let ms = cause.number("ms").unwrap_or_default();
            tr {
                th scope="row" { (cause.text("label")) }
                td .n { (numbers::duration(ms)) }
                td .n { (percent(ms, total)) }
                td .n { (crate::words::count(cause.count("runs"))) }
                td .wrap.cz {
                    (remedy(cause.text("cause")))
                    @if let Some((text, name, value)) = question(cause.text("cause")).filter(|_| may_ask) {
                        " " a href=(links::with("/what-if", &pool_of(visit), name, value)) { (text) }
                    }
                }
            }
        }
    };
    let head = heads(&["Cause", "#Waited", "#Share", "#Runs", "It changes by"]);
    html! {
        h2 { "By cause" }
        @if causes.is_empty() {
            (empty("No task waited in this time. A wait is counted when it has ended."))
        } @else {
            (table("Waiting time by cause", &head, &rows))
        }
    }
}

fn rows(waits: &Value, by: &str) -> Markup {
    let list = waits.list("rows");
    let rows = html! {
        @for row in list {
            @let key = row.text("key");
            tr {
                th scope="row" {
                    @if by == "pool" { a href=(links::pool(key)) { (key) } } @else { (key) }
                }
                td .n { (time_taken(row.number("ms"))) }
                td .wrap.cz {
                    @for (index, cause) in row.list("causes").iter().take(3).enumerate() {
                        @if index > 0 { ", " }
                        (cause.text("label")) " "
                        (time_taken(cause.number("ms")))
                    }
                }
            }
        }
    };
    html! {
        @if !list.is_empty() {
            h2 { "By " (by) }
            (table("Waiting time", &heads(&[by, "#Waited", "Mostly for"]), &rows))
        }
    }
}
