//! Actions on launch configs, workers, overrides and budgets.

use api_client::{Call, FLEETWRIGHT, Method, WORKER_MANAGER};
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use serde_json::json;

use crate::api::Refusal;
use crate::form::{Fields, unknown, wrong};
use crate::json::Json as _;
use crate::view::Visit;

/// Each page of an end passes at least one worker.
const MAX_PAGES: u32 = 100_000;

pub(super) async fn act(visit: &Visit<'_>, action: &str, fields: &Fields) -> Result<(), Refusal> {
    let pool = fields.text("pool");
    let launch_config = fields.text("launchConfig");
    match action {
        "pause" => {
            let body = json!({
                "until": end(visit, fields)?.to_string(),
                "reason": fields.text("reason"),
            });
            let path = ["launch-config", pool, launch_config, "pause"];
            visit
                .api
                .call(Call::post(WORKER_MANAGER, &path, &body))
                .await
                .map(drop)
        }
        "resume" => {
            let path = ["launch-config", pool, launch_config, "resume"];
            visit
                .api
                .call(Call::post(WORKER_MANAGER, &path, &json!({})))
                .await
                .map(drop)
        }
        "override" => set_override(visit, fields).await,
        "remove-override" => {
            let path = ["override", fields.text("override")];
            visit
                .api
                .call(Call::new(Method::DELETE, WORKER_MANAGER, &path))
                .await
                .map(drop)
        }
        "end-selected" => end_selected(visit, fields).await,
        "quarantine" | "release" | "drain" | "end" => workers(visit, action, fields).await,
        _ => Err(unknown()),
    }
}

/// Ends all workers of a selection, page by page. Workers that are made meanwhile stay.
async fn end_selected(visit: &Visit<'_>, fields: &Fields) -> Result<(), Refusal> {
    let body = json!({
        "reason": fields.text("reason"),
        "drain": fields.text("drain") == "yes",
        "createdBefore": visit.now.to_string(),
    });
    let mut token = String::new();
    for _ in 0..MAX_PAGES {
        let call = Call::post(WORKER_MANAGER, &["selected-workers", "end"], &body)
            .query("workerPoolId", Some(fields.text("workerPoolId")))
            .query(
                "continuationToken",
                Some(&token).filter(|token| !token.is_empty()),
            );
        let reply = visit.api.call(call).await?;
        reply.text("continuationToken").clone_into(&mut token);
        if token.is_empty() {
            return Ok(());
        }
    }
    Err(wrong("Some workers were not reached. Do it again."))
}

/// Does the same to each worker of the form.
async fn workers(visit: &Visit<'_>, action: &str, fields: &Fields) -> Result<(), Refusal> {
    let mut chosen = Vec::new();
    for worker in fields.all("worker") {
        // A pool id has one slash, and groups and ids of workers have none.
        let names: Vec<&str> = worker.split('/').collect();
        let [provisioner, kind, group, id] = names.as_slice() else {
            return Err(wrong("A chosen worker has no valid name."));
        };
        chosen.push(json!({
            "workerPoolId": format!("{provisioner}/{kind}"),
            "workerGroup": group,
            "workerId": id,
        }));
    }
    if chosen.is_empty() {
        return Err(wrong("Choose one worker or several first."));
    }
    let mut body = json!({"workers": chosen, "reason": fields.text("reason")});
    let path = match action {
        "quarantine" | "release" => {
            let until = match action {
                "quarantine" => end(visit, fields)?,
                _ => visit.now,
            };
            body["quarantineUntil"] = json!(until.to_string());
            "quarantine"
        }
        _ => {
            body["drain"] = json!(action == "drain");
            "end"
        }
    };
    let call = Call::post(FLEETWRIGHT, &["workers", path], &body);
    let reply = visit.api.call(call).await?;
    let failed = reply
        .list("workers")
        .iter()
        .filter(|it| !it.text("problem").is_empty());
    let texts: Vec<String> = failed
        .map(|it| format!("{}: {}", it.text("workerId"), it.text("problem")))
        .collect();
    match texts.is_empty() {
        true => Ok(()),
        false => Err(wrong(&texts.join("\n"))),
    }
}

async fn set_override(visit: &Visit<'_>, fields: &Fields) -> Result<(), Refusal> {
    let mut body = json!({
        "reason": fields.text("reason"),
        "until": end(visit, fields)?.to_string(),
        "workerPoolId": fields.text("pool"),
    });
    match fields.text("maximum") {
        "" => body["pause"] = json!(true),
        text => {
            let number: u64 = text
                .parse()
                .map_err(|_| wrong("The maximum must be a whole number."))?;
            body["maxCapacity"] = json!(number);
        }
    }
    let path = ["override", fields.text("override")];
    visit
        .api
        .call(Call::put(WORKER_MANAGER, &path, &body))
        .await
        .map(drop)
}

/// When something ends: a time, or a duration from now such as `2h`.
fn end(visit: &Visit<'_>, fields: &Fields) -> Result<Timestamp, Refusal> {
    let text = fields.text("until");
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let duration = || {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let unit = match unit {
            "m" => MINUTE_MS,
            "h" => HOUR_MS,
            "d" => DAY_MS,
            _ => return None,
        };
        number
            .parse::<u32>()
            .ok()
            .map(|number| i64::from(number) * unit)
    };
    let Some(milliseconds) = duration() else {
        let text = "The end must be a time such as 2026-11-30T14:00:00Z, or a duration from now \
            such as 10m, 2h or 1d.";
        return Err(wrong(text));
    };
    Ok(visit.now.plus_millis(milliseconds))
}
