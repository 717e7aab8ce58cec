//! The start page: is all well, what is wrong now and why, and every pool.

use api_client::{Call, FLEETWRIGHT};
use domain::time::HOUR_MS;
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use super::drawn;
use crate::api::Refusal;
use crate::charts::{Series, SparkLine, TimeRange};
use crate::json::Json as _;
use crate::links;
use crate::parts::{empty, mark, more};
use crate::view::{Part, Problem, Shown, View, Visit};
use crate::words::{ago, count, count_cell, money, timed};

/// Pools of a page; as many have spark lines.
const PAGE: u32 = 50;
/// The problems that the page shows; the command shows all.
const PROBLEMS: usize = 8;
const SPARK_MS: i64 = 6 * HOUR_MS;
const SPARK_PARTS: u32 = 36;
/// In a large fleet it takes longer to read the state than people wait gladly.
const KNOWN_S: u32 = 10;

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let after = visit.query("after");
    let search = visit.query("q");
    let order = match visit.query("sort") {
        known @ ("waiting" | "name" | "cost") => known,
        _ => "trouble",
    };
    let from = visit.now.plus_millis(-SPARK_MS).to_string();
    let max_age = visit.is_opened.then_some(KNOWN_S);
    let calls = [
        Call::get(FLEETWRIGHT, &["status"]).query("maxAge", max_age),
        Call::get(FLEETWRIGHT, &["status", "pools"])
            .query("limit", Some(PAGE))
            .query("order", Some(order))
            .query("maxAge", max_age)
            .query("search", (!search.is_empty()).then_some(search))
            .query("continuationToken", (!after.is_empty()).then_some(after)),
        Call::get(FLEETWRIGHT, &["series"]).query("from", Some(&from)),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let Ok([status, pools, fleet]) = <[_; 3]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let (status, pools) = (status?, pools?);
    let sparks = sparks(visit, pools.list("pools")).await;
    let view = View::new(Part::Overview, "")
        .ill(status.count("ill"))
        .section("state", state(&status, fleet.as_ref().ok(), visit))
        .section("problems", problems(visit, &status))
        .section("pools", list(visit, &pools, order, sparks.as_ref().ok()));
    Ok(view.command("fleetwright status"))
}

async fn sparks(visit: &Visit<'_>, pools: &[Value]) -> Result<Value, Refusal> {
    let names: Vec<&str> = pools.iter().map(|pool| pool.text("workerPoolId")).collect();
    if names.is_empty() {
        return Ok(Value::Null);
    }
    let call = Call::get(FLEETWRIGHT, &["series", "pools"])
        .query("from", Some(visit.now.plus_millis(-SPARK_MS)))
        .query("points", Some(SPARK_PARTS))
        .query("pools", Some(names.join(",")));
    visit.api.call(call).await
}

/// The fleet in a line.
fn state(status: &Value, fleet: Option<&Value>, visit: &Visit<'_>) -> Markup {
    let total = |name: &str| count(status.count(&format!("totals.{name}")));
    let starting = status.count("totals.requested") + status.count("totals.booting");
    let ill = status.count("ill");
    html! {
        h1 .vh { "Pools" }
        p .state {
            a href="/waiting" { b { (total("waiting")) } "waiting" }
            a href="/workers?state=requested" { b { (count(starting)) } "starting" }
            a href="/workers?presence=busy" { b { (total("busy")) } "busy" }
            a href="/workers?presence=idle" { b { (total("idle")) } "idle" }
            a href="/workers?state=stopping" { b { (total("leaving")) } "leaving" }
            @if let Some(cost) = status.number("totals.costToday") {
                a href="/money?range=1d" { b { (money(cost)) } "today" }
            }
            @if let Some(cost) = status.number("totals.costPerHour") {
                a href="/money" { b { (money(cost)) } "an hour now" }
            }
            @if ill > 0 {
                a .bad href="#problems" { b { (mark(true)) (ill) } "ill" }
            } @else {
                span .good { "All is well" }
            }
            @if let Some(fleet) = fleet { (fleet_spark(fleet, visit)) }
        }
    }
}

