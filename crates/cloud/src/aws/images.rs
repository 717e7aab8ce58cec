//! Machine images of EC2: imports a disk image from S3 as a snapshot, and registers it.
//!
//! An upload advances by one call at a time, and all of its state is at EC2: the import task, the
//! snapshot and the image carry the token as a tag.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use domain::launch::Cause;
use serde_json::Value;

use super::AwsProvider;
use super::error::Ec2Error;
use super::image_responses::{
    DescribeImages, DescribeImportSnapshotTasks, DescribeSnapshots, ImageItem, ImportTask,
    ImportedSnapshot, RegisteredImage, SnapshotItem,
};
use super::parameters::Parameters;
use super::responses::{EmptyResponse, Tag};
use super::tags::{self, DEPLOYMENT, PROVIDER};
use crate::{
    ImageError, ImageTarget, ImageUpload, OwnedImage, UploadState, UploadToken, UploadedImage,
};

/// The token of the upload that made an image, a snapshot or an import.
const TOKEN: &str = "fleetwright:image";
/// An import takes many minutes.
const IMPORT_PAUSE: Duration = Duration::from_secs(15);
const REGISTER_PAUSE: Duration = Duration::from_secs(5);
/// Tags of our own and of the definition at most; EC2 takes 50.
pub(super) const MAX_TAGS: usize = 45;
const MAX_TAG_CHARS: usize = 255;
/// Longest beginning of an image's name, before its token.
const MAX_NAME_CHARS: usize = 60;
const FORMATS: [&str; 3] = ["raw", "vhd", "vmdk"];
const OPTIONS: [&str; 5] = [
    "architecture",
    "bootMode",
    "roleName",
    "rootDevice",
    "volumeType",
];

/// EC2 does not know the resource.
const UNKNOWN: [&str; 6] = [
    "InvalidAMIID.NotFound",
    "InvalidAMIID.Unavailable",
    "InvalidAMIID.Malformed",
    "InvalidSnapshot.NotFound",
    "InvalidSnapshotID.Malformed",
    "InvalidConversionTaskId",
];

impl From<Ec2Error> for ImageError {
    fn from(error: Ec2Error) -> Self {
        match crate::LaunchError::from(error) {
            crate::LaunchError::Refused { cause, error } => Self::new(cause, error),
            crate::LaunchError::Unknown(error) => Self::new(Cause::Lost, error),
        }
    }
}

impl AwsProvider {
    fn region_for(&self, region: Option<&str>) -> Result<String, ImageError> {
        let region = region.unwrap_or(&self.home_region);
        if self.serves(region) {
            return Ok(region.to_owned());
        }
        let text = format!("the provider does not use region {region}");
        Err(ImageError::new(Cause::Configuration, text))
    }

    fn of_ours(&self) -> Parameters {
        Parameters::default()
            .with_filter(1, &format!("tag:{DEPLOYMENT}"), [&self.root_url])
            .with_filter(2, &format!("tag:{PROVIDER}"), [self.id.as_str()])
            .with("Owner.1", "self")
    }

    /// The token in our tags; `None`: the tags are not ours.
    fn token_in(&self, tags: &[Tag]) -> Option<Option<UploadToken>> {
        tags::launch_of(tags, &self.root_url, &self.id)?;
        let tag = tags.iter().find(|tag| tag.key == TOKEN);
        Some(tag.and_then(|tag| tag.value.parse().ok()))
    }

    fn is_of(&self, tags: &[Tag], token: &UploadToken) -> bool {
        self.token_in(tags).flatten().as_ref() == Some(token)
    }

    async fn our_images(&self, region: &str) -> Result<Vec<ImageItem>, Ec2Error> {
        let all = self
            .all_pages::<DescribeImages>(region, self.of_ours())
            .await?;
        let ours = |image: &ImageItem| self.token_in(&image.tag_set.items).is_some();
        Ok(all.into_iter().filter(ours).collect())
    }

