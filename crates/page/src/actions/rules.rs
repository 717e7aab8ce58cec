//! Actions on worker configurations: an edit is planned first, and saved only as it was planned.

use api_client::{Call, WORKER_MANAGER};
use serde_json::{Value, json};

use crate::form::{Done, Fields, refused, unknown, wrong};
use crate::json::Json as _;
use crate::links;
use crate::pictures::rules;
use crate::view::Visit;

pub(super) async fn act(visit: &Visit<'_>, action: &str, fields: &Fields) -> Done {
    let id = fields.text("configuration");
    let page = links::to("rules", &[id]);
    let outcome = match action {
        "plan" | "save" => return edit(visit, action == "save", fields).await,
        "revert" => {
            let version: Option<u64> = fields.text("version").parse().ok();
            let body = json!({"version": version});
            let path = ["worker-configuration", id, "revert"];
            visit
                .api
                .call(Call::post(WORKER_MANAGER, &path, &body))
                .await
        }
        _ => Err(unknown()),
    };
    match outcome {
        Ok(_) => Done::To(page),
        Err(refusal) => refused(visit, &refusal, &page),
    }
}

/// Shows what an edit would change, or saves it. The editor keeps its text either way.
async fn edit(visit: &Visit<'_>, saves: bool, fields: &Fields) -> Done {
    let id = fields.text("configuration");
    let text = fields.text("text");
    let document: Value = match serde_json::from_str(text) {
        Ok(document) => document,
        Err(problem) => {
            let text_is = wrong(&format!("The text is not JSON: {problem}"));
            return rules::edited(visit, id, text, Err(&text_is)).await;
        }
    };
    let mut body = document;
    if !fields.text("version").is_empty()
        && let (Some(body), Ok(version)) =
            (body.as_object_mut(), fields.text("version").parse::<u64>())
    {
        // An edit of a version that is not the newest any more is refused.
        body.insert("version".to_owned(), json!(version));
    }
    let call = match saves {
        true => Call::post(WORKER_MANAGER, &["worker-configuration", id], &body),
        false => Call::post(WORKER_MANAGER, &["worker-configuration", id, "plan"], &body),
    };
    match visit.api.call(call).await {
        Ok(_) if saves => Done::To(links::to("rules", &[id])),
        Ok(plan) => rules::edited(visit, id, text, Ok(plan.at(""))).await,
        Err(refusal) => rules::edited(visit, id, text, Err(&refusal)).await,
    }
}