fn fleet_spark(fleet: &Value, visit: &Visit<'_>) -> Markup {
    let now = visit.now.as_millis();
    let waiting = drawn::member(fleet, "waiting");
    let states = ["requested", "booting", "idle", "busy", "leaving"];
    let states = states.map(|name| drawn::member(fleet, name));
    let capacity = sum(&states);
    html! {
        span .fs {
            (SparkLine {
                range: TimeRange::new(now - SPARK_MS, now),
                waiting: &waiting,
                capacity: &capacity,
                limit: None,
            })
            span .sm { "6 h" }
        }
    }
}

/// Series of one length, added up; a gap in one is a gap of the sum.
fn sum(series: &[Series]) -> Series {
    let Some((first, others)) = series.split_first() else {
        return Series::default();
    };
    let mut sum = first.clone();
    for other in others {
        for (total, value) in sum.values.iter_mut().zip(&other.values) {
            *total = total.zip(*value).map(|(total, value)| total + value);
        }
    }
    sum
}

/// The present problems: the reason, the next step of the program, and the advice.
fn problems(visit: &Visit<'_>, status: &Value) -> Markup {
    let problems = status.list("problems");
    html! {
        @if !problems.is_empty() {
            h2 .vh { "Problems now" }
            ul .ills {
                @for problem in problems.iter().take(PROBLEMS) {
                    li {
                        (mark(problem.text("severity") == "ill"))
                        span .why {
                            (about(problem))
                            (timed(problem.text("reason"), visit.now))
                            @if !problem.text("words").is_empty() { " " q { (problem.text("words")) } }
                            @if !problem.text("next").is_empty() { span .cz { (timed(problem.text("next"), visit.now)) } }
                        }
                        span .t {
                            @if problem.moment("since").is_some() {
                                "since " (ago(problem.moment("since"), visit.now))
                            }
                        }
                        @if !problem.text("action").is_empty() {
                            details { summary { "what to do" } code { (problem.text("action")) } }
                        }
                    }
                }
            }
            @if problems.len() > PROBLEMS {
                p .note { "And " (count((problems.len() - PROBLEMS) as u64)) " more: "
                    code { "fleetwright status" } " shows all." }
            }
        }
    }
}

/// The object that a problem is about.
fn about(problem: &Value) -> Markup {
    let pool = problem.text("workerPoolId");
    let config = problem.text("launchConfigId");
    let image = problem.text("imageId");
    let (url, name) = if !config.is_empty() {
        (
            links::launch_config(pool, config),
            format!("{config} of {pool}"),
        )
    } else if !pool.is_empty() {
        (links::pool(pool), pool.to_owned())
    } else if !image.is_empty() {
        (links::image(image), image.to_owned())
    } else if !problem.text("budgetId").is_empty() {
        (
            "/money#budgets".to_owned(),
            problem.text("budgetId").to_owned(),
        )
    } else if !problem.text("providerId").is_empty() {
        (
            "/providers".to_owned(),
            problem.text("providerId").to_owned(),
        )
    } else {
        return html! {};
    };
    html! { a href=(url) { (name) } ": " }
}

