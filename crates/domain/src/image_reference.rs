//! References to images in launch configs: `{"$image": "ubuntu-24"}` in place of a provider's id.
//!
//! A launch config with references is a *template*. The launch configs from which machines start
//! have the ids of the selected uploads there, and a note in `workerManager.images` from which the
//! template can be made again. So clients may read a pool, change it, and write it back.

use serde_json::{Map, Value, json};

use crate::id::{ImageName, LaunchConfigId};

/// The only key of a reference.
pub const REFERENCE_KEY: &str = "$image";
/// The part of a launch config that is for us and not for the cloud.
const OWN_PART: &str = "workerManager";
const IMAGES: &str = "images";
const CANARY: &str = "canary";
const ID: &str = "launchConfigId";
/// A launch config refers to at most this many images.
pub const MAX_REFERENCES: usize = 20;

/// A reference in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    pub image: ImageName,
    /// Its JSON pointer in the launch config.
    pub pointer: String,
}

/// An image that a launch config uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageUse {
    pub reference: ImageReference,
    /// The number of the build.
    pub build: u64,
}

/// The mark of a launch config that starts machines for a canary.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryMark {
    pub image: ImageName,
    /// The launch config that gives it a share of its machines.
    pub of: LaunchConfigId,
    pub share: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer} {message}")]
pub struct BadReference {
    pub pointer: String,
    pub message: String,
}

impl BadReference {
    fn at(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
        }
    }
}

/// All references in a launch config, in the order of their pointers.
pub fn references(configuration: &Map<String, Value>) -> Result<Vec<ImageReference>, BadReference> {
    let mut found = Vec::new();
    for (key, value) in configuration {
        if key != OWN_PART {
            collect(value, &format!("/{}", escaped(key)), &mut found)?;
        }
    }
    if found.len() > MAX_REFERENCES {
        let text = format!("has more than {MAX_REFERENCES} references to images");
        return Err(BadReference::at("", text));
    }
    Ok(found)
}

