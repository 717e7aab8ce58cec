//! Copies definitions of images into the tree, where builders read them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_client::with_causes;
use async_trait::async_trait;
use domain::id::{ImageName, ProviderId};
use images::StoredDefinition;
use store::StoreError;

use super::driver::{ActivationResult, BackgroundTask, summary};
use crate::app::App;

/// Definitions that are read at once.
const PAGE: u32 = 200;

/// Compares all definitions with the copy of the tree in memory, and writes what differs.
pub struct ImageMirror(pub Arc<App>);

#[async_trait]
impl BackgroundTask for ImageMirror {
    fn name(&self) -> String {
        "image_mirror".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let images = self.0.tree.images();
        // Without a complete copy, the difference is unknown.
        let Some(images) = images.filter(|images| *images.revision().borrow() > 0) else {
            return Ok(summary(&[]));
        };
        let stored = self.definitions().await?;
        let listed = self.0.engine.providers.listed();
        let providers: BTreeSet<ProviderId> = listed.map(|(id, _)| id.clone()).collect();
        let written = async {
            images.mirror_providers(&providers).await?;
            images.mirror(&stored).await
        };
        match written.await {
            Ok(n_written) => Ok(summary(&[("written", n_written as u64)])),
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
    async fn definitions(&self) -> Result<BTreeMap<ImageName, StoredDefinition>, StoreError> {
        let store = &self.0.engine.store;
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
