//! Images of Compute Engine: their disks go through a bucket.
//!
//! An upload advances by one call at a time, and all of its state is at Google: the objects in its
//! folder of the bucket, and the image, whose name follows from the token.

use std::time::Duration;

use async_trait::async_trait;
use domain::id::ProviderId;
use domain::launch::Cause;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::bucket::Bucket;
use super::compute::{MAX_PAGES, PAGE, with_page};
use super::disk_archive::DiskArchive;
use super::error::GOOGLE;
use super::image_labels::{image_labels, image_name, token_in};
use super::labels::{self, Labels};
use super::responses::{List, Operation};
use crate::image::{
    KnownOptions, OptionValues, UploadFile, option_problems, refuse_problems, text_option,
};
use crate::vendor::{Ask, Content, Notes, Rest, VendorError, all_pages};
use crate::{
    ImageError, ImageTarget, ImageUpload, OwnedImage, UploadProblem, UploadState, UploadToken,
    UploadedImage,
};

/// An image takes a minute or more.
const IMAGE_PAUSE: Duration = Duration::from_secs(5);
/// Time limit for beginning an image. A lost answer costs a pause, and nothing else.
const MAKE_LIMIT: Duration = Duration::from_secs(120);
const RAW: &str = "raw";
const TAR_GZ: &str = "tar.gz";
/// Where Compute Engine reads archives, whatever address we use for the bucket.
const OBJECTS: &str = "https://storage.googleapis.com";
const OPTIONS: KnownOptions = &[
    ("architecture", OptionValues::OneOf(&["X86_64", "ARM64"])),
    ("family", OptionValues::Text),
    ("guestOsFeatures", OptionValues::Texts),
];

/// Takes images for one project.
pub(super) struct GoogleImages {
    pub(super) compute: Rest,
    pub(super) bucket: Bucket,
    pub(super) project: String,
    pub(super) provider_id: ProviderId,
    pub(super) root_url: String,
    /// The operations that make images, by the names of the images.
    pub(super) operations: Notes,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    name: String,
    /// `PENDING`, `READY`, `FAILED` or `DELETING`.
    #[serde(default)]
    status: String,
    #[serde(default)]
    labels: Labels,
}