    pub(super) async fn our_snapshots(&self, region: &str) -> Result<Vec<SnapshotItem>, Ec2Error> {
        let all = self
            .all_pages::<DescribeSnapshots>(region, self.of_ours())
            .await?;
        let ours = |snapshot: &SnapshotItem| self.token_in(&snapshot.tag_set.items).is_some();
        Ok(all.into_iter().filter(ours).collect())
    }

    /// EC2 has no filter for the tags of imports.
    async fn our_imports(&self, region: &str) -> Result<Vec<ImportTask>, Ec2Error> {
        let everything = Parameters::default();
        let all = self
            .all_pages::<DescribeImportSnapshotTasks>(region, everything)
            .await?;
        let ours = |task: &ImportTask| self.token_in(&task.tag_set.items).is_some();
        Ok(all.into_iter().filter(ours).collect())
    }

    fn tag_pairs(&self, upload: &ImageUpload<'_>) -> Vec<(String, String)> {
        let mut pairs = vec![
            (DEPLOYMENT.to_owned(), self.root_url.clone()),
            (PROVIDER.to_owned(), self.id.to_string()),
            (TOKEN.to_owned(), upload.token.to_string()),
            ("Name".to_owned(), upload.name.to_owned()),
        ];
        let is_free = |name: &str| !name.starts_with("aws:") && !name.starts_with("fleetwright:");
        for (name, value) in upload.metadata {
            if is_free(name) && name != "Name" && name.len() <= 127 {
                pairs.push((name.clone(), value.chars().take(MAX_TAG_CHARS).collect()));
            }
        }
        pairs.truncate(MAX_TAGS);
        pairs
    }

    async fn begin_import(
        &self,
        region: &str,
        upload: &ImageUpload<'_>,
    ) -> Result<UploadState, ImageError> {
        let wrong = |text: &str| ImageError::new(Cause::Configuration, text);
        let place = upload
            .location
            .and_then(|place| place.strip_prefix("s3://"));
        let (bucket, key) = place
            .and_then(|place| place.split_once('/'))
            .ok_or_else(|| {
                wrong("EC2 imports images from S3 only: configure an artifact store with a bucket")
            })?;
        let mut parameters = Parameters::default()
            .with("ClientToken", upload.token)
            .with("Description", upload.name)
            .with("DiskContainer.Format", upload.format.to_uppercase())
            .with("DiskContainer.UserBucket.S3Bucket", bucket)
            .with("DiskContainer.UserBucket.S3Key", key);
        if let Some(role) = option(upload, "roleName")? {
            parameters = parameters.with("RoleName", role);
        }
        let parameters = with_tags(parameters, "import-snapshot-task", &self.tag_pairs(upload));
        let begun: ImportedSnapshot = self.ec2.call(region, "ImportSnapshot", &parameters).await?;
        Ok(UploadState::Pending {
            status: format!("import {} has begun", begun.import_task_id),
            done: Some(0.0),
            call_after: IMPORT_PAUSE,
        })
    }

    /// Registers an image that boots from this snapshot.
    async fn register(
        &self,
        region: &str,
        upload: &ImageUpload<'_>,
        snapshot: &str,
    ) -> Result<UploadState, ImageError> {
        let device = option(upload, "rootDevice")?.unwrap_or("/dev/xvda");
        let mut parameters = Parameters::default()
            .with("Name", image_name(upload))
            .with("Description", upload.name)
            .with(
                "Architecture",
                option(upload, "architecture")?.unwrap_or("x86_64"),
            )
            .with("VirtualizationType", "hvm")
            .with("EnaSupport", true)
            .with("RootDeviceName", device)
            .with("BlockDeviceMapping.1.DeviceName", device)
            .with("BlockDeviceMapping.1.Ebs.SnapshotId", snapshot)
            .with("BlockDeviceMapping.1.Ebs.DeleteOnTermination", true)
            .with(
                "BlockDeviceMapping.1.Ebs.VolumeType",
                option(upload, "volumeType")?.unwrap_or("gp3"),
            );
        if let Some(mode) = option(upload, "bootMode")? {
            parameters = parameters.with("BootMode", mode);
        }
        let parameters = with_tags(parameters, "image", &self.tag_pairs(upload));
        let registered = self.ec2.call(region, "RegisterImage", &parameters).await;
        let registered: RegisteredImage = match registered {
            // An earlier call was answered too late: the next call finds its image.
            Err(error) if error.has_code(&["InvalidAMIName.Duplicate"]) => {
                return Ok(pending("registering", REGISTER_PAUSE));
            }
            registered => registered?,
        };
        Ok(pending(
            &format!("image {} is being registered", registered.image_id),
            REGISTER_PAUSE,
        ))
    }

