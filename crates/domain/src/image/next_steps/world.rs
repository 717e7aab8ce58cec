//! A small world in memory that carries out steps, with faults.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{ImageName, ProviderId};
use crate::image::Standing;
use crate::image::build_record::{BuildFile, BuildLeft, BuildRecord, BuildState, NewBuild};
use crate::image::definition::ImageDefinition;
use crate::image::next_steps;
use crate::image::number::{BuildNumber, UploadNumber};
use crate::image::step::{Leftover, Step};
use crate::image::upload_record::{NewUpload, UploadRecord, UploadState};
use crate::image::upload_target::UploadTargetId;
use crate::image::view::{
    BuildBudget, BuildRequest, BuildView, FileReach, HeldLock, ImagePause, ImageView, LiveBuilder,
    UploadView,
};
use crate::time::Timestamp;

/// Where an upload is.
pub(super) type UploadPlace = (BuildNumber, UploadTargetId, UploadNumber);

/// The fate of a process that carries out a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Success,
    Failure,
    /// It dies in the middle: its lock becomes free.
    Death,
    /// It is stopped in the middle, and says so.
    Stop,
    /// It dies before it does anything.
    Nothing,
    /// It goes on for long, and dies or succeeds later.
    Long,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) name: ImageName,
    pub(super) definition: Option<ImageDefinition>,
    pub(super) builds: BTreeMap<BuildNumber, BuildView>,
    pub(super) build_lock: Option<HeldLock>,
    pub(super) request: Option<BuildRequest>,
    pub(super) pause: Option<ImagePause>,
    pub(super) pinned: BTreeSet<BuildNumber>,
    pub(super) standing: Standing,
    pub(super) builders: Vec<LiveBuilder>,
    pub(super) providers: BTreeSet<ProviderId>,
    pub(super) budget: BuildBudget,
    pub(super) now: Timestamp,
    /// The images that providers have.
    pub(super) clouds: BTreeSet<String>,
    pub(super) next_fence: u64,
    /// The highest number that a build ever had.
    pub(super) last_build: u64,
    pub(super) is_image_removed: bool,
}

impl World {
    pub(super) fn steps(&self) -> Vec<Step> {
        if self.is_image_removed {
            return Vec::new();
        }
        let builds: Vec<BuildView> = self.builds.values().cloned().collect();
        next_steps(&ImageView {
            name: &self.name,
            definition: self.definition.as_ref(),
            builds: &builds,
            build_lock: self.build_lock.as_ref(),
            request: self.request.as_ref(),
            pause: self.pause.as_ref(),
            pinned: &self.pinned,
            standing: &self.standing,
            builders: &self.builders,
            providers: &self.providers,
            budget: self.budget,
            now: self.now,
        })
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.steps().iter().map(ToString::to_string).collect()
    }

    /// Carries out a step. A step may be outdated; then its guard stops it.
    pub(super) fn apply(&mut self, step: &Step, fate: Fate) {
        if fate == Fate::Nothing {
            return;
        }
        match step.clone() {
            step @ Step::Build { .. } => self.build(step, fate),
            Step::Upload { .. } => self.upload(step, fate),
            Step::MarkBuildAbandoned { build } => {
                if let Some(view) = self.builds.get_mut(&build) {
                    let record = view.record.clone().map(|record| record.abandon(self.now));
                    if let Some(Ok(record)) = record {
                        view.record = Some(record);
                    }
                }
            }
            Step::MarkUploadAbandoned {
                build,
                target,
                upload,
            } => {
                let now = self.now;
                self.change_upload(&(build, target, upload), |record| record.abandon(now).ok());
            }
            Step::DeleteUpload {
                build,
                target,
                upload,
                external_id,
                ..
            } => self.delete_upload(&(build, target, upload), external_id, fate),
            Step::DeleteBuild { build, .. } => {
                assert!(!self.pinned.contains(&build), "pinned {build} is deleted");
                let now = self.now;
                if let Some(view) = self.builds.get_mut(&build) {
                    let record = view
                        .record
                        .clone()
                        .and_then(|record| record.delete(now).ok());
                    view.record = record.or(view.record.take());
                    view.files = FileReach::default();
                }
            }
            Step::RemoveLeftover(leftover) => self.remove(leftover),
            Step::ClearRequest { at } => {
                if self
                    .request
                    .as_ref()
                    .is_some_and(|request| request.at == at)
                {
                    self.request = None;
                }
            }
            Step::Wait { .. } => {}
        }
    }