impl GoogleImages {
    fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path = vec!["compute", "v1", "projects", &self.project, "global"];
        path.extend(rest);
        path
    }

    /// The name of an image in launch configs.
    fn external_id(&self, name: &str) -> String {
        format!("projects/{}/global/images/{name}", self.project)
    }

    fn token_in(&self, image: &Image) -> Option<Option<UploadToken>> {
        token_in(&image.labels, &self.root_url, &self.provider_id)
    }

    fn uploaded(&self, name: &str, region: Option<&str>) -> UploadedImage {
        UploadedImage {
            external_id: self.external_id(name),
            region: region.map(str::to_owned),
        }
    }

    async fn image(&self, name: &str) -> Result<Option<Image>, VendorError> {
        let ask = Ask::get(&self.path(&["images", name]));
        let ask = ask.with_query("fields", "name,status,labels");
        optional(self.compute.json(ask).await)
    }

    async fn our_images(&self) -> Result<Vec<Image>, VendorError> {
        let filter = labels::filter(&self.root_url, &self.provider_id);
        all_pages(&GOOGLE, MAX_PAGES, |after| {
            let filter = filter.clone();
            async move {
                let ask = Ask::get(&self.path(&["images"]))
                    .with_query("filter", filter)
                    .with_query("maxResults", PAGE)
                    .with_query("fields", "items(name,status,labels),nextPageToken");
                let list: List<Image> = self.compute.json(with_page(ask, after)).await?;
                Ok((list.items, list.next_page_token))
            }
        })
        .await
    }

    /// The state of an image that Google knows.
    async fn known(
        &self,
        upload: &ImageUpload<'_>,
        image: &Image,
    ) -> Result<UploadState, ImageError> {
        let name = &image.name;
        if self.token_in(image).flatten().as_ref() != Some(upload.token) {
            return Err(not_ours(&self.external_id(name)));
        }
        match image.status.as_str() {
            "READY" => {
                self.operations.remove(name);
                // Not before the image is ready, so that a failure does not cost the upload.
                let folder = self.bucket.folder_of(upload.token);
                self.bucket.clear(&folder).await?;
                Ok(UploadState::Ready(self.uploaded(name, upload.region)))
            }
            "FAILED" => {
                let text = format!("Google could not make image {name} of the archive");
                Err(ImageError::new(Cause::Configuration, text))
            }
            status => {
                let operation = self.operation_of(name).await?;
                if let Some(error) = operation.as_ref().and_then(failure) {
                    return Err(error);
                }
                let done = operation.and_then(|operation| operation.part_done());
                Ok(pending(&format!("image {name} is {status}"), done))
            }
        }
    }

    /// The operation that makes an image, if this process has begun it.
    async fn operation_of(&self, image: &str) -> Result<Option<Operation>, VendorError> {
        let Some(operation) = self.operations.get(image) else {
            return Ok(None);
        };
        let path = self.path(&["operations", &operation]);
        let found = optional(self.compute.json::<Operation>(Ask::get(&path)).await)?;
        if found.as_ref().is_none_or(Operation::is_done) {
            // A failure is reported once: the next call makes the image again.
            self.operations.remove(image);
        }
        Ok(found)
    }

    async fn make(
        &self,
        upload: &ImageUpload<'_>,
        source: &str,
    ) -> Result<UploadState, ImageError> {
        let name = image_name(upload.token);
        let ask = Ask::new(Method::POST, &self.path(&["images"]))
            .with_content(Content::Json(self.body(upload, &name, source)))
            .within(MAKE_LIMIT);
        let begun: Operation = match self.compute.json(ask).await {
            // An earlier call was answered too late: the next call finds its image.
            Err(error) if error.has_status(409) => return Ok(pending("the image is made", None)),
            begun => begun?,
        };
        if let Some(error) = failure(&begun) {
            return Err(error);
        }
        self.operations.put(&name, &begun.name);
        Ok(pending(&format!("image {name} is made"), Some(0.0)))
    }

    fn body(&self, upload: &ImageUpload<'_>, name: &str, source: &str) -> Value {
        let labels = image_labels(
            &self.root_url,
            &self.provider_id,
            upload.token,
            upload.metadata,
        );
        let mut body = json!({"name": name, "description": upload.name, "labels": labels,
            "rawDisk": {"source": source, "containerType": "TAR"}});
        for key in ["architecture", "family"] {
            if let Some(text) = text_option(upload.options, key) {
                body[key] = json!(text);
            }
        }
        let features = upload.options.get("guestOsFeatures");
        if let Some(features) = features.and_then(Value::as_array) {
            let features: Vec<Value> = features.iter().map(|it| json!({"type": it})).collect();
            body["guestOsFeatures"] = json!(features);
        }
        if let Some(region) = upload.region {
            body["storageLocations"] = json!([region]);
        }
        body
    }

    /// The address of the archive, which is uploaded unless the artifact store is one of Google's.
    async fn source(&self, upload: &ImageUpload<'_>) -> Result<String, ImageError> {
        let place = upload
            .location
            .and_then(|place| place.strip_prefix("gs://"));
        if let Some(place) = place.filter(|_| upload.format == TAR_GZ) {
            return Ok(format!("{OBJECTS}/{place}"));
        }
        let file = UploadFile::open(upload).await?;
        let archive = match upload.format {
            RAW => DiskArchive::of_disk(file)?,
            _ => DiskArchive::Ready(file),
        };
        let stored = self.bucket.store(upload.token, &archive, upload.progress);
        Ok(format!("{OBJECTS}/{}/{}", self.bucket.name, stored.await?))
    }

    async fn delete_by_name(&self, name: &str) -> Result<(), ImageError> {
        let Some(image) = self.image(name).await? else {
            return Ok(());
        };
        if self.token_in(&image).is_none() {
            return Err(not_ours(&self.external_id(name)));
        }
        let ask = Ask::delete(&self.path(&["images", name]));
        let deleted = optional(self.compute.json::<Operation>(ask).await)?;
        deleted.as_ref().and_then(failure).map_or(Ok(()), Err)
    }
}