    async fn delete_snapshot(&self, region: &str, id: &str) -> Result<(), ImageError> {
        let parameters = Parameters::default().with("SnapshotId", id);
        self.succeed(region, "DeleteSnapshot", &parameters).await
    }

    /// Makes a call that also succeeds if EC2 does not know the resource.
    async fn succeed(
        &self,
        region: &str,
        action: &str,
        parameters: &Parameters,
    ) -> Result<(), ImageError> {
        match self
            .ec2
            .call::<EmptyResponse>(region, action, parameters)
            .await
        {
            Err(error) if !error.has_code(&UNKNOWN) => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn delete_machine_image(&self, region: &str, id: &str) -> Result<(), ImageError> {
        let parameters = Parameters::default().with("ImageId.1", id);
        let found = self
            .ec2
            .call::<DescribeImages>(region, "DescribeImages", &parameters)
            .await;
        let found = match found {
            Err(error) if error.has_code(&UNKNOWN) => return Ok(()),
            found => found?.images_set.items,
        };
        for image in found {
            if self.token_in(&image.tag_set.items).is_none() {
                return Err(not_ours(id, region));
            }
            let snapshots = image.snapshots();
            let parameters = Parameters::default().with("ImageId", id);
            self.succeed(region, "DeregisterImage", &parameters).await?;
            // After a crash here, the snapshot is listed as the rest of the image.
            for snapshot in snapshots {
                self.delete_snapshot(region, &snapshot).await?;
            }
        }
        Ok(())
    }

    async fn delete_rest(&self, region: &str, id: &str) -> Result<(), ImageError> {
        let parameters = Parameters::default().with("SnapshotId.1", id);
        let found = self
            .ec2
            .call::<DescribeSnapshots>(region, "DescribeSnapshots", &parameters);
        let found = match found.await {
            Err(error) if error.has_code(&UNKNOWN) => return Ok(()),
            found => found?.snapshot_set.items,
        };
        if found
            .iter()
            .any(|it| self.token_in(&it.tag_set.items).is_none())
        {
            return Err(not_ours(id, region));
        }
        if found.is_empty() {
            return Ok(());
        }
        self.delete_snapshot(region, id).await
    }

    async fn cancel_import(&self, region: &str, id: &str) -> Result<(), ImageError> {
        let ours = self.our_imports(region).await?;
        let is_active = |task: &ImportTask| task.import_task_id == id && task.is_active();
        if !ours.iter().any(is_active) {
            return Ok(());
        }
        let parameters = Parameters::default().with("ImportTaskId", id);
        self.succeed(region, "CancelImportTask", &parameters).await
    }

    async fn owned_in_region(&self, region: &str) -> Result<Vec<OwnedImage>, Ec2Error> {
        let images = self.our_images(region).await?;
        let used: BTreeSet<String> = images.iter().flat_map(ImageItem::snapshots).collect();
        let owned = |external_id: &str, tags: &[Tag], is_ready: bool| OwnedImage {
            external_id: external_id.to_owned(),
            region: Some(region.to_owned()),
            token: self.token_in(tags).flatten(),
            is_ready,
        };
        let mut all: Vec<OwnedImage> = images
            .iter()
            .map(|it| {
                owned(
                    &it.image_id,
                    &it.tag_set.items,
                    it.image_state == "available",
                )
            })
            .collect();
        for it in self.our_snapshots(region).await? {
            if !used.contains(&it.snapshot_id) {
                all.push(owned(&it.snapshot_id, &it.tag_set.items, false));
            }
        }
        for it in self.our_imports(region).await? {
            if it.is_active() {
                all.push(owned(&it.import_task_id, &it.tag_set.items, false));
            }
        }
        Ok(all)
    }
}

#[async_trait]
impl ImageTarget for AwsProvider {
    fn image_formats(&self) -> Vec<String> {
        FORMATS.map(str::to_owned).into()
    }

    fn reads_store(&self) -> bool {
        true
    }

    /// Takes the next step: begins the import, names its snapshot, or registers the image.
    async fn upload_image(&self, upload: &ImageUpload<'_>) -> Result<UploadState, ImageError> {
        crate::check_format(self, upload)?;
        check_options(upload)?;
        let region = self.region_for(upload.region)?;
        let images = self.our_images(&region).await?;
        let image = images
            .iter()
            .find(|it| self.is_of(&it.tag_set.items, upload.token));
        if let Some(image) = image {
            return image_state(image, &region, upload);
        }
        let snapshots = self.our_snapshots(&region).await?;
        let snapshot = snapshots
            .iter()
            .find(|it| self.is_of(&it.tag_set.items, upload.token));
        if let Some(snapshot) = snapshot {
            return match snapshot.status.as_str() {
                "completed" => self.register(&region, upload, &snapshot.snapshot_id).await,
                "error" => {
                    let text = format!("snapshot {} has failed", snapshot.snapshot_id);
                    Err(ImageError::new(Cause::Configuration, text))
                }
                status => Ok(pending(
                    &format!("the snapshot is {status}"),
                    REGISTER_PAUSE,
                )),
            };
        }
        let imports = self.our_imports(&region).await?;
        let import = imports
            .iter()
            .find(|it| self.is_of(&it.tag_set.items, upload.token));
        let Some(import) = import else {
            return self.begin_import(&region, upload).await;
        };
        let detail = &import.snapshot_task_detail;
        let message = detail.status_message.as_deref().unwrap_or_default();
        match (import.status(), &detail.snapshot_id) {
            ("completed", Some(snapshot)) => {
                let parameters = Parameters::default().with("ResourceId.1", snapshot);
                let parameters = with_pairs(parameters, "", &self.tag_pairs(upload));
                let _: EmptyResponse = self.ec2.call(&region, "CreateTags", &parameters).await?;
                self.register(&region, upload, snapshot).await
            }
            ("active" | "completed", _) => Ok(UploadState::Pending {
                status: format!("import {}: {message}", import.import_task_id),
                done: detail.progress.as_deref().and_then(in_parts_of_one),
                call_after: IMPORT_PAUSE,
            }),
            (status, _) => Err(ImageError::new(
                Cause::Configuration,
                format!("import {} is {status}: {message}", import.import_task_id),
            )),
        }
    }

    async fn find_image(
        &self,
        region: Option<&str>,
        token: &UploadToken,
    ) -> Result<Option<UploadedImage>, ImageError> {
        let region = self.region_for(region)?;
        let images = self.our_images(&region).await?;
        let ready =
            |it: &&ImageItem| self.is_of(&it.tag_set.items, token) && it.image_state == "available";
        Ok(images.iter().find(ready).map(|image| UploadedImage {
            external_id: image.image_id.clone(),
            region: Some(region.clone()),
        }))
    }

    /// Deletes an image with its snapshot, a snapshot without an image, or an unfinished import.
    async fn delete_image(
        &self,
        region: Option<&str>,
        external_id: &str,
    ) -> Result<(), ImageError> {
        let region = self.region_for(region)?;
        match external_id.rsplit_once('-').map(|(kind, _)| kind) {
            Some("ami") => self.delete_machine_image(&region, external_id).await,
            Some("snap") => self.delete_rest(&region, external_id).await,
            Some("import-snap") => self.cancel_import(&region, external_id).await,
            Some(_) | None => Err(ImageError::new(
                Cause::Configuration,
                format!("{external_id:?} is not the id of an image, a snapshot or an import"),
            )),
        }
    }

    async fn owned_images(&self) -> Result<Vec<OwnedImage>, ImageError> {
        let regions = self.known_regions();
        let regions = regions.map_err(|error| ImageError::new(Cause::Unavailable, error))?;
        let mut questions = Vec::new();
        for region in regions.iter() {
            questions.push(self.owned_in_region(region));
        }
        let mut all = Vec::new();
        for owned in crate::several_calls::run_together(questions).await {
            all.extend(owned?);
        }
        Ok(all)
    }
}

fn image_state(
    image: &ImageItem,
    region: &str,
    upload: &ImageUpload<'_>,
) -> Result<UploadState, ImageError> {
    match image.image_state.as_str() {
        "available" => {
            upload.progress.add(upload.checksum.size_bytes);
            Ok(UploadState::Ready(UploadedImage {
                external_id: image.image_id.clone(),
                region: Some(region.to_owned()),
            }))
        }
        "pending" => Ok(pending("the image is being registered", REGISTER_PAUSE)),
        state => {
            let reason = image.state_reason.as_ref();
            let reason = reason.map_or("", |reason| reason.message.as_str());
            let text = format!("image {} is {state}: {reason}", image.image_id);
            Err(ImageError::new(Cause::Configuration, text))
        }
    }
}

fn pending(status: &str, call_after: Duration) -> UploadState {
    UploadState::Pending {
        status: status.to_owned(),
        done: None,
        call_after,
    }
}

fn not_ours(id: &str, region: &str) -> ImageError {
    let text = format!("{id} in {region} does not have our tags");
    ImageError::new(Cause::Configuration, text)
}

fn in_parts_of_one(percent: &str) -> Option<f64> {
    let percent: f64 = percent.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// The name must be unique in the account, and has few characters.
fn image_name(upload: &ImageUpload<'_>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = upload
        .name
        .chars()
        .map(plain)
        .take(MAX_NAME_CHARS)
        .collect();
    format!("{name}.{}", upload.token)
}

fn check_options(upload: &ImageUpload<'_>) -> Result<(), ImageError> {
    for name in upload.options.keys() {
        if !OPTIONS.contains(&name.as_str()) {
            let known = OPTIONS.join(", ");
            let text = format!("the provider has no option {name:?}, only {known}");
            return Err(ImageError::new(Cause::Configuration, text));
        }
        option(upload, name)?;
    }
    Ok(())
}

fn option<'a>(upload: &ImageUpload<'a>, name: &str) -> Result<Option<&'a str>, ImageError> {
    match upload.options.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(other) => Err(ImageError::new(
            Cause::Configuration,
            format!("the option {name:?} must be a text, not {other}"),
        )),
    }
}

fn with_tags(parameters: Parameters, kind: &str, pairs: &[(String, String)]) -> Parameters {
    let parameters = parameters.with("TagSpecification.1.ResourceType", kind);
    with_pairs(parameters, "TagSpecification.1.", pairs)
}

fn with_pairs(mut parameters: Parameters, prefix: &str, pairs: &[(String, String)]) -> Parameters {
    for (index, (name, value)) in pairs.iter().enumerate() {
        let number = index + 1;
        parameters = parameters
            .with(&format!("{prefix}Tag.{number}.Key"), name)
            .with(&format!("{prefix}Tag.{number}.Value"), value);
    }
    parameters
}
