//! What to do next about the builds of an image: start a canary, promote, roll back.

use std::fmt;

use super::canary::{CanaryJudgement, CanaryVerdict};
use super::definition::CanarySettings;
use super::number::BuildNumber;
use super::selection::{image_in_use, is_on_target, next_candidate};
use super::standing::Standing;
use super::upload_target::UploadTargetId;
use super::view::BuildView;

/// A change of the standing of an image's builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutStep {
    /// All new machines start from it at once: it is the first image, or needs no canary.
    Use { build: BuildNumber },
    /// A share of new machines starts from it.
    StartCanary { build: BuildNumber },
    /// The canary was as good: all new machines start from it.
    Promote { build: BuildNumber, reason: String },
    /// The canary was worse: no new machine starts from it.
    RollBack { build: BuildNumber, reason: String },
    /// The canary took too long. It ends, and people decide.
    Expire { build: BuildNumber, reason: String },
    /// The canary ends without a verdict: there is nothing to test any more.
    EndCanary { build: BuildNumber, reason: String },
}

/// The next step, if there is one. `judgement` is that of the present canary; `targets` are those
/// of the definition.
///
/// A newer build waits until the canary has ended.
pub fn next_rollout_step(
    builds: &[BuildView],
    targets: &[UploadTargetId],
    standing: &Standing,
    settings: &CanarySettings,
    judgement: Option<&CanaryJudgement>,
) -> Option<RolloutStep> {
    if let Some(build) = standing.candidate {
        let moot = why_moot(build, builds, targets, standing);
        return match moot {
            Some(reason) => Some(RolloutStep::EndCanary { build, reason }),
            None if settings.share >= 1.0 => Some(RolloutStep::Use { build }),
            None => by_verdict(build, &judgement?.verdict),
        };
    }
    let on_target = builds.iter().filter(|build| is_on_target(build, targets));
    let on_target: Vec<BuildView> = on_target.cloned().collect();
    let build = next_candidate(&on_target, standing)?;
    let is_in_use = |target| image_in_use(builds, target, standing).in_use.is_some();
    let is_first = standing.promoted.is_none() || !targets.iter().any(is_in_use);
    if is_first || settings.share >= 1.0 {
        Some(RolloutStep::Use { build })
    } else if settings.share > 0.0 {
        Some(RolloutStep::StartCanary { build })
    } else {
        None
    }
}

/// Why the canary of this build tests nothing any more.
fn why_moot(
    build: BuildNumber,
    builds: &[BuildView],
    targets: &[UploadTargetId],
    standing: &Standing,
) -> Option<String> {
    if standing.rejected.contains(&build) {
        return Some("it was rolled back".to_owned());
    }
    if let Some(promoted) = standing.promoted.filter(|promoted| *promoted >= build) {
        return Some(format!("{promoted} was promoted"));
    }
    let view = builds.iter().find(|view| view.number == build);
    match view {
        None => Some("it was deleted".to_owned()),
        Some(view) if view.ready().is_none() => Some("it is not ready any more".to_owned()),
        Some(view) if !is_on_target(view, targets) => {
            Some("it is on no target any more".to_owned())
        }
        Some(_) => None,
    }
}

fn by_verdict(build: BuildNumber, verdict: &CanaryVerdict) -> Option<RolloutStep> {
    let reason = verdict.to_string();
    match verdict {
        CanaryVerdict::Undecided { .. } => None,
        CanaryVerdict::Promote { .. } => Some(RolloutStep::Promote { build, reason }),
        CanaryVerdict::RollBack { .. } => Some(RolloutStep::RollBack { build, reason }),
        CanaryVerdict::Expired { .. } => Some(RolloutStep::Expire { build, reason }),
    }
}

impl Standing {
    /// Carries out a step. To repeat it changes nothing.
    pub fn apply(&mut self, step: &RolloutStep) {
        match step {
            RolloutStep::StartCanary { build } => self.candidate = Some(*build),
            RolloutStep::Use { build } | RolloutStep::Promote { build, .. } => {
                self.promoted = Some(*build);
                self.expired.remove(build);
                self.end_canary(*build);
            }
            RolloutStep::RollBack { build, .. } => {
                self.rejected.insert(*build);
                self.end_canary(*build);
            }
            RolloutStep::Expire { build, .. } => {
                self.expired.insert(*build);
                self.end_canary(*build);
            }
            RolloutStep::EndCanary { build, .. } => self.end_canary(*build),
        }
    }

    fn end_canary(&mut self, build: BuildNumber) {
        if self.candidate == Some(build) {
            self.candidate = None;
        }
    }
}

impl RolloutStep {
    pub fn build(&self) -> BuildNumber {
        match self {
            Self::Use { build }
            | Self::StartCanary { build }
            | Self::Promote { build, .. }
            | Self::RollBack { build, .. }
            | Self::Expire { build, .. }
            | Self::EndCanary { build, .. } => *build,
        }
    }
}

impl fmt::Display for RolloutStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Use { build } => write!(f, "use {build}"),
            Self::StartCanary { build } => write!(f, "start a canary of {build}"),
            Self::Promote { build, reason } => write!(f, "promote {build}: {reason}"),
            Self::RollBack { build, reason } => write!(f, "roll back {build}: {reason}"),
            Self::Expire { build, reason } | Self::EndCanary { build, reason } => {
                write!(f, "end the canary of {build}: {reason}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
