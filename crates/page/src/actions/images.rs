//! Actions on images and their builds.

use api_client::{Call, FLEETWRIGHT};
use serde_json::json;

use crate::api::Refusal;
use crate::form::{Fields, unknown};
use crate::view::Visit;

pub(super) async fn act(visit: &Visit<'_>, action: &str, fields: &Fields) -> Result<(), Refusal> {
    let (image, build) = (fields.text("image"), fields.text("build"));
    let reason = match fields.text("reason") {
        "" => json!({}),
        reason => json!({"reason": reason}),
    };
    let (path, body): (Vec<&str>, _) = match action {
        "build" | "pause" | "resume" => (vec!["image", image, action], reason),
        "promote" | "pin" | "unpin" => (vec!["image", image, "builds", build, action], reason),
        _ => return Err(unknown()),
    };
    visit
        .api
        .call(Call::post(FLEETWRIGHT, &path, &body))
        .await
        .map(drop)
}
