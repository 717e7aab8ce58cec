//! The launch configs that a template makes: one with the images in use, and one for each canary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::selection::{ImageInUse, SelectedUpload};
use super::upload_target::UploadTargetId;
use crate::id::{ImageName, LaunchConfigId, ProviderId, WorkerGroup};
use crate::image_reference::{CanaryMark, ImageReference, ImageUse, references, set_marks};

/// The uploads from which machines start, for each target of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageSelection {
    pub targets: BTreeMap<UploadTargetId, ImageInUse>,
    /// The share of machines that start from the canary, if one runs.
    pub share: f64,
}

/// The selections of the images that a pool uses.
pub type Selections = BTreeMap<ImageName, ImageSelection>;

/// Where the machines of a launch config start.
#[derive(Clone, Copy, Debug)]
pub struct LaunchPlace<'a> {
    pub provider_id: &'a ProviderId,
    pub region: Option<&'a WorkerGroup>,
}

/// The launch configs that a template makes now.
#[derive(Clone, Debug, PartialEq)]
pub enum Variants {
    /// It has no references, so it is a launch config itself.
    Plain,
    /// No upload of this image is ready for its provider: it waits.
    Waiting(ImageName),
    Ready {
        in_use: Variant,
        /// One for each image with a canary.
        canaries: Vec<(Variant, CanaryShare)>,
    },
}

/// The canary of an image, before the id of the launch config beside it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryShare {
    pub image: ImageName,
    pub share: f64,
}

/// A launch config with the ids of images, without marks.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    pub configuration: Map<String, Value>,
    pub uses: Vec<ImageUse>,
}

impl ImageSelection {
    /// The uploads for a place: those of its region, or else those for all regions.
    pub fn at(&self, place: LaunchPlace<'_>) -> Option<&ImageInUse> {
        let of = |region: Option<WorkerGroup>| {
            let target = UploadTargetId {
                provider_id: place.provider_id.clone(),
                region,
            };
            self.targets.get(&target)
        };
        let in_region = place.region.and_then(|region| of(Some(region.clone())));
        let in_region = in_region.filter(|uploads| uploads.in_use.is_some());
        in_region.or_else(|| of(None))
    }
}

impl Variants {
    /// Puts the selected uploads in place of the references of a template.
    pub fn of(
        template: &Map<String, Value>,
        references: &[ImageReference],
        place: LaunchPlace<'_>,
        selections: &Selections,
    ) -> Self {
        if references.is_empty() {
            return Self::Plain;
        }
        let mut in_use = Vec::with_capacity(references.len());
        let mut canaries: BTreeMap<ImageName, f64> = BTreeMap::new();
        for reference in references {
            let selection = selections.get(&reference.image);
            let uploads = selection.and_then(|selection| selection.at(place));
            let Some((selection, uploads)) = selection.zip(uploads) else {
                return Self::Waiting(reference.image.clone());
            };
            let Some(upload) = &uploads.in_use else {
                return Self::Waiting(reference.image.clone());
            };
            if uploads.canary.is_some() && selection.share > 0.0 {
                canaries.insert(reference.image.clone(), selection.share);
            }
            in_use.push((reference, upload));
        }
        let canaries = canaries.into_iter().map(|(image, share)| {
            let uploads = in_use.iter().map(|(reference, upload)| {
                let own = selections.get(&image).filter(|_| reference.image == image);
                let canary = own.and_then(|own| own.at(place)?.canary.as_ref());
                (*reference, canary.unwrap_or(upload))
            });
            let variant = Variant::of(template, uploads);
            (variant, CanaryShare { image, share })
        });
        let canaries = canaries.collect();
        Self::Ready {
            in_use: Variant::of(template, in_use.iter().copied()),
            canaries,
        }
    }
}

impl Variant {
    fn of<'a>(
        template: &Map<String, Value>,
        uploads: impl Iterator<Item = (&'a ImageReference, &'a SelectedUpload)>,
    ) -> Self {
        let mut configuration = Value::Object(template.clone());
        let mut uses = Vec::new();
        for (reference, upload) in uploads {
            if let Some(value) = configuration.pointer_mut(&reference.pointer) {
                *value = Value::String(upload.external_id.clone());
            }
            uses.push(ImageUse {
                reference: reference.clone(),
                build: upload.build.0,
            });
        }
        // It was made of an object, and no pointer is empty.
        let configuration = configuration.as_object().cloned().unwrap_or_default();
        Self {
            configuration,
            uses,
        }
    }

    /// Adds the marks to a launch config after its provider completed it.
    pub fn mark(&self, completed: &mut Map<String, Value>) {
        set_marks(completed, &self.uses, None);
    }

    /// The same for a canary beside the launch config `of`.
    pub fn mark_canary(
        &self,
        completed: &mut Map<String, Value>,
        canary: &CanaryShare,
        of: LaunchConfigId,
    ) {
        let mark = CanaryMark {
            image: canary.image.clone(),
            of,
            share: canary.share,
        };
        set_marks(completed, &self.uses, Some(&mark));
    }
}

