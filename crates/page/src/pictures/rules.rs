//! Rules: worker configurations, their editor, their plans and their history.

use api_client::{Call, WORKER_MANAGER};
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::names;
use crate::api::Refusal;
use crate::form::Done;
use crate::frame;
use crate::json::Json as _;
use crate::links;
use crate::numbers::dollars;
use crate::parts::{empty, first_lines, heads, more, table};
use crate::view::{Listens, Part, Problem, Shown, View, Visit};
use crate::words::{ago, count, counted};

const PAGE: u32 = 100;

pub(super) async fn list(visit: &Visit<'_>) -> Shown {
    let after = visit.query("after");
    let call = Call::get(WORKER_MANAGER, &["worker-configurations"])
        .query("limit", Some(PAGE))
        .query("continuationToken", (!after.is_empty()).then_some(after));
    let reply = visit.api.call(call).await?;
    let configurations = reply.list("workerConfigurations");
    let rows = html! {
        @for it in configurations {
            @let id = it.text("workerConfigurationId");
            tr {
                th scope="row" { a href=(links::to("rules", &[id])) { (id) } }
                td .n { (count(it.list("workerTypes").len() as u64)) }
                td .n { (it.count("version")) }
                td { (ago(it.moment("lastModified"), visit.now)) }
                td .wrap.cz { (it.text("description")) }
            }
        }
    };
    let content = html! {
        h1 { "Rules" }
        @if configurations.is_empty() {
            (empty("There is no worker configuration. `fleetwright rules create` makes one; \
                docs/rules.md explains rules."))
        } @else {
            (table("Worker configurations",
                &heads(&["Configuration", "#Worker types", "#Version", "Changed", "Description"]), &rows))
        }
        (more(visit, reply.text("continuationToken")))
    };
    let view = View::new(Part::Rules, "Rules").section("rules", content);
    Ok(view.command("fleetwright rules list"))
}

