//! Images of Azure: their disks go through a container of blobs.
//!
//! An upload advances by one call at a time, and all of its state is at Azure: the blob, and the
//! image or the version of an image in a gallery, whose names follow from the token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use domain::launch::Cause;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::arm::Arm;
use super::blobs::Blobs;
use super::config::{AzureConfig, ImageStorage, normalized_location};
use super::error::{AZURE, operation_failure};
use super::paths::{ApiPath, COMPUTE};
use super::site::{Site, provisioning_state};
use super::tags::{DEPLOYMENT, PROVIDER};
use super::token::AzureTokens;
use super::vhd::Vhd;
use crate::image::{
    KnownOptions, OptionValues, UploadFile, hex, option_problems, refuse_problems, text_option,
};
use crate::signing::http::Http;
use crate::vendor::{Answer, Ask, Notes, Rest, Tokens, VendorError};
use crate::{
    ImageError, ImageTarget, ImageUpload, OwnedImage, ProviderContext, UploadProblem, UploadState,
    UploadToken, UploadedImage,
};

/// The token of the upload that made an image.
const TOKEN: &str = "fleetwright-image";
const IMAGES: &str = "Microsoft.Compute/images";
const VERSIONS: &str = "Microsoft.Compute/galleries/images/versions";
const GALLERY_API: &str = "2023-07-03";
/// An image takes a minute or more, and copies of a version take longer.
const IMAGE_PAUSE: Duration = Duration::from_secs(5);
/// Tags for the metadata of an upload at most. Azure takes 50.
pub(super) const MAX_METADATA: usize = 40;
const MAX_TAG_CHARS: usize = 256;
/// Digits of the digest of a root URL in the names of blobs.
const DEPLOYMENT_DIGITS: usize = 32;
const RAW: &str = "raw";
const VHD: &str = "vhd";
const GALLERY: &str = "gallery";
const OPTIONS: KnownOptions = &[
    (GALLERY, OptionValues::Text),
    ("hyperVGeneration", OptionValues::OneOf(&["V1", "V2"])),
    ("osType", OptionValues::OneOf(&["Linux", "Windows"])),
    ("storageAccountType", OptionValues::Text),
];

/// Takes images for one resource group.
pub(super) struct AzureImages {
    site: Site,
    /// Calls of Resource Manager by the address of an operation.
    rest: Rest,
    pub(super) blobs: Blobs,
    /// The id of the storage account.
    account_id: String,
    /// Where the storage account is.
    location: String,
    /// The locations of the provider.
    locations: Vec<String>,
    /// The addresses of the operations that make images, by the ids of the images.
    operations: Notes,
}

/// The audience of tokens for blobs, in all clouds of Azure.
const STORAGE_AUDIENCE: &str = "https://storage.azure.com";

impl AzureImages {
    pub(super) fn new(
        config: &AzureConfig,
        storage: ImageStorage,
        context: &ProviderContext,
    ) -> Self {
        let http = Http::default();
        let rest = |endpoint: &str, audience: &str| {
            let source = AzureTokens {
                source: config.credentials.clone(),
                endpoint: audience.to_owned(),
                login_endpoint: config.login_endpoint.clone(),
                metadata_endpoint: config.metadata_endpoint.clone(),
                http: http.clone(),
            };
            let tokens = Tokens::new(Box::new(source), Arc::clone(&context.clock));
            Rest::new(&AZURE, endpoint, http.clone(), Some(tokens)).renewing_tokens()
        };
        let manager = || rest(&config.endpoint, &config.endpoint);
        let arm = Arm::new(manager(), config.subscription.clone());
        let kind = "Microsoft.Storage/storageAccounts";
        let account = (&storage.resource_group, &storage.account);
        let account = arm.paths.resource(account.0, kind, account.1, COMPUTE);
        let root_url = context.root_url.clone();
        let deployment = hex(digest(&SHA256, root_url.as_bytes()).as_ref());
        Self {
            rest: manager(),
            blobs: Blobs {
                rest: rest(&storage.endpoint, STORAGE_AUDIENCE).with_code_header("x-ms-error-code"),
                clock: Arc::clone(&context.clock),
                folder: format!(
                    "fleetwright/{}/{}/",
                    &deployment[..DEPLOYMENT_DIGITS],
                    context.id
                ),
                endpoint: storage.endpoint,
                container: storage.container,
            },
            site: Site {
                arm,
                id: context.id.clone(),
                root_url,
                resource_group: config.resource_group.clone(),
            },
            account_id: account.path,
            location: storage.location,
            locations: config.locations.clone(),
            operations: Notes::default(),
        }
    }

