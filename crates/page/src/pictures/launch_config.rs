//! A launch config: whether it is used, and how its machines start.

use api_client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use maud::{Markup, html};
use serde_json::Value;

use crate::json::Json as _;
use crate::links;
use crate::parts::{empty, facts, heads, id as copied, refused, table};
use crate::view::{Listens, Part, Shown, View, Visit};
use crate::words::{ago, count, count_cell, time_taken, timed};

pub(super) async fn show(visit: &Visit<'_>, pool: &str, id: &str) -> Shown {
    let config = Call::get(WORKER_MANAGER, &["launch-config", pool, id]);
    let config = visit.api.call(config).await?;
    let explained = Call::get(FLEETWRIGHT, &["explain", "launch-config", pool, id]);
    let explained = visit.api.call(explained).await;
    let text = serde_json::to_string_pretty(config.at("configuration")).unwrap_or_default();
    let content = html! {
        p .crumb { a href=(links::pool(pool)) { (pool) } }
        div .hd {
            h1 { "Launch config " (copied(id)) }
            div .r { (super::health::actions(visit, &config, 0)) }
        }
        p .lede { (super::health::state(&config)) " " (timed(super::health::reason(&config), visit.now)) }
        (facts(&[
            ("Place", html! { (config.text("place")) }),
            ("Provider", html! { (config.text("providerId")) }),
            ("Since", ago(config.moment("availability.since"), visit.now)),
            ("Next try", ago(config.moment("availability.nextTry"), visit.now)),
            ("Running", html! { (count(config.count("workers.running"))) }),
            ("Tried in the last hour", html! { (count(config.count("launches.attempts"))) }),
            ("Registered", html! { (count(config.count("launches.registered"))) }),
            ("Claimed", html! { (count(config.count("launches.claimed"))) }),
        ]))
    };
    let view = View::new(Part::Health, format!("{id} of {pool}"))
        .section("state", content)
        .section("failures", failures(visit, &config))
        .section(
            "start",
            match &explained {
                Ok(explained) => start(explained),
                Err(refusal) => refused("Start of machines", refusal),
            },
        )
        .section(
            "content",
            html! {
                h2 { "Content" }
                pre .log tabindex="0" { (text) }
            },
        );
    Ok(view
        .command(format!("fleetwright explain launch-config {pool} {id}"))
        .listens(Listens::Pool(pool.to_owned())))
}

fn failures(visit: &Visit<'_>, config: &Value) -> Markup {
    let failures = config.list("failures");
    let rows = html! {
        @for failure in failures {
            tr {
                th scope="row" { (failure.text("cause")) }
                (count_cell(failure.count("machines")))
                td { (ago(failure.moment("first"), visit.now)) }
                td { (ago(failure.moment("last"), visit.now)) }
                td .wrap { (failure.text("example")) }
            }
        }
    };
    let head = heads(&["Cause", "#Machines", "First", "Last", "Example"]);
    html! {
        h2 { "Failures in the last hour" }
        @if failures.is_empty() {
            (empty("No launch failed in the last hour."))
        } @else {
            (table("Failures", &head, &rows))
        }
    }
}

/// The phases of a start, by region.
fn start(explained: &Value) -> Markup {
    let regions = explained.list("regions");
    let rows = html! {
        @for region in regions {
            @for phase in region.list("phases") {
                tr {
                    th scope="row" { (region.text("region")) }
                    td { (phase.text("from")) " → " (phase.text("phase")) }
                    (count_cell(phase.count("machines")))
                    @for name in ["medianMs", "p95Ms"] {
                        td .n { (time_taken(phase.number(name))) }
                    }
                }
            }
        }
    };
    let head = heads(&[
        "Region",
        "Phase",
        "#Machines",
        "#Half within",
        "#95 % within",
    ]);
    html! {
        h2 { "Start of machines, last day" }
        @if regions.is_empty() {
            (empty("No machine of it started in the last day."))
        } @else {
            (table("Start of machines", &head, &rows))
        }
    }
}
