//! Deletes old builds and uploads, and the leftovers of processes that ended.

use std::collections::{BTreeMap, BTreeSet};

use crate::image::build_record::BuildState;
use crate::image::definition::ImageDefinition;
use crate::image::number::{BuildNumber, UploadNumber};
use crate::image::selection::{ImageInUse, image_before, image_in_use, images_left};
use crate::image::step::{DeleteReason, Leftover, Step, WaitReason};
use crate::image::upload_record::UploadState;
use crate::image::upload_target::UploadTargetId;
use crate::image::view::{BuildView, ImageView, UploadView};
use crate::time::{HOUR_MS, Timestamp};

/// Failed builds after the last ready one whose records and logs are kept.
pub(super) const MAX_FAILED: usize = 3;
/// For this long after a decision took its place, a build stays, so that people can undo a slip.
pub(super) const UNDO_MS: i64 = HOUR_MS;

type UploadKey = (BuildNumber, UploadTargetId, UploadNumber);

/// Builds and uploads that stay.
struct Kept {
    builds: BTreeSet<BuildNumber>,
    uploads: BTreeSet<UploadKey>,
    /// Of those, the uploads that stay until a moment only.
    until: BTreeMap<UploadKey, Timestamp>,
    /// The builds that stay until a moment only.
    served: BTreeMap<BuildNumber, Timestamp>,
}

pub(super) fn add_steps(view: &ImageView<'_>, steps: &mut Vec<Step>) {
    let kept = Kept::of(view);
    for build in view.builds {
        add_steps_for_build(view, build, &kept, steps);
    }
    if view.definition.is_none() {
        add_steps_for_removed_image(view, steps);
    }
    let waits = kept.until.into_iter();
    steps.extend(waits.map(|((build, target, _), until)| Step::Wait {
        until: Some(until),
        reason: WaitReason::MayBeNamed { build, target },
    }));
    let waits = kept.served.into_iter();
    steps.extend(waits.map(|(build, until)| Step::Wait {
        until: Some(until),
        reason: WaitReason::MayComeBack { build },
    }));
}

fn add_steps_for_removed_image(view: &ImageView<'_>, steps: &mut Vec<Step>) {
    if let Some(request) = view.request {
        steps.push(Step::ClearRequest { at: request.at });
    }
    if let Some(lock) = view.build_lock {
        let by = lock.owner.clone();
        steps.push(Step::Wait {
            until: None,
            reason: WaitReason::Building { by },
        });
    } else if view.builds.is_empty() {
        steps.push(Step::RemoveLeftover(Leftover::Image));
    }
    let pinned = view
        .builds
        .iter()
        .filter(|build| view.pinned.contains(&build.number));
    steps.extend(pinned.map(|build| Step::Wait {
        until: None,
        reason: WaitReason::Pinned {
            build: build.number,
        },
    }));
}

fn add_steps_for_build(
    view: &ImageView<'_>,
    build: &BuildView,
    kept: &Kept,
    steps: &mut Vec<Step>,
) {
    let number = build.number;
    if view.is_in_progress(build) {
        return;
    }
    let state = build.record.as_ref().map(|record| &record.state);
    let is_kept = match state {
        Some(BuildState::Building) => {
            steps.push(Step::MarkBuildAbandoned { build: number });
            false
        }
        Some(BuildState::Ready | BuildState::Failed { .. }) => kept.builds.contains(&number),
        Some(BuildState::Deleting) | None => false,
    };
    for upload in &build.uploads {
        steps.extend(step_for_upload(view, build, upload, is_kept, kept));
    }
    if is_kept {
        return;
    }
    if !build.upload_locks.is_empty() {
        steps.push(Step::Wait {
            until: None,
            reason: WaitReason::InProgress { build: number },
        });
        return;
    }
    match state {
        Some(BuildState::Building) => {}
        Some(BuildState::Ready) => steps.push(Step::DeleteBuild {
            build: number,
            reason: match view.definition {
                Some(_) => DeleteReason::Superseded,
                None => DeleteReason::ImageRemoved,
            },
        }),
        Some(BuildState::Failed { .. }) => steps.push(Step::DeleteBuild {
            build: number,
            reason: DeleteReason::Failed,
        }),
        Some(BuildState::Deleting) | None if build.uploads.is_empty() => {
            steps.push(Step::RemoveLeftover(Leftover::Build(number)));
        }
        // The uploads are deleted first.
        Some(BuildState::Deleting) | None => {}
    }
}

