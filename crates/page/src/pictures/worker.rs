//! A worker: its life, why it is there, and what it ran.

use api_client::{Call, FLEETWRIGHT, Method, QUEUE, WORKER_MANAGER};
use domain::time::Timestamp;
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use super::worker_life::{self, PresentRun};
use crate::json::Json as _;
use crate::links;
use crate::parts::{Action, empty, facts, field, heads, id as copied, refused, table};
use crate::view::{Listens, Part, Problem, Shown, View, Visit};
use crate::words::{ago, count, duration, timed};

/// The newest runs that the page shows.
const RUNS: u32 = 50;

/// The task that the worker runs.
struct PresentTask {
    id: String,
    name: String,
    started: Timestamp,
}

pub(super) async fn show(visit: &Visit<'_>, pool: &str, group: &str, id: &str) -> Shown {
    let (provisioner, kind) = pool.split_once('/').unwrap_or((pool, ""));
    let of_queue = [
        "provisioners",
        provisioner,
        "worker-types",
        kind,
        "workers",
        group,
        id,
    ];
    let calls = [
        Call::get(WORKER_MANAGER, &["workers", pool, group, id]),
        Call::get(FLEETWRIGHT, &["explain", "worker", pool, group, id]),
        Call::get(QUEUE, &of_queue),
        Call::get(WORKER_MANAGER, &["worker-state", pool, group, id]).query("limit", Some(RUNS)),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let Ok([worker, explained, queue, runs]) = <[_; 4]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let worker = worker?;
    let queue = queue.unwrap_or_default();
    let head = html! {
        p .crumb { a href=(links::pool(pool)) { (pool) } " " (group) }
        div .hd {
            h1 { "Worker " (copied(id)) }
            div .r { (actions(visit, pool, group, id, &queue)) }
        }
        p .lede { (sentence(&worker, &queue, visit)) }
        (facts(&[
            ("Launch config", html! {
                @let config = worker.text("launchConfigId");
                @if config.is_empty() { "–" } @else {
                    a href=(links::launch_config(pool, config)) { (config) } } }),
            ("Provider", html! { (worker.text("providerId")) }),
            ("Capacity", html! { (count(worker.count("capacity"))) }),
            ("Created", ago(worker.moment("created"), visit.now)),
            ("Last active", ago(queue.moment("lastDateActive"), visit.now)),
            ("Expires", ago(worker.moment("expires"), visit.now)),
        ]))
    };
    let state = runs.as_ref().ok();
    let present = present_run(visit, &worker, &queue, state).await;
    let story = match &explained {
        Ok(explained) => life(visit, explained, state, present.as_ref()),
        Err(refusal) => refused("Its life", refusal),
    };
    let runs = match &runs {
        Ok(runs) => task_runs(visit, runs, &queue),
        Err(refusal) => refused("Tasks", refusal),
    };
    let view = View::new(Part::Workers, format!("Worker {id}"))
        .section("head", head)
        .section("story", story)
        .section("runs", runs);
    Ok(view
        .command(format!("fleetwright explain worker {pool} {group} {id}"))
        .listens(Listens::Worker {
            pool: pool.to_owned(),
            id: id.to_owned(),
        }))
}

impl PresentTask {
    fn run(&self) -> PresentRun<'_> {
        PresentRun {
            task_id: &self.id,
            name: &self.name,
            started: self.started,
        }
    }
}