    /// The address of the image that an upload makes.
    fn path(&self, token: &UploadToken, options: &Map<String, Value>) -> ApiPath {
        match text_option(options, GALLERY).and_then(gallery_of) {
            Some((gallery, image)) => {
                let name = format!("{gallery}/images/{image}/versions/{}", version(token));
                let kind = "Microsoft.Compute/galleries";
                let group = &self.site.resource_group;
                self.site
                    .arm
                    .paths
                    .resource(group, kind, &name, GALLERY_API)
            }
            None => self.managed(&image_name(token)),
        }
    }

    fn managed(&self, name: &str) -> ApiPath {
        let group = &self.site.resource_group;
        self.site.arm.paths.resource(group, IMAGES, name, COMPUTE)
    }

    /// The address of a resource with this id; `None`: it is not an image of the subscription.
    fn path_of(&self, id: &str) -> Option<ApiPath> {
        let start = self.site.arm.paths.all_resources().path;
        let start = start.strip_suffix("resources")?;
        let is_below = |text: &str| {
            text.to_ascii_lowercase()
                .starts_with(&start.to_ascii_lowercase())
        };
        if !is_below(id) {
            return None;
        }
        let (_, kind_and_name) = id.split_once("/providers/")?;
        let parts: Vec<&str> = kind_and_name.split('/').collect();
        let is = |at: usize, text: &str| parts[at].eq_ignore_ascii_case(text);
        let version = match parts.len() {
            3 if is(0, "Microsoft.Compute") && is(1, "images") => COMPUTE,
            7 if is(0, "Microsoft.Compute")
                && is(1, "galleries")
                && is(3, "images")
                && is(5, "versions") =>
            {
                GALLERY_API
            }
            _ => return None,
        };
        let path = id.to_owned();
        Some(ApiPath { path, version })
    }

    /// The token in our tags; `None`: the tags are not ours.
    fn token_in(&self, resource: &Value) -> Option<Option<UploadToken>> {
        let token = resource["tags"][TOKEN].as_str();
        let ours = self.site.owns(resource);
        ours.then(|| token.and_then(|token| token.parse().ok()))
    }

    fn is_of(&self, resource: &Value, token: &UploadToken) -> bool {
        self.token_in(resource).flatten().as_ref() == Some(token)
    }

    fn tags(&self, upload: &ImageUpload<'_>) -> Map<String, Value> {
        let mut tags = metadata_tags(upload.metadata);
        for (key, value) in [
            (DEPLOYMENT, self.site.root_url.as_str()),
            (PROVIDER, self.site.id.as_str()),
            (TOKEN, upload.token.as_str()),
            ("name", upload.name),
        ] {
            // Azure's names of tags have no case.
            tags.retain(|own, _| !own.eq_ignore_ascii_case(key));
            tags.insert(key.to_owned(), json!(value));
        }
        tags
    }

    /// The state of an image that Azure knows; `None`: it is to be made again.
    async fn known(
        &self,
        upload: &ImageUpload<'_>,
        path: &ApiPath,
        resource: &Value,
    ) -> Result<Option<UploadState>, ImageError> {
        if !self.is_of(resource, upload.token) {
            return Err(not_ours(&path.path));
        }
        match provisioning_state(resource) {
            "Succeeded" => {
                self.operations.remove(&path.path);
                // Not before the image is ready, so that a failure does not cost the upload.
                self.blobs.delete(upload.token).await?;
                Ok(Some(UploadState::Ready(uploaded(
                    &path.path,
                    upload.region,
                ))))
            }
            "Failed" | "Canceled" => self.operation_state(path).await,
            state => Ok(Some(pending(&format!("the image is {state}")))),
        }
    }

