//! The copy of the nodes, and what changed in it since when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use backplane::tree::Node;
use cloud::image::TrustedKeys;
use domain::id::{ImageName, ProviderId};
use domain::image::{BuildRecord, BuildState, ImageDefinition, UploadRecord};

use super::node::{
    BuildNode, BuilderNode, Contender, DefinitionText, ImageNode, MirroredDefinition, Note,
    TargetNode, UploadNode,
};
use super::provenance::Provenance;
use crate::paths::Place;

/// All nodes about images.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) images: BTreeMap<ImageName, ImageNode>,
    pub(super) builders: BTreeMap<String, BuilderNode>,
    /// `None`: no server has said yet which are configured.
    pub(super) providers: Option<BTreeSet<ProviderId>>,
    /// Grows with each change.
    pub(super) revision: u64,
    /// Whose signed records are trusted.
    trusted: Arc<TrustedKeys>,
    /// The last change of each image, also of removed ones.
    changed: BTreeMap<ImageName, u64>,
    by_revision: BTreeMap<u64, ImageName>,
    /// The last change of builders or providers, which concerns all images.
    all_changed: u64,
}

/// Images that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    pub images: Vec<ImageName>,
    /// Pass it to the next call.
    pub revision: u64,
}

impl Known {
    pub(super) fn new(trusted: Arc<TrustedKeys>) -> Self {
        Self {
            images: BTreeMap::new(),
            builders: BTreeMap::new(),
            providers: None,
            revision: 0,
            trusted,
            changed: BTreeMap::new(),
            by_revision: BTreeMap::new(),
            all_changed: 0,
        }
    }

    /// Another copy, without nodes.
    pub(super) fn empty(&self) -> Self {
        Self::new(Arc::clone(&self.trusted))
    }

    /// Notes that a node was read, or that it does not exist.
    pub(super) fn note(&mut self, place: &Place, node: Option<&Node>) {
        // It is read when the tree is opened.
        if *place == Place::Database {
            return;
        }
        self.revision += 1;
        if let Some(image) = place.image() {
            self.note_of_image(image, place, node);
            return;
        }
        if let Place::Builder(name) = place {
            let node = node.filter(|node| node.forged.is_none());
            let read = node.map(|node| serde_json::from_slice(&node.data).unwrap_or_default());
            set(&mut self.builders, name.clone(), read);
        } else {
            self.providers = node.and_then(|node| serde_json::from_slice(&node.data).ok());
        }
        self.all_changed = self.revision;
    }

    fn note_of_image(&mut self, image: &ImageName, place: &Place, node: Option<&Node>) {
        if let Some(last) = self.changed.insert(image.clone(), self.revision) {
            self.by_revision.remove(&last);
        }
        self.by_revision.insert(self.revision, image.clone());
        let is_image = matches!(place, Place::Image(_));
        if is_image && node.is_none() {
            self.images.remove(image);
            return;
        }
        match self.images.get_mut(image) {
            Some(known) => known.note(place, node, &self.trusted),
            None if is_image && node.is_some() => {
                self.images.insert(image.clone(), ImageNode::default());
            }
            // It was deleted together with its parents.
            None => {}
        }
    }

    /// The images that changed after this revision.
    pub(super) fn changed_since(&self, revision: u64) -> Changes {
        let images = if self.all_changed > revision {
            let all: BTreeSet<&ImageName> = self
                .images
                .keys()
                .chain(self.changed_after(revision))
                .collect();
            all.into_iter().cloned().collect()
        } else {
            self.changed_after(revision).cloned().collect()
        };
        Changes {
            images,
            revision: self.revision,
        }
    }

    fn changed_after(&self, revision: u64) -> impl Iterator<Item = &ImageName> {
        self.by_revision
            .range(revision + 1..)
            .map(|(_, image)| image)
    }

    /// Takes the place of an older copy, of which everything counts as changed.
    pub(super) fn follow(&mut self, older: &Self) {
        self.revision += older.revision + 1;
        self.changed = BTreeMap::new();
        self.by_revision = BTreeMap::new();
        let names: BTreeSet<ImageName> = self
            .images
            .keys()
            .chain(older.images.keys())
            .cloned()
            .collect();
        for name in names {
            self.revision += 1;
            self.changed.insert(name.clone(), self.revision);
            self.by_revision.insert(self.revision, name);
        }
        self.all_changed = self.revision;
    }
}

impl ImageNode {
    fn note(&mut self, place: &Place, node: Option<&Node>, trusted: &TrustedKeys) {
        self.note_forged(place, node);
        match place {
            // The parents of other nodes.
            Place::Image(_) | Place::Builds(_) => {}
            Place::Definition(_) => self.note_definition(node),
            Place::BuildContender(_, name) => note_contender(&mut self.contenders, name, node),
            Place::Build(_, number) => match node {
                None => drop(self.builds.remove(number)),
                Some(node) => {
                    let build = self.builds.entry(*number).or_default();
                    build.as_written = BuildRecord::parse(&node.data).ok();
                    build.version = node.stat.version;
                    build.compare(place);
                }
            },
            Place::Provenance(_, number)
            | Place::Pin(_, number)
            | Place::Cancel(_, number)
            | Place::Uploads(_, number, _)
            | Place::UploadContender(_, number, ..)
            | Place::Upload(_, number, ..) => {
                // Its parent was read before; if it is not known, it was deleted meanwhile.
                if let Some(build) = self.builds.get_mut(number) {
                    build.note(place, node, trusted);
                }
            }
            Place::Request(_) => self.request = note(node),
            Place::Pause(_) => self.pause = note(node),
            Place::Standing(_) => {
                let read = node.and_then(|node| serde_json::from_slice(&node.data).ok());
                self.standing = read.unwrap_or_default();
                self.standing_error = node.and_then(|node| node.forged.clone());
                self.standing_version = node.map(|node| node.stat.version);
            }
            Place::Canary(_) => {
                self.canary = node.and_then(|node| serde_json::from_slice(&node.data).ok());
                self.canary_version = node.map(|node| node.stat.version);
            }
            Place::Builder(_) | Place::Providers | Place::Database => {}
        }
    }