/// The newest claim of a running worker, if its run has not ended.
async fn present_run(
    visit: &Visit<'_>,
    worker: &Value,
    queue: &Value,
    state: Option<&Value>,
) -> Option<PresentTask> {
    let newest = queue.list("recentTasks").last()?;
    let id = newest.text("taskId");
    let ended = state.map_or(&[][..], |state| state.list("taskRuns"));
    let has_ended = ended
        .iter()
        .any(|run| run.text("taskId") == id && run.at("runId") == newest.at("runId"));
    if has_ended || worker.text("state") != "running" {
        return None;
    }
    let calls = [
        Call::get(QUEUE, &["task", id, "status"]),
        Call::get(QUEUE, &["task", id]),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let [status, task] = <[_; 2]>::try_from(replies).ok()?;
    let status = status.ok()?;
    let runs = status.list("status.runs");
    let run = runs
        .iter()
        .find(|run| run.at("runId") == newest.at("runId") && run.text("state") == "running")?;
    Some(PresentTask {
        id: id.to_owned(),
        name: task.unwrap_or_default().text("metadata.name").to_owned(),
        started: run.moment("started")?,
    })
}

fn sentence(worker: &Value, queue: &Value, visit: &Visit<'_>) -> Markup {
    let until = queue
        .moment("quarantineUntil")
        .filter(|until| *until > visit.now);
    html! {
        "It is " b { (worker.text("state")) }
        @if until.is_some() { ", and in quarantine: it gets no tasks; this ends " (ago(until, visit.now)) }
        "."
    }
}

/// Its life as a line, and as a log.
fn life(
    visit: &Visit<'_>,
    explained: &Value,
    state: Option<&Value>,
    present: Option<&PresentTask>,
) -> Markup {
    let runs = state.map_or(&[][..], |state| state.list("taskRuns"));
    let has_more = state.is_some_and(|state| !state.text("continuationToken").is_empty());
    let present = present.map(PresentTask::run);
    let line = worker_life::line(
        visit.now,
        explained.at("life"),
        runs,
        present.as_ref(),
        has_more,
    );
    html! {
        h2 { "Its life" }
        (line)
        (story(visit, explained))
    }
}

/// The events of its life, with their reasons.
fn story(visit: &Visit<'_>, explained: &Value) -> Markup {
    let steps = explained.list("story");
    html! {
        h3 { "Its log" }
        ol .story {
            @for (index, step) in steps.iter().enumerate() {
                @let moment = step.moment("time");
                @let before = index.checked_sub(1).and_then(|index| steps.get(index));
                @let before = before.and_then(|step| step.moment("time"));
                li {
                    span .t {
                        (ago(moment, visit.now))
                        @if let (Some(moment), Some(before)) = (moment, before) {
                            @let took = moment.millis_since(before);
                            @if took > 0 { " " i { "+" (duration(took)) } }
                        }
                    }
                    span { (timed(step.text("text"), visit.now)) }
                }
            }
        }
    }
}

fn task_runs(visit: &Visit<'_>, state: &Value, queue: &Value) -> Markup {
    let ended = state.list("taskRuns");
    let recent = queue.list("recentTasks");
    let rows = html! {
        @for run in ended {
            tr {
                th scope="row" { a href=(links::task(run.text("taskId"))) { (run.text("taskId")) } }
                (crate::words::count_cell(run.count("runId")))
                td { (run.text("outcome")) }
                td .cz { (run.text("reasonResolved")) }
                td { (ago(run.moment("resolved"), visit.now)) }
            }
        }
        @for run in recent.iter().filter(|run| !ended.iter().any(|it| it.text("taskId") == run.text("taskId"))) {
            tr {
                th scope="row" { a href=(links::task(run.text("taskId"))) { (run.text("taskId")) } }
                (crate::words::count_cell(run.count("runId")))
                td { "claimed" } td {} td {}
            }
        }
    };
    html! {
        h2 { "Tasks" }
        @for window in state.list("windows") {
            p .note {
                (window.text("window")) ": " (count(window.count("completed"))) " completed, "
                (count(window.count("failed"))) " failed, " (count(window.count("exception")))
                " ended as exceptions"
            }
        }
        @if ended.is_empty() && recent.is_empty() {
            (empty("It has not run a task yet."))
        } @else {
            (table("Tasks", &heads(&["Task", "#Run", "State", "Reason", "Ended"]), &rows))
        }
    }
}

fn actions(visit: &Visit<'_>, pool: &str, group: &str, id: &str, queue: &Value) -> Markup {
    let worker = format!("{pool}/{group}/{id}");
    let hidden = [("worker", worker.as_str())];
    let (provisioner, kind) = pool.split_once('/').unwrap_or((pool, ""));
    let of_queue = [
        "provisioners",
        provisioner,
        "worker-types",
        kind,
        "workers",
        group,
        id,
    ];
    let quarantine = Call::put(QUEUE, &of_queue, &Value::Null);
    let until = queue
        .moment("quarantineUntil")
        .filter(|until| *until > visit.now);
    let quarantine = if until.is_some() {
        Action {
            needs: quarantine,
            id: "release",
            name: "End quarantine",
            says: "It gets tasks again.",
            path: "fleet/release",
            hidden: &hidden,
            fields: html! { (field("Reason", "reason", "", true)) },
            command: &format!("fleetwright worker quarantine {pool} {group} {id} --lift"),
        }
    } else {
        Action {
            needs: quarantine,
            id: "quarantine",
            name: "Quarantine",
            says: "It gets no tasks until the end. Its machine runs on, so that you can look at it.",
            path: "fleet/quarantine",
            hidden: &hidden,
            fields: html! {
                (field("Reason", "reason", "", true))
                (field("Until", "until", "2h", true))
            },
            command: &format!(
                "fleetwright worker quarantine {pool} {group} {id} --until {{until}} --reason {{reason}}"
            ),
        }
    };
    let end = Action {
        needs: Call::new(
            Method::DELETE,
            WORKER_MANAGER,
            &["workers", pool, group, id],
        ),
        id: "end",
        name: "End",
        says: "Its machine ends at once. The task that it runs is run again elsewhere.",
        path: "fleet/end",
        hidden: &hidden,
        fields: html! { (field("Reason", "reason", "", true)) },
        command: &format!("fleetwright worker end {pool}/{group}/{id} --reason {{reason}}"),
    };
    html! { (quarantine.show(visit)) (end.show(visit)) }
}
