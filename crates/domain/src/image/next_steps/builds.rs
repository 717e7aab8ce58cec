//! Whether to build.

use crate::image::backoff::BUILD_BACKOFF;
use crate::image::build_record::{BuildFailureCause, BuildRecord, BuildState};
use crate::image::definition::ImageDefinition;
use crate::image::format::ImageFormat;
use crate::image::number::BuildNumber;
use crate::image::step::{BuildReason, Step, WaitReason};
use crate::image::view::{BuildRequest, ImageView, LiveBuilder};
use crate::time::Timestamp;

/// Deaths of builders in a row that do not delay the next attempt. Further ones do, as other
/// failures: the build itself may be their cause.
pub(super) const FREE_DEATHS: u32 = 2;

/// The failures since the last success, request or change.
struct Failures {
    /// Without builds whose builder was stopped, or that a person cancelled.
    count: u32,
    /// Of these, those whose builder died.
    n_deaths: u32,
    build: BuildNumber,
    at: Timestamp,
    error: String,
    end: LastEnd,
}

/// How the last of them ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastEnd {
    Failed,
    /// Its builder ended: another one takes its place at once.
    Replaced,
    Cancelled,
}

pub(super) fn add_steps(view: &ImageView<'_>, definition: &ImageDefinition, steps: &mut Vec<Step>) {
    let request = open_request(view);
    if let (Some(known), None) = (view.request, request) {
        steps.push(Step::ClearRequest { at: known.at });
    }
    steps.push(build_step(view, definition, request));
}

/// The build that can be made now, or why none is.
pub(super) fn next_build(view: &ImageView<'_>, definition: &ImageDefinition) -> Step {
    build_step(view, definition, open_request(view))
}

fn build_step(
    view: &ImageView<'_>,
    definition: &ImageDefinition,
    request: Option<&BuildRequest>,
) -> Step {
    if let Some(reason) = view.paused(definition) {
        let until = None;
        return Step::Wait { until, reason };
    }
    match reason_to_build(view, definition, request) {
        Ok(reason) => build_or_wait(view, definition, reason, request),
        Err((until, reason)) => Step::Wait { until, reason },
    }
}

/// The request, if no ready build answers it, and none that a person cancelled.
fn open_request<'a>(view: &ImageView<'a>) -> Option<&'a BuildRequest> {
    let request = view.request?;
    let is_answered = view.builds.iter().any(|build| {
        let record = build.record.as_ref();
        record.is_some_and(|record| {
            let has_ended = record.state == BuildState::Ready
                || (build.is_cancelled && failure(record).is_some());
            has_ended && record.request == Some(request.at)
        })
    });
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
    if let Some(lock) = view.build_lock {
        let by = lock.owner.clone();
        return wait(WaitReason::Building { by });
    }
    let failures = failures(view, definition, request);
    if let Some(failures) = &failures
        && let Some(step) = wait_after(failures, view, definition)
    {
        return step;
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
            .as_ref()
            .map_or(0, |failures| failures.count)
            .saturating_add(1),
        n_deaths: failures.map_or(0, |failures| failures.n_deaths),
        request: request.map(|request| request.at),
        builders,
    }
}

/// The step if the last failure delays the next attempt.
fn wait_after(
    failures: &Failures,
    view: &ImageView<'_>,
    definition: &ImageDefinition,
) -> Option<Step> {
    let (build, error) = (failures.build, failures.error.clone());
    match failures.end {
        LastEnd::Replaced => None,
        LastEnd::Failed => {
            let n_delaying = failures.count - failures.n_deaths.min(FREE_DEATHS);
            let until = BUILD_BACKOFF.next_try(n_delaying, failures.at, view.now)?;
            Some(Step::Wait {
                until: Some(until),
                reason: WaitReason::BuildFailed {
                    build,
                    n_failures: failures.count,
                    error,
                },
            })
        }
        LastEnd::Cancelled => {
            let age_limit = definition.rebuild_age_ms();
            // A moment in the far future is an error of a clock; it would never be due.
            let age_ms = view.now.millis_since(failures.at).saturating_abs();
            let is_due = age_limit.is_some_and(|limit| age_ms >= limit);
            (!is_due).then_some(Step::Wait {
                until: age_limit.map(|limit| failures.at.plus_millis(limit)),
                reason: WaitReason::BuildCancelled { build, error },
            })
        }
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
        let (error, cause) = failure(record)?;
        Some((build, record, error, cause))
    });
    let (build, record, error, cause) = failed.max_by_key(|(build, ..)| build.number)?;
    let is_later = newest_ready.is_none_or(|ready| build.number > ready);
    let is_same = record
        .build_hash
        .as_ref()
        .is_none_or(|made_from| *made_from == hash);
    let is_asked_since = request.is_some_and(|request| record.request != Some(request.at));
    if !is_later || !is_same || is_asked_since {
        return None;
    }
    let is_death = cause == BuildFailureCause::BuilderDied && !build.is_cancelled;
    let counts = !build.is_cancelled && cause != BuildFailureCause::BuilderStopped;
    let count = record.attempt.max(1) - u32::from(!counts);
    let n_deaths = record
        .n_deaths
        .saturating_add(u32::from(is_death))
        .min(count);
    Some(Failures {
        count,
        n_deaths,
        build: build.number,
        at: record.finished.unwrap_or(record.state_time),
        error: error.to_owned(),
        end: match cause {
            _ if build.is_cancelled => LastEnd::Cancelled,
            BuildFailureCause::BuilderStopped => LastEnd::Replaced,
            BuildFailureCause::BuilderDied if n_deaths <= FREE_DEATHS => LastEnd::Replaced,
            BuildFailureCause::BuilderDied | BuildFailureCause::Build => LastEnd::Failed,
        },
    })
}

fn failure(record: &BuildRecord) -> Option<(&str, BuildFailureCause)> {
    match &record.state {
        BuildState::Failed { error, cause } => Some((error, *cause)),
        BuildState::Building | BuildState::Ready | BuildState::Deleting => None,
    }
}
