//! Copies definitions and decisions into the tree, for builders that have no database.

use std::collections::{BTreeMap, BTreeSet};

use backplane::tree::{Lifetime, Op, TreeError, create_parents, lock_path};
use domain::id::{ImageName, ProviderId};
use domain::image::Standing;
use serde_json::{Map, Value};

use crate::image_tree::{DefinitionText, ImageTree};
use crate::paths::Place;

/// Attempts to write what another server writes at the same time.
const ATTEMPTS: usize = 10;

/// The result of a comparison with the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrored {
    pub n_written: usize,
    /// Images of the tree that the database does not have.
    pub unknown: Vec<ImageName>,
}

/// A definition in the database.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDefinition {
    pub version: i64,
    pub document: Value,
}

impl ImageTree {
    /// Makes the tree have these definitions. Only differences are written.
    ///
    /// Other images of the tree are returned and stay: that a database lacks them may mean that it
    /// is another one, or was restored. `remove` removes those that somebody deleted.
    pub async fn mirror(
        &self,
        stored: &BTreeMap<ImageName, StoredDefinition>,
    ) -> Result<Mirrored, TreeError> {
        let mut n_written = 0;
        for (image, definition) in stored {
            if !self.has(image, definition) {
                self.mirror_one(image, Some(definition)).await?;
                n_written += 1;
            }
        }
        let unknown = self.names().into_iter().filter(|image| {
            let is_removed = self.image(image, |it| it.is_removed);
            !stored.contains_key(image) && is_removed == Some(false)
        });
        Ok(Mirrored {
            n_written,
            unknown: unknown.collect(),
        })
    }

    /// Has builders delete an image with its builds and uploads.
    pub async fn remove(&self, image: &ImageName) -> Result<(), TreeError> {
        self.mirror_one(image, None).await
    }

    /// The definition of an image that the tree has; an empty one if it cannot be read.
    pub fn left(&self, image: &ImageName) -> Option<Value> {
        let left = self.image(image, |it| {
            let definition = it.definition.as_ref();
            let document = definition.map(|known| known.definition.to_document().clone());
            (!it.is_removed).then(|| document.unwrap_or_else(|| Value::Object(Map::new())))
        });
        left.flatten()
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

    /// Writes a definition, or that the image was deleted. A newer version is not replaced by an
    /// older one.
    async fn mirror_one(
        &self,
        image: &ImageName,
        definition: Option<&StoredDefinition>,
    ) -> Result<(), TreeError> {
        for _ in 0..ATTEMPTS {
            let written = match definition {
                Some(definition) => self.write_definition(image, definition).await,
                None => self.write_removal(image).await,
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
                let is_newer = |known: DefinitionText| {
                    !known.document.is_null() && known.version > definition.version
                };
                if known.is_some_and(is_newer) {
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
        // Together: without one of them, nothing is done with the image.
        let builds = Place::Builds(image.clone()).path()?;
        let mut ops = Vec::new();
        for path in [node, builds.clone(), lock_path(&builds)?] {
            if self.tree().exists(&path).await?.is_none() {
                ops.push(Op::create(path, ""));
            }
        }
        ops.push(Op::create(path, data));
        let standing = Place::Standing(image.clone()).path()?;
        if self.tree().exists(&standing).await?.is_none() {
            ops.push(Op::create(standing, text(&Standing::default())?));
        }
        self.write_together(&ops).await
    }

    /// Writes that the image was deleted: a missing node would not tell who deleted it.
    async fn write_removal(&self, image: &ImageName) -> Result<(), TreeError> {
        let path = Place::Definition(image.clone()).path()?;
        let removed = |version| {
            let document = Value::Null;
            text(&DefinitionText { version, document })
        };
        match self.tree().get(&path).await {
            Ok(node) => {
                let known: Option<DefinitionText> = serde_json::from_slice(&node.data).ok();
                let version = known.map(|known| known.version).unwrap_or_default();
                let (data, expected) = (removed(version)?, Some(node.stat.version));
                self.tree().set(&path, &data, expected).await.map(drop)
            }
            Err(TreeError::NoNode(_)) => {
                let ops = [Op::create(path, removed(0)?)];
                match self.write_together(&ops).await {
                    // The image has no nodes any more.
                    Err(TreeError::NoNode(_)) => Ok(()),
                    written => written,
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Writes which builds are used, so that builders keep them. Only a difference is written.
    pub async fn mirror_standing(
        &self,
        image: &ImageName,
        standing: &Standing,
    ) -> Result<(), TreeError> {
        let known = self.image(image, |it| {
            let is_written = it.standing_error.is_none() && it.standing_version.is_some();
            (is_written && it.standing == *standing, it.standing_version)
        });
        let Some((is_known, version)) = known else {
            return Ok(());
        };
        if is_known {
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
