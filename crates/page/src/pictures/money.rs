//! Money: what it was spent on, and what is left of budgets.

use api_client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use domain::time::Timestamp;
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use crate::api::Refusal;
use crate::charts::{BarPart, Gather, Gauge, ShareBar, TimeBars, TimeRange, Tone, Unit};
use crate::json::Json as _;
use crate::links;
use crate::parts::{choices, empty, heads, mark, refused, table};
use crate::view::{Part, Problem, Shown, View, Visit};
use crate::words::{ago, money, percent, timed};

/// The uses of money, as docs/costs.md explains them.
pub(super) const USES: [&str; 7] = [
    "useful", "booting", "idle", "failed", "leaving", "lost", "unknown",
];
const RANGES: &[(&str, &str)] = &[
    ("1d", "Day"),
    ("", "Week"),
    ("30d", "30 days"),
    ("1y", "Year"),
];
const LINES: u32 = 50;

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let by = match visit.query("by") {
        known @ ("kind" | "launch-config" | "provider" | "owner") => known,
        _ => "pool",
    };
    let since = since(visit);
    let report = |by: &str| {
        Call::get(FLEETWRIGHT, &["cost"])
            .query("by", Some(by))
            .query("since", Some(&since))
    };
    let calls = [
        report(by).query("top", Some(LINES)),
        report("day"),
        Call::get(WORKER_MANAGER, &["budgets"]),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let Ok([lines, days, budgets]) = <[_; 3]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let lines = lines?;
    let head = html! {
        h1 { "Money" }
        p .lede { (sentence(&lines)) }
        div .filter {
            (choices(visit, "range", "Time range", RANGES))
            (choices(visit, "by", "By", &[
                ("", "Pool"), ("owner", "Owner"), ("provider", "Provider"), ("kind", "Kind"),
                ("launch-config", "Launch config"),
            ]))
        }
    };
    let view = View::new(Part::Money, "Money")
        .section("head", head)
        .section("chart", chart(visit, days.as_ref().ok()))
        .section(
            "days",
            match &days {
                Ok(days) => costs("By day", "day", days),
                Err(refusal) => refused("By day", refusal),
            },
        )
        .section("lines", costs(&format!("By {by}"), by, &lines))
        .section("budgets", budgets_of(visit, &budgets));
    Ok(view.command(format!("fleetwright cost --by {by}")))
}

/// The beginning of the time range.
fn since(visit: &Visit<'_>) -> String {
    let days = match visit.query("range") {
        "1d" => 1,
        "30d" => 30,
        "1y" => 365,
        _ => 7,
    };
    visit
        .now
        .plus_millis(-days * domain::time::DAY_MS)
        .to_string()
}

/// The cost of each day by use.
fn chart(visit: &Visit<'_>, days: Option<&Value>) -> Markup {
    let until = visit.now.as_millis();
    let from = days.and_then(|days| days.moment("since"));
    let range = TimeRange::new(from.map_or(until, Timestamp::as_millis), until);
    let rows = days
        .into_iter()
        .flat_map(|days| days.list("lines"))
        .flat_map(|line| {
            let at: Option<Timestamp> = format!("{}T00:00:00.000Z", line.text("day")).parse().ok();
            USES.into_iter().filter_map(move |name| {
                let dollars = of_use(line, name) / 1_000_000.0;
                Some((at?.as_millis(), name.to_owned(), dollars))
            })
        });
    let series = super::drawn::by_name(range, domain::time::DAY_MS, rows);
    let parts: Vec<BarPart<'_>> = series
        .iter()
        .map(|(name, series)| BarPart {
            name,
            tone: tone(name),
            series,
        })
        .collect();
    html! {
        (TimeBars { title: "Cost by use", range, unit: Unit::Money, gather: Gather::Sum, parts: &parts })
    }
}

/// The meaning of a use, by which it is coloured on all pages.
fn tone(name: &str) -> Tone {
    match name {
        "useful" => Tone::Busy,
        "booting" => Tone::Booting,
        "idle" => Tone::Idle,
        "failed" => Tone::Failed,
        "leaving" => Tone::Leaving,
        "lost" => Tone::Lost,
        _ => Tone::Requested,
    }
}

fn sentence(report: &Value) -> String {
    let total = report.number("total.costMicros").unwrap_or_default();
    let wasted = report.number("total.wastedMicros").unwrap_or_default();
    if total == 0.0 {
        return "Nothing was spent, or no prices are known.".to_owned();
    }
    let most = USES
        .into_iter()
        .filter(|name| *name != "useful" && *name != "unknown")
        .map(|name| (name, of_use(report.at("total"), name)))
        .max_by(|(_, one), (_, other)| one.total_cmp(other));
    let most = most.map_or_else(String::new, |(name, cost)| {
        format!(", most of it {name}: {}", money(cost))
    });
    format!(
        "{} was spent. {} of it ({}) was wasted{most}.",
        money(total),
        money(wasted),
        percent(wasted, total)
    )
}

