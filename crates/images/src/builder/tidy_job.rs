//! Deletions, and notes about processes that ended.

use std::collections::BTreeSet;

use backplane::tree::{Lock, Op, TreeError, TreePath, delete_subtree, lock_path};
use cloud::image::{ArtifactKey, UploadToken};
use domain::id::ImageName;
use domain::image::{
    BuildNumber, BuildRecord, Leftover, Step, UploadNumber, UploadRecord, UploadState,
    UploadTargetId,
};

use super::Builder;
use super::build_job::text;
use super::claims::UploadName;
use super::job::{JobError, JobOutcome};
use crate::image_tree::{OwnedView, says_removed};
use crate::paths::Place;

impl Builder {
    /// Takes the step with this text, if it is still to be done.
    pub(super) async fn tidy(&self, image: &ImageName, wanted: &str) -> JobOutcome {
        // Before the view: a decision that comes after it stops the deletion of a build.
        let standing = self.images().image(image, |it| it.standing_version);
        let Some(view) = self.images().view(image, self.parts.clock.now()) else {
            return Ok(());
        };
        let mut steps = view.steps().into_iter();
        let Some(step) = steps.find(|step| format!("{step:?}") == wanted) else {
            return Ok(());
        };
        match step {
            Step::MarkBuildAbandoned { build } => self.mark_abandoned(image, build).await,
            Step::DeleteBuild { build, .. } => {
                self.mark_deleted(image, build, standing.flatten()).await
            }
            Step::MarkUploadAbandoned {
                build,
                target,
                upload,
            } => {
                self.mark_upload_abandoned(image, build, target, upload)
                    .await
            }
            Step::DeleteUpload {
                build,
                target,
                upload,
                ..
            } => self.delete_upload(image, build, &target, upload).await,
            Step::RemoveLeftover(leftover) => self.remove_leftover(image, leftover).await,
            Step::ClearRequest { at } => Ok(self.images().clear_request(image, at).await?),
            Step::Build { .. } | Step::Upload { .. } | Step::Wait { .. } => Ok(()),
        }
    }

    /// Notes that a build was abandoned, if its lock is free. The copy may be older than the lock,
    /// so the tree is asked.
    async fn mark_abandoned(&self, image: &ImageName, build: BuildNumber) -> JobOutcome {
        let path = Place::Build(image.clone(), build).path()?;
        let node = self.tree().get(&path).await?;
        let Ok(record) = BuildRecord::parse(&node.data) else {
            return Ok(());
        };
        let locked = Place::Builds(image.clone()).path()?;
        if self.images().is_held(&locked, record.fence).await? {
            return Err(JobError::Busy);
        }
        let data = text(record.abandon(self.parts.clock.now())?.to_document());
        let expected = Some(node.stat.version);
        self.tree().set(&path, &data, expected).await?;
        Ok(())
    }

    async fn mark_upload_abandoned(
        &self,
        image: &ImageName,
        build: BuildNumber,
        target: UploadTargetId,
        upload: UploadNumber,
    ) -> JobOutcome {
        let locked = Place::Uploads(image.clone(), build, target.clone()).path()?;
        let path = Place::Upload(image.clone(), build, target, upload).path()?;
        let node = self.tree().get(&path).await?;
        let Ok(record) = UploadRecord::parse(&node.data) else {
            return Ok(());
        };
        if self.images().is_held(&locked, record.fence).await? {
            return Err(JobError::Busy);
        }
        let data = text(record.abandon(self.parts.clock.now())?.to_document());
        let expected = Some(node.stat.version);
        self.tree().set(&path, &data, expected).await?;
        Ok(())
    }

    /// Notes that a build is deleted, unless it was pinned, or the decisions about the image have
    /// another version by now.
    async fn mark_deleted(
        &self,
        image: &ImageName,
        build: BuildNumber,
        standing: Option<i32>,
    ) -> JobOutcome {
        let path = Place::Build(image.clone(), build).path()?;
        let node = self.tree().get(&path).await?;
        let Ok(record) = BuildRecord::parse(&node.data) else {
            return Ok(());
        };
        let set = Op::Set {
            path,
            data: text(record.delete(self.parts.clock.now())?.to_document()),
            expected: Some(node.stat.version),
        };
        let standing = match standing {
            Some(version) => vec![Op::Check {
                path: Place::Standing(image.clone()).path()?,
                expected: Some(version),
            }],
            None => absence(Place::Standing(image.clone()).path()?),
        };
        let pin = absence(Place::Pin(image.clone(), build).path()?);
        let ops: Vec<Op> = standing.into_iter().chain(pin).chain([set]).collect();
        self.write(&ops).await
    }

