//! Copies definitions and decisions into the tree, for builders that have no database.

use std::collections::{BTreeMap, BTreeSet};

use backplane::tree::{Lifetime, Op, TreeError, create_parents, lock_path};
use domain::id::{ImageName, ProviderId};
use domain::image::Standing;
use serde_json::Value;

use crate::image_tree::{DefinitionText, ImageTree};
use crate::paths::Place;

/// Attempts to write what another server writes at the same time.
const ATTEMPTS: usize = 10;

/// A definition in the database.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDefinition {
    pub version: i64,
    pub document: Value,
}

impl ImageTree {
    /// Makes the tree have these definitions and no others. Only differences are written. Returns
    /// how many.
    pub async fn mirror(
        &self,
        stored: &BTreeMap<ImageName, StoredDefinition>,
    ) -> Result<usize, TreeError> {
        let mut n_written = 0;
        for (image, definition) in stored {
            if !self.has(image, definition) {
                self.mirror_one(image, Some(definition)).await?;
                n_written += 1;
            }
        }
        for image in self.names() {
            let is_defined = self.image(&image, |it| {
                it.definition.is_some() || it.definition_error.is_some()
            });
            if is_defined == Some(true) && !stored.contains_key(&image) {
                self.mirror_one(&image, None).await?;
                n_written += 1;
            }
        }
        Ok(n_written)
    }

    fn has(&self, image: &ImageName, definition: &StoredDefinition) -> bool {
        let known = self.image(image, |it| {
            let known = it.definition.as_ref();
            known.is_some_and(|known| {
                known.version == definition.version
                    && *known.definition.to_document() == definition.document
            })
        });
        known == Some(true)
    }

    /// Writes a definition, or deletes it. A newer version is not replaced by an older one.
    pub async fn mirror_one(
        &self,
        image: &ImageName,
        definition: Option<&StoredDefinition>,
    ) -> Result<(), TreeError> {
        for _ in 0..ATTEMPTS {
            let written = match definition {
                Some(definition) => self.write_definition(image, definition).await,
                None => self.delete_definition(image).await,
            };
            match written {
                // Another server, or the builder that removes the image, was faster.
                Err(TreeError::BadVersion(_) | TreeError::NodeExists(_) | TreeError::NoNode(_)) => {
                }
                written => return written,
            }
        }
        Err(TreeError::Unexpected(format!(
            "the definition of {image} changed {ATTEMPTS} times meanwhile"
        )))
    }

    async fn write_definition(
        &self,
        image: &ImageName,
        definition: &StoredDefinition,
    ) -> Result<(), TreeError> {
        let path = Place::Definition(image.clone()).path()?;
        let data = text(&DefinitionText {
            version: definition.version,
            document: definition.document.clone(),
        })?;
        match self.tree().get(&path).await {
            Ok(node) => {
                let known: Option<DefinitionText> = serde_json::from_slice(&node.data).ok();
                if known.is_some_and(|known| known.version > definition.version) {
                    return Ok(());
                }
                if node.data != data {
                    self.tree()
                        .set(&path, &data, Some(node.stat.version))
                        .await?;
                }
                return Ok(());
            }
            Err(TreeError::NoNode(_)) => {}
            Err(error) => return Err(error),
        }
        let node = Place::Image(image.clone()).path()?;
        create_parents(self.tree(), &node).await?;
        // Together: an image without a definition is removed.
        let builds = Place::Builds(image.clone()).path()?;
        let mut ops = Vec::new();
        for path in [node, builds.clone(), lock_path(&builds)?] {
            if self.tree().exists(&path).await?.is_none() {
                ops.push(Op::create(path, ""));
            }
        }
        ops.push(Op::create(path, data));
        self.write_together(&ops).await
    }

    async fn delete_definition(&self, image: &ImageName) -> Result<(), TreeError> {
        let path = Place::Definition(image.clone()).path()?;
        match self.tree().delete(&path, None).await {
            Ok(()) | Err(TreeError::NoNode(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes which builds are used, so that builders keep them. Only a difference is written.
    pub async fn mirror_standing(
        &self,
        image: &ImageName,
        standing: &Standing,
    ) -> Result<(), TreeError> {
        let known = self.image(image, |it| (it.standing.clone(), it.standing_version));
        let Some((known, version)) = known else {
            return Ok(());
        };
        if known == *standing {
            return Ok(());
        }
        let (path, data) = (Place::Standing(image.clone()).path()?, text(standing)?);
        let written = match version {
            None => self
                .tree()
                .create(&path, &data, Lifetime::Persistent)
                .await
                .map(drop),
            Some(version) => self.tree().set(&path, &data, Some(version)).await.map(drop),
        };
        match written {
            // Another server wrote it, or the image was removed: the next round compares again.
            Err(TreeError::BadVersion(_) | TreeError::NodeExists(_) | TreeError::NoNode(_)) => {
                Ok(())
            }
            written => written,
        }
    }

    /// Says which providers are configured, so that builders know which images can be deleted.
    pub async fn mirror_providers(
        &self,
        providers: &BTreeSet<ProviderId>,
    ) -> Result<(), TreeError> {
        if *self.revision().borrow() > 0 && self.providers() == *providers && !providers.is_empty()
        {
            return Ok(());
        }
        let (path, data) = (Place::Providers.path()?, text(providers)?);
        create_parents(self.tree(), &path).await?;
        match self.tree().create(&path, &data, Lifetime::Persistent).await {
            Err(TreeError::NodeExists(_)) => self.tree().set(&path, &data, None).await.map(drop),
            created => created.map(drop),
        }
    }
}

pub(crate) fn text(value: &impl serde::Serialize) -> Result<Vec<u8>, TreeError> {
    serde_json::to_vec(value).map_err(|error| TreeError::Unexpected(error.to_string()))
}
