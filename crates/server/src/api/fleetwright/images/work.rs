//! Requests about images: builds, pauses, and which build is used.

use domain::audit::EntityType;
use domain::id::ImageName;
use domain::image::BuildNumber;
use images::{Asker, ImageTree, RequestError};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasonBody {
    #[serde(default)]
    reason: String,
}

/// A request about an image, of somebody who may change it.
struct Request {
    call: Call,
    images: Arc<ImageTree>,
    image: ImageName,
    asker: Asker,
}

impl Request {
    fn of(call: Call) -> Result<Self, ApiError> {
        let body: ReasonBody = call.body()?;
        let image = call.image_id()?;
        let audit = call.audit(EntityType::Image, image.as_str(), "");
        Ok(Self {
            images: call.image_tree()?,
            asker: Asker {
                by: audit.client_id,
                reason: body.reason,
            },
            image,
            call,
        })
    }

    fn build(&self) -> Result<BuildNumber, ApiError> {
        self.call.build_number()
    }

    /// Notes in the audit history what was asked for.
    async fn done(self, action: &str) -> Result<Reply, ApiError> {
        let mut audit = self
            .call
            .audit(EntityType::Image, self.image.as_str(), action);
        let build = self.call.build_number().ok().map(|build| build.0);
        audit.detail = json!({"reason": self.asker.reason, "build": build});
        engine::images::note_request(&self.call.app.engine, audit).await?;
        Reply::done()
    }
}

impl Call {
    /// The copy of the images in the tree.
    pub(super) fn image_tree(&self) -> Result<Arc<ImageTree>, ApiError> {
        let images = self.app.tree.images();
        // An empty copy would say that no image exists.
        let images = images.filter(|images| *images.revision().borrow() > 0);
        images.ok_or_else(|| ApiError::tree_unavailable(&self.app.tree.problem()))
    }

    pub(super) fn build_number(&self) -> Result<BuildNumber, ApiError> {
        let text = self.parameter("build");
        let wrong = |_| ApiError::input(format!("{text:?} is not the number of a build"));
        text.parse().map_err(wrong)
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let text = error.to_string();
        match error {
            RequestError::NoImage(_) | RequestError::NoBuild { .. } => Self::not_found(text),
            RequestError::Refused(_) => Self::conflict(text),
            RequestError::Tree(_) => Self::tree_failed(&text),
        }
    }
}

pub(super) async fn build(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    request
        .images
        .request_build(&request.image, &request.asker)
        .await?;
    request.done("build-requested").await
}

pub(super) async fn pause(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    request.images.pause(&request.image, &request.asker).await?;
    request.done("paused").await
}

pub(super) async fn resume(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    request.images.resume(&request.image).await?;
    request.done("resumed").await
}

pub(super) async fn cancel(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    let build = request.build()?;
    request
        .images
        .cancel_build(&request.image, build, &request.asker)
        .await?;
    request.done("build-cancelled").await
}

pub(super) async fn delete_build(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    let (build, now) = (request.build()?, request.call.app.engine.clock.now());
    request
        .images
        .delete_build(&request.image, build, now)
        .await?;
    request.done("build-deleted").await
}

pub(super) async fn pin(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    let build = request.build()?;
    request
        .images
        .pin(&request.image, build, &request.asker)
        .await?;
    request.done("build-pinned").await
}

pub(super) async fn unpin(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    let build = request.build()?;
    request.images.unpin(&request.image, build).await?;
    request.done("build-unpinned").await
}
