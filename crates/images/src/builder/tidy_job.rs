//! Deletions, and notes about processes that ended.

use std::collections::BTreeSet;

use backplane::tree::{Op, TreeError, delete_subtree, delete_with_lock};
use cloud::image::ArtifactKey;
use domain::id::ImageName;
use domain::image::{
    BuildNumber, BuildRecord, Leftover, Step, UploadNumber, UploadRecord, UploadState,
    UploadTargetId,
};

use super::Builder;
use super::build_job::text;
use super::disk::remove;
use super::job::{JobError, JobOutcome};
use super::make::build_of;
use crate::image_tree::OwnedView;
use crate::paths::Place;

impl Builder {
    /// Takes the step with this text, if it is still to be done.
    pub(super) async fn tidy(&self, image: &ImageName, wanted: &str) -> JobOutcome {
        let Some(view) = self.images().view(image, self.parts.clock.now()) else {
            return Ok(());
        };
        let mut steps = view.steps().into_iter();
        let Some(step) = steps.find(|step| format!("{step:?}") == wanted) else {
            return Ok(());
        };
        match step {
            Step::MarkBuildAbandoned { build } => self.mark_build(image, build, true).await,
            Step::DeleteBuild { build, .. } => self.mark_build(image, build, false).await,
            Step::MarkUploadAbandoned {
                build,
                target,
                upload,
            } => {
                let place = Place::Upload(image.clone(), build, target, upload);
                let now = self.parts.clock.now();
                self.change_upload(&place, |record| Ok(record.abandon(now)?))
                    .await
            }
            Step::DeleteUpload {
                build,
                target,
                upload,
                ..
            } => self.delete_upload(image, build, &target, upload).await,
            Step::RemoveLeftover(leftover) => self.remove_leftover(image, leftover).await,
            Step::ClearRequest { at } => {
                let path = Place::Request(image.clone()).path()?;
                let node = self.tree().get(&path).await?;
                if node.stat.created == at {
                    self.tree().delete(&path, Some(node.stat.version)).await?;
                }
                Ok(())
            }
            Step::Build { .. } | Step::Upload { .. } | Step::Wait { .. } => Ok(()),
        }
    }

    async fn mark_build(
        &self,
        image: &ImageName,
        build: BuildNumber,
        is_abandoned: bool,
    ) -> JobOutcome {
        let path = Place::Build(image.clone(), build).path()?;
        let node = self.tree().get(&path).await?;
        let Ok(record) = BuildRecord::parse(&node.data) else {
            return Ok(());
        };
        let now = self.parts.clock.now();
        let changed = match is_abandoned {
            true => record.abandon(now)?,
            false => record.delete(now)?,
        };
        let data = text(changed.to_document());
        self.tree()
            .set(&path, &data, Some(node.stat.version))
            .await?;
        Ok(())
    }

    /// Changes the record of an upload, if nobody else does meanwhile.
    async fn change_upload(
        &self,
        place: &Place,
        change: impl FnOnce(UploadRecord) -> Result<UploadRecord, JobError>,
    ) -> JobOutcome {
        let path = place.path()?;
        let node = self.tree().get(&path).await?;
        let Ok(record) = UploadRecord::parse(&node.data) else {
            return Ok(());
        };
        let data = text(change(record)?.to_document());
        self.tree()
            .set(&path, &data, Some(node.stat.version))
            .await?;
        Ok(())
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
        lock: &backplane::tree::Lock,
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
        self.delete_at_provider(&record, target).await?;
        let delete = Op::Delete {
            path,
            expected: Some(version),
        };
        lock.write(&[delete]).await?;
        Ok(())
    }

    async fn delete_at_provider(
        &self,
        record: &UploadRecord,
        target: &UploadTargetId,
    ) -> Result<(), JobError> {
        let provider = self.parts.targets.get(&target.provider_id);
        let provider =
            provider.ok_or_else(|| JobError::Provider("it is not in service".to_owned()))?;
        let Some(images) = provider.images() else {
            return Ok(());
        };
        let failed = |error: cloud::image::ImageError| JobError::Provider(error.to_string());
        let region = target.region.as_ref().map(ToString::to_string);
        let external_id = match (&record.external_id, &record.token) {
            (Some(external_id), _) => Some(external_id.clone()),
            // The upload was interrupted before its answer.
            (None, Some(token)) => {
                let token = token.parse();
                let token = token.map_err(|error| JobError::Other(format!("{error}")))?;
                let found = images.find_image(region.as_deref(), &token).await;
                found.map_err(failed)?.map(|image| image.external_id)
            }
            (None, None) => None,
        };
        if let Some(external_id) = external_id {
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

    /// Removes all nodes of an image without builds. A definition that comes back is not removed.
    async fn remove_image(&self, image: &ImageName) -> JobOutcome {
        for place in [
            Place::Request(image.clone()),
            Place::Pause(image.clone()),
            Place::Standing(image.clone()),
            Place::Canary(image.clone()),
        ] {
            self.remove_node(&place).await?;
        }
        let builds = Place::Builds(image.clone()).path()?;
        match delete_with_lock(self.tree(), &builds, &[]).await {
            Ok(()) | Err(TreeError::NoNode(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.remove_node(&Place::Image(image.clone())).await
    }

    /// Removes the files of a build that this builder reaches.
    async fn remove_files(&self, image: &ImageName, build: BuildNumber) -> Result<(), JobError> {
        let kept = self.disk.kept(image, build);
        let removed = tokio::task::spawn_blocking(move || remove(&kept)).await;
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

    /// The names of the files of a build, as far as its record tells.
    fn names_of(&self, image: &ImageName, build: BuildNumber) -> Vec<String> {
        let formats = self.images().image(image, |node| {
            let record = node
                .builds
                .get(&build)
                .and_then(|build| build.record.as_ref());
            let formats = record.map(|record| record.formats.keys().cloned().collect());
            let formats: Vec<_> = formats.unwrap_or_default();
            formats
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

    /// Removes kept and stored files of builds that the tree does not know. `seen` are those that
    /// were unknown in the round before: a file is only removed when it was unknown twice.
    pub(super) async fn remove_unknown_files(
        &self,
        seen: &BTreeSet<(ImageName, BuildNumber)>,
    ) -> BTreeSet<(ImageName, BuildNumber)> {
        // An empty tree is more likely a wrong setting than the end of all images.
        if self.images().names().is_empty() {
            return BTreeSet::new();
        }
        let is_unknown = |(image, build): &(ImageName, BuildNumber)| {
            let known = self
                .images()
                .image(image, |node| node.builds.contains_key(build));
            !known.unwrap_or(false)
        };
        let kept = self.disk.all_kept().unwrap_or_default().into_iter();
        let mut unknown: BTreeSet<_> = kept.filter(is_unknown).collect();
        for build in unknown.intersection(seen) {
            let _ = remove(&self.disk.kept(&build.0, build.1));
        }
        let listed = match self.parts.artifacts.list().await {
            Ok(listed) => listed.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "the files of the artifact store cannot be listed: {error}");
                return unknown;
            }
        };
        for artifact in listed {
            let Some(build) = build_of(&artifact.key).filter(is_unknown) else {
                continue;
            };
            if seen.contains(&build) {
                tracing::info!(key = %artifact.key, "removing a file of an unknown build");
                if let Err(error) = self.parts.artifacts.delete(&artifact.key).await {
                    tracing::warn!(key = %artifact.key, %error, "it is not removed: {error}");
                }
            }
            unknown.insert(build);
        }
        unknown
    }
}
