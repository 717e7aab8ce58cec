//! Uploads the newest good build, to each target of the definition.

use crate::image::backoff::UPLOAD_BACKOFF;
use crate::image::definition::ImageDefinition;
use crate::image::format::ImageFormat;
use crate::image::step::{Step, UploadReason, WaitReason};
use crate::image::upload_record::{UploadRecord, UploadState};
use crate::image::upload_target::UploadTarget;
use crate::image::view::{BuildView, ImageView};

pub(super) fn add_steps(view: &ImageView<'_>, definition: &ImageDefinition, steps: &mut Vec<Step>) {
    let Some((build, record)) = view.newest_good() else {
        return;
    };
    for target in &definition.uploads {
        // A build in the missing format is decided elsewhere.
        let format = definition.format_for(target);
        let Some(format) = format.filter(|format| record.formats.contains_key(*format)) else {
            continue;
        };
        if is_missing(build, definition, target) {
            steps.extend(upload_or_wait(view, definition, build, target, format));
        }
    }
}

/// Whether the target has no ready upload of the build in its present form.
pub(super) fn is_missing(
    build: &BuildView,
    definition: &ImageDefinition,
    target: &UploadTarget,
) -> bool {
    let Some(format) = definition.format_for(target) else {
        return false;
    };
    let hash = target.hash(format);
    let uploads = build.uploads_to(&target.id);
    let mut ready = uploads.iter().filter_map(|upload| upload.ready());
    !ready.any(|record| is_same_form(record, &hash))
}

/// Records of Nodepool do not say how they were uploaded; they count as uploaded in the right form.
fn is_same_form(record: &UploadRecord, hash: &str) -> bool {
    record
        .target_hash
        .as_ref()
        .is_none_or(|uploaded| uploaded == hash)
}

fn upload_or_wait(
    view: &ImageView<'_>,
    definition: &ImageDefinition,
    build: &BuildView,
    target: &UploadTarget,
    format: &ImageFormat,
) -> Option<Step> {
    let wait = |reason| {
        Some(Step::Wait {
            until: None,
            reason,
        })
    };
    let id = &target.id;
    if !view.providers.contains(&id.provider_id) {
        let target = id.clone();
        return wait(WaitReason::UnknownProvider { target });
    }
    if let Some(lock) = build.upload_locks.get(id) {
        return wait(WaitReason::Uploading {
            build: build.number,
            target: id.clone(),
            by: lock.owner.clone(),
        });
    }
    if let Some(reason) = view.paused(definition) {
        return wait(reason);
    }
    let hash = target.hash(format);
    let failure = newest_failure(build, target, &hash);
    if let Some((record, error)) = failure {
        let failed = record.finished.unwrap_or(record.state_time);
        // A process that ended is replaced at once, but only the first time.
        let n_delaying = record
            .attempt
            .saturating_sub(u32::from(is_abandoned(record)));
        let next_try = UPLOAD_BACKOFF.next_try(n_delaying, failed, view.now);
        if next_try.is_some() {
            return Some(Step::Wait {
                until: next_try,
                reason: WaitReason::UploadFailed {
                    build: build.number,
                    target: id.clone(),
                    n_failures: record.attempt,
                    error: error.to_owned(),
                },
            });
        }
    }
    // Otherwise another build is made, which the steps of builds say.
    view.is_reachable(&build.files).then(|| Step::Upload {
        build: build.number,
        target: id.clone(),
        format: format.clone(),
        attempt: failure.map_or(1, |(record, _)| record.attempt.saturating_add(1)),
        reason: reason(build, target, failure.map(|(_, error)| error)),
        target_hash: hash,
        builders: match build.files.is_shared {
            true => Vec::new(),
            false => {
                let live = view.builders.iter().map(|builder| &builder.name);
                live.filter(|name| build.files.builders.contains(*name))
                    .cloned()
                    .collect()
            }
        },
    })
}

fn is_abandoned(record: &UploadRecord) -> bool {
    match record.state {
        UploadState::Failed { abandoned, .. } => abandoned,
        UploadState::Uploading | UploadState::Ready | UploadState::Deleting => false,
    }
}

fn reason(build: &BuildView, target: &UploadTarget, error: Option<&str>) -> UploadReason {
    if let Some(error) = error {
        let error = error.to_owned();
        return UploadReason::Retry { error };
    }
    let uploads = build.uploads_to(&target.id);
    match uploads.iter().any(|upload| upload.ready().is_some()) {
        true => UploadReason::TargetChanged,
        false => UploadReason::Missing,
    }
}

/// The last upload of the build to the target in this form, if it failed.
fn newest_failure<'a>(
    build: &'a BuildView,
    target: &UploadTarget,
    hash: &str,
) -> Option<(&'a UploadRecord, &'a str)> {
    let uploads = build.uploads_to(&target.id).into_iter();
    let mut records = uploads.filter_map(|upload| upload.record.as_ref());
    let record = records.find(|record| is_same_form(record, hash))?;
    match &record.state {
        UploadState::Failed { error, .. } => Some((record, error)),
        UploadState::Uploading | UploadState::Ready | UploadState::Deleting => None,
    }
}
