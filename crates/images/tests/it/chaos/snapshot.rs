//! Everything about images in the tree, read without faults.

use std::collections::BTreeMap;

use backplane::tree::{MAX_WALKED, TreePath, walk};
use domain::id::ImageName;
use domain::image::{
    BuildNumber, BuildRecord, BuildState, Standing, UploadNumber, UploadRecord, UploadState,
};
use images::{ImagePaths, Place};

use super::monitor::Monitor;

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) images: BTreeMap<ImageName, ImageShot>,
}

#[derive(Debug, Default)]
pub(super) struct ImageShot {
    pub(super) builds: BTreeMap<BuildNumber, BuildShot>,
    pub(super) standing: Standing,
    /// Nodes that should not stay: requests, locks, notes.
    pub(super) others: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct BuildShot {
    pub(super) record: Option<BuildRecord>,
    pub(super) is_pinned: bool,
    /// Each with its target, in the order of their numbers.
    pub(super) uploads: Vec<(String, UploadNumber, Option<UploadRecord>)>,
}

impl BuildShot {
    pub(super) fn is_ready(&self) -> bool {
        let state = self.record.as_ref().map(|it| &it.state);
        state == Some(&BuildState::Ready)
    }

    /// The images that ready uploads stand for, by target.
    pub(super) fn ready_uploads(&self) -> impl Iterator<Item = (&str, &str)> {
        self.uploads.iter().filter_map(|(target, _, record)| {
            let record = record.as_ref()?;
            let id = record.external_id.as_deref()?;
            (record.state == UploadState::Ready).then_some((target.as_str(), id))
        })
    }
}

impl Snapshot {
    pub(super) async fn read(monitor: &Monitor) -> Self {
        let root = ImagePaths::images().unwrap();
        // On a busy machine, a call may need another attempt.
        let nodes = loop {
            match walk(monitor.tree(), &root, MAX_WALKED).await {
                Ok(nodes) => break nodes,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
            tokio::task::yield_now().await;
        };
        let mut shot = Self::default();
        for (path, node) in nodes {
            shot.note(&path, &node.data);
        }
        shot
    }

    fn note(&mut self, path: &TreePath, data: &[u8]) {
        let Some(place) = Place::of(path) else {
            return;
        };
        let Some(name) = place.image() else {
            return;
        };
        let image = self.images.entry(name.clone()).or_default();
        match place {
            Place::Build(_, number) => {
                image.builds.entry(number).or_default().record = BuildRecord::parse(data).ok();
            }
            Place::Pin(_, number) => {
                image.builds.entry(number).or_default().is_pinned = true;
            }
            Place::Upload(_, number, target, upload) => {
                let uploads = &mut image.builds.entry(number).or_default().uploads;
                uploads.push((target.to_string(), upload, UploadRecord::parse(data).ok()));
                uploads.sort_by_key(|(_, upload, _)| *upload);
            }
            Place::Standing(_) => {
                image.standing = serde_json::from_slice(data).unwrap_or_default();
            }
            Place::BuildContender(..) | Place::UploadContender(..) | Place::Request(_) => {
                image.others.push(path.to_string());
            }
            Place::Image(_)
            | Place::Definition(_)
            | Place::Builds(_)
            | Place::Provenance(..)
            | Place::Cancel(..)
            | Place::Uploads(..)
            | Place::Pause(_)
            | Place::Canary(_)
            | Place::Builder(_)
            | Place::Providers
            | Place::Database => {}
        }
    }
}
