//! The workers of all pools, and what is done with several at once.

use api_client::{Call, FLEETWRIGHT};
use maud::{Markup, html};
use serde_json::Value;

use crate::json::Json as _;
use crate::links;
use crate::parts::{choices, empty, heads, more, table};
use crate::view::{Listens, Part, Shown, View, Visit};
use crate::words::{ago, money};

const PAGE: u32 = 100;
const FILTERS: [(&str, &str); 6] = [
    ("pool", "workerPoolId"),
    ("provider", "providerId"),
    ("config", "launchConfigId"),
    ("state", "state"),
    ("presence", "presence"),
    ("q", "search"),
];

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let after = visit.query("after");
    let call = Call::get(FLEETWRIGHT, &["workers"])
        .query("limit", Some(PAGE))
        .query("continuationToken", (!after.is_empty()).then_some(after));
    let call = FILTERS.into_iter().fold(call, |call, (name, parameter)| {
        let value = visit.query(name);
        call.query(parameter, (!value.is_empty()).then_some(value))
    });
    let reply = visit.api.call(call).await?;
    let workers = reply.list("workers");
    let head = html! {
        h1 { "Workers" }
        form .filter role="search" {
            input type="search" name="q" value=(visit.query("q")) placeholder="Find: id, group, pool"
                aria-label="Find workers by id, group or pool" autocomplete="off";
            @for (name, _) in FILTERS.into_iter().filter(|(name, _)| *name != "q") {
                @if !visit.query(name).is_empty() {
                    input type="hidden" name=(name) value=(visit.query(name));
                }
            }
            (choices(visit, "state", "State", &[
                ("", "All"), ("requested", "Starting"), ("running", "Running"),
                ("stopping", "Leaving"), ("stopped", "Stopped"),
            ]))
            (choices(visit, "presence", "Presence", &[
                ("", "Any"), ("busy", "Busy"), ("idle", "Idle"), ("quarantined", "In quarantine"),
                ("draining", "Asked to stop"), ("silent", "Silent"),
            ]))
        }
        (filters(visit))
    };
    let view = View::new(Part::Workers, "Workers")
        .section("head", head)
        .section(
            "workers",
            list(visit, workers, reply.text("continuationToken")),
        );
    let pool = visit.query("pool");
    let command = match pool {
        "" => "fleetwright worker list --all".to_owned(),
        pool => format!("fleetwright worker list {pool}"),
    };
    let listens = match pool {
        "" => Listens::All,
        pool => Listens::Pool(pool.to_owned()),
    };
    Ok(view.command(command).listens(listens))
}

/// The filters that are on, each with a link that removes it.
fn filters(visit: &Visit<'_>) -> Markup {
    html! {
        p .tags {
            @for (name, _) in FILTERS {
                @let value = visit.query(name);
                @if !value.is_empty() {
                    a .tag href=(visit.with(name, "")) aria-label=(format!("Remove the filter {name}")) {
                        (name) ": " (value) " ×"
                    }
                }
            }
        }
    }
}

fn list(visit: &Visit<'_>, workers: &[Value], token: &str) -> Markup {
    let rows = html! {
        @for worker in workers {
            @let (pool, group, id) = (worker.text("workerPoolId"), worker.text("workerGroup"), worker.text("workerId"));
            tr data-row=(format!("{pool}/{group}/{id}")) {
                @if visit.person.is_some() {
                    td { input type="checkbox" name="worker" value=(format!("{pool}/{group}/{id}"))
                        aria-label=(format!("Choose {id}")); }
                }
                th scope="row" { a href=(links::worker(pool, group, id)) { (id) } }
                td { a .q href=(links::pool(pool)) { (pool) } }
                td .cz { (group) }
                td { (state(worker)) }
                td .wrap { (task(worker)) }
                td { (ago(worker.moment("created"), visit.now)) }
                td { (ago(worker.moment("lastDateActive"), visit.now)) }
                td .n { @if let Some(price) = worker.number("price") { (money(price * 1_000_000.0)) } }
            }
        }
    };
    let mut names = Vec::new();
    if visit.person.is_some() {
        names.push("Chosen");
    }
    names.extend([
        "Worker",
        "Pool",
        "Group",
        "State",
        "Task",
        "Created",
        "Last active",
        "#An hour",
    ]);
    html! {
        @if workers.is_empty() {
            (empty("No worker fits these filters. Workers appear here when a task needs one."))
        } @else if let Some(person) = &visit.person {
            form method="post" action="/do/fleet/drain" {
                input type="hidden" name="token" value=(person.form_token);
                input type="hidden" name="to" value=(visit.with("", ""));
                (table("Workers", &heads(&names), &rows))
                fieldset .bulk {
                    legend { "With the chosen workers" }
                    label { span { "Reason" } input name="reason" required; }
                    label { span { "Quarantine until" } input name="until" value="2h"; }
                    button .btn { "Drain" }
                    button .btn formaction="/do/fleet/quarantine" { "Quarantine" }
                    button .btn formaction="/do/fleet/release" formnovalidate { "End quarantine" }
                    button .btn formaction="/do/fleet/end" { "End now" }
                }
            }
        } @else {
            (table("Workers", &heads(&names), &rows))
        }
        (more(visit, token))
    }
}

fn state(worker: &Value) -> Markup {
    let word = match (worker.text("state"), worker.text("presence")) {
        ("requested", _) => "starting",
        ("stopping", _) => "leaving",
        (_, "quarantined") => "in quarantine",
        (_, "draining") => "asked to stop",
        (other, "") => other,
        (_, presence) => presence,
    };
    html! { span .warn[matches!(word, "in quarantine" | "silent")] { (word) } }
}

fn task(worker: &Value) -> Markup {
    let id = worker.text("task.taskId");
    let name = worker.text("task.name");
    html! {
        @if !id.is_empty() {
            a href=(links::task(id)) { @if name.is_empty() { (id) } @else { (name) } }
        }
    }
}
