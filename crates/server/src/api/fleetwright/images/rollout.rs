//! Rollouts of images: what is known of them, and decisions of people.

use std::sync::Arc;

use domain::audit::EntityType;
use domain::id::ImageName;
use domain::image::CanaryRun;
use domain::image::ImageRollout;
use engine::images::{ImageFacts, PersonalDecision};
use serde::Deserialize;
use serde_json::{Value, json};
use store::StoreError;

use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::background::image_rollouts::facts;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionBody {
    #[serde(default)]
    reason: String,
    /// Of a canary.
    share: Option<f64>,
}

fn decision(call: &Call, reason: String) -> Result<PersonalDecision, ApiError> {
    let image = call.image_id()?;
    Ok(PersonalDecision {
        build: call.build_number()?,
        reason,
        audit: call.audit(EntityType::Image, image.as_str(), ""),
    })
}

/// The image with its builds.
fn known(call: &Call) -> Result<Arc<ImageFacts>, ApiError> {
    let (image, now) = (call.image_id()?, call.now);
    let facts = facts(call.image_tree()?.as_ref(), &image, now);
    let facts = facts.ok_or_else(|| ApiError::not_found(format!("image {image} has no builds")))?;
    let build = call.build_number()?;
    if facts.builds.iter().all(|it| it.number != build) {
        let text = format!("image {image} has no build {build}");
        return Err(ApiError::not_found(text));
    }
    Ok(Arc::new(facts))
}

/// Copies the decision into the tree at once. If that fails, the background task repeats it.
async fn show_builders(call: &Call, rollout: &ImageRollout) {
    let Ok(images) = call.image_tree() else {
        return;
    };
    let written = images.mirror_standing(&rollout.image, &rollout.standing);
    if let Err(error) = written.await {
        let image = &rollout.image;
        tracing::warn!(%image, %error, "builders do not know the decision about {image} yet: {error}");
    }
}

pub(super) async fn promote(call: Call) -> Result<Reply, ApiError> {
    let body: DecisionBody = call.body()?;
    let (facts, decision) = (known(&call)?, decision(&call, body.reason)?);
    let rollout = engine::images::use_build(&call.app.engine, facts, decision).await?;
    show_builders(&call, &rollout).await;
    Reply::done()
}

pub(super) async fn start_canary(call: Call) -> Result<Reply, ApiError> {
    let body: DecisionBody = call.body()?;
    let (facts, decision) = (known(&call)?, decision(&call, body.reason)?);
    let engine = &call.app.engine;
    let rollout = engine::images::start_canary(engine, facts, decision, body.share).await?;
    show_builders(&call, &rollout).await;
    Reply::done()
}

/// Adds the canary and the number of pools to the status of images.
pub(super) async fn add(call: &Call, listed: &mut [Value]) -> Result<(), ApiError> {
    let names = listed
        .iter()
        .filter_map(|status| status["imageId"].as_str());
    let names: Vec<ImageName> = names.filter_map(|name| name.parse().ok()).collect();
    let read = call.read("image_rollout_status", move |tx| {
        let rollouts = store::image_rollouts::of(tx, &names)?;
        Ok::<_, StoreError>((rollouts, store::image_users::count(tx, &names)?))
    });
    let (rollouts, users) = read.await?;
    for status in listed {
        let is_about = |name: &ImageName| status["imageId"] == name.as_str();
        let pools = users.iter().find(|count| is_about(&count.image));
        let canary = rollouts.iter().find(|rollout| is_about(&rollout.image));
        let canary = canary.and_then(|rollout| rollout.canary.as_ref());
        let canary = canary.map(canary_json);
        status["pools"] = json!(pools.map_or(0, |count| count.pools));
        if let Some(canary) = canary {
            status["canary"] = canary;
        }
    }
    Ok(())
}

fn canary_json(run: &CanaryRun) -> Value {
    let mut canary = json!({
        "build": run.build.0,
        "since": run.since.to_string(),
        "share": run.share,
        "by": run.by,
        "reason": run.reason,
        "verdict": run.verdict,
        "isExpired": run.is_expired,
        "course": engine::images::course_json(&run.course),
    });
    if let Some(evidence) = &run.evidence {
        canary["evidence"] = json!(evidence);
    }
    canary
}
