//! Lists providers.

use serde_json::json;

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// Default size of a page.
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
    let providers = &call.app.engine.providers;
    let page = providers.listed().skip(start).take(limit);
    let page = page.map(|(id, kind)| {
        without_nulls(json!({
            "providerId": id.as_str(),
            "providerType": kind,
            "problem": providers.setup_error(id),
        }))
    });
    let end = start.saturating_add(limit);
    let token = (end < providers.listed().count()).then(|| end.to_string());
    Reply::list("providers", page, token)
}