    /// The state of the operation that makes the image. `None`: none is known, or it has ended. A
    /// failure is reported once: the next call makes the image again.
    async fn operation_state(&self, path: &ApiPath) -> Result<Option<UploadState>, ImageError> {
        let Some(url) = self.operations.get(&path.path) else {
            return Ok(None);
        };
        let asked = match self.rest.call(Ask::to_url(Method::GET, &url)).await {
            Ok(asked) => asked,
            Err(error) if error.has_status(404) => {
                self.operations.remove(&path.path);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        match asked.body["status"].as_str() {
            Some("Failed" | "Canceled") => {
                self.operations.remove(&path.path);
                Err(operation_failure(&asked.body).into())
            }
            Some("Succeeded") | None => Ok(None),
            Some(state) => Ok(Some(pending(&format!("the operation is {state}")))),
        }
    }

    async fn make(
        &self,
        upload: &ImageUpload<'_>,
        path: &ApiPath,
    ) -> Result<UploadState, ImageError> {
        let begun = self.site.arm.put(path, self.body(upload)).await?;
        if let Some(url) = operation_url(&begun) {
            self.operations.put(&path.path, url);
        }
        Ok(pending("the image is made"))
    }

    fn body(&self, upload: &ImageUpload<'_>) -> Value {
        let option = |name: &str| text_option(upload.options, name);
        let blob = self.blobs.url(upload.token);
        let mut body = json!({"location": self.location, "tags": self.tags(upload)});
        if option(GALLERY).is_some() {
            let source = json!({"uri": blob, "storageAccountId": self.account_id});
            body["properties"] = json!({
                "storageProfile": {"osDiskImage": {"source": source}},
                "publishingProfile": {"targetRegions": self.target_regions(upload.region)},
            });
            if let Some(kind) = option("storageAccountType") {
                body["properties"]["publishingProfile"]["storageAccountType"] = json!(kind);
            }
            return body;
        }
        let mut disk = json!({"osType": option("osType").unwrap_or("Linux"),
            "osState": "Generalized", "blobUri": blob});
        if let Some(kind) = option("storageAccountType") {
            disk["storageAccountType"] = json!(kind);
        }
        body["properties"] = json!({
            "storageProfile": {"osDisk": disk},
            "hyperVGeneration": option("hyperVGeneration").unwrap_or("V1"),
        });
        body
    }

    /// The locations that get a copy. Azure wants that of the version among them.
    fn target_regions(&self, region: Option<&str>) -> Vec<Value> {
        let mut names = vec![self.location.clone()];
        match region {
            Some(region) => names.push(normalized_location(region)),
            None => names.extend(self.locations.iter().cloned()),
        }
        let mut unique: Vec<String> = Vec::new();
        for name in names {
            if !unique.contains(&name) {
                unique.push(name);
            }
        }
        unique.iter().map(|name| json!({"name": name})).collect()
    }

    async fn store(&self, upload: &ImageUpload<'_>) -> Result<(), ImageError> {
        let file = UploadFile::open(upload).await?;
        let vhd = match upload.format {
            RAW => Vhd::of_disk(file, upload.token),
            _ => Vhd::of_vhd(file).await?,
        };
        self.blobs.store(upload.token, &vhd, upload.progress).await
    }

    /// Our versions in all galleries.
    async fn versions(&self) -> Result<Vec<Value>, VendorError> {
        let query = [
            ("$filter", format!("resourceType eq '{VERSIONS}'")),
            ("$expand", "provisioningState".to_owned()),
        ];
        let all = self.site.arm.paths.all_resources();
        self.site.arm.list(&all, &query).await
    }

    async fn managed_images(&self) -> Result<Vec<Value>, VendorError> {
        let mut path = self.managed("");
        path.path.truncate(path.path.trim_end_matches('/').len());
        self.site.arm.list(&path, &[]).await
    }
}

#[async_trait]
impl ImageTarget for AzureImages {
    fn image_formats(&self) -> Vec<String> {
        [RAW, VHD].map(str::to_owned).into()
    }

    fn problems(&self, region: Option<&str>, options: &Map<String, Value>) -> Vec<UploadProblem> {
        let mut problems = option_problems(options, OPTIONS);
        let gallery = text_option(options, GALLERY);
        if let Some(text) = gallery.filter(|text| gallery_of(text).is_none()) {
            let message = format!(
                "the option \"gallery\" must be a gallery and an image in it, like \"ci/debian\", not {text:?}"
            );
            problems.push(UploadProblem::at("options", message));
        }
        let elsewhere = region.filter(|region| normalized_location(region) != self.location);
        if let Some(region) = elsewhere.filter(|_| gallery.is_none()) {
            let location = &self.location;
            let message = format!(
                "images are made where image_storage is, in {location}, and not in {region}: the option \"gallery\" copies them to other locations"
            );
            problems.push(UploadProblem::at("region", message));
        }
        problems
    }

    /// Sends the blob and begins to make the image of it, or asks how far the image is.
    async fn upload_image(&self, upload: &ImageUpload<'_>) -> Result<UploadState, ImageError> {
        crate::check_format(self, upload)?;
        refuse_problems(self.problems(upload.region, upload.options))?;
        let path = self.path(upload.token, upload.options);
        let state = match self.site.arm.get(&path).await? {
            Some(resource) => self.known(upload, &path, &resource).await?,
            None => self.operation_state(&path).await?,
        };
        if let Some(state) = state {
            return Ok(state);
        }
        self.store(upload).await?;
        self.make(upload, &path).await
    }

    async fn find_image(
        &self,
        region: Option<&str>,
        token: &UploadToken,
    ) -> Result<Option<UploadedImage>, ImageError> {
        let path = self.managed(&image_name(token));
        let managed = self.site.arm.get(&path).await?;
        let is_it = |it: &Value| self.is_of(it, token) && provisioning_state(it) == "Succeeded";
        if managed.is_some_and(|it| is_it(&it)) {
            return Ok(Some(uploaded(&path.path, region)));
        }
        let versions = self.versions().await?;
        let version = versions.iter().find(|it| is_it(it));
        let id = version.and_then(|it| it["id"].as_str());
        Ok(id.map(|id| uploaded(id, region)))
    }

    /// Deletes an image, a version, or the blob of an upload.
    async fn delete_image(
        &self,
        _region: Option<&str>,
        external_id: &str,
    ) -> Result<(), ImageError> {
        if self.blobs.has(external_id) {
            return match self.blobs.token_of(external_id) {
                Some(token) => Ok(self.blobs.delete(&token).await?),
                None => Err(not_ours(external_id)),
            };
        }
        let Some(path) = self.path_of(external_id) else {
            let like = self.managed("…").path;
            let text = format!("{external_id:?} is not the id of an image like {like}");
            return Err(ImageError::new(Cause::Configuration, text));
        };
        match self.site.arm.get(&path).await? {
            None => Ok(()),
            Some(found) if self.token_in(&found).is_none() => Err(not_ours(external_id)),
            Some(_) => Ok(self.site.arm.delete(&path).await?),
        }
    }

    /// The images, the versions in galleries, and the blobs of uploads: these are rests once their
    /// token is forgotten.
    async fn owned_images(&self) -> Result<Vec<OwnedImage>, ImageError> {
        let mut resources = self.managed_images().await?;
        resources.extend(self.versions().await?);
        let mut owned = Vec::new();
        for resource in &resources {
            let (Some(token), Some(id)) = (self.token_in(resource), resource["id"].as_str()) else {
                continue;
            };
            owned.push(OwnedImage {
                external_id: id.to_owned(),
                region: None,
                token,
                is_ready: provisioning_state(resource) == "Succeeded",
            });
        }
        for url in self.blobs.all().await? {
            owned.push(OwnedImage {
                token: self.blobs.token_of(&url),
                external_id: url,
                region: None,
                is_ready: false,
            });
        }
        Ok(owned)
    }
}

/// Gallery and image in it.
fn gallery_of(text: &str) -> Option<(&str, &str)> {
    let is_name = |name: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        (1..=80).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('.')
    };
    let (gallery, image) = text.split_once('/')?;
    (is_name(gallery) && is_name(image)).then_some((gallery, image))
}

/// The name of the image of an upload. Azure's names have no case.
fn image_name(token: &UploadToken) -> String {
    let text = token.as_str();
    let is_plain = text
        .bytes()
        .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'-' | b'_'));
    if is_plain && !text.ends_with('-') {
        return format!("fleetwright-{text}");
    }
    let digest = hex(digest(&SHA256, text.as_bytes()).as_ref());
    format!("fleetwright-image-{digest}")
}