/// Why a launch config cannot be used: an image that it refers to has no upload yet.
pub fn waits_for(configuration: &Map<String, Value>, provider_id: &ProviderId) -> Option<String> {
    let waiting = references(configuration).ok()?;
    let reference = waiting.first()?;
    Some(format!(
        "waits for image {}: no build of it is ready at {provider_id}",
        reference.image
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::image::{BuildNumber, UploadNumber};

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn upload(build: u64, id: &str) -> SelectedUpload {
        SelectedUpload {
            build: BuildNumber(build),
            upload: UploadNumber(1),
            external_id: id.to_owned(),
        }
    }

    fn selection(targets: &[(&str, Option<&str>, Option<&str>)]) -> ImageSelection {
        let targets = targets.iter().map(|(target, in_use, canary)| {
            let uploads = ImageInUse {
                in_use: in_use.map(|id| upload(1, id)),
                canary: canary.map(|id| upload(2, id)),
            };
            (target.parse().unwrap(), uploads)
        });
        ImageSelection {
            targets: targets.collect(),
            share: 0.5,
        }
    }

    fn variants(
        template: Value,
        region: Option<&str>,
        selections: &[(&str, ImageSelection)],
    ) -> Variants {
        let template = object(template);
        let region = region.map(|region| region.parse().unwrap());
        let provider_id = "aws".parse().unwrap();
        let place = LaunchPlace {
            provider_id: &provider_id,
            region: region.as_ref(),
        };
        let selections = selections
            .iter()
            .map(|(name, selection)| (name.parse().unwrap(), selection.clone()));
        let found = references(&template).unwrap();
        Variants::of(&template, &found, place, &selections.collect())
    }

    fn image_of(variants: &Variants) -> String {
        match variants {
            Variants::Ready { in_use, .. } => in_use.configuration["image"].to_string(),
            Variants::Plain | Variants::Waiting(_) => format!("{variants:?}"),
        }
    }

    #[test]
    fn the_upload_of_the_region_goes_before_that_for_all_regions() {
        let both = selection(&[("aws", Some("all"), None), ("aws:r1", Some("r1"), None)]);
        let template = || json!({"image": {"$image": "a"}});
        let of = |region| image_of(&variants(template(), region, &[("a", both.clone())]));
        assert_eq!(of(Some("r1")), "\"r1\"");
        assert_eq!(
            (of(Some("r2")), of(None)),
            ("\"all\"".to_owned(), "\"all\"".to_owned())
        );
        // The upload to the region is not ready yet.
        let half = selection(&[("aws", Some("all"), None), ("aws:r1", None, None)]);
        let found = variants(template(), Some("r1"), &[("a", half)]);
        assert_eq!(image_of(&found), "\"all\"");
    }

    #[test]
    fn a_template_waits_until_all_its_images_have_an_upload() {
        let template = || json!({"image": {"$image": "a"}, "other": {"$image": "b"}});
        let ready = selection(&[("aws", Some("x"), None)]);
        let waiting = |name: &str| Variants::Waiting(name.parse().unwrap());
        assert_eq!(variants(template(), None, &[]), waiting("a"));
        assert_eq!(
            variants(template(), None, &[("a", ready.clone())]),
            waiting("b")
        );
        let elsewhere = selection(&[("google", Some("x"), None)]);
        let found = variants(template(), None, &[("a", ready), ("b", elsewhere)]);
        assert_eq!(found, waiting("b"));
        assert_eq!(
            variants(json!({"image": "plain"}), None, &[]),
            Variants::Plain
        );
    }

    #[test]
    fn each_image_with_a_canary_makes_one_further_launch_config() {
        let template = json!({"image": {"$image": "a"}, "other": {"$image": "b"}});
        let of = |stable, canary| selection(&[("aws", Some(stable), Some(canary))]);
        let found = variants(
            template,
            None,
            &[("a", of("a1", "a2")), ("b", of("b1", "b2"))],
        );
        let Variants::Ready { in_use, canaries } = found else {
            panic!("{found:?}");
        };
        assert_eq!(in_use.configuration["image"], "a1");
        let texts: Vec<String> = canaries
            .iter()
            .map(|(variant, share)| {
                let values = &variant.configuration;
                format!(
                    "{} {} {} {}",
                    share.image, share.share, values["image"], values["other"]
                )
            })
            .collect();
        assert_eq!(texts, ["a 0.5 \"a2\" \"b1\"", "b 0.5 \"a1\" \"b2\""]);
        let (mut marked, of) = (canaries[0].0.configuration.clone(), "lc-1".parse().unwrap());
        canaries[0].0.mark_canary(&mut marked, &canaries[0].1, of);
        assert_eq!(marked["workerManager"]["images"][0]["build"], 2);
        assert_eq!(marked["workerManager"]["canary"]["of"], "lc-1");
    }
}