fn step_for_upload(
    view: &ImageView<'_>,
    build: &BuildView,
    upload: &UploadView,
    is_build_kept: bool,
    kept: &Kept,
) -> Option<Step> {
    let (number, target) = (build.number, upload.target.clone());
    let key = (number, target.clone(), upload.number);
    let is_locked = build.upload_locks.contains_key(&target);
    let Some(record) = &upload.record else {
        let leftover = Leftover::Upload {
            build: number,
            target,
            upload: upload.number,
        };
        return (!is_locked).then_some(Step::RemoveLeftover(leftover));
    };
    let is_listed = view
        .definition
        .is_some_and(|it| it.target(&target).is_some());
    let is_kept = kept.uploads.contains(&key);
    let reason = match &record.state {
        UploadState::Uploading if build.is_upload_in_progress(upload) => return None,
        UploadState::Uploading => {
            return Some(Step::MarkUploadAbandoned {
                build: number,
                target,
                upload: upload.number,
            });
        }
        UploadState::Deleting => DeleteReason::Requested,
        UploadState::Ready | UploadState::Failed { .. } if is_kept => return None,
        // The record of the build goes first: only that is written under the condition that no
        // person and no verdict decided for the build meanwhile.
        UploadState::Ready | UploadState::Failed { .. }
            if !is_build_kept && build.ready().is_some() =>
        {
            return None;
        }
        UploadState::Ready | UploadState::Failed { .. } if !is_build_kept => {
            match view.definition {
                Some(_) => DeleteReason::BuildDeleted,
                None => DeleteReason::ImageRemoved,
            }
        }
        UploadState::Ready | UploadState::Failed { .. } if !is_listed => {
            DeleteReason::TargetRemoved
        }
        UploadState::Ready => DeleteReason::Superseded,
        UploadState::Failed { .. } => DeleteReason::Failed,
    };
    // Another attempt holds the lock. Its release is a change, after which this is decided again.
    if is_locked {
        return None;
    }
    let external_id = record.external_id.clone();
    if !view.providers.contains(&target.provider_id) {
        return Some(Step::RemoveLeftover(Leftover::UnknownProvider {
            build: number,
            target,
            upload: upload.number,
            external_id,
        }));
    }
    Some(Step::DeleteUpload {
        build: number,
        target,
        upload: upload.number,
        external_id,
        reason,
    })
}

impl Kept {
    fn of(view: &ImageView<'_>) -> Self {
        let mut kept = Self {
            builds: BTreeSet::new(),
            uploads: BTreeSet::new(),
            until: BTreeMap::new(),
            served: BTreeMap::new(),
        };
        if let Some(definition) = view.definition {
            kept.keep_good(view, definition);
            kept.keep_failures(view, definition);
        }
        for build in view.builds {
            if view.pinned.contains(&build.number) {
                kept.keep_pinned(build);
            }
        }
        if let Some(definition) = view.definition {
            kept.keep_left(view, definition);
            kept.keep_served(view, definition);
        }
        kept
    }

    fn keep_good(&mut self, view: &ImageView<'_>, definition: &ImageDefinition) {
        let limit = usize::try_from(definition.keep).unwrap_or(usize::MAX);
        let standing = view.standing;
        let is_rejected = |build: &BuildView| standing.rejected.contains(&build.number);
        let good: Vec<&BuildView> = view
            .ready_builds()
            .map(|(build, _)| build)
            .filter(|build| !is_rejected(build))
            .collect();
        let newest_good = good.first().map(|build| build.number);
        self.builds
            .extend(good.iter().take(limit).map(|build| build.number));
        let decided = [standing.promoted, standing.candidate];
        let is_decided = |build: &&&BuildView| decided.contains(&Some(build.number));
        self.builds
            .extend(good.iter().filter(is_decided).map(|build| build.number));
        // People may try a build again that was rolled back, until there is a newer one.
        let rejected = view.ready_builds().find(|(build, _)| is_rejected(build));
        let rejected = rejected.map(|(build, _)| build.number);
        self.builds
            .extend(rejected.filter(|number| Some(*number) > newest_good));
        for target in &definition.uploads {
            let mut ready = Vec::new();
            for build in &good {
                let uploads = build.uploads_to(&target.id).into_iter();
                let uploads = uploads.filter(|upload| upload.ready().is_some());
                ready.extend(uploads.map(|upload| (build.number, upload.number)));
            }
            // The last good ones of each target, whatever happened to newer builds.
            self.builds.extend(newest_builds(&ready, limit));
            // Newer ones may wait for their canary, or lack an upload here.
            let ImageInUse { in_use, canary } = image_in_use(view.builds, &target.id, standing);
            let in_use = in_use.into_iter().chain(canary);
            self.builds.extend(in_use.map(|upload| upload.build));
        }
        for (build, _) in view.ready_builds() {
            if self.builds.contains(&build.number) {
                let targets = definition.uploads.iter().map(|target| &target.id);
                self.uploads
                    .extend(targets.filter_map(|target| newest_ready(build, target)));
            }
        }
    }

