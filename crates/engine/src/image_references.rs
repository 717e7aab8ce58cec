//! Launch configs that refer to images, with the selected uploads in place of the references.

use std::collections::BTreeSet;

use domain::id::{BadId, ImageName, LaunchConfigId, PoolId, ProviderId, WorkerGroup};
use domain::image::{LaunchPlace, Selections, Variants};
use domain::image_reference::{
    BadReference, ImageReference, images_of, references, remove_marks, template_of,
};
use domain::launch_config::{id_for_second_provider, id_of, named_provider, without_id};
use serde_json::{Map, Value};
use store::{StoreError, Tx};

use crate::Engine;

type LaunchConfig = Map<String, Value>;

/// The condition with the region of a place.
const REGION: &str = "region";

#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("{0}")]
    Bad(#[from] BadReference),
    #[error("Image {0} does not exist: create it first, or correct the name")]
    NoImage(ImageName),
    #[error(
        "A launch config that refers to an image cannot have an id of its own ({0}), because its content changes with each build: leave `launchConfigId` out"
    )]
    OwnId(String),
    #[error(transparent)]
    Id(#[from] BadId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How references to images that do not exist are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingImages {
    Refuse,
    /// For plans: their author may be about to create the images. The launch configs are as those
    /// that wait for a first build.
    List,
}

/// The launch configs of some templates, in their order.
#[derive(Debug, Default)]
pub(crate) struct ResolvedConfigs {
    entries: Vec<ResolvedConfig>,
    /// Images that do not exist, if they are to be listed.
    missing: Vec<ImageName>,
}

/// A template with the launch configs that it makes now.
#[derive(Debug)]
pub(crate) struct ResolvedConfig {
    template: LaunchConfig,
    variants: Variants,
}

/// The templates of launch configs that a client wrote, perhaps as it had read them.
pub(crate) fn templates(
    pool_id: &PoolId,
    written: &[LaunchConfig],
) -> Result<Vec<LaunchConfig>, ReferenceError> {
    let mut templates: Vec<LaunchConfig> = Vec::with_capacity(written.len());
    for config in written {
        let Some(mut template) = template_of(config)? else {
            continue;
        };
        // Marks of an earlier reading.
        remove_marks(&mut template);
        if !references(&template)?.is_empty() && has_computed_id(pool_id, &template)? {
            template = without_id(&template);
        }
        templates.push(template);
    }
    Ok(templates)
}

/// Whether its id is the one that readers were shown, so that no author gave it.
fn has_computed_id(pool_id: &PoolId, template: &LaunchConfig) -> Result<bool, BadId> {
    let content = without_id(template);
    let shown = id_of(pool_id, template)?;
    if id_of(pool_id, &content)? == shown {
        return Ok(true);
    }
    let named = named_provider(template).and_then(Value::as_str);
    let Some(Ok(named)) = named.map(str::parse::<ProviderId>) else {
        return Ok(false);
    };
    Ok(id_for_second_provider(pool_id, &named, &content)? == shown)
}

/// Whether some of them refer to images, well or not.
pub(crate) fn uses_images(configs: &[LaunchConfig]) -> bool {
    configs
        .iter()
        .any(|config| references(config).is_err() || !images_of(config).is_empty())
}

/// Reads the selections of the images to which templates refer, and the images that do not exist.
fn read_selections(
    tx: &mut Tx<'_>,
    images: &[ImageName],
) -> store::Result<(Selections, Vec<ImageName>)> {
    let mut missing = Vec::new();
    for image in images {
        if store::images::get(tx, image)?.is_none() {
            missing.push(image.clone());
        }
    }
    let rollouts = store::image_rollouts::of(tx, images)?;
    let selections = rollouts
        .into_iter()
        .map(|rollout| (rollout.image, rollout.selection));
    Ok((selections.collect(), missing))
}