/// The number of the version of an upload in a gallery: three numbers below 2³¹.
fn version(token: &UploadToken) -> String {
    let digest = digest(&SHA256, token.as_str().as_bytes());
    let number = |at: usize| {
        let four = digest.as_ref()[at..].first_chunk::<4>();
        four.map_or(0, |four| u32::from_be_bytes(*four) >> 1)
    };
    format!("0.{}.{}", number(0), number(4))
}

fn metadata_tags(metadata: &BTreeMap<String, String>) -> Map<String, Value> {
    let is_name = |name: &&String| {
        name.chars().count() <= MAX_TAG_CHARS
            && !name.contains(['<', '>', '%', '&', '\\', '?', '/'])
    };
    let known = metadata.iter().filter(|(name, _)| is_name(name));
    let pairs = known.take(MAX_METADATA).map(|(name, value)| {
        let value: String = value.chars().take(MAX_TAG_CHARS).collect();
        (name.clone(), json!(value))
    });
    pairs.collect()
}

fn uploaded(id: &str, region: Option<&str>) -> UploadedImage {
    UploadedImage {
        external_id: id.to_owned(),
        region: region.map(str::to_owned),
    }
}

fn operation_url(begun: &Answer) -> Option<&str> {
    let url = begun.header("azure-asyncoperation");
    url.or_else(|| begun.header("location"))
}

