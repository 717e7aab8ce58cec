//! Providers: whether they work, what they permit, and the processes of this deployment.

use api_client::{Call, FLEETWRIGHT, Method, WORKER_MANAGER};
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use crate::api::Refusal;
use crate::charts::{Gauge, Unit};
use crate::json::Json as _;
use crate::numbers::dollars;
use crate::parts::{Action, empty, heads, mark, refused, table};
use crate::view::{Part, Problem, Shown, View, Visit};
use crate::words::{ago, count, count_cell, percent, timed};

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let calls = [
        Call::get(FLEETWRIGHT, &["providers"]),
        Call::get(FLEETWRIGHT, &["processes"]),
        Call::get(WORKER_MANAGER, &["overrides"]),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let Ok([providers, processes, overrides]) = <[_; 3]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let providers = providers?;
    let view = View::new(Part::Providers, "Providers")
        .section(
            "providers",
            html! {
                h1 { "Providers" }
                (list(visit, providers.list("providers")))
            },
        )
        .section("overrides", overrides_of(visit, &overrides))
        .section("processes", processes_of(visit, &processes));
    Ok(view.command("fleetwright provider list"))
}

fn list(visit: &Visit<'_>, providers: &[Value]) -> Markup {
    let rows = html! {
        @for provider in providers {
            @let is_out = provider.text("state") == "out-of-service";
            tr {
                th scope="row" { @if is_out { (mark(true)) } (provider.text("providerId")) }
                td .cz { (provider.text("providerType")) }
                td { @if is_out { span .bad { "out of service" } } @else { span .good { "working" } } }
                (count_cell(provider.count("workers.running")))
                (count_cell(provider.count("workers.requested")))
                (count_cell(provider.count("workers.stopping")))
                td { (limit(provider)) }
                (count_cell(provider.count("failed")))
                td { @for budget in provider.list("callBudgets") { (calls(budget, visit)) } }
                td .wrap { @for place in provider.list("places") { (prices(place)) } }
                td { @if provider.moment("nextTry").is_some() { (ago(provider.moment("nextTry"), visit.now)) } }
                td .wrap.cz { (timed(provider.text("problem"), visit.now)) (timed(provider.text("warning"), visit.now)) }
            }
        }
    };
    let head = heads(&[
        "Provider",
        "Kind",
        "State",
        "#Running",
        "#Starting",
        "#Leaving",
        "Machines of its maximum",
        "#Failed, last hour",
        "Calls used",
        "Prices now",
        "Next try",
        "Problem",
    ]);
    html! {
        @if providers.is_empty() {
            (empty("No provider is configured. Sections `[providers.NAME]` of the configuration add some."))
        } @else {
            (table("Providers", &head, &rows))
        }
    }
}

/// The machines of a provider against its maximum.
fn limit(provider: &Value) -> Markup {
    html! {
        @if let Some(maximum) = provider.number("maxMachines") {
            (Gauge {
                name: "Machines",
                unit: Unit::Count,
                used: provider.number("machines").unwrap_or_default(),
                limit: maximum,
                expected: None,
            })
        } @else { span .z { "no maximum" } }
    }
}

/// How much of its calls a region uses.
fn calls(budget: &Value, visit: &Visit<'_>) -> Markup {
    let until = budget
        .moment("throttledUntil")
        .filter(|until| *until > visit.now);
    html! {
        p .note {
            (budget.text("region")) " " (budget.text("call")) " "
            (percent(budget.number("used").unwrap_or_default(), 1.0))
            @if until.is_some() { span .warn { ", throttled, ends " (ago(until, visit.now)) } }
        }
    }
}

/// The prices of the machines that run in a place.
fn prices(place: &Value) -> Markup {
    let (low, high) = (place.number("lowestPrice"), place.number("highestPrice"));
    html! {
        @if let (Some(low), Some(high)) = (low, high) {
            p .note { (place.text("place")) " " (dollars(low)) @if low < high { " to " (dollars(high)) } }
        }
    }
}

fn overrides_of(visit: &Visit<'_>, overrides: &Result<Value, Refusal>) -> Markup {
    let overrides = match overrides {
        Ok(overrides) => overrides.list("overrides"),
        Err(refusal) => return refused("Overrides", refusal),
    };
    let overrides: Vec<&Value> = overrides.iter().filter(|it| it.is("inForce")).collect();
    let rows = html! {
        @for it in &overrides {
            tr {
                th scope="row" { (it.text("overrideId")) }
                td { (it.text("workerPoolId")) " " (it.text("launchConfigId")) (it.text("workerConfigurationId"))
                    (it.text("providerId")) (it.text("region")) }
                td { @if it.is("pause") { "paused" }
                    @if let Some(number) = it.at("maxCapacity").as_u64() { "at most " (count(number)) }
                    @if let Some(number) = it.at("minCapacity").as_u64() { " at least " (count(number)) } }
                td { (ago(it.moment("until"), visit.now)) }
                td .cz { (it.text("owner")) }
                td .wrap { (it.text("reason")) }
                td { (remove(visit, it.text("overrideId"))) }
            }
        }
    };
    let head = heads(&["Override", "Of", "Effect", "Ends", "By", "Reason", "Action"]);
    html! {
        h2 { "Overrides in force" }
        @if overrides.is_empty() {
            (empty("No override is in force."))
        } @else {
            (table("Overrides", &head, &rows))
        }
    }
}

fn remove(visit: &Visit<'_>, id: &str) -> Markup {
    Action {
        needs: Call::new(Method::DELETE, WORKER_MANAGER, &["override", id]),
        id: &format!("remove-{id}"),
        name: "Remove",
        says: "It ends now.",
        path: "fleet/remove-override",
        hidden: &[("override", id)],
        fields: html! {},
        command: &format!("fleetwright override remove {id}"),
    }
    .show(visit)
}

fn processes_of(visit: &Visit<'_>, processes: &Result<Value, Refusal>) -> Markup {
    let processes = match processes {
        Ok(processes) => processes.list("processes"),
        Err(refusal) => return refused("Processes", refusal),
    };
    let rows = html! {
        @for process in processes {
            tr {
                th scope="row" { (process.text("processId")) }
                td { @for role in process.list("roles") { (role.as_str().unwrap_or_default()) " " } }
                td .cz { (process.text("version")) }
                td { (ago(process.moment("started"), visit.now)) }
                td {
                    @if process.is("silent") { (mark(true)) }
                    (ago(process.moment("lastSeen"), visit.now))
                }
                td .wrap.cz { @for lease in process.list("leases") { (lease.text("name")) " " } }
            }
        }
    };
    html! {
        h2 { "Processes of this deployment" }
        (table("Processes", &heads(&["Process", "Roles", "Version", "Started", "Last seen", "Does alone"]), &rows))
    }
}