/// Puts the selected uploads in place of references. Each template has its provider.
pub(crate) async fn resolve(
    engine: &Engine,
    templates: Vec<(ProviderId, LaunchConfig)>,
    if_missing: MissingImages,
) -> Result<ResolvedConfigs, ReferenceError> {
    let mut found = Vec::with_capacity(templates.len());
    let mut images = BTreeSet::new();
    for (provider_id, template) in templates {
        let references = references(&template)?;
        let own_id = template
            .get("workerManager")
            .and_then(|own| own.get("launchConfigId"));
        if let (Some(id), false) = (own_id, references.is_empty()) {
            return Err(ReferenceError::OwnId(id.to_string()));
        }
        images.extend(references.iter().map(|reference| reference.image.clone()));
        found.push((provider_id, template, references));
    }
    let (selections, missing) = match images.is_empty() {
        true => (Selections::new(), Vec::new()),
        false => {
            let images: Vec<ImageName> = images.into_iter().collect();
            let read = engine
                .store
                .read("image_selections", move |tx| read_selections(tx, &images));
            read.await?
        }
    };
    if let (MissingImages::Refuse, Some(image)) = (if_missing, missing.first()) {
        return Err(ReferenceError::NoImage(image.clone()));
    }
    let entries = found
        .into_iter()
        .map(|(provider_id, template, references)| {
            let variants = variants(engine, &provider_id, &template, &references, &selections);
            ResolvedConfig { template, variants }
        });
    let entries = entries.collect();
    Ok(ResolvedConfigs { entries, missing })
}

fn variants(
    engine: &Engine,
    provider_id: &ProviderId,
    template: &LaunchConfig,
    references: &[ImageReference],
    selections: &Selections,
) -> Variants {
    let region = (!references.is_empty())
        .then(|| region_of(engine, provider_id, template))
        .flatten();
    let place = LaunchPlace {
        provider_id,
        region: region.as_ref(),
    };
    Variants::of(template, references, place, selections)
}

/// The region in which machines of a launch config start, if it says so.
fn region_of(
    engine: &Engine,
    provider_id: &ProviderId,
    template: &LaunchConfig,
) -> Option<WorkerGroup> {
    let provider = engine.providers.get(provider_id).ok()?;
    let fills = provider.fills();
    let mut keys = fills.get(REGION)?.split('/').skip(1);
    let first = template.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key))?
        .as_str()?
        .parse()
        .ok()
}

impl ResolvedConfigs {
    pub(crate) fn missing(&self) -> &[ImageName] {
        &self.missing
    }

    /// The launch configs that providers check, each with the index of its template. Those that
    /// wait for an image are absent.
    pub(crate) fn to_check(&self) -> Vec<(usize, LaunchConfig)> {
        let mut all = Vec::with_capacity(self.entries.len());
        for (index, entry) in self.entries.iter().enumerate() {
            match &entry.variants {
                Variants::Plain => all.push((index, entry.template.clone())),
                Variants::Waiting(_) => {}
                Variants::Ready { in_use, canaries } => {
                    all.push((index, in_use.configuration.clone()));
                    let further = canaries.iter();
                    all.extend(further.map(|(canary, _)| (index, canary.configuration.clone())));
                }
            }
        }
        all
    }

    /// The launch configs in the form in which they are stored, once their providers completed
    /// those of `to_check`, in that order.
    pub(crate) fn complete(
        self,
        pool_id: &PoolId,
        completed: Vec<LaunchConfig>,
    ) -> Result<Vec<LaunchConfig>, BadId> {
        let mut completed = completed.into_iter();
        let mut all = Vec::with_capacity(self.entries.len());
        for entry in self.entries {
            entry.complete(&mut completed, |config| {
                let id = id_of(pool_id, &config)?;
                all.push(config);
                Ok::<_, BadId>(id)
            })?;
        }
        Ok(all)
    }
}

impl IntoIterator for ResolvedConfigs {
    type Item = ResolvedConfig;
    type IntoIter = std::vec::IntoIter<ResolvedConfig>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl ResolvedConfig {
    /// Adds the launch configs of the template in the form in which they are stored. `completed`
    /// has those that the provider completed, and `add` returns their ids. Returns the first.
    pub(crate) fn complete<E>(
        self,
        completed: &mut impl Iterator<Item = LaunchConfig>,
        mut add: impl FnMut(LaunchConfig) -> Result<LaunchConfigId, E>,
    ) -> Result<Option<LaunchConfigId>, E> {
        match self.variants {
            Variants::Plain => completed.next().map(add).transpose(),
            Variants::Waiting(_) => add(self.template).map(Some),
            Variants::Ready { in_use, canaries } => {
                let Some(mut config) = completed.next() else {
                    return Ok(None);
                };
                in_use.mark(&mut config);
                let id = add(config)?;
                for ((variant, share), mut config) in canaries.iter().zip(completed.by_ref()) {
                    variant.mark_canary(&mut config, share, id.clone());
                    add(config)?;
                }
                Ok(Some(id))
            }
        }
    }
}
