//! A pool: what there is, what was decided and why, and from whose offers.

use api_client::{Call, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
use futures_util::future::{join, join_all};
use maud::{Markup, html};
use serde_json::Value;

use super::changes::{self, Change};
use super::decision::Decisions;
use super::drawn;
use crate::api::Refusal;
use crate::charts::{Mark, MarkKind, MomentLinks};
use crate::json::Json as _;
use crate::links;
use crate::parts::{
    Action, empty, facts, field, heads, id as copied, may_ask_what_if, options, refused, table,
};
use crate::view::{Listens, Part, Problem, Shown, View, Visit};
use crate::words::{ago, count};

/// Tasks that the page lists.
const TASKS: u32 = 20;

pub(super) async fn show(visit: &Visit<'_>, id: &str) -> Shown {
    let explain = Call::get(FLEETWRIGHT, &["explain", "pool", id]);
    let at = drawn::moment(visit).map(|at| explain.clone().query("at", Some(at)));
    let calls = [
        Call::get(WORKER_MANAGER, &["worker-pool", id]),
        explain,
        Call::get(WORKER_MANAGER, &["launch-configs", id]),
        Call::get(QUEUE, &["task-queues", id, "pending"]).query("limit", Some(TASKS)),
        Call::get(QUEUE, &["task-queues", id, "counts"]),
        Call::get(FLEETWRIGHT, &["series", "pool", id]).query("from", Some(drawn::since(visit))),
    ];
    let earlier = join_all(at.map(|call| visit.api.call(call)));
    let (replies, earlier) = join(join_all(calls.map(|call| visit.api.call(call))), earlier).await;
    let Ok([pool, explained, configs, tasks, counts, series]) = <[_; 6]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let pool = pool?;
    let range = drawn::range(visit);
    let changes = changes::of_pool(visit, range, &pool).await;
    let at = drawn::moment(visit).and_then(|at| Some((at, earlier.first()?)));
    let decisions = Decisions {
        pool: id,
        newest: explained.as_ref(),
        earlier: at.map(|(at, explained)| (at, explained.as_ref())),
    };
    let view = View::new(Part::Overview, id)
        .section("state", state(visit, id, &pool, &decisions, &counts))
        .section("chart", chart(visit, id, &series, &decisions, &changes))
        .section("decision", decisions.show(visit))
        .section("configs", launch_configs(visit, &configs))
        .section("tasks", waiting(visit, id, &tasks))
        .section("settings", settings(&pool));
    Ok(view
        .command(decisions.command())
        .listens(Listens::Pool(id.to_owned())))
}

fn state(
    visit: &Visit<'_>,
    id: &str,
    pool: &Value,
    decisions: &Decisions<'_>,
    counts: &Result<Value, Refusal>,
) -> Markup {
    let waiting = counts.as_ref().map_or(0, |it| it.count("pendingTasks"));
    let claimed = counts.as_ref().map_or(0, |it| it.count("claimedTasks"));
    let maximum = pool.count("config.maxCapacity");
    html! {
        p .crumb { a href="/" { "Pools" } }
        div .hd {
            h1 { (id) }
            div .r { (override_actions(visit, id)) (end_action(visit, id)) }
        }
        @if let Some(reason) = decisions.reason() { p .lede { (reason) } }
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

/// The workers over time, with changes and decisions. A click in it leads to the decision of that
/// moment.
fn chart(
    visit: &Visit<'_>,
    id: &str,
    series: &Result<Value, Refusal>,
    decisions: &Decisions<'_>,
    changes: &[Change],
) -> Markup {
    let series = match series {
        Ok(series) => series,
        Err(refusal) => return refused("Over time", refusal),
    };
    let mark = |at_ms, kind, text, href| Mark {
        at_ms,
        kind,
        text,
        href,
    };
    let known = decisions.moments(visit);
    let of_decisions = known
        .iter()
        .map(|(at_ms, text, href)| mark(*at_ms, MarkKind::Decision, text.as_str(), href));
    let of_changes = changes
        .iter()
        .map(|it| mark(it.at_ms, MarkKind::Change, it.text.as_str(), &it.href));
    let marks: Vec<Mark<'_>> = of_changes.chain(of_decisions).collect();
    let page = visit.with("at", "");
    let joint = if page.contains('?') { '&' } else { '?' };
    let before = format!("{page}{joint}at=");
    let moments = MomentLinks {
        before: &before,
        after: "#decision",
    };
    let title = format!("Workers of {id} and waiting tasks");
    html! {
        h2 { "Over time" }
        (drawn::controls(visit))
        (drawn::capacity(&title, drawn::range(visit), series, &marks, moments))
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
