//! Steps in words, for `explain image`.

use std::fmt;

use super::step::{BuildReason, DeleteReason, Leftover, Step, UploadReason, WaitReason};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS};

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build {
                reason, attempt: 1, ..
            } => write!(f, "build: {reason}"),
            Self::Build {
                reason, attempt, ..
            } => write!(f, "build, attempt {attempt}: {reason}"),
            Self::Upload {
                build,
                target,
                reason,
                ..
            } => write!(f, "upload {build} to {target}: {reason}"),
            Self::MarkBuildAbandoned { build } => {
                write!(f, "note that {build} failed: its builder ended")
            }
            Self::MarkUploadAbandoned { build, target, .. } => {
                write!(
                    f,
                    "note that the upload of {build} to {target} failed: it was interrupted"
                )
            }
            Self::DeleteUpload {
                build,
                target,
                reason,
                ..
            } => write!(f, "delete the upload of {build} to {target}: {reason}"),
            Self::DeleteBuild { build, reason } => write!(f, "delete {build}: {reason}"),
            Self::RemoveLeftover(leftover) => write!(f, "remove {leftover}"),
            Self::ClearRequest { .. } => f.write_str("clear the request: a build answered it"),
            Self::Wait {
                until: None,
                reason,
            } => write!(f, "wait: {reason}"),
            Self::Wait {
                until: Some(until),
                reason,
            } => match reason.is_failure() {
                true => write!(f, "wait: {reason}; next try at {until}"),
                false => write!(f, "wait until {until}: {reason}"),
            },
        }
    }
}

impl WaitReason {
    fn is_failure(&self) -> bool {
        matches!(self, Self::BuildFailed { .. } | Self::UploadFailed { .. })
    }
}

impl fmt::Display for BuildReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested { by, reason } if reason.is_empty() => write!(f, "{by} asked for it"),
            Self::Requested { by, reason } => write!(f, "{by} asked for it: {reason}"),
            Self::NothingReady => f.write_str("no build is ready"),
            Self::DefinitionChanged { build } => write!(f, "the definition changed since {build}"),
            Self::FormatsMissing { build, formats } => {
                let names: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
                write!(f, "{build} has no {}", names.join(", "))
            }
            Self::FilesUnreachable { build, target } => {
                write!(
                    f,
                    "no live builder has the files of {build}, which {target} needs"
                )
            }
            Self::TooOld { build, age_ms } => {
                write!(f, "{build} is {} old", Duration(*age_ms))
            }
        }
    }
}

impl fmt::Display for UploadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the target does not have it"),
            Self::TargetChanged => f.write_str("its format or options changed"),
            Self::Retry { error } => write!(f, "the last attempt failed: {error}"),
        }
    }
}

impl fmt::Display for DeleteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ImageRemoved => "the image was removed",
            Self::TargetRemoved => "the definition does not name the target any more",
            Self::Superseded => "enough newer ones are ready",
            Self::Failed => "it failed",
            Self::Requested => "its deletion was requested",
            Self::BuildDeleted => "its build is deleted",
        })
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(build) => write!(f, "the record of {build}"),
            Self::Upload { build, target, .. } => {
                write!(
                    f,
                    "an unreadable record of an upload of {build} to {target}"
                )
            }
            Self::UnknownProvider {
                build,
                target,
                external_id,
                ..
            } => {
                write!(
                    f,
                    "the record of an upload of {build}: the provider of {target} is not "
                )?;
                let id = external_id.as_deref().unwrap_or("if it was made");
                write!(f, "configured, so its image remains there ({id})")
            }
            Self::Image => f.write_str("the nodes of the image, which was removed"),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |n: u32| match n {
            1 => "once".to_owned(),
            n => format!("{n} times"),
        };
        match self {
            Self::BuildIsNew { build } => write!(f, "build {build} is not due for a rebuild yet"),
            Self::OnlyOnRequest { build } => {
                write!(f, "build {build} is ready; others are made only on request")
            }
            Self::PausedInDefinition => f.write_str("paused in its definition"),
            Self::Paused { by, reason } if reason.is_empty() => write!(f, "paused by {by}"),
            Self::Paused { by, reason } => write!(f, "paused by {by}: {reason}"),
            Self::Building { by } => write!(f, "{by} builds it"),
            Self::BuildFailed {
                n_failures, error, ..
            } => write!(f, "failed {}: {error}", times(*n_failures)),
            Self::BuildCancelled { build, error } => {
                write!(f, "build {build} was cancelled ({error}); ")?;
                f.write_str("a request or another definition builds it at once")
            }
            Self::NoBuilder { labels } if labels.is_empty() => f.write_str("no builder is live"),
            Self::NoBuilder { labels } => {
                write!(f, "no live builder has the labels {}", labels.join(", "))
            }
            Self::BuildersBusy { n_builders: 1 } => {
                f.write_str("the builder that has its labels is busy")
            }
            Self::BuildersBusy { n_builders } => {
                write!(f, "all {n_builders} builders that have its labels are busy")
            }
            Self::BuildLimit { limit } => {
                write!(f, "{limit} images are being built, which is the limit")
            }
            Self::Uploading { build, target, by } => write!(f, "{by} uploads {build} to {target}"),
            Self::UploadFailed {
                build,
                target,
                n_failures,
                error,
            } => {
                let times = times(*n_failures);
                write!(
                    f,
                    "the upload of {build} to {target} failed {times}: {error}"
                )
            }
            Self::UnknownProvider { target } => {
                write!(f, "the provider of {target} is not configured")
            }
            Self::InProgress { build } => write!(f, "{build} is in use by a build or an upload"),
            Self::MayBeNamed { build, target } => write!(
                f,
                "the upload of {build} to {target} was replaced, and launch configs may still \
                 name it"
            ),
            Self::MayComeBack { build } => write!(
                f,
                "build {build} lost its place to another build; it stays for an hour, so that this \
                 can be undone"
            ),
            Self::Pinned { build } => write!(
                f,
                "{build} is pinned, so the removed image is kept; unpin it"
            ),
        }
    }
}

/// A duration in its largest unit.
struct Duration(i64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms >= 2 * DAY_MS => write!(f, "{} d", ms / DAY_MS),
            ms if ms >= 2 * HOUR_MS => write!(f, "{} h", ms / HOUR_MS),
            ms => write!(f, "{} min", ms / MINUTE_MS),
        }
    }
}
