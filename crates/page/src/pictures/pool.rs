//! A pool: what there is, what was decided and why, and from whose offers.

use api_client::{Call, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use super::drawn;
use crate::api::Refusal;
use crate::charts::{Mark, MarkKind};
use crate::json::Json as _;
use crate::links;
use crate::parts::{
    Action, empty, facts, field, heads, id as copied, may_ask_what_if, options, table,
};
use crate::view::{Listens, Part, Problem, Shown, View, Visit};
use crate::words::{ago, count, count_cell, duration, money};

/// Tasks that the page lists.
const TASKS: u32 = 20;

pub(super) async fn show(visit: &Visit<'_>, id: &str) -> Shown {
    let calls = [
        Call::get(WORKER_MANAGER, &["worker-pool", id]),
        Call::get(FLEETWRIGHT, &["explain", "pool", id]).query(
            "plan",
            Some(visit.query("plan")).filter(|plan| !plan.is_empty()),
        ),
        Call::get(WORKER_MANAGER, &["launch-configs", id]),
        Call::get(QUEUE, &["task-queues", id, "pending"]).query("limit", Some(TASKS)),
        Call::get(QUEUE, &["task-queues", id, "counts"]),
        Call::get(FLEETWRIGHT, &["series", "pool", id]).query("from", Some(drawn::since(visit))),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let Ok([pool, explained, configs, tasks, counts, series]) = <[_; 6]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let pool = pool?;
    let view = View::new(Part::Overview, id)
        .section("state", state(visit, id, &pool, &explained, &counts))
        .section("chart", chart(visit, id, &series, &explained))
        .section("decision", decision(visit, id, &explained))
        .section("configs", launch_configs(visit, &configs))
        .section("tasks", waiting(visit, id, &tasks))
        .section("settings", settings(&pool));
    Ok(view
        .command(format!("fleetwright explain pool {id}"))
        .listens(Listens::Pool(id.to_owned())))
}

fn state(
    visit: &Visit<'_>,
    id: &str,
    pool: &Value,
    explained: &Result<Value, Refusal>,
    counts: &Result<Value, Refusal>,
) -> Markup {
    let waiting = counts.as_ref().map_or(0, |it| it.count("pendingTasks"));
    let claimed = counts.as_ref().map_or(0, |it| it.count("claimedTasks"));
    let maximum = pool.count("config.maxCapacity");
    let reason = explained.as_ref().ok().map(sentence);
    html! {
        p .crumb { a href="/" { "Pools" } }
        div .hd {
            h1 { (id) }
            div .r { (override_actions(visit, id)) (end_action(visit, id)) }
        }
        @if let Some(reason) = reason.filter(|text| !text.is_empty()) {
            p .lede { (reason) }
        }
        p .state {
            a href="#tasks" { b { (count(waiting)) } "waiting" }
            a href=(format!("/workers?pool={}", links::escaped(id))) {
                b { (count(pool.count("requestedCapacity"))) } "starting" }
            a href=(format!("/workers?pool={}", links::escaped(id))) {
                b { (count(pool.count("runningCapacity"))) } "running" }
            span { b { (count(claimed)) } "tasks run" }
            span { b { (count(pool.count("stoppingCapacity"))) } "leaving" }
            span { b { (count(maximum)) } "at most" }
        }
        @if may_ask_what_if(visit) {
            p .note { a href=(what_if(id, maximum)) { "What if the maximum were another?" } }
        }
    }
}

/// The question about twice the maximum: a number to begin with.
fn what_if(id: &str, maximum: u64) -> String {
    let twice = maximum.saturating_mul(2).max(1).to_string();
    let query = [("pool".to_owned(), id.to_owned())];
    links::with("/what-if", &query, "max", &twice)
}

/// The workers over time. Each decision is a mark that leads to its reasons.
fn chart(
    visit: &Visit<'_>,
    id: &str,
    series: &Result<Value, Refusal>,
    explained: &Result<Value, Refusal>,
) -> Markup {
    let series = match series {
        Ok(series) => series,
        Err(refusal) => return refused("Over time", refusal),
    };
    let plans = explained.as_ref().map_or(&[][..], |it| it.list("plans"));
    let texts: Vec<(i64, String, String)> = plans
        .iter()
        .filter_map(|plan| {
            let at_ms = plan.moment("created")?.as_millis();
            let number = plan.count("number").to_string();
            let text = plan.text("text").lines().next().unwrap_or_default();
            let url = links::with(&links::pool(id), &[], "plan", &number);
            Some((at_ms, format!("decision {number}: {text}"), url))
        })
        .collect();
    let marks: Vec<Mark<'_>> = texts
        .iter()
        .map(|(at_ms, text, href)| Mark {
            at_ms: *at_ms,
            kind: MarkKind::Decision,
            text,
            href,
        })
        .collect();
    html! {
        h2 { "Over time" }
        (drawn::controls(visit))
        (drawn::capacity(&format!("Workers of {id} and waiting tasks"), drawn::range(visit), series, &marks))
    }
}

/// Why the pool has what it has, in a sentence.
fn sentence(explained: &Value) -> String {
    let reasons = explained.list("now.plan.plan.reasons");
    let first = reasons.first().and_then(Value::as_str).unwrap_or_default();
    let mut text = first.to_owned();
    if let Some(initial) = text.get_mut(..1) {
        initial.make_ascii_uppercase();
    }
    match text.is_empty() {
        true => text,
        false => format!("{text}."),
    }
}

fn decision(visit: &Visit<'_>, id: &str, explained: &Result<Value, Refusal>) -> Markup {
    let explained = match explained {
        Ok(explained) => explained,
        Err(refusal) => return refused("Decisions", refusal),
    };
    let plans = explained.list("plans");
    let asked: Option<u64> = visit.query("plan").parse().ok();
    let of_number = |plan: &&Value| asked.is_some_and(|number| plan.count("number") == number);
    let shown = plans.iter().find(of_number).or_else(|| plans.first());
    html! {
        h2 { "Decisions" }
        @if plans.is_empty() {
            (empty("Nothing has been decided yet: a decision is made when a task waits."))
        }
        @if let Some(plan) = shown {
            p { "Decision " (plan.count("number")) ", " (ago(plan.moment("created"), visit.now)) ":" }
            @for line in plan.text("text").lines() {
                p .note { (line) }
            }
            (offers(plan.list("offers")))
        }
        nav .views aria-label="Earlier decisions" {
            @for plan in plans {
                @let number = plan.count("number").to_string();
                a href=(links::with(&links::pool(id), &[], "plan", &number))
                    aria-current=[shown.is_some_and(|it| it.count("number") == plan.count("number")).then_some("true")] {
                    (number) i { (ago(plan.moment("created"), visit.now)) }
                }
            }
        }
        (launches(visit, explained.list("launches")))
    }
}

fn offers(offers: &[Value]) -> Markup {
    let rows = html! {
        @for offer in offers {
            @let taken = offer.count("taken");
            tr {
                th scope="row" { (offer.text("place")) }
                td .cz { (offer.text("providerId")) }
                td .n { (offer.number("price").map_or_else(|| "–".to_owned(), price)) }
                td .n { (offer.number("pricePerUsefulHour").map_or_else(|| "–".to_owned(), price)) }
                td .n { (offer.number("readyMs").map_or_else(|| "–".to_owned(), |ms| duration(whole(ms)))) }
                (count_cell(offer.count("offered")))
                td .n .took[taken > 0] .z[taken == 0] { (count(taken)) }
                td .wrap.cz { (offer.text("why")) }
            }
        }
    };
    let head = heads(&[
        "Place",
        "Provider",
        "#Price an hour",
        "#Per useful hour",
        "#Ready after",
        "#Offered",
        "#Taken",
        "Why",
    ]);
    html! {
        @if !offers.is_empty() { (table("Offers", &head, &rows)) }
    }
}

fn launches(visit: &Visit<'_>, launches: &[Value]) -> Markup {
    let rows = html! {
        @for launch in launches {
            tr {
                td { (ago(launch.moment("created"), visit.now)) }
                th scope="row" { (launch.text("launchConfigId")) }
                td .cz { (launch.text("providerId")) }
                (count_cell(launch.count("machines")))
                (count_cell(launch.count("made")))
                td { (launch.text("state")) }
                td .wrap.cz { (launch.text("cause")) " " (launch.text("problem")) }
            }
        }
    };
    let head = heads(&[
        "When",
        "Launch config",
        "Provider",
        "#Asked for",
        "#Made",
        "State",
        "Problem",
    ]);
    html! {
        @if !launches.is_empty() {
            h3 { "Launches" }
            (table("Launches", &head, &rows))
        }
    }
}

fn launch_configs(visit: &Visit<'_>, configs: &Result<Value, Refusal>) -> Markup {
    let configs = match configs {
        Ok(configs) => configs.list("launchConfigs"),
        Err(refusal) => return refused("Launch configs", refusal),
    };
    html! {
        h2 { "Launch configs" }
        @if configs.is_empty() {
            (empty("The pool has no launch config, so no worker can be launched."))
        } @else {
            (super::health::board(visit, configs, false))
        }
    }
}

fn waiting(visit: &Visit<'_>, id: &str, tasks: &Result<Value, Refusal>) -> Markup {
    let tasks = match tasks {
        Ok(tasks) => tasks.list("tasks"),
        Err(refusal) => return refused("Tasks that wait", refusal),
    };
    let rows = html! {
        @for task in tasks {
            @let task_id = task.text("taskId");
            tr {
                th scope="row" { a href=(links::task(task_id)) { (task.text("task.metadata.name")) } }
                td { (ago(task.moment("inserted"), visit.now)) }
                td { (task.text("task.priority")) }
                td .cz { (task.text("task.metadata.owner")) }
                td { (copied(task_id)) }
            }
        }
    };
    let head = heads(&["Task", "Waits since", "Priority", "Owner", "Id"]);
    html! {
        h2 { "Tasks that wait" }
        @if tasks.is_empty() {
            (empty("No task waits for this pool."))
        } @else {
            (table("Tasks that wait", &head, &rows))
            p .note { a href=(format!("/waiting?pool={}", links::escaped(id))) { "Why tasks wait" } }
        }
    }
}

fn settings(pool: &Value) -> Markup {
    let text = serde_json::to_string_pretty(pool.at("config")).unwrap_or_default();
    html! {
        h2 { "Settings" }
        (facts(&[
            ("Provider", html! { (pool.text("providerId")) }),
            ("Owner", html! { (pool.text("owner")) }),
            ("Description", html! { (pool.text("description")) }),
            ("Minimum", html! { (count(pool.count("config.minCapacity"))) }),
            ("Maximum", html! { (count(pool.count("config.maxCapacity"))) }),
        ]))
        details { summary { "Config" } pre .log tabindex="0" { (text) } }
    }
}

fn override_actions(visit: &Visit<'_>, id: &str) -> Markup {
    let name = format!("page-{}", id.replace('/', "-"));
    let action = |word: &str, says: &str, fields: Markup, option: &str| {
        Action {
            needs: Call::put(WORKER_MANAGER, &["override", &name], &Value::Null),
            id: &word.to_lowercase(),
            name: word,
            says,
            path: "fleet/override",
            hidden: &[("pool", id), ("override", &name)],
            fields: html! {
                (fields)
                (field("Reason", "reason", "", true))
                (field("Until", "until", "2h", true))
            },
            command: &format!(
                "fleetwright override set {name} --pool {id} {option} --until {{until}} \
                 --reason {{reason}}"
            ),
        }
        .show(visit)
    };
    let maximum = field("Maximum", "maximum", "", true);
    html! {
        (action("Pause", "No new workers are launched until the end. Workers that run stay.",
            html! {}, "--pause"))
        (action("Limit", "There are fewer workers until the end. Workers that run stay.",
            maximum, "--max-capacity {maximum}"))
    }
}

fn end_action(visit: &Visit<'_>, id: &str) -> Markup {
    Action {
        needs: Call::post(WORKER_MANAGER, &["selected-workers", "end"], &Value::Null),
        id: "end-workers",
        name: "End workers",
        says: "All workers of the pool end. Plans may replace them: pause the pool before.",
        path: "fleet/end-selected",
        hidden: &[("workerPoolId", id)],
        fields: html! {
            (field("Reason", "reason", "", true))
            (options("Tasks", "drain", &[("yes", "finish first"), ("no", "are lost")]))
        },
        command: &format!("fleetwright worker end --pool {id} --drain --reason {{reason}}"),
    }
    .show(visit)
}

/// A part of the page that this person may not see, or that is away.
pub(super) fn refused(title: &str, refusal: &Refusal) -> Markup {
    let text = match refusal.is_forbidden() {
        true => "You may not see this: your client lacks the scope.",
        false => refusal.message.lines().next().unwrap_or_default(),
    };
    html! { h2 { (title) } p .note { (text) } }
}

pub(super) fn price(dollars: f64) -> String {
    money(dollars * 1_000_000.0)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "milliseconds of a machine's start are far below the limit"
)]
pub(super) fn whole(number: f64) -> i64 {
    number.round() as i64
}