    fn build(&mut self, step: Step, fate: Fate) {
        let Step::Build {
            reason,
            attempt,
            n_deaths,
            request,
            builders,
        } = step
        else {
            return;
        };
        if self.build_lock.is_some() {
            return;
        }
        let fence = self.take_fence();
        // The tree counts up, and gives no number twice.
        let known = self.builds.keys().next_back().map_or(0, |last| last.0);
        self.last_build = self.last_build.max(known) + 1;
        let number = BuildNumber(self.last_build);
        let owner = builders[0].clone();
        let new = NewBuild {
            builder: owner.clone(),
            builder_id: owner.clone(),
            attempt,
            n_deaths,
            fence,
            build_hash: self.definition.as_ref().unwrap().build_hash(),
            reason: reason.to_string(),
            request,
        };
        let view = BuildView {
            number,
            record: Some(new.begin(self.now)),
            is_cancelled: false,
            files: FileReach::default(),
            uploads: Vec::new(),
            upload_locks: BTreeMap::new(),
        };
        self.builds.insert(number, view);
        self.build_lock = Some(HeldLock { fence, owner });
        match fate {
            Fate::Success | Fate::Failure => self.finish_build(fate == Fate::Success),
            Fate::Death => self.build_lock = None,
            Fate::Stop => self.stop_build(),
            Fate::Long | Fate::Nothing => {}
        }
    }

    /// The holder of the lock stops in an orderly way.
    fn stop_build(&mut self) {
        let Some(lock) = self.build_lock.take() else {
            return;
        };
        for view in self.builds.values_mut() {
            let record = view.record.clone();
            if let Some(Ok(stopped)) = record.map(|record| record.stop(lock.fence, self.now)) {
                view.record = Some(stopped);
            }
        }
    }

    /// The holder of the lock ends its build, or dies.
    pub(super) fn finish_build(&mut self, is_good: bool) {
        let Some(lock) = self.build_lock.take() else {
            return;
        };
        let formats = self.definition.as_ref().map(ImageDefinition::all_formats);
        let files = formats.unwrap_or_default().into_iter().map(|format| {
            let file = BuildFile {
                size_bytes: 1,
                sha256: "0".repeat(64),
            };
            (format, file)
        });
        let left = BuildLeft {
            files: files.collect(),
            provenance: None,
            log: None,
            artifacts: None,
        };
        for view in self.builds.values_mut() {
            let Some(record) = view.record.clone() else {
                continue;
            };
            if record.state != BuildState::Building || record.fence != Some(lock.fence) {
                continue;
            }
            let done = match is_good && !left.files.is_empty() {
                true => record.succeed(left.clone(), lock.fence, self.now),
                false => record.fail("exit code 1".to_owned(), None, lock.fence, self.now),
            };
            view.record = Some(done.unwrap());
            if is_good {
                view.files.builders.insert(lock.owner.clone());
            }
        }
    }

    fn upload(&mut self, step: &Step, fate: Fate) {
        let Step::Upload {
            build,
            target,
            format,
            target_hash,
            attempt,
            ..
        } = step
        else {
            return;
        };
        let fence = self.take_fence();
        let Some(view) = self.builds.get_mut(build) else {
            return;
        };
        if view.upload_locks.contains_key(target) {
            return;
        }
        let last = view.uploads.iter().map(|upload| upload.number.0).max();
        let number = UploadNumber(last.unwrap_or_default() + 1);
        let new = NewUpload {
            uploader: "b1".to_owned(),
            format: format.clone(),
            external_name: None,
            attempt: *attempt,
            fence,
            target_hash: target_hash.clone(),
            token: String::new(),
        };
        let record = new.begin(self.now);
        let id = format!("{target}/{build}-{number}");
        self.clouds.insert(id.clone());
        let record = match fate {
            Fate::Success => record.succeed(id, fence, self.now).unwrap(),
            Fate::Failure => {
                let record = record.identify(id, fence).unwrap();
                record
                    .fail("denied".to_owned(), false, fence, self.now)
                    .unwrap()
            }
            Fate::Death | Fate::Stop => record.identify(id, fence).unwrap(),
            Fate::Long | Fate::Nothing => {
                let owner = "b1".to_owned();
                view.upload_locks
                    .insert(target.clone(), HeldLock { fence, owner });
                record.identify(id, fence).unwrap()
            }
        };
        view.uploads.push(UploadView {
            number,
            target: target.clone(),
            record: Some(record),
        });
    }

