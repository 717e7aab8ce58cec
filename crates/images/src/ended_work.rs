//! Builds and uploads that ended, each reported once, for metrics.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::ImageName;
use domain::image::{
    BuildFailureCause, BuildNumber, BuildRecord, BuildState, UploadNumber, UploadRecord,
    UploadState, UploadTargetId,
};
use domain::time::Timestamp;

use crate::image_tree::{ImageNode, ImageTree};

/// Remembers which builds and uploads were reported.
#[derive(Debug, Default)]
pub struct EndedWork {
    revision: u64,
    reported: BTreeMap<ImageName, BTreeSet<WorkId>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorkId {
    Build(BuildNumber),
    Upload(BuildNumber, UploadTargetId, UploadNumber),
}

/// A build, or an upload to a target, that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedJob {
    pub image: ImageName,
    /// `None`: a build.
    pub target: Option<UploadTargetId>,
    /// `ready`, `failed` or `abandoned`.
    pub outcome: &'static str,
    pub took_ms: i64,
}

impl EndedWork {
    /// Reads another copy of the tree from its beginning.
    pub fn restart(&mut self) {
        self.revision = 0;
    }

    /// The jobs that ended since the last call, and not before this moment.
    pub fn take(&mut self, images: &ImageTree, since: Timestamp) -> Vec<EndedJob> {
        let changes = images.changed_since(self.revision);
        self.revision = changes.revision;
        let mut taken = Vec::new();
        for name in changes.images {
            let Some(ended) = images.image(&name, |image| ended(&name, image, since)) else {
                self.reported.remove(&name);
                continue;
            };
            let mut known = BTreeSet::new();
            let before = self.reported.remove(&name).unwrap_or_default();
            for (id, job) in ended {
                if !before.contains(&id) {
                    taken.push(job);
                }
                known.insert(id);
            }
            self.reported.insert(name, known);
        }
        taken
    }
}

fn ended(name: &ImageName, image: &ImageNode, since: Timestamp) -> Vec<(WorkId, EndedJob)> {
    let mut all = Vec::new();
    let mut push = |id, target, job: Option<(&'static str, i64)>| {
        if let Some((outcome, took_ms)) = job {
            let image = name.clone();
            let job = EndedJob {
                image,
                target,
                outcome,
                took_ms,
            };
            all.push((id, job));
        }
    };
    for (number, build) in &image.builds {
        let job = build
            .record
            .as_ref()
            .and_then(|record| build_job(record, since));
        push(WorkId::Build(*number), None, job);
        for (target, node) in &build.targets {
            for (upload, it) in &node.uploads {
                let job = it
                    .record
                    .as_ref()
                    .and_then(|record| upload_job(record, since));
                let id = WorkId::Upload(*number, target.clone(), *upload);
                push(id, Some(target.clone()), job);
            }
        }
    }
    all
}

fn build_job(record: &BuildRecord, since: Timestamp) -> Option<(&'static str, i64)> {
    let outcome = match record.state {
        BuildState::Building | BuildState::Deleting => return None,
        BuildState::Ready => "ready",
        BuildState::Failed { cause, .. } => match cause {
            BuildFailureCause::Build => "failed",
            BuildFailureCause::BuilderDied | BuildFailureCause::BuilderStopped => "abandoned",
        },
    };
    let took_ms = duration(record.started, record.finished, record.state_time, since)?;
    Some((outcome, took_ms))
}

fn upload_job(record: &UploadRecord, since: Timestamp) -> Option<(&'static str, i64)> {
    let outcome = match record.state {
        UploadState::Uploading | UploadState::Deleting => return None,
        UploadState::Ready => "ready",
        UploadState::Failed {
            abandoned: true, ..
        } => "abandoned",
        UploadState::Failed {
            abandoned: false, ..
        } => "failed",
    };
    let took_ms = duration(record.started, record.finished, record.state_time, since)?;
    Some((outcome, took_ms))
}

/// `None`: it ended earlier.
fn duration(
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
    state_time: Timestamp,
    since: Timestamp,
) -> Option<i64> {
    let end = finished.unwrap_or(state_time);
    (end >= since).then(|| end.millis_since(started.unwrap_or(end)).max(0))
}
