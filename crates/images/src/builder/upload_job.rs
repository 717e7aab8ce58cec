//! Uploads a build to a target under its lock, and records the result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backplane::tree::{Lifetime, Lock, LockError, Op, OpResult, TreeError, TreePath, lock_path};
use cloud::image::{
    ArtifactError, Checksum, ImageTarget, ImageUpload, OutputError, Retry, UploadProgress,
    UploadState, UploadToken, checksum_of,
};
use domain::id::ImageName;
use domain::image::{
    BuildNumber, BuildRecord, BuildState, ImageDefinition, ImageFormat, NewUpload, Step,
    StoredUpload, UploadRecord, UploadTargetId,
};
use serde_json::Map;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::Builder;
use super::build_job::{run_until, text};
use super::claims::UploadName;
use super::disk::FetchedFolder;
use super::job::{JobError, JobOutcome};
use super::make::{key, with_causes};
use crate::image_tree::OwnedView;
use crate::paths::Place;

/// Hex digits of a token.
const TOKEN_LENGTH: usize = 32;
/// A provider is asked again at most after this time, and at least after the other.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const SHORTEST_WAIT: Duration = Duration::from_millis(50);

/// An upload that is wanted, as it was decided under its lock.
struct Plan {
    definition: ImageDefinition,
    build: BuildNumber,
    record: BuildRecord,
    target: UploadTargetId,
    format: ImageFormat,
    attempt: u32,
    target_hash: String,
    token: String,
}

/// An upload whose record is in the tree.
struct Begun {
    record: UploadRecord,
    path: TreePath,
}

/// Why an upload failed.
struct UploadFailure {
    error: String,
    /// The next attempt goes on where this one stopped.
    resumable: bool,
    /// The store has the files of the build no more.
    are_files_lost: bool,
}

impl UploadFailure {
    fn resumable(error: String) -> Self {
        Self {
            error,
            resumable: true,
            are_files_lost: false,
        }
    }

    fn for_good(error: String) -> Self {
        Self {
            error,
            resumable: false,
            are_files_lost: false,
        }
    }

    fn of_store(build: BuildNumber, error: &ArtifactError) -> Self {
        let are_files_lost = matches!(
            error,
            ArtifactError::NotFound(_) | ArtifactError::WrongContent { .. }
        );
        let error = with_causes(error);
        Self {
            are_files_lost,
            ..Self::resumable(format!("cannot fetch the file of build {build}: {error}"))
        }
    }
}

/// A file that is sent from where it lies: others may be able to write there.
async fn check_content(
    build: BuildNumber,
    path: &Path,
    recorded: &Checksum,
) -> Result<(), UploadFailure> {
    let (of, shown) = (path.to_owned(), path.display().to_string());
    let found = tokio::task::spawn_blocking(move || checksum_of(&of)).await;
    let found = found.map_err(|error| UploadFailure::resumable(error.to_string()))?;
    let found = found.map_err(|error| UploadFailure {
        // A file that cannot be read now may be there.
        are_files_lost: !matches!(error, OutputError::Unreadable { .. }),
        ..UploadFailure::resumable(with_causes(&error))
    })?;
    if found == *recorded {
        return Ok(());
    }
    let error = format!(
        "{shown} is not what build {build} made: it has sha256 {}, and the record has {}",
        found.sha256, recorded.sha256
    );
    Err(UploadFailure {
        are_files_lost: true,
        ..UploadFailure::for_good(error)
    })
}

impl Builder {
    pub(super) async fn upload(
        &self,
        image: &ImageName,
        build: BuildNumber,
        target: &UploadTargetId,
    ) -> JobOutcome {
        let node = Place::Uploads(image.clone(), build, target.clone()).path()?;
        self.make_parents(&node).await?;
        let lock = self.lock(&node).await?;
        let uploaded = self.upload_under(&lock, &node, image, build, target).await;
        let released = lock.release().await;
        uploaded?;
        Ok(released?)
    }