fn collect(
    value: &Value,
    pointer: &str,
    found: &mut Vec<ImageReference>,
) -> Result<(), BadReference> {
    match value {
        Value::Object(members) => {
            let Some(named) = members.get(REFERENCE_KEY) else {
                return members.iter().try_for_each(|(key, value)| {
                    collect(value, &format!("{pointer}/{}", escaped(key)), found)
                });
            };
            if members.len() > 1 {
                let text = format!("has other keys beside `{REFERENCE_KEY}`");
                return Err(BadReference::at(pointer, text));
            }
            let name = named.as_str().map(str::parse::<ImageName>);
            let image = match name {
                Some(Ok(image)) => image,
                Some(Err(_)) | None => {
                    let text = "must be the name of an image";
                    return Err(BadReference::at(format!("{pointer}/{REFERENCE_KEY}"), text));
                }
            };
            found.push(ImageReference {
                image,
                pointer: pointer.to_owned(),
            });
            Ok(())
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| collect(item, &format!("{pointer}/{index}"), found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The images that a launch config uses, from its note.
pub fn image_uses(configuration: &Map<String, Value>) -> Vec<ImageUse> {
    let noted = configuration.get(OWN_PART).and_then(|own| own.get(IMAGES));
    let noted = noted.and_then(Value::as_array).into_iter().flatten();
    noted.filter_map(read_use).collect()
}

fn read_use(note: &Value) -> Option<ImageUse> {
    Some(ImageUse {
        reference: ImageReference {
            image: note["imageId"].as_str()?.parse().ok()?,
            pointer: note["at"].as_str()?.to_owned(),
        },
        build: note["build"].as_u64()?,
    })
}

/// The canary for which a launch config starts machines.
pub fn canary_mark(configuration: &Map<String, Value>) -> Option<CanaryMark> {
    let mark = configuration.get(OWN_PART)?.get(CANARY)?;
    Some(CanaryMark {
        image: mark["imageId"].as_str()?.parse().ok()?,
        of: mark["of"].as_str()?.parse().ok()?,
        share: mark["share"].as_f64()?.clamp(0.0, 1.0),
    })
}

/// All images that a launch config uses or waits for.
pub fn images_of(configuration: &Map<String, Value>) -> Vec<ImageName> {
    let waiting = references(configuration).unwrap_or_default();
    let used = image_uses(configuration).into_iter();
    let all = used.map(|used| used.reference).chain(waiting);
    let mut images: Vec<ImageName> = all.map(|reference| reference.image).collect();
    images.sort_unstable();
    images.dedup();
    images
}

/// The template from which a launch config was made; a copy of itself if it uses no image. `None`:
/// it was made for a canary, so that its template is that of another launch config.
pub fn template_of(
    configuration: &Map<String, Value>,
) -> Result<Option<Map<String, Value>>, BadReference> {
    let own = configuration.get(OWN_PART);
    let noted = own.and_then(|own| own.get(IMAGES));
    if own.and_then(|own| own.get(CANARY)).is_some() && noted.is_some() {
        return Ok(None);
    }
    let mut template = Value::Object(configuration.clone());
    let Some(noted) = noted else {
        return Ok(Some(configuration.clone()));
    };
    let wrong = || {
        let place = format!("/{OWN_PART}/{IMAGES}");
        BadReference::at(
            place,
            "is written by the server: leave it out, or as it was",
        )
    };
    for note in noted.as_array().ok_or_else(wrong)? {
        let used = read_use(note).ok_or_else(wrong)?;
        let value = template.pointer_mut(&used.reference.pointer);
        *value.ok_or_else(wrong)? = json!({REFERENCE_KEY: used.reference.image.as_str()});
    }
    let Value::Object(mut template) = template else {
        return Err(wrong());
    };
    // Its id was computed from the content that it had.
    remove_own_keys(&mut template, &[IMAGES, CANARY, ID]);
    Ok(Some(template))
}

/// Removes what the server notes, for those who know nothing of it.
pub fn remove_marks(configuration: &mut Map<String, Value>) {
    remove_own_keys(configuration, &[IMAGES, CANARY]);
}

fn remove_own_keys(configuration: &mut Map<String, Value>, keys: &[&str]) {
    if let Some(Value::Object(own)) = configuration.get_mut(OWN_PART) {
        keys.iter().for_each(|key| drop(own.remove(*key)));
        if own.is_empty() {
            configuration.remove(OWN_PART);
        }
    }
}

/// Notes which images a launch config uses.
pub(crate) fn set_marks(
    configuration: &mut Map<String, Value>,
    uses: &[ImageUse],
    canary: Option<&CanaryMark>,
) {
    let own = configuration
        .entry(OWN_PART)
        .or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(own) = own else {
        return;
    };
    let notes = uses.iter().map(|used| {
        json!({
            "imageId": used.reference.image.as_str(),
            "build": used.build,
            "at": used.reference.pointer,
        })
    });
    own.insert(IMAGES.to_owned(), notes.collect());
    if let Some(mark) = canary {
        let note = json!({
            "imageId": mark.image.as_str(), "of": mark.of.as_str(), "share": mark.share,
        });
        own.insert(CANARY.to_owned(), note);
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn pointers(value: Value) -> Result<Vec<String>, String> {
        let found = references(&object(value)).map_err(|bad| bad.to_string())?;
        let texts = found.into_iter();
        Ok(texts
            .map(|one| format!("{} {}", one.pointer, one.image))
            .collect())
    }

    #[test]
    fn references_are_found_at_any_depth_outside_of_our_own_part() {
        let found = pointers(json!({
            "image": {"$image": "a"},
            "list": [1, {"deep/er": {"$image": "b"}}],
            "workerManager": {"x": {"$image": "c"}},
        }));
        assert_eq!(found.unwrap(), ["/image a", "/list/1/deep~1er b"]);
        assert_eq!(pointers(json!({"image": "plain"})), Ok(vec![]));
    }

    #[test]
    fn a_reference_that_is_not_only_a_name_is_refused_with_its_place() {
        for (value, text) in [
            (
                json!({"$image": 3}),
                "/image/$image must be the name of an image",
            ),
            (
                json!({"$image": "../x"}),
                "/image/$image must be the name of an image",
            ),
            (
                json!({"$image": "a", "b": 1}),
                "/image has other keys beside `$image`",
            ),
        ] {
            assert_eq!(pointers(json!({"image": value})), Err(text.to_owned()));
        }
    }

    #[test]
    fn a_launch_config_refers_to_a_bounded_number_of_images() {
        for count in sizes_around("domain::image_reference::MAX_REFERENCES", MAX_REFERENCES) {
            let items: Vec<Value> = (0..count).map(|_| json!({"$image": "a"})).collect();
            let found = references(&object(json!({"items": items})));
            assert_eq!(found.is_ok(), count <= MAX_REFERENCES, "{count}");
        }
    }

    #[test]
    fn the_template_is_made_again_from_the_note() {
        let template =
            object(json!({"disk": {"image": {"$image": "a"}}, "workerManager": {"w": 1}}));
        let mut concrete = object(json!({"disk": {"image": "ami-1"}, "workerManager": {"w": 1}}));
        let uses = [ImageUse {
            reference: references(&template).unwrap().remove(0),
            build: 7,
        }];
        set_marks(&mut concrete, &uses, None);
        assert_eq!(image_uses(&concrete), uses);
        crate::launch_config::set_id(&mut concrete, &"lc-1".parse().unwrap());
        assert_eq!(template_of(&concrete), Ok(Some(template.clone())));
        assert_eq!(template_of(&template), Ok(Some(template.clone())));
        let mark = CanaryMark {
            image: "a".parse().unwrap(),
            of: "lc-1".parse().unwrap(),
            share: 0.25,
        };
        set_marks(&mut concrete, &uses, Some(&mark));
        assert_eq!(canary_mark(&concrete), Some(mark));
        assert_eq!(template_of(&concrete), Ok(None));
        remove_marks(&mut concrete);
        assert_eq!(image_uses(&concrete), []);
    }

    #[test]
    fn a_note_that_the_server_did_not_write_is_refused() {
        for images in [
            json!(3),
            json!([3]),
            json!([{"imageId": "a", "build": 1, "at": "/no"}]),
        ] {
            let config = object(json!({"image": "x", "workerManager": {"images": images}}));
            let refused = template_of(&config).unwrap_err().to_string();
            assert!(
                refused.starts_with("/workerManager/images is written by"),
                "{refused}"
            );
        }
    }
}
