//! The consequences of a change of a definition.

use std::collections::BTreeSet;
use std::fmt;

use super::definition::ImageDefinition;
use super::upload_target::UploadTargetId;
use crate::configuration::{ValueChange, value_changes};

/// One changed member of a definition, and its consequence.
#[derive(Clone, Debug, PartialEq)]
pub struct DefinitionChange {
    pub change: ValueChange,
    pub effect: DefinitionEffect,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefinitionEffect {
    /// It holds from the next decision on; existing builds and uploads stay.
    Nothing,
    /// Uploads to these targets are deleted.
    RemoveUploads(BTreeSet<UploadTargetId>),
    /// The newest build is uploaded to these targets.
    NewUpload(BTreeSet<UploadTargetId>),
    NewBuild,
}

impl fmt::Display for DefinitionEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |targets: &BTreeSet<UploadTargetId>| {
            let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
            names.join(", ")
        };
        match self {
            Self::Nothing => f.write_str("needs no build and no upload"),
            Self::RemoveUploads(targets) => write!(f, "deletes the uploads to {}", list(targets)),
            Self::NewUpload(targets) => write!(f, "needs a new upload to {}", list(targets)),
            Self::NewBuild => f.write_str("needs a new build"),
        }
    }
}

/// All differences between two definitions of an image, each with its effect.
pub fn definition_changes(old: &ImageDefinition, new: &ImageDefinition) -> Vec<DefinitionChange> {
    let needs_build = needs_build(old, new);
    let changes = value_changes(old.to_document(), new.to_document());
    let with_effects = changes.into_iter().map(|change| {
        let key = change.pointer.split('/').nth(1).unwrap_or_default();
        let effect = match key {
            "build" | "environment" | "secrets" => match old.build_hash() == new.build_hash() {
                true => DefinitionEffect::Nothing,
                false => DefinitionEffect::NewBuild,
            },
            "formats" | "uploads" if needs_build => DefinitionEffect::NewBuild,
            "formats" | "uploads" => effect_on_uploads(old, new),
            _ => DefinitionEffect::Nothing,
        };
        DefinitionChange { change, effect }
    });
    with_effects.collect()
}

/// Whether builds of the old definition lack a format of the new one.
fn needs_build(old: &ImageDefinition, new: &ImageDefinition) -> bool {
    let made = old.all_formats();
    new.all_formats()
        .iter()
        .any(|format| !made.contains(format))
}

fn effect_on_uploads(old: &ImageDefinition, new: &ImageDefinition) -> DefinitionEffect {
    let how = |definition: &ImageDefinition, id: &UploadTargetId| {
        let target = definition.target(id)?;
        Some(target.hash(definition.format_for(target)?))
    };
    let ids = new.uploads.iter().map(|target| &target.id);
    let changed = ids.filter(|id| how(old, id) != how(new, id));
    let changed: BTreeSet<UploadTargetId> = changed.cloned().collect();
    if !changed.is_empty() {
        return DefinitionEffect::NewUpload(changed);
    }
    let ids = old.uploads.iter().map(|target| &target.id);
    let removed = ids.filter(|id| new.target(id).is_none());
    let removed: BTreeSet<UploadTargetId> = removed.cloned().collect();
    match removed.is_empty() {
        true => DefinitionEffect::Nothing,
        false => DefinitionEffect::RemoveUploads(removed),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn base() -> Value {
        json!({
            "imageId": "linux", "build": {"command": ["make"]}, "formats": ["raw", "qcow2"],
            "environment": {"A": "1"}, "uploads": [{"providerId": "aws"}],
        })
    }

    /// The effects of this change, by their places.
    fn effects(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut changed = base();
        change(&mut changed);
        let (old, new) = (base(), changed);
        let old = ImageDefinition::parse(&old).unwrap();
        let new = ImageDefinition::parse(&new).unwrap();
        let changes = definition_changes(&old, &new).into_iter();
        let lines = changes.map(|it| format!("{}: {}", it.change.pointer, it.effect));
        lines.collect()
    }

    #[test]
    fn what_the_build_is_made_of_needs_a_new_build() {
        let command = effects(|it| it["build"]["command"] = json!(["make", "all"]));
        assert_eq!(command, ["/build/command: needs a new build"]);
        let variable = effects(|it| it["environment"]["B"] = json!("2"));
        assert_eq!(variable, ["/environment/B: needs a new build"]);
        let secret = effects(|it| it["secrets"] = json!(["token"]));
        assert_eq!(secret, ["/secrets: needs a new build"]);
        let format = effects(|it| it["formats"] = json!(["raw", "qcow2", "vhd"]));
        assert_eq!(format, ["/formats: needs a new build"]);
        let target = effects(|it| it["uploads"][0]["format"] = json!("vhd"));
        assert_eq!(target, ["/uploads: needs a new build"]);
    }

    #[test]
    fn targets_need_uploads_or_deletions_of_uploads() {
        let options = effects(|it| it["uploads"][0]["options"] = json!({"public": true}));
        assert_eq!(options, ["/uploads: needs a new upload to aws"]);
        let format = effects(|it| it["uploads"][0]["format"] = json!("qcow2"));
        assert_eq!(format, ["/uploads: needs a new upload to aws"]);
        let first = effects(|it| it["formats"] = json!(["qcow2", "raw"]));
        assert_eq!(first, ["/formats: needs a new upload to aws"]);
        let second = json!([{"providerId": "aws"}, {"providerId": "aws", "region": "eu"}]);
        let added = effects(|it| it["uploads"] = second);
        assert_eq!(added, ["/uploads: needs a new upload to aws:eu"]);
        let removed = effects(|it| it["uploads"] = json!([]));
        assert_eq!(removed, ["/uploads: deletes the uploads to aws"]);
    }

    #[test]
    fn other_changes_need_nothing() {
        let cases: [(&str, Value); 8] = [
            ("description", json!("new")),
            ("labels", json!(["arm64"])),
            ("keep", json!(5)),
            ("rebuildAgeSeconds", json!(0)),
            ("timeLimitSeconds", json!(60)),
            ("canary", json!({"share": 0.5})),
            ("usableBy", json!(["ops"])),
            ("validation", json!({"command": ["true"]})),
        ];
        for (key, value) in cases {
            let found = effects(|it| it[key] = value);
            assert_eq!(found, [format!("/{key}: needs no build and no upload")]);
        }
        let fewer = effects(|it| it["formats"] = json!(["raw"]));
        assert_eq!(fewer, ["/formats: needs no build and no upload"]);
        let empty = effects(|it| it["secrets"] = json!([]));
        assert_eq!(empty, ["/secrets: needs no build and no upload"]);
        assert_eq!(effects(|_| ()), Vec::<String>::new());
    }
}