    async fn write(&self, ops: &[Op]) -> JobOutcome {
        Ok(self.images().write_together(ops).await?)
    }

    /// Deletes the image at the provider, then its record.
    async fn delete_upload(
        &self,
        image: &ImageName,
        build: BuildNumber,
        target: &UploadTargetId,
        upload: UploadNumber,
    ) -> JobOutcome {
        let node = Place::Uploads(image.clone(), build, target.clone()).path()?;
        let lock = self.lock(&node).await?;
        let deleted = self.delete_under(&lock, image, build, target, upload);
        let deleted = lock.guard(deleted).await;
        let released = lock.release().await;
        deleted??;
        Ok(released?)
    }

    async fn delete_under(
        &self,
        lock: &Lock,
        image: &ImageName,
        build: BuildNumber,
        target: &UploadTargetId,
        upload: UploadNumber,
    ) -> JobOutcome {
        let place = Place::Upload(image.clone(), build, target.clone(), upload);
        let path = place.path()?;
        let node = match self.tree().get(&path).await {
            Err(TreeError::NoNode(_)) => return Ok(()),
            node => node?,
        };
        let Ok(record) = UploadRecord::parse(&node.data) else {
            return Ok(());
        };
        let mut version = node.stat.version;
        let record = match record.state {
            UploadState::Deleting => record,
            UploadState::Ready | UploadState::Failed { .. } | UploadState::Uploading => {
                let marked = record.delete(self.parts.clock.now())?;
                let data = text(marked.to_document());
                version = self.tree().set(&path, &data, Some(version)).await?.version;
                marked
            }
        };
        let is_shared = self
            .is_shared(image, build, target, upload, &record)
            .await?;
        if !is_shared {
            let name = UploadName {
                image,
                build,
                target,
            };
            self.delete_at_provider(&record, name).await?;
        }
        let delete = Op::Delete {
            path,
            expected: Some(version),
        };
        lock.write(&[delete]).await?;
        Ok(())
    }