fn list(visit: &Visit<'_>, reply: &Value, order: &str, sparks: Option<&Value>) -> Markup {
    let pools = reply.list("pools");
    html! {
        form .filter role="search" {
            input type="search" name="q" value=(visit.query("q")) autocomplete="off"
                placeholder=(format!("Find among {} pools", count(reply.count("matching"))))
                aria-label="Find pools by name";
            @if order != "trouble" { input type="hidden" name="sort" value=(order); }
        }
        @if pools.is_empty() {
            (empty(match visit.query("q") {
                "" => "There are no pools yet. `fleetwright pool create` makes one, and \
                    `fleetwright rules create` makes pools from rules.",
                _ => "No pool has this in its name.",
            }))
        } @else {
            div .tw tabindex="0" role="region" aria-label="Pools" {
                table {
                    caption .vh { "Pools" }
                    thead { tr {
                        (head(visit, order, "trouble", "Pool, ill first", false))
                        th scope="col" { "6 h: waiting over workers" }
                        (head(visit, order, "waiting", "Waiting", true))
                        th .n scope="col" { "Starting" }
                        th .n scope="col" { "Busy" }
                        th .n scope="col" { "Idle" }
                        th .n scope="col" { "Leaving" }
                        th .n scope="col" { "At most" }
                        th scope="col" { "Waits for" }
                        th .n scope="col" { "Errors, last hour" }
                        (head(visit, order, "cost", "Today", true))
                    } }
                    tbody { @for pool in pools { (row(visit, pool, sparks)) } }
                }
            }
        }
        (more(visit, reply.text("continuationToken")))
    }
}

fn head(visit: &Visit<'_>, order: &str, name: &str, text: &str, is_number: bool) -> Markup {
    let value = if name == "trouble" { "" } else { name };
    html! {
        th scope="col" .n[is_number] aria-sort=[(order == name).then_some("descending")] {
            a href=(visit.with("sort", value)) { (text) }
        }
    }
}

fn row(visit: &Visit<'_>, pool: &Value, sparks: Option<&Value>) -> Markup {
    let id = pool.text("workerPoolId");
    let trouble = pool.list("trouble");
    let is_ill = trouble.iter().any(|it| it.text("severity") == "ill");
    let cause = pool.text("wait.cause");
    let of = |filter: &str| format!("/workers?pool={}&{filter}", links::escaped(id));
    html! {
        tr data-row=(id) {
            th scope="row" {
                a href=(links::pool(id)) {
                    @if !trouble.is_empty() { (mark(is_ill)) }
                    (id)
                }
            }
            td { @if let Some(sparks) = sparks { (spark(sparks, id, pool, visit)) } }
            (count_link(pool.count("waiting"), &format!("{}#tasks", links::pool(id))))
            (count_link(pool.count("requested") + pool.count("booting"), &of("state=requested")))
            (count_link(pool.count("busy"), &of("presence=busy")))
            (count_link(pool.count("idle"), &of("presence=idle")))
            (count_link(pool.count("leaving"), &of("state=stopping")))
            (count_cell(pool.count("maximum")))
            td {
                @if !cause.is_empty() {
                    (cause.replace('-', " ")) " " span .sm { (ago(pool.moment("wait.since"), visit.now)) }
                }
            }
            (count_link(pool.count("errors"), &format!("/errors?pool={}", links::escaped(id))))
            td .n { @if let Some(cost) = pool.number("costToday") { (money(cost)) } }
        }
    }
}

fn count_link(number: u64, url: &str) -> Markup {
    html! { td .n .z[number == 0] { a href=(url) { (count(number)) } } }
}

fn spark(sparks: &Value, id: &str, pool: &Value, visit: &Visit<'_>) -> Markup {
    let found = sparks
        .list("pools")
        .iter()
        .find(|it| it.text("workerPoolId") == id);
    let Some(found) = found else {
        return html! {};
    };
    let now = visit.now.as_millis();
    let (from, part_ms) = (
        sparks.moment("from"),
        sparks.at("partMs").as_i64().unwrap_or(1),
    );
    let waiting = drawn::parts(from, part_ms, found.list("waiting"));
    let capacity = drawn::parts(from, part_ms, found.list("capacity"));
    html! {
        (SparkLine {
            range: TimeRange::new(now - SPARK_MS, now),
            waiting: &waiting,
            capacity: &capacity,
            limit: pool.number("maximum"),
        })
    }
}
