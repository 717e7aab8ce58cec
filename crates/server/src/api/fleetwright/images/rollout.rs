//! Decisions of people about which build of an image machines start from.

use std::sync::Arc;

use domain::audit::EntityType;
use domain::image::ImageRollout;
use engine::images::{ImageFacts, PersonalDecision};
use serde::Deserialize;

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
    let facts = facts.ok_or_else(|| {
        ApiError::not_found(format!(
            "image {image} is not in the tree: it does not exist, or was created a moment ago"
        ))
    })?;
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