fn of_use(line: &Value, name: &str) -> f64 {
    let path = format!("uses.{name}.costMicros");
    line.number(&path).unwrap_or_default()
}

fn costs(title: &str, by: &str, report: &Value) -> Markup {
    let lines = report.list("lines");
    let rows = html! {
        @for line in lines {
            @let cost = line.number("costMicros").unwrap_or_default();
            tr {
                th scope="row" { (name(line, by)) }
                td .n { b { (money(cost)) } }
                td { (shares(line)) }
                td .n { (percent(line.number("wastedMicros").unwrap_or_default(), cost)) }
                @for part in USES {
                    @let part = of_use(line, part);
                    td .n .z[part == 0.0] { (money(part)) }
                }
            }
        }
    };
    let mut names = [by, "#Cost", "Uses", "#Wasted"].map(str::to_owned).to_vec();
    names.extend(USES.map(|name| format!("#{name}")));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    html! {
        h2 { (title) }
        @if lines.is_empty() {
            (empty("No machine ran in this time."))
        } @else {
            (table(title, &heads(&names), &rows))
        }
    }
}

/// The uses of a line as shares.
fn shares(line: &Value) -> Markup {
    let parts = USES.map(|name| (name, tone(name), of_use(line, name) / 1_000_000.0));
    html! { (ShareBar { label: "Uses", unit: Unit::Money, parts: &parts }) }
}

/// The subject of a line of a report.
fn name(line: &Value, by: &str) -> Markup {
    let pool = line.text("workerPoolId");
    html! {
        @match by {
            "pool" => a href=(links::pool(pool)) { (pool) },
            "launch-config" => {
                a href=(links::launch_config(pool, line.text("launchConfigId"))) { (line.text("launchConfigId")) }
                " of " (pool)
            },
            "day" => (line.text("day")),
            "owner" => (line.text("owner")),
            "provider" => (line.text("providerId")),
            _ => (line.text("kind")),
        }
    }
}

fn budgets_of(visit: &Visit<'_>, budgets: &Result<Value, Refusal>) -> Markup {
    let budgets = match budgets {
        Ok(budgets) => budgets.list("budgets"),
        Err(refusal) => return refused("Budgets", refusal),
    };
    let rows = html! {
        @for budget in budgets {
            @let step = budget.text("step");
            tr {
                th scope="row" {
                    @if step != "within" { (mark(step == "spent")) }
                    (budget.text("budgetId"))
                }
                td { (budget.text("workerPools")) (budget.text("owner")) (budget.text("providerId")) }
                td { "a " (budget.text("per")) }
                td .n { (dollars(budget, "limit")) }
                td .n { b { (dollars(budget, "spent")) } }
                td { (Gauge {
                    name: budget.text("budgetId"),
                    unit: Unit::Money,
                    used: budget.number("spent").unwrap_or_default(),
                    limit: budget.number("limit").unwrap_or_default(),
                    expected: expected(budget, visit),
                }) }
                td .n { (dollars(budget, "left")) }
                td { (step) }
                td { (ago(budget.moment("periodEnds"), visit.now)) }
                td .wrap.cz { (timed(budget.text("text"), visit.now)) }
            }
        }
    };
    let head = heads(&[
        "Budget",
        "For",
        "Per",
        "#Limit",
        "#Spent",
        "#Share",
        "#Left",
        "Step",
        "New period",
        "Now",
    ]);
    html! {
        h2 #budgets { "Budgets" }
        @if budgets.is_empty() {
            (empty("There is no budget. `fleetwright budget set` limits what pools, owners or \
                providers may spend."))
        } @else {
            (table("Budgets", &head, &rows))
        }
    }
}

/// The money that would be spent by now at an even pace.
fn expected(budget: &Value, visit: &Visit<'_>) -> Option<f64> {
    let (begins, ends) = (budget.moment("periodBegins")?, budget.moment("periodEnds")?);
    #[expect(
        clippy::cast_precision_loss,
        reason = "periods have far fewer milliseconds than a double holds"
    )]
    let share = visit.now.millis_since(begins) as f64 / ends.millis_since(begins).max(1) as f64;
    Some(budget.number("limit")? * share.clamp(0.0, 1.0))
}

fn dollars(budget: &Value, name: &str) -> String {
    money(budget.number(name).unwrap_or_default() * 1_000_000.0)
}
