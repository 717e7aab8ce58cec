//! The disk images of the file, with the settings that they inherit.

use std::collections::{BTreeMap, BTreeSet};

use super::notes::{Notes, below};
use super::section::Section;

/// Bytes that images inherit, all together. More is a mistake: it would not fit into memory.
const MAX_INHERITED_BYTES: usize = 64 << 20;
/// Keys of disk images without a counterpart.
const REASONS: [(&str, &str); 6] = [
    (
        "username",
        "workers connect to the server themselves; no login is needed",
    ),
    (
        "python-path",
        "workers connect to the server themselves; no login is needed",
    ),
    (
        "shell-type",
        "workers connect to the server themselves; no login is needed",
    ),
    (
        "connection-type",
        "workers connect to the server themselves; no login is needed",
    ),
    (
        "connection-port",
        "workers connect to the server themselves; no login is needed",
    ),
    (
        "metadata",
        "providers mark their images themselves; further metadata goes into the options of an upload",
    ),
];
const DELETED_AFTER_UPLOAD: &str =
    "files are kept as long as their build, so that other builders can upload them";

/// A disk image with everything that it inherits.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskImage {
    pub(super) place: String,
    pub(super) name: String,
    pub(super) is_abstract: bool,
    pub(super) elements: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) pause: bool,
    pub(super) settings: Settings,
}

/// Settings that a child overrides.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) formats: Option<Vec<String>>,
    pub(super) keep_formats: Option<Vec<String>>,
    pub(super) release: Option<String>,
    pub(super) dib_cmd: Option<String>,
    pub(super) rebuild_age_seconds: Option<u64>,
    pub(super) build_timeout_seconds: Option<u64>,
}

struct WrittenImage {
    image: DiskImage,
    parent: Option<String>,
}

impl Settings {
    fn read(section: &mut Section<'_>, notes: &mut Notes) -> Self {
        Self {
            formats: section.texts("formats", notes),
            keep_formats: section.texts("keep-formats", notes),
            release: section.text("release", notes),
            dib_cmd: section.text("dib-cmd", notes),
            rebuild_age_seconds: section.number("rebuild-age", notes),
            build_timeout_seconds: section.number("build-timeout", notes),
        }
    }

    fn inherit(self, parent: &Self) -> Self {
        Self {
            formats: self.formats.or_else(|| parent.formats.clone()),
            keep_formats: self.keep_formats.or_else(|| parent.keep_formats.clone()),
            release: self.release.or_else(|| parent.release.clone()),
            dib_cmd: self.dib_cmd.or_else(|| parent.dib_cmd.clone()),
            rebuild_age_seconds: self.rebuild_age_seconds.or(parent.rebuild_age_seconds),
            build_timeout_seconds: self.build_timeout_seconds.or(parent.build_timeout_seconds),
        }
    }
}

impl DiskImage {
    /// Bytes that a child inherits.
    fn size(&self) -> usize {
        let variables = self.environment.iter();
        let variables = variables.map(|(name, value)| name.len() + value.len());
        let elements = self.elements.iter().map(String::len);
        variables.chain(elements).sum()
    }

    /// Inherits as Nodepool does: elements are appended and variables merged; `pause: false` does
    /// not undo the parent's `true`.
    fn inherit(&mut self, parent: &Self) {
        let own = std::mem::take(&mut self.elements);
        self.elements = parent.elements.iter().cloned().chain(own).collect();
        for (name, value) in &parent.environment {
            let known = self.environment.entry(name.clone());
            known.or_insert_with(|| value.clone());
        }
        self.pause |= parent.pause;
        self.settings = std::mem::take(&mut self.settings).inherit(&parent.settings);
    }
}

/// Reads all disk images, abstract ones too, in the order of the file.
pub(super) fn read_disk_images(file: &mut Section<'_>, notes: &mut Notes) -> Vec<DiskImage> {
    let mut written: Vec<WrittenImage> = Vec::new();
    let mut names = BTreeSet::new();
    for section in file.sections("diskimages", notes) {
        let image = read(section, notes);
        if !names.insert(image.image.name.clone()) {
            let text = format!("the disk image `{}` is defined twice", image.image.name);
            notes.wrong(below(&image.image.place, "name"), text);
        }
        written.push(image);
    }
    resolve(written, notes)
}

fn read(mut section: Section<'_>, notes: &mut Notes) -> WrittenImage {
    let image = DiskImage {
        place: section.place.clone(),
        name: section.name(notes),
        is_abstract: section.flag("abstract", notes).unwrap_or_default(),
        elements: section.texts("elements", notes).unwrap_or_default(),
        environment: section.variables("env-vars", notes),
        pause: section.flag("pause", notes).unwrap_or_default(),
        settings: Settings::read(&mut section, notes),
    };
    let parent = section.text("parent", notes);
    if section
        .flag("delete-after-upload", notes)
        .unwrap_or_default()
    {
        notes.remark(
            section.place_of("delete-after-upload"),
            DELETED_AFTER_UPLOAD,
        );
    }
    section.finish(&REASONS, notes);
    WrittenImage { image, parent }
}

/// Joins each image with its parent, whose own parent is joined first.
fn resolve(written: Vec<WrittenImage>, notes: &mut Notes) -> Vec<DiskImage> {
    let positions: BTreeMap<&str, usize> = written
        .iter()
        .enumerate()
        .map(|(position, image)| (image.image.name.as_str(), position))
        .collect();
    let mut parents: Vec<Option<usize>> = Vec::new();
    for image in &written {
        let parent = image.parent.as_deref();
        let position = parent.and_then(|name| positions.get(name).copied());
        if let (Some(name), None) = (parent, position) {
            let place = below(&image.image.place, "parent");
            notes.wrong(place, format!("no disk image is named `{name}`"));
        }
        parents.push(position);
    }
    let mut images: Vec<DiskImage> = written.into_iter().map(|image| image.image).collect();
    let mut is_done = vec![false; images.len()];
    let mut room = MAX_INHERITED_BYTES;
    for start in 0..images.len() {
        let mut chain = vec![start];
        let mut last = start;
        while let Some(parent) = parents[last].filter(|parent| !is_done[*parent]) {
            if chain.contains(&parent) {
                let place = below(&images[last].place, "parent");
                let text = format!("`{}` is its own ancestor", images[parent].name);
                notes.wrong(place, text);
                parents[last] = None;
                break;
            }
            chain.push(parent);
            last = parent;
        }
        for position in chain.into_iter().rev() {
            if let (Some(parent), false) = (parents[position], is_done[position]) {
                let parent = images[parent].clone();
                if parent.pause && !images[position].pause {
                    let text = format!("it is paused, because its parent `{}` is", parent.name);
                    notes.remark(images[position].place.clone(), text);
                }
                let Some(rest) = room.checked_sub(parent.size()) else {
                    let text = format!("images inherit more than {MAX_INHERITED_BYTES} bytes");
                    notes.wrong(below(&images[position].place, "parent"), text);
                    return images;
                };
                room = rest;
                images[position].inherit(&parent);
            }
            is_done[position] = true;
        }
    }
    images
}
