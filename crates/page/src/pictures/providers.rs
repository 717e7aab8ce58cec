//! Providers: whether they work, what they permit, and the processes of this deployment.

use api_client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use crate::api::Refusal;
use crate::json::Json as _;
use crate::parts::{empty, heads, mark, table};
use crate::view::{Part, Problem, Shown, View, Visit};
use crate::words::{ago, count, count_cell, percent};

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
            @let problem = provider.text("problem");
            tr {
                th scope="row" { @if !problem.is_empty() { (mark(true)) } (provider.text("providerId")) }
                td .cz { (provider.text("providerType")) }
                td { @if problem.is_empty() { span .good { "working" } } @else { span .bad { "out of service" } } }
                (count_cell(provider.count("workers.running")))
                (count_cell(provider.count("workers.requested")))
                (count_cell(provider.count("workers.stopping")))
                (count_cell(provider.count("errorsLastHour")))
                td { (ago(provider.moment("nextTry"), visit.now)) }
                td .wrap {
                    @for budget in provider.list("rateLimits") {
                        (budget.text("region")) " "
                        (percent(budget.number("used").unwrap_or_default(), budget.number("limit").unwrap_or_default()))
                        " "
                    }
                }
                td .wrap.cz { (problem) }
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
        "#Errors, last hour",
        "Next try",
        "API budget used",
        "Problem",
    ]);
    html! {
        @if providers.is_empty() {
            (empty("There is no provider. Sections `[providers.NAME]` of the configuration add some."))
        } @else {
            (table("Providers", &head, &rows))
        }
    }
}

fn overrides_of(visit: &Visit<'_>, overrides: &Result<Value, Refusal>) -> Markup {
    let overrides = match overrides {
        Ok(overrides) => overrides.list("overrides"),
        Err(refusal) => return super::pool::refused("Overrides", refusal),
    };
    let rows = html! {
        @for it in overrides {
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
            }
        }
    };
    let head = heads(&["Override", "Of", "Effect", "Ends", "By", "Reason"]);
    html! {
        h2 { "Overrides in force" }
        @if overrides.is_empty() {
            (empty("No override is in force."))
        } @else {
            (table("Overrides", &head, &rows))
        }
    }
}

fn processes_of(visit: &Visit<'_>, processes: &Result<Value, Refusal>) -> Markup {
    let processes = match processes {
        Ok(processes) => processes.list("processes"),
        Err(refusal) => return super::pool::refused("Processes", refusal),
    };
    let rows = html! {
        @for process in processes {
            tr {
                th scope="row" { (process.text("processId")) }
                td { @for role in process.list("roles") { (role.as_str().unwrap_or_default()) " " } }
                td .cz { (process.text("version")) }
                td { (ago(process.moment("started"), visit.now)) }
                td { (ago(process.moment("lastSeen"), visit.now)) }
            }
        }
    };
    html! {
        h2 { "Processes of this deployment" }
        (table("Processes", &heads(&["Process", "Roles", "Version", "Started", "Last seen"]), &rows))
    }
}