    /// Images from which machines started until a decision, so that people can undo it.
    fn keep_served(&mut self, view: &ImageView<'_>, definition: &ImageDefinition) {
        for (replaced, at) in &view.standing.replaced {
            if view.now.millis_since(*at).abs() >= UNDO_MS {
                continue;
            }
            for target in &definition.uploads {
                let image = image_before(view.builds, &target.id, view.standing, *replaced);
                let Some(image) = image else { continue };
                let key = (image.build, target.id.clone(), image.upload);
                // Those that launch configs may name stay for a shorter time otherwise.
                if self.until.contains_key(&key) || self.uploads.insert(key) {
                    self.builds.insert(image.build);
                    let until = at.plus_millis(UNDO_MS);
                    let latest = self.served.entry(image.build).or_insert(until);
                    *latest = until.max(*latest);
                }
            }
        }
    }

    /// Images from which machines started until a moment ago.
    fn keep_left(&mut self, view: &ImageView<'_>, definition: &ImageDefinition) {
        for target in &definition.uploads {
            for (image, until) in images_left(view.builds, &target.id, view.standing, view.now) {
                let key = (image.build, target.id.clone(), image.upload);
                if self.uploads.insert(key.clone()) {
                    self.builds.insert(image.build);
                    self.until.insert(key, until);
                }
            }
        }
    }

    /// The last failures: they say when the next try is, and why.
    fn keep_failures(&mut self, view: &ImageView<'_>, definition: &ImageDefinition) {
        let newest_ready = view.ready_builds().next().map(|(build, _)| build.number);
        let failed = view.builds.iter().filter(|build| {
            let state = build.record.as_ref().map(|record| &record.state);
            matches!(state, Some(BuildState::Failed { .. })) && Some(build.number) > newest_ready
        });
        let mut failed: Vec<BuildNumber> = failed.map(|build| build.number).collect();
        failed.sort_unstable();
        self.builds
            .extend(failed.into_iter().rev().take(MAX_FAILED));
        let Some((newest, _)) = view.newest_good() else {
            return;
        };
        for target in &definition.uploads {
            if super::uploads::is_missing(newest, definition, target) {
                let uploads = newest.uploads_to(&target.id);
                let last = uploads.first().map(|upload| upload.number);
                let key = last.map(|last| (newest.number, target.id.clone(), last));
                self.uploads.extend(key);
            }
        }
    }

    fn keep_pinned(&mut self, build: &BuildView) {
        self.builds.insert(build.number);
        let targets: BTreeSet<&UploadTargetId> =
            build.uploads.iter().map(|upload| &upload.target).collect();
        self.uploads.extend(
            targets
                .into_iter()
                .filter_map(|target| newest_ready(build, target)),
        );
    }
}

/// The newest builds with a ready upload. Uploads are listed by build, the newest build first.
fn newest_builds(
    uploads: &[(BuildNumber, UploadNumber)],
    limit: usize,
) -> impl Iterator<Item = BuildNumber> {
    let mut builds: Vec<BuildNumber> = uploads.iter().map(|(build, _)| *build).collect();
    builds.dedup();
    builds.into_iter().take(limit)
}

fn newest_ready(
    build: &BuildView,
    target: &UploadTargetId,
) -> Option<(BuildNumber, UploadTargetId, UploadNumber)> {
    let uploads = build.uploads_to(target).into_iter();
    let mut ready = uploads.filter(|upload| upload.ready().is_some());
    let upload = ready.next()?.number;
    Some((build.number, target.clone(), upload))
}
