//! A task: why it waits, its runs, its log and its files; and a group of tasks.

use api_client::{Call, FLEETWRIGHT, QUEUE};
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use crate::json::Json as _;
use crate::links;
use crate::parts::{Action, empty, facts, heads, id as copied, more, options, refused, table};
use crate::view::{Listens, Part, Problem, Shown, View, Visit};
use crate::words::{ago, time_taken, timed};

/// The page shows this much of the end of a log.
const LOG_BYTES: usize = 64 * 1024;
const PAGE: u32 = 100;

pub(super) async fn show(visit: &Visit<'_>, id: &str) -> Shown {
    let calls = [
        Call::get(QUEUE, &["task", id]),
        Call::get(QUEUE, &["task", id, "status"]),
        Call::get(FLEETWRIGHT, &["explain", "task", id]),
        Call::get(FLEETWRIGHT, &["task", id, "log"]).query("follow", Some("false")),
        Call::get(QUEUE, &["task", id, "artifacts"]),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let Ok([task, status, explained, log, artifacts]) = <[_; 5]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let (task, status) = (task?, status?);
    let status = status.at("status");
    let head = html! {
        p .crumb {
            a href=(links::pool(task.text("taskQueueId"))) { (task.text("taskQueueId")) } " "
            a href=(links::to("groups", &[task.text("taskGroupId")])) { "its group" }
        }
        div .hd {
            h1 { (task.text("metadata.name")) }
            div .r { (actions(visit, id, status)) }
        }
        p .note { (copied(id)) }
        p .lede {
            "It is " b { (status.text("state")) }
            @if let Ok(explained) = &explained {
                @if !explained.text("reason").is_empty() { ": " (timed(explained.text("reason"), visit.now)) }
            }
            "."
        }
        (facts(&[
            ("Owner", html! { (task.text("metadata.owner")) }),
            ("Description", html! { (task.text("metadata.description")) }),
            ("Priority", html! { (status.text("priority")) }),
            ("Created", ago(task.moment("created"), visit.now)),
            ("Deadline", ago(task.moment("deadline"), visit.now)),
        ]))
    };
    let why = match &explained {
        Ok(explained) => waits(visit, explained),
        Err(refusal) => refused("Why it waits", refusal),
    };
    let view = View::new(Part::Other, task.text("metadata.name"))
        .section("head", head)
        .section("why", why)
        .section("runs", runs(visit, status))
        .section("log", log_of(id, log.as_ref().ok().and_then(Value::as_str)))
        .section("files", files(id, artifacts.as_ref().ok()))
        .section("definition", definition(&task));
    Ok(view
        .command(format!("fleetwright explain task {id}"))
        .listens(Listens::Task(id.to_owned())))
}

/// The cause of its wait, what would change it, and its past waits.
fn waits(visit: &Visit<'_>, explained: &Value) -> Markup {
    let changes = explained.list("changes");
    let waits = explained.list("waits");
    let rows = html! {
        @for wait in waits {
            tr {
                th scope="row" { (wait.text("label")) }
                td .n { (time_taken(wait.number("ms"))) }
                td { (ago(wait.moment("since"), visit.now)) }
                td { (ago(wait.moment("until"), visit.now)) }
            }
        }
    };
    html! {
        h2 { "Why it waits" }
        @if explained.text("cause").is_empty() {
            p { "It does not wait. Its waits took "
                (time_taken(explained.number("waitedMs"))) " in all." }
        } @else {
            p { b { (explained.text("label")) } ": " (timed(explained.text("reason"), visit.now)) "."
                @if let Some(ahead) = explained.at("ahead").as_u64() {
                    " " (crate::words::counted(ahead, "task")) " before it."
                }
            }
            ul .changes {
                @for change in changes {
                    li {
                        (change.text("what"))
                        @if change.moment("by").is_some() { ", " (ago(change.moment("by"), visit.now)) " at the latest" }
                        @if change.is("byHand") { " (by you)" }
                    }
                }
            }
        }
        @if !waits.is_empty() {
            (table("Waits", &heads(&["Cause", "#Waited", "From", "To"]), &rows))
        }
    }
}

fn runs(visit: &Visit<'_>, status: &Value) -> Markup {
    let pool = status.text("taskQueueId");
    let runs = status.list("runs");
    let rows = html! {
        @for run in runs {
            @let (group, worker) = (run.text("workerGroup"), run.text("workerId"));
            tr {
                th scope="row" { "Run " (run.count("runId")) }
                td { (run.text("state")) }
                td .cz { (run.text("reasonResolved")) }
                td { (ago(run.moment("scheduled"), visit.now)) }
                td { (ago(run.moment("started"), visit.now)) }
                td { (ago(run.moment("resolved"), visit.now)) }
                td { @if !worker.is_empty() {
                    a href=(links::worker(pool, group, worker)) { (worker) } } }
            }
        }
    };
    let head = heads(&[
        "Run",
        "State",
        "Reason",
        "Scheduled",
        "Started",
        "Ended",
        "Worker",
    ]);
    html! {
        h2 { "Runs" }
        @if runs.is_empty() {
            (empty("It has not been scheduled: tasks that it depends on have not ended."))
        } @else {
            (table("Runs", &head, &rows))
        }
    }
}

fn log_of(id: &str, log: Option<&str>) -> Markup {
    let log = log.unwrap_or_default();
    let start = log.len().saturating_sub(LOG_BYTES);
    let start = (start..=log.len())
        .find(|at| log.is_char_boundary(*at))
        .unwrap_or(0);
    let shown = log.get(start..).unwrap_or_default();
    html! {
        h2 { "Log" }
        @if log.is_empty() {
            (empty("The log begins when a worker runs the task."))
        } @else {
            @if start > 0 {
                p .note { "The beginning is left out; " code { "fleetwright task log " (id) } " shows all." }
            }
            pre .log.end-first tabindex="0" aria-label="Log" { (shown) }
        }
    }
}

fn files(id: &str, artifacts: Option<&Value>) -> Markup {
    let artifacts = artifacts.map_or(&[][..], |artifacts| artifacts.list("artifacts"));
    let rows = html! {
        @for artifact in artifacts {
            @let name = artifact.text("name");
            tr {
                th scope="row" {
                    @if name.starts_with("public/") {
                        a href=(format!("/api/queue/v1/task/{id}/artifacts/{}", links::escaped(name))) { (name) }
                    } @else { (name) }
                }
                td .cz { (artifact.text("contentType")) }
            }
        }
    };
    html! {
        h2 { "Files" }
        @if artifacts.is_empty() {
            (empty("It has no files."))
        } @else {
            (table("Files", &heads(&["Name", "Type"]), &rows))
        }
    }
}

fn definition(task: &Value) -> Markup {
    let text = serde_json::to_string_pretty(task).unwrap_or_default();
    html! { details { summary { "Definition" } pre .log tabindex="0" { (text) } } }
}

fn actions(visit: &Visit<'_>, id: &str, status: &Value) -> Markup {
    let hidden = [("task", id)];
    let call = |action: &str| Call::post(QUEUE, &["task", id, action], &Value::Null);
    let is_over = !matches!(status.text("state"), "pending" | "running" | "unscheduled");
    html! {
        @if is_over {
            (Action {
                needs: call("rerun"),
                id: "rerun",
                name: "Run again",
                says: "It gets a new run.",
                path: "task/rerun",
                hidden: &hidden,
                fields: html! {},
                command: &format!("fleetwright task rerun {id}"),
            }.show(visit))
        } @else {
            (Action {
                needs: call("priority"),
                id: "priority",
                name: "Priority",
                says: "Tasks of a higher priority are claimed first.",
                path: "task/priority",
                hidden: &hidden,
                fields: options("Priority", "priority", &[
                    ("highest", "highest"), ("very-high", "very high"), ("high", "high"),
                    ("medium", "medium"), ("low", "low"), ("very-low", "very low"), ("lowest", "lowest"),
                ]),
                command: &format!("fleetwright task priority {id} {{priority}}"),
            }.show(visit))
            (Action {
                needs: call("cancel"),
                id: "cancel",
                name: "Cancel",
                says: "It ends as an exception. Its worker stops when it reclaims the run.",
                path: "task/cancel",
                hidden: &hidden,
                fields: html! {},
                command: &format!("fleetwright task cancel {id}"),
            }.show(visit))
        }
    }
}

/// The tasks of a group.
pub(super) async fn group(visit: &Visit<'_>, id: &str) -> Shown {
    let after = visit.query("after");
    let call = Call::get(QUEUE, &["task-group", id, "list"])
        .query("limit", Some(PAGE))
        .query("continuationToken", (!after.is_empty()).then_some(after));
    let reply = visit.api.call(call).await?;
    let tasks = reply.list("tasks");
    let rows = html! {
        @for task in tasks {
            @let status = task.at("status");
            tr {
                th scope="row" { a href=(links::task(status.text("taskId"))) { (task.text("task.metadata.name")) } }
                td { (status.text("state")) }
                td { a .q href=(links::pool(status.text("taskQueueId"))) { (status.text("taskQueueId")) } }
                td { (ago(task.moment("task.created"), visit.now)) }
            }
        }
    };
    let content = html! {
        h1 { "Task group " (copied(id)) }
        (table("Tasks of the group", &heads(&["Task", "State", "Pool", "Created"]), &rows))
        (more(visit, reply.text("continuationToken")))
    };
    let view = View::new(Part::Other, format!("Task group {id}")).section("tasks", content);
    Ok(view.command(format!("fleetwright task list --task-group {id}")))
}
