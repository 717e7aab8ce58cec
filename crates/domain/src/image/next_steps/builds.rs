//! Whether to build.

use crate::image::backoff::BUILD_BACKOFF;
use crate::image::build_record::{BuildRecord, BuildState};
use crate::image::definition::ImageDefinition;
use crate::image::format::ImageFormat;
use crate::image::number::BuildNumber;
use crate::image::step::{BuildReason, Step, WaitReason};
use crate::image::view::{BuildRequest, ImageView, LiveBuilder};
use crate::time::Timestamp;

/// The failures since the last success, request or change.
struct Failures {
    count: u32,
    build: BuildNumber,
    at: Timestamp,
    error: String,
    is_abandoned: bool,
}

pub(super) fn add_steps(view: &ImageView<'_>, definition: &ImageDefinition, steps: &mut Vec<Step>) {
    let request = open_request(view);
    if let (Some(known), None) = (view.request, request) {
        steps.push(Step::ClearRequest { at: known.at });
    }
    steps.push(match reason_to_build(view, definition, request) {
        Ok(reason) => build_or_wait(view, definition, reason, request),
        Err((until, reason)) => Step::Wait { until, reason },
    });
}

/// The request, if no ready build answers it.
fn open_request<'a>(view: &ImageView<'a>) -> Option<&'a BuildRequest> {
    let request = view.request?;
    let is_answered = view
        .ready_builds()
        .any(|(_, record)| record.request == Some(request.at));
    (!is_answered).then_some(request)
}

/// `Err`: nothing needs a build, until then.
fn reason_to_build(
    view: &ImageView<'_>,
    definition: &ImageDefinition,
    request: Option<&BuildRequest>,
) -> Result<BuildReason, (Option<Timestamp>, WaitReason)> {
    if let Some(request) = request {
        return Ok(BuildReason::Requested {
            by: request.by.clone(),
            reason: request.reason.clone(),
        });
    }
    let Some((newest, record)) = view.ready_builds().next() else {
        return Ok(BuildReason::NothingReady);
    };
    let build = newest.number;
    let hash = definition.build_hash();
    if record
        .build_hash
        .as_ref()
        .is_some_and(|made_from| *made_from != hash)
    {
        return Ok(BuildReason::DefinitionChanged { build });
    }
    let formats = missing_formats(record, definition);
    if !formats.is_empty() {
        return Ok(BuildReason::FormatsMissing { build, formats });
    }
    if let Some(reason) = unreachable(view, definition) {
        return Ok(reason);
    }
    let Some(age_limit) = definition.rebuild_age_ms() else {
        return Err((None, WaitReason::OnlyOnRequest { build }));
    };
    let made = record.finished.unwrap_or(record.state_time);
    let age_ms = view.now.millis_since(made);
    // A build of the far future is an error of a clock; it would never be replaced.
    if age_ms.saturating_abs() >= age_limit {
        return Ok(BuildReason::TooOld { build, age_ms });
    }
    let until = made.plus_millis(age_limit);
    Err((Some(until), WaitReason::BuildIsNew { build }))
}

fn missing_formats(record: &BuildRecord, definition: &ImageDefinition) -> Vec<ImageFormat> {
    let mut needed = definition.all_formats();
    needed.retain(|format| !record.formats.contains_key(format));
    needed
}

/// An upload of the newest good build that needs files which nobody has any more.
fn unreachable(view: &ImageView<'_>, definition: &ImageDefinition) -> Option<BuildReason> {
    let (build, _) = view.newest_good()?;
    if view.is_reachable(&build.files) {
        return None;
    }
    let mut targets = definition.uploads.iter();
    let target = targets.find(|target| {
        let is_known = view.providers.contains(&target.id.provider_id);
        is_known && super::uploads::is_missing(build, definition, target)
    })?;
    Some(BuildReason::FilesUnreachable {
        build: build.number,
        target: target.id.clone(),
    })
}

fn build_or_wait(
    view: &ImageView<'_>,
    definition: &ImageDefinition,
    reason: BuildReason,
    request: Option<&BuildRequest>,
) -> Step {
    let wait = |reason| Step::Wait {
        until: None,
        reason,
    };
    if let Some(paused) = view.paused(definition) {
        return wait(paused);
    }
    if let Some(lock) = view.build_lock {
        let by = lock.owner.clone();
        return wait(WaitReason::Building { by });
    }
    let failures = failures(view, definition, request);
    if let Some(failures) = &failures {
        // A builder that ended is replaced at once, but only the first time.
        let n_delaying = failures.count - u32::from(failures.is_abandoned);
        if let Some(until) = BUILD_BACKOFF.next_try(n_delaying, failures.at, view.now) {
            let reason = WaitReason::BuildFailed {
                build: failures.build,
                n_failures: failures.count,
                error: failures.error.clone(),
            };
            return Step::Wait {
                until: Some(until),
                reason,
            };
        }
    }
    let is_able = |builder: &&LiveBuilder| definition.labels.is_subset(&builder.labels);
    let able: Vec<&LiveBuilder> = view.builders.iter().filter(is_able).collect();
    if able.is_empty() {
        let labels = definition.labels.iter().cloned().collect();
        return wait(WaitReason::NoBuilder { labels });
    }
    let free = able.iter().filter(|builder| !builder.is_busy);
    let builders: Vec<String> = free.map(|builder| builder.name.clone()).collect();
    if builders.is_empty() {
        let n_builders = able.len();
        return wait(WaitReason::BuildersBusy { n_builders });
    }
    let limit = view.budget.limit;
    if view.budget.running >= limit {
        return wait(WaitReason::BuildLimit { limit });
    }
    Step::Build {
        reason,
        attempt: failures
            .map_or(0, |failures| failures.count)
            .saturating_add(1),
        request: request.map(|request| request.at),
        builders,
    }
}

fn failures(
    view: &ImageView<'_>,
    definition: &ImageDefinition,
    request: Option<&BuildRequest>,
) -> Option<Failures> {
    let newest_ready = view.ready_builds().next().map(|(build, _)| build.number);
    let hash = definition.build_hash();
    let failed = view.builds.iter().filter_map(|build| {
        let record = build.record.as_ref()?;
        let (error, is_abandoned) = failure(record)?;
        Some((build, record, error, is_abandoned))
    });
    let (build, record, error, is_abandoned) = failed.max_by_key(|(build, ..)| build.number)?;
    let is_later = newest_ready.is_none_or(|ready| build.number > ready);
    let is_same = record
        .build_hash
        .as_ref()
        .is_none_or(|made_from| *made_from == hash);
    let is_asked_since = request.is_some_and(|request| record.request != Some(request.at));
    (is_later && is_same && !is_asked_since).then(|| Failures {
        count: record.attempt.max(1),
        build: build.number,
        at: record.finished.unwrap_or(record.state_time),
        error: error.to_owned(),
        is_abandoned,
    })
}

fn failure(record: &BuildRecord) -> Option<(&str, bool)> {
    match &record.state {
        BuildState::Failed { error, abandoned } => Some((error, *abandoned)),
        BuildState::Building | BuildState::Ready | BuildState::Deleting => None,
    }
}