    fn delete_upload(&mut self, place: &UploadPlace, id: Option<String>, fate: Fate) {
        let now = self.now;
        self.change_upload(place, |record| record.delete(now).ok());
        if fate == Fate::Failure {
            return;
        }
        if let Some(id) = id {
            self.clouds.remove(&id);
        }
        if fate != Fate::Death {
            self.remove_upload(place);
        }
    }

    fn remove(&mut self, leftover: Leftover) {
        match leftover {
            Leftover::Build(build) => {
                let view = self.builds.remove(&build);
                assert!(view.is_none_or(|view| view.uploads.is_empty()));
            }
            Leftover::Upload {
                build,
                target,
                upload,
            }
            | Leftover::UnknownProvider {
                build,
                target,
                upload,
                ..
            } => self.remove_upload(&(build, target, upload)),
            Leftover::Image => {
                assert!(self.builds.is_empty() && self.build_lock.is_none());
                self.is_image_removed = true;
            }
        }
    }

    fn remove_upload(&mut self, (build, target, number): &UploadPlace) {
        if let Some(view) = self.builds.get_mut(build) {
            view.uploads
                .retain(|it| it.number != *number || it.target != *target);
        }
    }

    pub(super) fn change_upload(
        &mut self,
        (build, target, number): &UploadPlace,
        change: impl FnOnce(UploadRecord) -> Option<UploadRecord>,
    ) {
        let Some(view) = self.builds.get_mut(build) else {
            return;
        };
        let mut uploads = view.uploads.iter_mut();
        let upload = uploads.find(|it| it.number == *number && it.target == *target);
        if let Some(upload) = upload
            && let Some(record) = upload.record.clone()
            && let Some(changed) = change(record)
        {
            upload.record = Some(changed);
        }
    }

    /// All processes that hold locks end, well or not.
    pub(super) fn end_processes(&mut self, is_good: bool) {
        match is_good {
            true => self.finish_build(true),
            false => self.build_lock = None,
        }
        let now = self.now;
        for view in self.builds.values_mut() {
            let locks = std::mem::take(&mut view.upload_locks);
            for upload in &mut view.uploads {
                let lock = locks.get(&upload.target);
                let Some(record) = upload.record.clone().filter(|_| is_good) else {
                    continue;
                };
                let id = record.external_id.clone();
                let (Some(id), Some(lock)) = (id, lock) else {
                    continue;
                };
                if let Ok(done) = record.succeed(id, lock.fence, now) {
                    upload.record = Some(done);
                }
            }
        }
    }

    fn take_fence(&mut self) -> u64 {
        self.next_fence += 1;
        self.next_fence
    }

    /// The ready builds, the newest first.
    pub(super) fn ready(&self) -> Vec<BuildNumber> {
        let views = self.builds.values().rev();
        let ready = views.filter(|view| view.ready().is_some());
        ready.map(|view| view.number).collect()
    }

    pub(super) fn record(&self, build: u64) -> &BuildRecord {
        self.builds[&BuildNumber(build)].record.as_ref().unwrap()
    }

    pub(super) fn ready_uploads(&self, target: &UploadTargetId) -> Vec<BuildNumber> {
        let views = self.builds.values().rev();
        let uploaded = views.filter(|view| {
            let uploads = view.uploads_to(target);
            uploads.iter().any(|upload| {
                let state = upload.record.as_ref().map(|record| &record.state);
                state == Some(&UploadState::Ready)
            })
        });
        uploaded.map(|view| view.number).collect()
    }
}
