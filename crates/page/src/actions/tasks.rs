//! Actions on tasks.

use api_client::{Call, Method, QUEUE};
use serde_json::json;

use crate::api::Refusal;
use crate::form::{Fields, unknown};
use crate::view::Visit;

pub(super) async fn act(visit: &Visit<'_>, action: &str, fields: &Fields) -> Result<(), Refusal> {
    let task = fields.text("task");
    let call = match action {
        "cancel" | "rerun" => Call::new(Method::POST, QUEUE, &["task", task, action]),
        "priority" => {
            let body = json!({"newPriority": fields.text("priority")});
            Call::post(QUEUE, &["task", task, "priority"], &body)
        }
        _ => return Err(unknown()),
    };
    visit.api.call(call).await.map(drop)
}
