//! Searches for files and provider images that no record in the tree stands for, and removes them.
//!
//! The copy of the tree may be old, so the tree itself is asked before anything is removed, and
//! only what was unknown in two searches is removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use backplane::tree::{MAX_WALKED, TreeError, walk};
use cloud::Provider;
use domain::id::{ImageName, ProviderId};
use domain::image::{BuildNumber, UploadRecord};

use super::Builder;

use super::job::JobError;
use super::make::build_of;
use crate::paths::{ImagePaths, Place};

/// Files that the tree did not know.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    builds: BTreeSet<(ImageName, BuildNumber)>,
    /// By their tokens.
    images: BTreeSet<(ProviderId, String)>,
}

impl Builder {
    /// Removes what was unknown in the search before, and still is.
    pub(super) async fn remove_unknown(&self, before: &Unknown) -> Unknown {
        // An empty tree is more likely a wrong setting than the end of all images.
        if self.images().names().is_empty() {
            return Unknown::default();
        }
        let builds = self.remove_unknown_files(&before.builds).await;
        let images = self.remove_unknown_images(&before.images).await;
        Unknown {
            builds: builds.unwrap_or_else(|error| {
                tracing::warn!(%error, "the search for forgotten files failed: {error}");
                BTreeSet::new()
            }),
            images: images.unwrap_or_else(|error| {
                tracing::warn!(%error, "the search for forgotten images failed: {error}");
                BTreeSet::new()
            }),
        }
    }

    async fn remove_unknown_files(
        &self,
        before: &BTreeSet<(ImageName, BuildNumber)>,
    ) -> Result<BTreeSet<(ImageName, BuildNumber)>, JobError> {
        let kept = self.disk.all_kept();
        let kept = kept.map_err(|error| JobError::Other(format!("the disk: {error}")))?;
        let listed = self.parts.artifacts.list().await?.unwrap_or_default();
        let stored = listed.iter().filter_map(|file| build_of(&file.key));
        let mut unknown: BTreeSet<_> = kept.into_iter().chain(stored).collect();
        unknown.retain(|(image, build)| {
            let known = self
                .images()
                .image(image, |node| node.builds.contains_key(build));
            known != Some(true)
        });
        for build in unknown.intersection(before) {
            let path = Place::Build(build.0.clone(), build.1).path()?;
            if self.tree().exists(&path).await?.is_some() {
                continue;
            }
            let folder = self.disk.kept(&build.0, build.1);
            let removed = tokio::task::spawn_blocking(move || permissions::remove(&folder)).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "a file of an unknown build is not removed: {error}");
            }
            let files = listed.iter().map(|file| &file.key);
            for key in files.filter(|key| build_of(key).as_ref() == Some(build)) {
                tracing::info!(%key, "removing {key}: its build is unknown");
                self.parts.artifacts.delete(key).await?;
            }
        }
        Ok(unknown)
    }

    /// An upload whose request arrived after its record was removed leaves such an image.
    async fn remove_unknown_images(
        &self,
        before: &BTreeSet<(ProviderId, String)>,
    ) -> Result<BTreeSet<(ProviderId, String)>, JobError> {
        let mut unknown = BTreeSet::new();
        let known = self.images().tokens();
        for id in self.parts.targets.ids() {
            let Some(provider) = self.parts.targets.get(&id) else {
                continue;
            };
            let seen = |token: &str| before.contains(&(id.clone(), token.to_owned()));
            match self.search_provider(&id, &provider, &known, seen).await {
                Ok(found) => unknown.extend(found.into_iter().map(|token| (id.clone(), token))),
                Err(error) => {
                    tracing::warn!(provider = %id, %error, "cannot look for forgotten images");
                }
            }
        }
        Ok(unknown)
    }

    /// Returns the unknown tokens, and deletes the images of those that were unknown before.
    async fn search_provider(
        &self,
        provider_id: &ProviderId,
        provider: &Arc<dyn Provider>,
        known: &BTreeSet<String>,
        was_unknown: impl Fn(&str) -> bool,
    ) -> Result<BTreeSet<String>, JobError> {
        let Some(images) = provider.images() else {
            return Ok(BTreeSet::new());
        };
        let failed = |error: cloud::image::ImageError| JobError::Provider(error.to_string());
        let owned = images.owned_images().await.map_err(failed)?;
        let mut unknown = BTreeSet::new();
        let mut in_tree = None;
        for image in owned {
            let Some(token) = image.token.as_ref().map(ToString::to_string) else {
                continue;
            };
            if known.contains(&token) {
                continue;
            }
            if was_unknown(&token) {
                let tokens = match &mut in_tree {
                    Some(tokens) => tokens,
                    none => none.insert(self.tokens_in_tree().await?),
                };
                let id = &image.external_id;
                // A provider that lists an image with another token does not get it deleted.
                if !tokens.contains(&token) && !self.is_owned(provider_id, id) {
                    let deleted = images.delete_image(image.region.as_deref(), id);
                    deleted.await.map_err(failed)?;
                    tracing::info!(id, "deleted image {id}: no record stands for it");
                    continue;
                }
            }
            unknown.insert(token);
        }
        Ok(unknown)
    }

    /// The tokens of all uploads, read from the tree and not from its copy.
    async fn tokens_in_tree(&self) -> Result<BTreeSet<String>, JobError> {
        let root = ImagePaths::images()?;
        let nodes = walk(self.tree(), &root, MAX_WALKED).await?;
        if nodes.is_empty() {
            return Err(TreeError::NoNode(root).into());
        }
        let uploads = nodes.iter().filter(|(path, _)| {
            let place = Place::of(path);
            matches!(place, Some(Place::Upload(..)))
        });
        let tokens = uploads.filter_map(|(_, node)| UploadRecord::parse(&node.data).ok());
        Ok(tokens.filter_map(|record| record.token.clone()).collect())
    }
}