fn pending(status: &str) -> UploadState {
    UploadState::Pending {
        status: status.to_owned(),
        done: None,
        call_after: IMAGE_PAUSE,
    }
}

fn not_ours(id: &str) -> ImageError {
    let text = format!("{id} exists and does not have our tags");
    ImageError::new(Cause::Configuration, text)
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn names_and_versions_follow_from_tokens() {
        let of = |text: &str| image_name(&text.parse().unwrap());
        assert_eq!(of("1f0c"), "fleetwright-1f0c");
        let names = ["a", "A", "a-", "a_"].map(of);
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= 82 && !name.ends_with('-'), "{name}");
            assert!(!names[..at].contains(name));
        }
        let one = version(&"1f0c".parse().unwrap());
        assert_ne!(one, version(&"1f0d".parse().unwrap()));
        let numbers = one.split('.').map(|it| it.parse::<i32>().unwrap());
        assert_eq!(numbers.count(), 3);
    }

    #[test]
    fn a_gallery_has_a_name_and_an_image() {
        assert_eq!(gallery_of("ci/debian-12"), Some(("ci", "debian-12")));
        for text in ["ci", "/x", "x/", "a/b/c", "a/..", "a b/c"] {
            assert_eq!(gallery_of(text), None, "{text}");
        }
    }

    #[test]
    fn metadata_become_tags_that_azure_takes() {
        let metadata = BTreeMap::from([
            ("fleetwright:image-name".to_owned(), "é".repeat(300)),
            ("a/b".to_owned(), "x".to_owned()),
        ]);
        let tags = metadata_tags(&metadata);
        assert_eq!(tags.len(), 1);
        assert_eq!(tags["fleetwright:image-name"], "é".repeat(MAX_TAG_CHARS));
        for size in sizes_around("cloud::azure::images::MAX_METADATA", MAX_METADATA) {
            let many = (0..size).map(|number| (number.to_string(), String::new()));
            assert_eq!(metadata_tags(&many.collect()).len(), size.min(MAX_METADATA));
        }
    }
}
