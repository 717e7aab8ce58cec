//! Which providers there are, and how handlers get hold of one.

use serde_json::{Value, json};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;

/// How many providers a page has when nothing else is asked for.
const DEFAULT_PAGE: usize = 100;

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let number = |name, default: usize| {
        call.query(name)
            .map_or(default, |digits| digits.parse().unwrap_or(usize::MAX))
    };
    let start = number("continuationToken", 0);
    let limit = match number("limit", DEFAULT_PAGE) {
        0 => DEFAULT_PAGE, // a page of none would never come to an end
        limit => limit,
    };
    let listed: Vec<Value> = call
        .app
        .engine
        .providers
        .listed()
        .map(|(id, kind)| {
            let mut listed = json!({"providerId": id.as_str(), "providerType": kind});
            if let Some(problem) = call.app.engine.providers.setup_error(id) {
                listed["problem"] = json!(problem);
            }
            listed
        })
        .collect();
    let total = listed.len();
    let page: Vec<Value> = listed.into_iter().skip(start).take(limit).collect();
    let end = start.saturating_add(limit);
    let mut reply = json!({ "providers": page });
    if end < total {
        reply["continuationToken"] = json!(end.to_string());
    }
    Reply::json(&reply)
}
