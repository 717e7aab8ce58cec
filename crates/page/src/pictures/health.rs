//! Launch configs: which are ill, since when, and when they are tried again.

use api_client::{Call, WORKER_MANAGER};
use maud::{Markup, html};
use serde_json::Value;

use super::health_board;
use crate::json::Json as _;
use crate::links;
use crate::parts::{Action, choices, empty, field, heads, mark, more, table};
use crate::view::{Part, Shown, View, Visit};
use crate::words::{ago, count, count_cell, timed};

const PAGE: u32 = 200;
/// Which launch configs are listed.
const STATES: [(&str, &str); 3] = [
    ("", "With launches or trouble"),
    ("ill", "Ill"),
    ("all", "All"),
];

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let after = visit.query("after");
    let call = Call::get(WORKER_MANAGER, &["launch-config-health"])
        .query("limit", Some(PAGE))
        .query("continuationToken", (!after.is_empty()).then_some(after));
    let reply = visit.api.call(call).await?;
    let all = reply.list("launchConfigs");
    let is_wanted = |config: &&Value| match visit.query("state") {
        "ill" => is_ill(config),
        "all" => true,
        _ => is_ill(config) || config.count("launches.attempts") > 0,
    };
    let mut shown: Vec<&Value> = all.iter().filter(is_wanted).collect();
    shown.sort_by_key(|it| (!is_ill(it), lost(it) == 0));
    let shown: Vec<Value> = shown.into_iter().cloned().collect();
    let n_ill = all.iter().filter(|it| is_ill(it)).count();
    let content = html! {
        h1 { "Health" }
        p .lede {
            @match n_ill {
                0 => "All launch configs work.",
                1 => { (mark(true)) "1 launch config is not used." },
                _ => { (mark(true)) (n_ill) " launch configs are not used." },
            }
            @if !reply.text("continuationToken").is_empty() || !after.is_empty() { " On this page." }
        }
        div .filter {
            (choices(visit, "state", "Which launch configs", &STATES))
            a href="/start-up" { "How long machines take to start" }
        }
        @if shown.is_empty() {
            (empty("No launch config is ill, and none was used in the last hour."))
        } @else {
            (health_board::board(&shown, visit.now))
            h2 { "Launch configs" }
            (board(visit, &shown, true))
        }
        (more(visit, reply.text("continuationToken")))
    };
    let view = View::new(Part::Health, "Health")
        .ill(n_ill as u64)
        .section("health", content);
    Ok(view.command("fleetwright health"))
}

/// Shut off, paused, or without a chance for another reason than that nothing is needed.
fn is_ill(config: &Value) -> bool {
    let status = config.text("availability.status");
    let reason = config.text("availability.reason");
    let is_unusable = status == "unusable" && !reason.starts_with("full");
    config.text("state") == "paused" || status == "shut-off" || is_unusable
}

/// Machines that were asked for and never worked.
fn lost(config: &Value) -> u64 {
    let refused = config.at("launches.refused").as_object();
    let refused: u64 = refused.map_or(0, |causes| causes.values().filter_map(Value::as_u64).sum());
    refused + config.count("launches.neverRegistered") + config.count("launches.neverClaimed")
}

/// The table of launch configs: tried, registered, claimed, lost, and what is done about it.
pub(super) fn board(visit: &Visit<'_>, configs: &[Value], names_pool: bool) -> Markup {
    let rows = html! {
        @for (index, config) in configs.iter().enumerate() {
            @let pool = config.text("workerPoolId");
            @let id = config.text("launchConfigId");
            tr {
                th scope="row" {
                    a href=(links::launch_config(pool, id)) {
                        @if is_ill(config) { (mark(true)) }
                        (place(config))
                    }
                }
                @if names_pool { td { a .q href=(links::pool(pool)) { (pool) } } }
                td .cz { (config.text("providerId")) }
                (count_cell(config.count("launches.attempts")))
                (count_cell(config.count("launches.registered")))
                (count_cell(config.count("launches.claimed")))
                @let lost = lost(config);
                td .n .z[lost == 0] .bad[lost > 0] { (count(lost)) }
                (count_cell(config.count("workers.running")))
                td { (state(config)) }
                td { @if config.moment("availability.nextTry").is_some() {
                    (ago(config.moment("availability.nextTry"), visit.now)) } }
                td .wrap.cz { (timed(reason(config), visit.now)) }
                td { (actions(visit, config, index)) }
            }
        }
    };
    let mut names = vec!["Launch config"];
    if names_pool {
        names.push("Pool");
    }
    names.extend([
        "Provider",
        "#Tried",
        "#Registered",
        "#Claimed",
        "#Lost",
        "#Running",
        "State",
        "Next try",
        "Why",
        "Action",
    ]);
    table("Launch configs, in the last hour", &heads(&names), &rows)
}

/// Where its machines are; its id if it has no place.
fn place(config: &Value) -> &str {
    let place = config.text("place");
    if place.is_empty() {
        config.text("launchConfigId")
    } else {
        place
    }
}

/// Why it is not used. The time of the next try has a place of its own.
pub(super) fn reason(config: &Value) -> &str {
    let reason = config.text("availability.reason");
    reason
        .split_once(", next try ")
        .map_or(reason, |(reason, _)| reason)
}

/// One word for what happens with it.
pub(super) fn state(config: &Value) -> Markup {
    let is_full = config.text("availability.reason").starts_with("full");
    let status = config.text("availability.status");
    let (class, word) = match (config.text("state"), status) {
        ("paused", _) => ("warn", "paused"),
        ("archived", _) => ("dim", "archived"),
        (_, "shut-off") => ("bad", "shut off"),
        (_, "due") => ("warn", "trial due"),
        (_, "on-trial") => ("warn", "on trial"),
        (_, "unusable") if is_full => ("dim", "full"),
        (_, "unusable") => ("bad", "not used"),
        _ => ("good", "working"),
    };
    html! { span .(class) { (word) } }
}

pub(super) fn actions(visit: &Visit<'_>, config: &Value, index: usize) -> Markup {
    let (pool, id) = (config.text("workerPoolId"), config.text("launchConfigId"));
    let hidden = [("pool", pool), ("launchConfig", id)];
    let is_paused = config.text("state") == "paused";
    let name = format!("lc-{index}");
    let action = if is_paused {
        Action {
            needs: Call::post(
                WORKER_MANAGER,
                &["launch-config", pool, id, "resume"],
                &Value::Null,
            ),
            id: &name,
            name: "Resume",
            says: "Machines are launched from it again.",
            path: "fleet/resume",
            hidden: &hidden,
            fields: html! {},
            command: &format!("fleetwright launch-config resume {pool} {id}"),
        }
    } else {
        Action {
            needs: Call::post(
                WORKER_MANAGER,
                &["launch-config", pool, id, "pause"],
                &Value::Null,
            ),
            id: &name,
            name: "Pause",
            says: "No machine is launched from it until the end. Workers that run stay.",
            path: "fleet/pause",
            hidden: &hidden,
            fields: html! {
                (field("Reason", "reason", "", true))
                (field("Until", "until", "2h", true))
            },
            command: &format!(
                "fleetwright launch-config pause {pool} {id} --until {{until}} --reason {{reason}}"
            ),
        }
    };
    action.show(visit)
}
