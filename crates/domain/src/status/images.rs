//! Problems of images.

use super::find::problem;
use super::{FleetProblem, ProblemKind, ProblemSubject, Severity};
use crate::id::ImageName;
use crate::image::{BuildDecision, BuildNumber, ImageRollout, Standing, Step, WaitReason};

/// An image of which no step can be decided, as its nodes cannot be read.
pub fn of_unreadable(image: &ImageName, error: &str) -> FleetProblem {
    FleetProblem {
        action: Some(format!("fleetwright image status {image}")),
        ..problem(
            ProblemKind::ImageUnreadable,
            Severity::Ill,
            ProblemSubject::Image(image.clone()),
            format!("image {image} cannot be read: {error}"),
        )
    }
}

/// A step that waits because something failed.
pub fn of_step(image: &ImageName, step: &Step) -> Option<FleetProblem> {
    let Step::Wait { until, reason } = step else {
        return None;
    };
    let (kind, words, text) = match reason {
        WaitReason::BuildFailed {
            build,
            n_failures,
            error,
        } => (
            ProblemKind::ImageBuildFailed,
            error.as_str(),
            format!("build {build} of image {image} failed ({n_failures} in a row)"),
        ),
        WaitReason::UploadFailed {
            build,
            target,
            n_failures,
            error,
        } => (
            ProblemKind::ImageUploadFailed,
            error.as_str(),
            format!(
                "the upload of build {build} of image {image} to {target} failed ({n_failures} in \
                 a row)"
            ),
        ),
        WaitReason::NoBuilder { .. } => (
            ProblemKind::ImageWithoutBuilder,
            "",
            format!("image {image}: {reason}"),
        ),
        WaitReason::BuildIsNew { .. }
        | WaitReason::OnlyOnRequest { .. }
        | WaitReason::PausedInDefinition
        | WaitReason::Paused { .. }
        | WaitReason::Building { .. }
        | WaitReason::BuildCancelled { .. }
        | WaitReason::BuildersBusy { .. }
        | WaitReason::BuildLimit { .. }
        | WaitReason::Uploading { .. }
        | WaitReason::UnknownProvider { .. }
        | WaitReason::InProgress { .. }
        | WaitReason::MayBeNamed { .. }
        | WaitReason::MayComeBack { .. }
        | WaitReason::Pinned { .. } => return None,
    };
    Some(FleetProblem {
        words: Some(words.to_owned()).filter(|words| !words.is_empty()),
        next: until.map(|until| format!("it is tried again at {until}")),
        action: Some(format!("fleetwright image status {image}")),
        ..problem(
            kind,
            Severity::Ill,
            ProblemSubject::Image(image.clone()),
            text,
        )
    })
}

/// The newest build was rolled back, and there is no newer one yet.
pub fn of_standing(
    image: &ImageName,
    newest: Option<BuildNumber>,
    standing: &Standing,
) -> Option<FleetProblem> {
    let newest = newest.filter(|newest| standing.rejected.contains(newest))?;
    let decision: &BuildDecision = standing.decisions.get(&newest)?;
    if decision.is_passed_over {
        return None;
    }
    let reason = match decision.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let used = standing.promoted.map_or_else(String::new, |build| {
        format!("machines start from build {build} until a newer one is promoted")
    });
    Some(FleetProblem {
        since: Some(decision.at),
        next: Some(used).filter(|used| !used.is_empty()),
        action: Some(format!("fleetwright image status {image}")),
        ..problem(
            ProblemKind::ImageRolledBack,
            Severity::Warned,
            ProblemSubject::Image(image.clone()),
            format!(
                "build {newest} of image {image} was rolled back by {}{reason}",
                decision.by
            ),
        )
    })
}

/// The time of a canary is over without a verdict.
pub fn of_canary(rollout: &ImageRollout) -> Option<FleetProblem> {
    let canary = rollout.canary.as_ref().filter(|canary| canary.is_expired)?;
    let (image, build) = (&rollout.image, canary.build);
    Some(FleetProblem {
        since: Some(canary.since),
        next: Some("the canary keeps its share of the new machines".to_owned()),
        action: Some(format!("fleetwright image promote {image} {build}")),
        ..problem(
            ProblemKind::CanaryExpired,
            Severity::Warned,
            ProblemSubject::Image(image.clone()),
            format!("the canary of build {build} of image {image} ended without a verdict"),
        )
    })
}