    /// Nodes that are only the parents of others say nothing.
    fn note_forged(&mut self, place: &Place, node: Option<&Node>) {
        // Servers write the other two again.
        let is_other = matches!(
            place,
            Place::Image(_)
                | Place::Builds(_)
                | Place::Uploads(..)
                | Place::Definition(_)
                | Place::Standing(_)
        );
        let Some(path) = place.path().ok().filter(|_| !is_other) else {
            return;
        };
        match node.and_then(|node| node.forged.clone()) {
            Some(problem) => drop(self.forged.insert(path, problem)),
            None => drop(self.forged.remove(&path)),
        }
    }

    fn note_definition(&mut self, node: Option<&Node>) {
        (self.definition, self.definition_error) = (None, None);
        self.is_removed = false;
        let Some(node) = node else {
            return;
        };
        match read_definition(node) {
            Ok(Some(definition)) => self.definition = Some(Arc::new(definition)),
            Ok(None) => self.is_removed = true,
            Err(error) => self.definition_error = Some(error),
        }
    }
}

/// Whether the node of a definition says that the image was deleted.
pub(crate) fn says_removed(node: &Node) -> bool {
    matches!(read_definition(node), Ok(None))
}

/// `None`: the image was deleted.
fn read_definition(node: &Node) -> Result<Option<MirroredDefinition>, String> {
    if let Some(problem) = &node.forged {
        return Err(problem.clone());
    }
    let text: DefinitionText =
        serde_json::from_slice(&node.data).map_err(|error| error.to_string())?;
    if text.document.is_null() {
        return Ok(None);
    }
    let definition =
        ImageDefinition::parse(&text.document).map_err(|problems| problems.to_string())?;
    Ok(Some(MirroredDefinition {
        version: text.version,
        definition,
    }))
}

impl BuildNode {
    fn note(&mut self, place: &Place, node: Option<&Node>, trusted: &TrustedKeys) {
        match place {
            Place::Provenance(..) => {
                self.provenance = node.map(|node| Provenance::read(&node.data, trusted));
                self.compare(place);
            }
            Place::Pin(..) => self.pin = note(node),
            Place::Cancel(..) => self.cancel = note(node),
            Place::Uploads(_, _, target) => match node {
                None => drop(self.targets.remove(target)),
                Some(_) => drop(self.targets.entry(target.clone()).or_default()),
            },
            Place::UploadContender(_, _, target, name) => {
                if let Some(target) = self.targets.get_mut(target) {
                    note_contender(&mut target.contenders, name, node);
                }
            }
            Place::Upload(_, _, target, number) => {
                if let Some(target) = self.targets.get_mut(target) {
                    target.note_upload(*number, node);
                }
            }
            Place::Image(_)
            | Place::Definition(_)
            | Place::Builds(_)
            | Place::BuildContender(..)
            | Place::Build(..)
            | Place::Request(_)
            | Place::Pause(_)
            | Place::Standing(_)
            | Place::Canary(_)
            | Place::Builder(_)
            | Place::Providers
            | Place::Database => {}
        }
    }
}

impl BuildNode {
    /// Compares the record with the signed one.
    fn compare(&mut self, place: &Place) {
        self.record = self.as_written.clone();
        let Some(record) = &self.as_written else {
            return;
        };
        // Builds of a Nodepool have none.
        if record.state != BuildState::Ready || record.provenance.is_none() {
            return;
        }
        let (Place::Build(image, number) | Place::Provenance(image, number)) = place else {
            return;
        };
        let build = format!("{image}/{number}");
        let problem = match &self.provenance {
            None => Some("it is missing".to_owned()),
            Some(provenance) => provenance.problem(&build, record),
        };
        if let Some(problem) = problem {
            let error = format!("the signed record of the build is not usable: {problem}");
            self.record = Some(record.clone().distrust(error));
        }
    }
}

impl TargetNode {
    fn note_upload(&mut self, number: domain::image::UploadNumber, node: Option<&Node>) {
        let read = node.map(|node| UploadNode {
            record: UploadRecord::parse(&node.data).ok(),
            version: node.stat.version,
        });
        set(&mut self.uploads, number, read);
    }
}

fn note(node: Option<&Node>) -> Option<Note> {
    let node = node.filter(|node| node.forged.is_none())?;
    Some(Note::read(&node.data, node.stat.created))
}

fn note_contender(contenders: &mut BTreeMap<i64, Contender>, name: &str, node: Option<&Node>) {
    contenders.retain(|_, contender| contender.name != name);
    if let Some(node) = node {
        let contender = Contender {
            name: name.to_owned(),
            holder: String::from_utf8_lossy(&node.data).into_owned(),
        };
        contenders.insert(node.stat.created_by, contender);
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}