    /// Whether another record of the target stands for the same image: attempts that go on where
    /// another stopped have its token. Then the image belongs to the last record.
    async fn is_shared(
        &self,
        image: &ImageName,
        build: BuildNumber,
        target: &UploadTargetId,
        upload: UploadNumber,
        record: &UploadRecord,
    ) -> Result<bool, JobError> {
        let node = Place::Uploads(image.clone(), build, target.clone()).path()?;
        for name in self.tree().children(&node).await? {
            let Ok(number) = name.parse::<UploadNumber>() else {
                continue;
            };
            if number == upload {
                continue;
            }
            let other = match self.tree().get(&node.join(&name)?).await {
                Err(TreeError::NoNode(_)) => continue,
                other => UploadRecord::parse(&other?.data),
            };
            let Ok(other) = other else {
                continue;
            };
            let has_same_id =
                record.external_id.is_some() && other.external_id == record.external_id;
            if has_same_id || (record.token.is_some() && other.token == record.token) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn delete_at_provider(
        &self,
        record: &UploadRecord,
        upload: UploadName<'_>,
    ) -> Result<(), JobError> {
        let target = upload.target;
        let provider = self.parts.targets.get(&target.provider_id);
        let provider =
            provider.ok_or_else(|| JobError::Provider("it is not in service".to_owned()))?;
        let Some(images) = provider.images() else {
            return Ok(());
        };
        let failed = |error: cloud::image::ImageError| JobError::Provider(error.to_string());
        let region = target.region.as_ref().map(ToString::to_string);
        let external_ids = match (&record.external_id, &record.token) {
            (Some(external_id), _) => vec![external_id.clone()],
            // The upload was interrupted before its answer; a part of the image may be there.
            (None, Some(token)) => {
                let owned = images.owned_images().await.map_err(failed)?;
                let of_upload = owned.into_iter().filter(|image| {
                    let found = image.token.as_ref().map(UploadToken::as_str);
                    found == Some(token.as_str())
                });
                of_upload.map(|image| image.external_id).collect()
            }
            (None, None) => Vec::new(),
        };
        for external_id in external_ids {
            if let Some(other) = self.other_owner(upload, &external_id) {
                let UploadName { image, build, .. } = upload;
                tracing::warn!(%image, %build, %target, external_id,
                    "image {external_id} at {target} is not deleted with build {build} of {image}: \
                     it is that of {other}");
                continue;
            }
            let deleted = images.delete_image(region.as_deref(), &external_id).await;
            deleted.map_err(failed)?;
            tracing::info!(%target, external_id, "deleted image {external_id} at {target}");
        }
        Ok(())
    }

    async fn remove_leftover(&self, image: &ImageName, leftover: Leftover) -> JobOutcome {
        match leftover {
            Leftover::Build(build) => {
                self.remove_files(image, build).await?;
                let path = Place::Build(image.clone(), build).path()?;
                delete_subtree(self.tree(), &path).await?;
            }
            Leftover::Upload {
                build,
                target,
                upload,
            } => {
                self.remove_node(&Place::Upload(image.clone(), build, target, upload))
                    .await?
            }
            Leftover::UnknownProvider {
                build,
                target,
                upload,
                external_id,
            } => {
                let left = external_id.unwrap_or_else(|| "none known".to_owned());
                tracing::warn!(%image, %build, %target, external_id = left,
                    "the provider of {target} is not configured: the record of {image} {build} \
                     there is removed, and the image ({left}) remains");
                self.remove_node(&Place::Upload(image.clone(), build, target, upload))
                    .await?;
            }
            Leftover::Image => self.remove_image(image).await?,
        }
        Ok(())
    }

    async fn remove_node(&self, place: &Place) -> JobOutcome {
        match self.tree().delete(&place.path()?, None).await {
            Ok(()) | Err(TreeError::NoNode(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes all nodes of an image without builds, together. A definition that comes back keeps
    /// them.
    async fn remove_image(&self, image: &ImageName) -> JobOutcome {
        let path = Place::Definition(image.clone()).path()?;
        let node = self.tree().get(&path).await?;
        // Our copy may be older than the tree, where the image may be defined again.
        if !says_removed(&node) {
            return Ok(());
        }
        let expected = Some(node.stat.version);
        let mut ops = vec![Op::Delete { path, expected }];
        for place in [
            Place::Request(image.clone()),
            Place::Pause(image.clone()),
            Place::Standing(image.clone()),
            Place::Canary(image.clone()),
        ] {
            let path = place.path()?;
            if self.tree().exists(&path).await?.is_some() {
                ops.push(Op::delete(path));
            }
        }
        let builds = Place::Builds(image.clone()).path()?;
        for path in [lock_path(&builds)?, builds] {
            if self.tree().exists(&path).await?.is_some() {
                ops.push(Op::delete(path));
            }
        }
        ops.push(Op::delete(Place::Image(image.clone()).path()?));
        self.write(&ops).await
    }

    /// Removes the files of a build that this builder reaches.
    async fn remove_files(&self, image: &ImageName, build: BuildNumber) -> Result<(), JobError> {
        let kept = self.disk.kept(image, build);
        let removed = tokio::task::spawn_blocking(move || permissions::remove(&kept)).await;
        removed
            .map_err(|error| JobError::Other(error.to_string()))?
            .map_err(|error| JobError::Other(format!("cannot remove a kept file: {error}")))?;
        let names = self.names_of(image, build);
        for name in names {
            let key: ArtifactKey = match super::make::key(image, build, &name) {
                Ok(key) => key,
                Err(_) => continue,
            };
            self.parts.artifacts.delete(&key).await?;
        }
        Ok(())
    }

    /// The names of the files of a build, as far as its record and its definition tell. Others are
    /// found by the search for unknown files.
    fn names_of(&self, image: &ImageName, build: BuildNumber) -> Vec<String> {
        let formats = self.images().image(image, |node| {
            let record = node
                .builds
                .get(&build)
                .and_then(|build| build.record.as_ref());
            let recorded = record.into_iter().flat_map(|it| it.formats.keys().cloned());
            let defined = node
                .definition
                .iter()
                .flat_map(|it| it.definition.all_formats());
            recorded.chain(defined).collect::<BTreeSet<_>>()
        });
        let formats = formats.unwrap_or_default();
        let files = formats.iter().map(|format| format!("{image}.{format}"));
        files.chain([super::make::LOG_NAME.to_owned()]).collect()
    }

    /// The builders that reach the files of a build.
    pub(super) fn reaching(&self, view: &OwnedView, build: BuildNumber) -> Vec<String> {
        let builds = view.builds.iter().find(|it| it.number == build);
        let names = builds.map(|build| build.files.builders.iter().cloned().collect());
        names.unwrap_or_default()
    }
}

/// Operations that succeed if there is no such node, and change nothing.
fn absence(path: TreePath) -> Vec<Op> {
    vec![Op::create(path.clone(), ""), Op::delete(path)]
}