    /// Makes the nodes between a build and its uploads. A build that was deleted is not made again.
    async fn make_parents(&self, node: &TreePath) -> Result<(), JobError> {
        if self.tree().exists(node).await?.is_some() {
            return Ok(());
        }
        let target = node.parent().ok_or(JobError::NotInSync)?;
        let provider = target.parent().ok_or(JobError::NotInSync)?;
        for path in [provider, target] {
            match self.tree().create(&path, b"", Lifetime::Persistent).await {
                Ok(_) | Err(TreeError::NodeExists(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ops = [
            Op::create(node.clone(), ""),
            Op::create(lock_path(node)?, ""),
        ];
        match self.tree().multi(&ops).await {
            Ok(_) => Ok(()),
            Err(TreeError::Operation { source, .. })
                if matches!(*source, TreeError::NodeExists(_)) =>
            {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn upload_under(
        &self,
        lock: &Lock,
        node: &TreePath,
        image: &ImageName,
        build: BuildNumber,
        target: &UploadTargetId,
    ) -> JobOutcome {
        let fence = u64::try_from(lock.number()).unwrap_or_default();
        let shows = |it: &crate::ImageNode| {
            let target = it.builds.get(&build).and_then(|it| it.targets.get(target));
            target
                .and_then(|it| it.lock())
                .is_some_and(|it| it.fence == fence)
        };
        let view = self.view_under_lock(image, shows).await?;
        let view = view.without_upload_lock(build, target, fence);
        let Some(plan) = plan(view, build, target, fence) else {
            return Ok(());
        };
        let begun = self.begin_upload(lock, node, &plan, fence).await?;
        tracing::info!(%image, %build, %target, "uploading {image} {build} to {target}");
        let sent = timeout(self.settings.upload_limit, self.send(&plan));
        let sent = match run_until(lock.lost(), run_until(self.stop.cancelled(), sent)).await {
            None => return Err(LockError::Lost(node.clone()).into()),
            Some(sent) => sent,
        };
        let now = self.parts.clock.now();
        let mut are_files_lost = false;
        let record = match sent {
            Some(Ok(Ok(external_id))) => {
                tracing::info!(%image, %build, %target, external_id,
                    "{image} {build} is ready at {target} as {external_id}");
                begun.record.succeed(external_id, fence, now)?
            }
            Some(Ok(Err(failure))) => {
                are_files_lost = failure.are_files_lost;
                let error = failure.error;
                tracing::warn!(%image, %build, %target, error,
                    "the upload of {image} {build} to {target} failed: {error}");
                begun.record.fail(error, failure.resumable, fence, now)?
            }
            Some(Err(_)) => {
                let seconds = self.settings.upload_limit.as_secs();
                let error = format!("the upload exceeded its time limit of {seconds} s");
                begun.record.fail(error, true, fence, now)?
            }
            // Another builder goes on.
            None => begun.record.abandon(now)?,
        };
        let document = text(record.to_document());
        let set = Op::Set {
            path: begun.path,
            data: document.clone(),
            expected: Some(0),
        };
        self.write_result(lock, &[set], &document).await?;
        match are_files_lost {
            true => self.note_lost_files(image, build, &plan.record).await,
            false => Ok(()),
        }
    }

    /// Notes that the store has the files no more, so that another build is made.
    async fn note_lost_files(
        &self,
        image: &ImageName,
        build: BuildNumber,
        known: &BuildRecord,
    ) -> JobOutcome {
        let path = Place::Build(image.clone(), build).path()?;
        let node = self.tree().get(&path).await?;
        let Ok(record) = BuildRecord::parse(&node.data) else {
            return Ok(());
        };
        if record.artifacts != known.artifacts || record.state != BuildState::Ready {
            return Ok(());
        }
        tracing::warn!(%image, %build, "the files of {image} {build} are lost");
        let data = text(record.lose_files()?.to_document());
        self.tree()
            .set(&path, &data, Some(node.stat.version))
            .await?;
        Ok(())
    }

    async fn begin_upload(
        &self,
        lock: &Lock,
        node: &TreePath,
        plan: &Plan,
        fence: u64,
    ) -> Result<Begun, JobError> {
        let new = NewUpload {
            uploader: self.settings.name.clone(),
            format: plan.format.clone(),
            external_name: Some(plan.external_name()),
            attempt: plan.attempt,
            fence,
            target_hash: plan.target_hash.clone(),
            token: plan.token.clone(),
        };
        let record = new.begin(self.parts.clock.now());
        let create = Op::CreateSequential {
            parent: node.clone(),
            prefix: String::new(),
            data: text(record.to_document()),
            lifetime: Lifetime::Persistent,
        };
        match lock.write(&[create]).await?.into_iter().next() {
            Some(OpResult::Created(path)) => Ok(Begun { record, path }),
            _ => Err(TreeError::Unexpected("a create without its path".to_owned()).into()),
        }
    }

    /// Returns the provider's name of the image.
    async fn send(&self, plan: &Plan) -> Result<String, UploadFailure> {
        let provider = self.parts.targets.get(&plan.target.provider_id);
        let provider = provider.ok_or_else(|| {
            UploadFailure::resumable(format!("{} is not in service", plan.target.provider_id))
        })?;
        let target = provider.images().ok_or_else(|| {
            UploadFailure::for_good(format!("{} takes no images", plan.target.provider_id))
        })?;
        let file = self.fetch(plan, target).await?;
        let sent = self.send_file(plan, target, &file).await;
        if let Some(folder) = file.fetched {
            folder.remove().await;
        }
        sent
    }

    async fn send_file(
        &self,
        plan: &Plan,
        target: &dyn ImageTarget,
        file: &SentFile,
    ) -> Result<String, UploadFailure> {
        let token = plan.token.parse::<UploadToken>();
        let token = token.map_err(|error| UploadFailure::for_good(error.to_string()))?;
        let no_options = Map::new();
        let listed = plan.definition.target(&plan.target);
        let region = plan.target.region.as_ref().map(ToString::to_string);
        let metadata: BTreeMap<String, String> = [
            (
                "fleetwright:image-name".to_owned(),
                plan.definition.name.to_string(),
            ),
            ("fleetwright:image-build".to_owned(), plan.build.to_string()),
        ]
        .into();
        let name = plan.external_name();
        let progress = Arc::new(UploadProgress::default());
        loop {
            let upload = ImageUpload {
                token: &token,
                name: &name,
                format: plan.format.as_str(),
                path: file.path.as_deref(),
                location: file.location.as_deref(),
                checksum: &file.checksum,
                region: region.as_deref(),
                options: listed.map_or(&no_options, |listed| &listed.options),
                metadata: &metadata,
                progress: &progress,
            };
            match target.upload_image(&upload).await {
                Ok(UploadState::Ready(image)) => {
                    let name = UploadName {
                        image: &plan.definition.name,
                        build: plan.build,
                        target: &plan.target,
                    };
                    let confirmed = self.confirm_upload(name, target, &token, &image).await;
                    return match confirmed {
                        Ok(()) => Ok(image.external_id),
                        // The next attempt asks with the same token, so it makes no second image.
                        Err(error) => Err(UploadFailure::resumable(error)),
                    };
                }
                Ok(UploadState::Pending { call_after, .. }) => {
                    let wait = call_after.clamp(SHORTEST_WAIT, LONGEST_WAIT);
                    let _ = timeout(wait, self.stop.cancelled()).await;
                }
                Err(error) => {
                    return Err(UploadFailure {
                        resumable: error.retry() == Retry::Later,
                        ..UploadFailure::for_good(error.to_string())
                    });
                }
            }
        }
    }

    /// Finds the file of a build, and fetches it if it is not on this disk.
    async fn fetch(
        &self,
        plan: &Plan,
        target: &dyn ImageTarget,
    ) -> Result<SentFile, UploadFailure> {
        let (image, build) = (&plan.definition.name, plan.build);
        let known = plan
            .record
            .formats
            .get(&plan.format)
            .and_then(Option::as_ref);
        let checksum = known.map(|file| Checksum {
            sha256: file.sha256.clone(),
            size_bytes: file.size_bytes,
        });
        let checksum = checksum.ok_or_else(|| {
            UploadFailure::for_good(format!(
                "the record of build {build} has no checksum of its {}",
                plan.format
            ))
        })?;
        let name = format!("{image}.{}", plan.format);
        let kept = self.disk.kept(image, build).join(&name);
        if plan.record.artifacts == Some(self.disk.store_name()) {
            if !kept.exists() {
                let error = format!("{} does not exist any more", kept.display());
                return Err(UploadFailure {
                    are_files_lost: true,
                    ..UploadFailure::for_good(error)
                });
            }
            check_content(build, &kept, &checksum).await?;
            return Ok(SentFile {
                path: Some(kept),
                location: None,
                checksum,
                fetched: None,
            });
        }
        let key = key(image, build, &name).map_err(UploadFailure::resumable)?;
        let location = self.parts.artifacts.location(&key);
        let mut file = SentFile {
            path: None,
            location: Some(location.clone()),
            checksum,
            fetched: None,
        };
        if target.reads_store() {
            return Ok(file);
        }
        // The store may be a folder of this machine.
        let local = PathBuf::from(&location);
        if local.is_absolute() && local.exists() {
            check_content(build, &local, &file.checksum).await?;
            file.path = Some(local);
            return Ok(file);
        }
        let target = plan.target.to_string();
        let folder = self.disk.fetched(image, build, &target).await;
        let folder = folder
            .map_err(|error| UploadFailure::resumable(format!("a folder for {name}: {error}")))?;
        let path = folder.path().join(&name);
        let got = self.parts.artifacts.get(&key, &path, &file.checksum).await;
        if let Err(error) = got {
            folder.remove().await;
            return Err(UploadFailure::of_store(build, &error));
        }
        file.path = Some(path);
        file.fetched = Some(folder);
        Ok(file)
    }
}

/// A file that is sent to a provider.
struct SentFile {
    path: Option<PathBuf>,
    location: Option<String>,
    checksum: Checksum,
    /// Removed after the upload.
    fetched: Option<FetchedFolder>,
}

impl Plan {
    /// The same for all attempts, since some providers make the image's id of it.
    fn external_name(&self) -> String {
        format!("{}-{}", self.definition.name, self.build)
    }
}

/// The step that is decided now about a build and a target, if it is an upload.
fn plan(view: OwnedView, build: BuildNumber, target: &UploadTargetId, fence: u64) -> Option<Plan> {
    let found = view.steps().into_iter().find_map(|step| {
        let Step::Upload {
            build: number,
            target: other,
            format,
            target_hash,
            attempt,
            ..
        } = step
        else {
            return None;
        };
        (number == build && other == *target).then_some((format, target_hash, attempt))
    });
    let (format, target_hash, attempt) = found?;
    let last = last_upload(&view, build, target);
    let token = known_token(&target_hash, last)
        .unwrap_or_else(|| new_token(&view.name, build, target, &target_hash, fence));
    Some(Plan {
        build,
        record: view.build(build)?.clone(),
        target: target.clone(),
        format,
        attempt,
        target_hash,
        token,
        definition: view.definition?,
    })
}

fn last_upload<'a>(
    view: &'a OwnedView,
    build: BuildNumber,
    target: &UploadTargetId,
) -> Option<&'a StoredUpload> {
    let build = view.builds.iter().find(|it| it.number == build)?;
    let uploads = build
        .uploads
        .iter()
        .filter(|upload| upload.target == *target);
    let last = uploads.max_by_key(|upload| upload.number)?;
    Some(last.record.as_ref()?)
}

/// The token of the attempt before, if this one goes on with it. An attempt that still seems to
/// upload was interrupted: we hold its lock.
fn known_token(target_hash: &str, last: Option<&StoredUpload>) -> Option<String> {
    let last = last.filter(|last| last.target_hash.as_deref() == Some(target_hash))?;
    let is_interrupted = last.state == domain::image::UploadState::Uploading;
    let goes_on = last.resumable || is_interrupted;
    last.token.clone().filter(|_| goes_on)
}

/// No other upload has this token, since no other has this number of its lock.
fn new_token(
    image: &ImageName,
    build: BuildNumber,
    target: &UploadTargetId,
    target_hash: &str,
    fence: u64,
) -> String {
    let text = format!("{image}\n{build}\n{target}\n{target_hash}\n{fence}");
    let digest = Sha256::digest(text);
    let mut token: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    token.truncate(TOKEN_LENGTH);
    token
}
