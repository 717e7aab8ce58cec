//! Copies definitions of images into the tree, where builders read them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_client::with_causes;
use async_trait::async_trait;
use backplane::tree::TreeError;
use domain::id::{ImageName, ProviderId};
use images::{ImageTree, Mirrored, StoredDefinition};
use store::StoreError;

use super::driver::{ActivationResult, BackgroundTask, summary};
use crate::app::App;

/// Definitions that are read at once.
const PAGE: u32 = 200;

/// Images that a warning names.
const NAMED: usize = 10;

/// Compares all definitions with the copy of the tree in memory, and writes what differs.
pub struct ImageMirror {
    app: Arc<App>,
    /// The images of the tree of which the log said that the database does not know them.
    reported: Vec<ImageName>,
}

#[derive(Debug, thiserror::Error)]
enum MirrorProblem {
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[async_trait]
impl BackgroundTask for ImageMirror {
    fn name(&self) -> String {
        "image_mirror".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let images = self.app.tree.images();
        // Without a complete copy, the difference is unknown.
        let Some(images) = images.filter(|images| *images.revision().borrow() > 0) else {
            return Ok(summary(&[]));
        };
        let stored = self.definitions().await?;
        let listed = self.app.engine.providers.listed();
        let providers: BTreeSet<ProviderId> = listed.map(|(id, _)| id.clone()).collect();
        let written = async {
            images.mirror_providers(&providers).await?;
            images.mirror(&stored).await
        };
        let written = async {
            let Mirrored { n_written, unknown } = written.await?;
            Ok::<_, MirrorProblem>((n_written, self.remove_deleted(&images, unknown).await?))
        };
        match written.await {
            Ok((n_written, n_removed)) => Ok(summary(&[
                ("written", n_written as u64),
                ("removed", n_removed as u64),
            ])),
            Err(error) => {
                let text = with_causes(&error);
                tracing::warn!(error = %text,
                    "definitions of images are not in the tree yet, and are written again: {text}");
                Ok(summary(&[]))
            }
        }
    }
}

impl ImageMirror {
    pub fn new(app: Arc<App>) -> Self {
        let reported = Vec::new();
        Self { app, reported }
    }

    /// Has builders remove the images of the tree that somebody deleted. Those of which the
    /// database knows nothing stay: a database that was restored may have lost them.
    async fn remove_deleted(
        &mut self,
        images: &ImageTree,
        unknown: Vec<ImageName>,
    ) -> Result<usize, MirrorProblem> {
        let (mut n_removed, mut left) = (0, Vec::new());
        for image in unknown {
            if engine::images::is_deleted(&self.app.engine, &image).await? {
                images.remove(&image).await?;
                n_removed += 1;
            } else if !engine::images::exists(&self.app.engine, &image).await? {
                left.push(image);
            }
        }
        if left != self.reported && !left.is_empty() {
            let names: Vec<&str> = left.iter().take(NAMED).map(ImageName::as_str).collect();
            let (names, n_images) = (names.join(", "), left.len());
            tracing::warn!(
                "{n_images} images are in the tree and not in the database, which does not know that \
                 they were deleted: {names}. Nothing is done with them. Create them again, or delete \
                 them with `fleetwright image delete`"
            );
        }
        self.reported = left;
        Ok(n_removed)
    }

    async fn definitions(&self) -> Result<BTreeMap<ImageName, StoredDefinition>, StoreError> {
        let store = &self.app.engine.store;
        let mut stored = BTreeMap::new();
        let mut after: Option<ImageName> = None;
        loop {
            let from = after.clone();
            let read = store.scan("image_list", move |tx| {
                store::images::list(tx, from.as_ref(), PAGE)
            });
            let page = read.await?;
            let is_last = page.len() < PAGE as usize;
            after = page.last().map(|image| image.id.clone());
            stored.extend(page.into_iter().map(|image| {
                let definition = StoredDefinition {
                    version: image.version.0,
                    document: image.document,
                };
                (image.id, definition)
            }));
            if is_last {
                return Ok(stored);
            }
        }
    }
}