pub(super) async fn show(visit: &Visit<'_>, id: &str) -> Shown {
    let calls = [
        Call::get(WORKER_MANAGER, &["worker-configuration", id]),
        Call::get(WORKER_MANAGER, &["worker-configuration", id, "versions"]),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let Ok([configuration, versions]) = <[_; 2]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let configuration = configuration?;
    let version = configuration.count("version");
    let text = editable(&configuration);
    let view = View::new(Part::Rules, format!("Rules {id}"))
        .section("head", html! {
            p .crumb { a href="/rules" { "Rules" } }
            h1 { "Rules " (id) }
            p .lede { (configuration.text("description")) }
            p .note {
                "Version " (version) ", " (counted(configuration.list("rules").len() as u64, "rule")) ", "
                (counted(configuration.list("workerTypes").len() as u64, "worker type")) "."
            }
        })
        .section("effects", effects(visit, id, &configuration).await)
        .section(
            "editor",
            editor(visit, id, version, &text, &names::list(visit, &configuration).await),
        )
        .section("history", history(visit, id, version, versions.as_ref().ok()));
    Ok(view
        .command(format!("fleetwright rules show {id}"))
        // An editor does not move under the hands of a person.
        .listens(Listens::Nothing))
}

/// The parts that people edit.
fn editable(configuration: &Value) -> String {
    let document = json!({
        "description": configuration.at("description"),
        "workerTypes": configuration.at("workerTypes"),
        "rules": configuration.at("rules"),
    });
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

/// The values for one worker type in one place, each with the rule that set it.
async fn effects(visit: &Visit<'_>, id: &str, configuration: &Value) -> Markup {
    let types: Vec<&str> = configuration
        .list("workerTypes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let chosen = visit.query("type");
    let conditions = visit.query("conditions");
    let parsed = serde_json::from_str(conditions).unwrap_or_else(|_| json!({}));
    let evaluated = match types.contains(&chosen) {
        true => {
            let mut body = json!({"conditions": parsed, "explain": true});
            if let Some(given) = body["conditions"].as_object_mut() {
                given.insert("workerType".to_owned(), json!(chosen));
            }
            let path = ["worker-configuration", id, "evaluate"];
            Some(
                visit
                    .api
                    .call(Call::post(WORKER_MANAGER, &path, &body))
                    .await,
            )
        }
        false => None,
    };
    html! {
        h2 { "Effective values" }
        form .filter {
            label { span { "Worker type" }
                select name="type" {
                    option value="" { "Choose" }
                    @for name in &types { option value=(name) selected[*name == chosen] { (name) } }
                }
            }
            label { span { "Conditions" }
                input name="conditions" value=(conditions) placeholder="{\"region\": \"us-east-1\"}"; }
            button .btn { "Evaluate" }
        }
        @match evaluated {
            None => (empty("Choose a worker type to see its values, and which rule set each of them.")),
            Some(Err(refusal)) => {
                @for line in first_lines(&refusal.message) { p .err role="alert" { (line) } }
            },
            Some(Ok(evaluated)) => (values(&evaluated)),
        }
    }
}

fn values(evaluated: &Value) -> Markup {
    let origins = evaluated.at("origins").as_object();
    let rows = html! {
        @for (pointer, rule) in origins.into_iter().flatten() {
            tr {
                th scope="row" { code { (pointer) } }
                td { code { (evaluated.at("values").pointer(pointer).map(Value::to_string).unwrap_or_default()) } }
                td { (rule.as_str().map_or_else(|| rule.to_string(), str::to_owned)) }
            }
        }
    };
    html! {
        p .note { "Rules that apply: "
            @for rule in evaluated.list("applying") { (rule.as_str().unwrap_or_default()) " " } }
        (table("Effective values", &heads(&["Value", "Is", "Set by"]), &rows))
    }
}

fn editor(visit: &Visit<'_>, id: &str, version: u64, text: &str, names: &Markup) -> Markup {
    let plan = Call::post(
        WORKER_MANAGER,
        &["worker-configuration", id, "plan"],
        &Value::Null,
    );
    let Some(person) = visit.person.as_ref().filter(|_| visit.api.may(&plan)) else {
        return html! { h2 { "Text" } pre .log tabindex="0" { (text) } };
    };
    html! {
        h2 { "Edit" }
        // Its text and the names that are offered stay while the page changes.
        form .editor data-still method="post" action="/do/rules/plan" {
            input type="hidden" name="token" value=(person.form_token);
            input type="hidden" name="configuration" value=(id);
            input type="hidden" name="version" value=(version);
            (text_field(text, names))
            p { button .btn.go { "Show what it changes" } }
        }
        p .cmd { code { "fleetwright rules plan " (id) " FILE" } }
    }
}

/// The text beside the names that can stand in it. The script offers those that fit.
fn text_field(text: &str, names: &Markup) -> Markup {
    html! {
        div .editing {
            div {
                label .vh for="text" { "Worker types and rules" }
                textarea #text name="text" rows="24" spellcheck="false" aria-autocomplete="list"
                    aria-controls="offered" aria-describedby="offered-how" { (text) }
                p .vh role="status" #offered-said {}
                ul .offered #offered role="listbox" aria-label="Names that fit" hidden {}
                p .note #offered-how {
                    "Names are offered within quotes while you write, and by " kbd { "Ctrl" } " "
                    kbd { "Space" } ": arrow keys choose, " kbd { "Enter" } " takes one, "
                    kbd { "Esc" } " closes."
                }
            }
            (names)
        }
    }
}

fn history(visit: &Visit<'_>, id: &str, version: u64, versions: Option<&Value>) -> Markup {
    let versions = versions.map_or(&[][..], |versions| versions.list("versions"));
    let rows = html! {
        @for it in versions {
            @let number = it.count("version");
            tr {
                th scope="row" { "Version " (number) }
                td { (it.text("action")) }
                td { (it.text("clientId")) }
                td { (ago(it.moment("created"), visit.now)) }
                td .wrap { (it.text("reason")) }
                td { @if number != version { (revert(visit, id, number)) } }
            }
        }
    };
    html! {
        h2 { "History" }
        (table("Versions", &heads(&["Version", "Did", "Who", "When", "Reason", "Action"]), &rows))
    }
}

fn revert(visit: &Visit<'_>, id: &str, version: u64) -> Markup {
    crate::parts::Action {
        needs: Call::post(WORKER_MANAGER, &["worker-configuration", id, "revert"], &Value::Null),
        id: &format!("revert-{version}"),
        name: "Revert",
        says: "The worker types and rules of this version become the present ones, as a new version.",
        path: "rules/revert",
        hidden: &[("configuration", id), ("version", &version.to_string())],
        fields: html! {},
        command: &format!("fleetwright rules revert {id} {version}"),
    }
    .show(visit)
}

/// The editor again, with the plan of its text, or with what is wrong in it.
pub(crate) async fn edited(
    visit: &Visit<'_>,
    id: &str,
    text: &str,
    outcome: Result<&Value, &Refusal>,
) -> Done {
    let status = outcome.err().map_or(200, |refusal| refusal.status);
    let Some(person) = &visit.person else {
        return Done::Page(403, String::new());
    };
    let version = outcome.ok().and_then(|plan| plan.at("version").as_u64());
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let names = names::list(visit, &document).await;
    let content = html! {
        p .crumb { a href=(links::to("rules", &[id])) { "Rules " (id) } }
        h1 { "Its effects" }
        @match outcome {
            Ok(plan) => (planned(plan)),
            Err(refusal) => {
                @for line in first_lines(&refusal.message) { p .err role="alert" { (line) } }
            },
        }
        // Its text and the names that are offered stay while the page changes.
        form .editor data-still method="post" action="/do/rules/plan" {
            input type="hidden" name="token" value=(person.form_token);
            input type="hidden" name="configuration" value=(id);
            @if let Some(version) = version { input type="hidden" name="version" value=(version); }
            (text_field(text, &names))
            p {
                button .btn { "Show what it changes" } " "
                @if outcome.is_ok() {
                    button .btn.go formaction="/do/rules/save" { "Save" }
                }
            }
        }
    };
    let page = frame::plain(&format!("Rules {id}"), visit.person.as_ref(), &content);
    Done::Page(status, page)
}

fn planned(plan: &Value) -> Markup {
    let pools = plan.list("pools");
    let rows = html! {
        @for pool in pools {
            tr {
                th scope="row" { a href=(links::pool(pool.text("workerPoolId"))) { (pool.text("workerPoolId")) } }
                td { (pool.text("change")) }
                @for name in ["created", "replaced", "updated", "archived"] {
                    (crate::words::count_cell(pool.list(name).len() as u64))
                }
                (crate::words::count_cell(pool.count("outdatedWorkers")))
                td .n { @if let Some(cost) = pool.number("costDifference") { (dollars(cost)) } }
            }
        }
    };
    let head = heads(&[
        "Pool",
        "Change",
        "#New launch configs",
        "#Replaced",
        "#Updated",
        "#Archived",
        "#Outdated workers",
        "#Dollars an hour",
    ]);
    html! {
        @for rule in plan.list("rules") {
            p .note { "Rule " b { (rule.text("ruleId")) } " " (rule.text("change")) }
        }
        @if pools.is_empty() {
            (empty("No pool changes."))
        } @else {
            (table("Pools that change", &head, &rows))
        }
        @for conflict in plan.list("conflicts") {
            p .err { (conflict.as_str().unwrap_or_default()) }
        }
        @for image in plan.list("missingImages") {
            p .err { "The image " (image.as_str().unwrap_or_default()) " does not exist." }
        }
    }
}
