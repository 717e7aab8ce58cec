//! Errors that providers and workers reported, by cause.

use api_client::{Call, FLEETWRIGHT};
use domain::time::{HOUR_MS, Timestamp};
use maud::{Markup, html};
use serde_json::Value;

use crate::charts::{Series, SparkLine, TimeRange};
use crate::json::Json as _;
use crate::links;
use crate::parts::{empty, heads, more, table};
use crate::view::{Part, Shown, View, Visit};
use crate::words::{ago, count, counted};

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let (pool, after) = (visit.query("pool"), visit.query("after"));
    let call = Call::get(FLEETWRIGHT, &["error-causes"])
        .query("workerPoolId", (!pool.is_empty()).then_some(pool))
        .query("continuationToken", (!after.is_empty()).then_some(after));
    let reply = visit.api.call(call).await?;
    let causes = reply.list("causes");
    let content = html! {
        h1 { "Errors" @if !pool.is_empty() { " of " a href=(links::pool(pool)) { (pool) } } }
        p .lede { (sentence(causes)) }
        @if causes.is_empty() {
            (empty("No provider and no worker reported an error."))
        } @else {
            (list(visit, causes))
        }
        (more(visit, reply.text("continuationToken")))
    };
    let view = View::new(Part::Errors, "Errors").section("errors", content);
    Ok(view.command("fleetwright error causes"))
}

fn sentence(causes: &[Value]) -> String {
    let total = causes.iter().map(|cause| cause.count("errors")).sum();
    match causes.len() {
        0 => "Nothing failed.".to_owned(),
        n => format!(
            "{} for {}.",
            counted(total, "error"),
            counted(n as u64, "cause")
        ),
    }
}

/// The errors of each hour of the last day.
fn trend(cause: &Value, visit: &Visit<'_>) -> Markup {
    let since = cause.moment("trendSince").map_or(0, Timestamp::as_millis);
    let hours = cause.list("trend").iter().filter_map(Value::as_f64);
    let errors = Series::new(since, HOUR_MS, hours);
    html! {
        (SparkLine {
            range: TimeRange::new(since, visit.now.as_millis()),
            waiting: &errors,
            capacity: &Series::default(),
            limit: None,
        })
    }
}

fn list(visit: &Visit<'_>, causes: &[Value]) -> Markup {
    let rows = html! {
        @for cause in causes {
            tr {
                th scope="row" .wrap { (cause.text("title")) }
                td .cz { (cause.text("kind")) " " (cause.text("code")) }
                td .n { b { (count(cause.count("errors"))) } }
                td { (trend(cause, visit)) }
                td { (ago(cause.moment("first"), visit.now)) }
                td { (ago(cause.moment("last"), visit.now)) }
                td .wrap {
                    @for (index, pool) in cause.list("workerPools").iter().enumerate() {
                        @if index > 0 { ", " }
                        @let id = pool.text("workerPoolId");
                        a href=(links::pool(id)) { (id) } " " (count(pool.count("errors")))
                    }
                }
                td .wrap.cz { (cause.text("example.description")) }
            }
        }
    };
    let head = heads(&[
        "Cause", "Kind", "#Errors", "Last day", "First", "Last", "Pools", "Example",
    ]);
    table("Errors by cause", &head, &rows)
}