#[async_trait]
impl ImageTarget for GoogleImages {
    fn image_formats(&self) -> Vec<String> {
        [RAW, TAR_GZ].map(str::to_owned).into()
    }

    fn problems(&self, _region: Option<&str>, options: &Map<String, Value>) -> Vec<UploadProblem> {
        option_problems(options, OPTIONS)
    }

    /// Sends the archive and begins to make the image of it, or asks how far the image is.
    async fn upload_image(&self, upload: &ImageUpload<'_>) -> Result<UploadState, ImageError> {
        crate::check_format(self, upload)?;
        refuse_problems(self.problems(upload.region, upload.options))?;
        let name = image_name(upload.token);
        if let Some(image) = self.image(&name).await? {
            return self.known(upload, &image).await;
        }
        if let Some(operation) = self.operation_of(&name).await? {
            if !operation.is_done() {
                return Ok(pending("the image is made", operation.part_done()));
            }
            if let Some(error) = failure(&operation) {
                return Err(error);
            }
        }
        let source = self.source(upload).await?;
        self.make(upload, &source).await
    }

    async fn find_image(
        &self,
        region: Option<&str>,
        token: &UploadToken,
    ) -> Result<Option<UploadedImage>, ImageError> {
        let image = self.image(&image_name(token)).await?;
        let is_it = |image: &Image| {
            image.status == "READY" && self.token_in(image).flatten().as_ref() == Some(token)
        };
        let image = image.filter(is_it);
        Ok(image.map(|image| self.uploaded(&image.name, region)))
    }

    /// Deletes an image, or the objects of an upload.
    async fn delete_image(
        &self,
        _region: Option<&str>,
        external_id: &str,
    ) -> Result<(), ImageError> {
        let bucket = format!("gs://{}/", self.bucket.name);
        if let Some(object) = external_id.strip_prefix(&bucket) {
            let token = object.strip_prefix(&self.bucket.folder);
            let token = token.and_then(|rest| rest.strip_suffix('/'));
            return match token.and_then(|token| token.parse().ok()) {
                Some(token) => Ok(self.bucket.clear(&self.bucket.folder_of(&token)).await?),
                None => Err(not_ours(external_id)),
            };
        }
        match external_id.strip_prefix(&self.external_id("")) {
            Some(name) if !name.is_empty() && !name.contains('/') => {
                self.delete_by_name(name).await
            }
            Some(_) | None => {
                let (id, like) = (external_id, self.external_id("…"));
                let text = format!("{id:?} is not the id of an image like {like}");
                Err(ImageError::new(Cause::Configuration, text))
            }
        }
    }

    /// The images, and the folders of uploads: these are rests once their token is forgotten.
    async fn owned_images(&self) -> Result<Vec<OwnedImage>, ImageError> {
        let mut owned = Vec::new();
        for image in self.our_images().await? {
            let Some(token) = self.token_in(&image) else {
                continue;
            };
            owned.push(OwnedImage {
                external_id: self.external_id(&image.name),
                region: None,
                token,
                is_ready: image.status == "READY",
            });
        }
        for folder in self.bucket.folders().await? {
            let token = folder.trim_end_matches('/').rsplit('/').next();
            owned.push(OwnedImage {
                external_id: format!("gs://{}/{folder}", self.bucket.name),
                region: None,
                token: token.and_then(|token| token.parse().ok()),
                is_ready: false,
            });
        }
        Ok(owned)
    }
}

/// `None`: it does not exist.
fn optional<T>(answer: Result<T, VendorError>) -> Result<Option<T>, VendorError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.has_status(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn failure(operation: &Operation) -> Option<ImageError> {
    let (code, message) = operation.failure()?;
    Some(VendorError::answered(&GOOGLE, 200, code, message, None).into())
}

fn pending(status: &str, done: Option<f64>) -> UploadState {
    UploadState::Pending {
        status: status.to_owned(),
        done,
        call_after: IMAGE_PAUSE,
    }
}

fn not_ours(id: &str) -> ImageError {
    let text = format!("{id} exists and does not have our labels");
    ImageError::new(Cause::Configuration, text)
}
