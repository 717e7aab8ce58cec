//! Requests about images: builds, pauses, and which build is used.

use domain::audit::EntityType;
use domain::id::ImageName;
use domain::image::BuildNumber;
use images::{Asker, ImageNode, ImageTree, RequestError};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

use crate::api::call::Call;
use crate::api::error::ApiError;
use crate::api::reply::{Reply, without_nulls};

/// A definition that was just stored is in the tree within this time, or the tree does not work.
const MIRROR_WAIT: Duration = Duration::from_secs(20);

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

    /// Waits until the tree has the definition that the database has.
    async fn until_mirrored(&self) -> Result<(), ApiError> {
        let Some(stored) = super::find(&self.call).await? else {
            return Ok(());
        };
        let is_mirrored = |node: Option<&ImageNode>| {
            let definition = node.and_then(|node| node.definition.as_ref());
            definition.is_some_and(|definition| definition.version >= stored.version.0)
        };
        let image = &self.image;
        self.call.app.engine.wakeups.images.notify_one();
        match self.images.wait_for(image, MIRROR_WAIT, is_mirrored).await {
            true => Ok(()),
            false => Err(ApiError::tree_failed(&format!(
                "the definition of image {image} is not copied into the tree yet: wait a moment"
            ))),
        }
    }

    /// Notes in the audit history what was asked for.
    async fn done(self, action: &str) -> Result<Reply, ApiError> {
        self.note(action).await?;
        Reply::done()
    }

    async fn note(&self, action: &str) -> Result<(), ApiError> {
        let mut audit = self
            .call
            .audit(EntityType::Image, self.image.as_str(), action);
        let build = self.call.build_number().ok().map(|build| build.0);
        audit.detail = without_nulls(json!({"reason": self.asker.reason, "build": build}));
        engine::images::note_request(&self.call.app.engine, audit).await?;
        Ok(())
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
        let wrong =
            |_| ApiError::input(format!("{text:?} is not the number of a build, such as 3"));
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
    request.until_mirrored().await?;
    let Request { images, image, .. } = &request;
    let asked = images.request_build(image, &request.asker).await?;
    let now = request.call.app.engine.clock.now();
    let waits = match asked.running {
        Some(_) => None,
        None => images.why_no_build(image, &asked, now),
    };
    let reply = without_nulls(json!({
        "newerThan": asked.newer_than.0,
        "build": asked.running.map(|build| build.0),
        "waits": waits,
    }));
    request.note("build-requested").await?;
    Reply::json(&reply)
}

pub(super) async fn pause(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    request.until_mirrored().await?;
    request.images.pause(&request.image, &request.asker).await?;
    request.done("paused").await
}

pub(super) async fn resume(call: Call) -> Result<Reply, ApiError> {
    let request = Request::of(call)?;
    request.until_mirrored().await?;
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
