//! The images of a provider that an operator wrote. It has images if its description says so.

use std::time::Duration;

use async_trait::async_trait;
use domain::launch::Cause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::transport::{Failure, Operation, Transport};
use super::{ProtocolProvider, shorten};
use crate::{
    ImageError, ImageTarget, ImageUpload, OwnedImage, UploadState, UploadToken, UploadedImage,
};

/// Pages of a list of images at most: a longer list is treated as endless.
pub(super) const MAX_IMAGE_PAGES: usize = 1_000;

/// The part of the description about images.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ImagesBody {
    pub(super) formats: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UploadBody {
    state: StateBody,
    image_id: Option<String>,
    region: Option<String>,
    #[serde(default)]
    status: String,
    done: Option<f64>,
    call_after_seconds: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StateBody {
    Ready,
    Pending,
}

#[derive(Debug, Deserialize)]
struct FoundBody {
    image: Option<ImageBody>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImageBody {
    image_id: String,
    region: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OwnedBody {
    images: Vec<OwnedImageBody>,
    continuation: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnedImageBody {
    image_id: String,
    region: Option<String>,
    token: Option<String>,
    ready: bool,
}

impl From<Failure> for ImageError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { cause, message } => Self::new(cause, message),
            Failure::Lost(error) => Self::new(Cause::Lost, error),
        }
    }
}

impl From<ImageBody> for UploadedImage {
    fn from(body: ImageBody) -> Self {
        Self {
            external_id: body.image_id,
            region: body.region,
        }
    }
}

#[async_trait]
impl<C: Transport> ImageTarget for ProtocolProvider<C> {
    fn image_formats(&self) -> Vec<String> {
        let description = self.description();
        let images = description.images.as_ref();
        images
            .map(|images| images.formats.clone())
            .unwrap_or_default()
    }

    async fn upload_image(&self, upload: &ImageUpload<'_>) -> Result<UploadState, ImageError> {
        crate::check_format(self, upload)?;
        let mut question = json!({
            "token": upload.token.as_str(),
            "name": upload.name,
            "format": upload.format,
            "sha256": upload.checksum.sha256,
            "sizeBytes": upload.checksum.size_bytes,
            "options": upload.options,
            "metadata": upload.metadata,
        });
        if let Some(path) = upload.path {
            question["path"] = json!(path.to_string_lossy());
        }
        if let Some(location) = upload.location {
            question["location"] = json!(location);
        }
        let question = with_region(question, upload.region);
        let body: UploadBody = self.ask(Operation::UploadImage, question).await?;
        match (body.state, body.image_id) {
            (StateBody::Ready, Some(external_id)) => {
                upload.progress.add(upload.checksum.size_bytes);
                Ok(UploadState::Ready(UploadedImage {
                    external_id,
                    region: body.region,
                }))
            }
            (StateBody::Ready, None) => Err(ImageError::new(
                Cause::Lost,
                "the response to upload-image says ready and has no imageId",
            )),
            (StateBody::Pending, _) => Ok(UploadState::Pending {
                status: shorten(&body.status),
                done: body.done,
                call_after: Duration::from_secs(body.call_after_seconds),
            }),
        }
    }

    async fn find_image(
        &self,
        region: Option<&str>,
        token: &UploadToken,
    ) -> Result<Option<UploadedImage>, ImageError> {
        let question = with_region(json!({"token": token.as_str()}), region);
        let body: FoundBody = self.ask(Operation::FindImage, question).await?;
        Ok(body.image.map(UploadedImage::from))
    }

    async fn delete_image(
        &self,
        region: Option<&str>,
        external_id: &str,
    ) -> Result<(), ImageError> {
        let question = with_region(json!({"imageId": external_id}), region);
        let _: Value = self.ask(Operation::DeleteImage, question).await?;
        Ok(())
    }

    async fn owned_images(&self) -> Result<Vec<OwnedImage>, ImageError> {
        let (mut owned, mut question) = (Vec::new(), json!({}));
        for _ in 0..MAX_IMAGE_PAGES {
            let page: OwnedBody = self.ask(Operation::OwnedImages, question).await?;
            owned.extend(page.images.into_iter().map(|image| OwnedImage {
                external_id: image.image_id,
                region: image.region,
                token: image.token.and_then(|token| token.parse().ok()),
                is_ready: image.ready,
            }));
            let Some(continuation) = page.continuation else {
                return Ok(owned);
            };
            question = json!({"continuation": continuation});
        }
        Err(ImageError::new(
            Cause::Unavailable,
            format!("the list of images did not end within {MAX_IMAGE_PAGES} pages"),
        ))
    }
}

fn with_region(mut question: Value, region: Option<&str>) -> Value {
    if let Some(region) = region {
        question["region"] = json!(region);
    }
    question
}
