//! The facts about an image from which its next steps are decided.

use std::collections::{BTreeMap, BTreeSet};

use super::build_record::{BuildRecord, BuildState};
use super::definition::ImageDefinition;
use super::number::{BuildNumber, UploadNumber};
use super::standing::Standing;
use super::step::WaitReason;
use super::upload_record::{UploadRecord, UploadState};
use super::upload_target::UploadTargetId;
use crate::id::{ImageName, ProviderId};
use crate::time::Timestamp;

/// An image with its builds, and the builders that could build it.
#[derive(Clone, Copy, Debug)]
pub struct ImageView<'a> {
    pub name: &'a ImageName,
    /// `None`: the image was removed, and so is all that belongs to it.
    pub definition: Option<&'a ImageDefinition>,
    pub builds: &'a [BuildView],
    /// The holder of the lock of the image's builds.
    pub build_lock: Option<&'a HeldLock>,
    pub request: Option<&'a BuildRequest>,
    pub pause: Option<&'a ImagePause>,
    /// Builds that are never deleted.
    pub pinned: &'a BTreeSet<BuildNumber>,
    /// The decisions of canaries and people.
    pub standing: &'a Standing,
    pub builders: &'a [LiveBuilder],
    /// The configured providers.
    pub providers: &'a BTreeSet<ProviderId>,
    pub budget: BuildBudget,
    pub now: Timestamp,
}

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Grows with each holder.
    pub fence: u64,
    pub owner: String,
}

/// A node of a build, with its uploads.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildView {
    pub number: BuildNumber,
    /// `None`: the record cannot be read.
    pub record: Option<BuildRecord>,
    /// A person wanted it to end while it was made.
    pub is_cancelled: bool,
    pub files: FileReach,
    pub uploads: Vec<UploadView>,
    /// The held locks of uploads, by target.
    pub upload_locks: BTreeMap<UploadTargetId, HeldLock>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct UploadView {
    pub number: UploadNumber,
    pub target: UploadTargetId,
    /// `None`: the record cannot be read.
    pub record: Option<UploadRecord>,
}

/// From where the files of a build can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileReach {
    /// From storage that every builder reaches.
    pub is_shared: bool,
    /// From the disks of these builders.
    pub builders: BTreeSet<String>,
}

/// Somebody wants a new build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildRequest {
    /// Also identifies the request.
    pub at: Timestamp,
    pub by: String,
    pub reason: String,
}

/// Somebody paused the image: nothing is built or uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePause {
    pub by: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveBuilder {
    pub name: String,
    pub labels: BTreeSet<String>,
    pub is_busy: bool,
}

/// Builds side by side, of all images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildBudget {
    pub running: usize,
    pub limit: usize,
}

impl ImageView<'_> {
    /// Whether the build is in progress: a builder holds the lock under which it began.
    pub(super) fn is_in_progress(&self, build: &BuildView) -> bool {
        let is_building = |record: &&BuildRecord| record.state == BuildState::Building;
        let Some(record) = build.record.as_ref().filter(is_building) else {
            return false;
        };
        let Some(lock) = self.build_lock else {
            return false;
        };
        match record.fence {
            Some(fence) => fence == lock.fence,
            // Nodepool writes no fence. Then only the newest record can belong to the lock.
            None => self.builds.iter().all(|other| other.number <= build.number),
        }
    }

    /// Why nothing is built or uploaded, if the image is paused.
    pub(super) fn paused(&self, definition: &ImageDefinition) -> Option<WaitReason> {
        if definition.paused {
            return Some(WaitReason::PausedInDefinition);
        }
        self.pause.map(|pause| WaitReason::Paused {
            by: pause.by.clone(),
            reason: pause.reason.clone(),
        })
    }

    /// The ready builds, the newest first.
    pub(super) fn ready_builds(&self) -> impl Iterator<Item = (&BuildView, &BuildRecord)> {
        let mut ready: Vec<_> = self.builds.iter().filter_map(BuildView::ready).collect();
        ready.sort_by_key(|(build, _)| std::cmp::Reverse(build.number));
        ready.into_iter()
    }

    /// The newest ready build that was not rolled back.
    pub(super) fn newest_good(&self) -> Option<(&BuildView, &BuildRecord)> {
        let rejected = &self.standing.rejected;
        self.ready_builds()
            .find(|(build, _)| !rejected.contains(&build.number))
    }

    pub(super) fn is_reachable(&self, files: &FileReach) -> bool {
        let is_live = |builder: &LiveBuilder| files.builders.contains(&builder.name);
        files.is_shared || self.builders.iter().any(is_live)
    }
}

impl BuildView {
    /// Whether machines can start from it somewhere.
    pub fn has_ready_upload(&self) -> bool {
        self.ready().is_some() && self.uploads.iter().any(|upload| upload.ready().is_some())
    }

    pub(super) fn ready(&self) -> Option<(&Self, &BuildRecord)> {
        let record = self.record.as_ref()?;
        (record.state == BuildState::Ready).then_some((self, record))
    }

    /// The uploads to a target, the newest first.
    pub(super) fn uploads_to(&self, target: &UploadTargetId) -> Vec<&UploadView> {
        let uploads = self
            .uploads
            .iter()
            .filter(|upload| upload.target == *target);
        let mut uploads: Vec<&UploadView> = uploads.collect();
        uploads.sort_by_key(|upload| std::cmp::Reverse(upload.number));
        uploads
    }

    /// Whether the upload is in progress: somebody holds the lock under which it began.
    pub(super) fn is_upload_in_progress(&self, upload: &UploadView) -> bool {
        let is_uploading = |record: &&UploadRecord| record.state == UploadState::Uploading;
        let Some(record) = upload.record.as_ref().filter(is_uploading) else {
            return false;
        };
        let Some(lock) = self.upload_locks.get(&upload.target) else {
            return false;
        };
        match record.fence {
            Some(fence) => fence == lock.fence,
            None => self.uploads_to(&upload.target).first() == Some(&upload),
        }
    }
}

impl UploadView {
    pub(super) fn ready(&self) -> Option<&UploadRecord> {
        let record = self.record.as_ref()?;
        (record.state == UploadState::Ready).then_some(record)
    }
}
