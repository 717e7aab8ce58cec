//! Decides what to do about the rollout of an image: which build its machines start from.

use super::canary::CanaryVerdict;
use super::definition::CanarySettings;
use super::launch_variants::ImageSelection;
use super::number::BuildNumber;
use super::selection::{image_in_use, next_candidate};
use super::standing::{BuildDecision, Standing};
use super::upload_target::UploadTargetId;
use super::view::BuildView;
use crate::event::ImageStep;
use crate::time::Timestamp;

/// The facts from which the next step of a rollout is decided.
#[derive(Clone, Copy, Debug)]
pub struct RolloutView<'a> {
    pub builds: &'a [BuildView],
    pub standing: &'a Standing,
    pub settings: &'a CanarySettings,
    /// The verdict about the candidate, if machines could be compared.
    pub verdict: Option<&'a CanaryVerdict>,
    /// The time of the canary is over, and people were asked.
    pub is_expired: bool,
}

/// A step of a rollout. Each is an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutStep {
    pub step: ImageStep,
    pub build: BuildNumber,
    /// For people.
    pub reason: String,
}

/// The next step; `None`: there is nothing to decide now.
///
/// A build that becomes ready while a canary runs waits until the canary has ended, or its time is
/// over. Builds that were rolled back are not tried again unless people ask for it.
pub fn next_rollout_step(view: &RolloutView<'_>) -> Option<RolloutStep> {
    match view.standing.candidate {
        Some(candidate) => judge_candidate(view, candidate),
        None => begin(view),
    }
}

fn judge_candidate(view: &RolloutView<'_>, candidate: BuildNumber) -> Option<RolloutStep> {
    let step = |step, reason: String| RolloutStep {
        step,
        build: candidate,
        reason,
    };
    if !has_upload(view, candidate) {
        let reason = "no upload of the build exists any more".to_owned();
        return Some(step(ImageStep::CanaryEnded, reason));
    }
    let verdict = view.verdict?;
    match verdict {
        CanaryVerdict::Undecided { .. } => None,
        CanaryVerdict::Promote { .. } => Some(step(ImageStep::Promoted, verdict.to_string())),
        CanaryVerdict::RollBack { .. } => Some(step(ImageStep::RolledBack, verdict.to_string())),
        CanaryVerdict::Expired { .. } => {
            replace_undecided(view, candidate, verdict).or_else(|| {
                let reason = format!("{verdict}: promote it or roll it back");
                let asks = step(ImageStep::CanaryExpired, reason);
                (!view.is_expired).then_some(asks)
            })
        }
    }
}

/// The newest build takes the place of a candidate whose time is over. Otherwise machines would
/// start from old builds for as long as no person decides.
fn replace_undecided(
    view: &RolloutView<'_>,
    candidate: BuildNumber,
    verdict: &CanaryVerdict,
) -> Option<RolloutStep> {
    let next = begin(view).filter(|next| next.build > candidate)?;
    let reason = format!(
        "{candidate} had no verdict ({verdict}), so {} is next",
        next.build
    );
    Some(RolloutStep {
        reason: format!("{reason}: {}", next.reason),
        ..next
    })
}

fn begin(view: &RolloutView<'_>) -> Option<RolloutStep> {
    let build = next_candidate(view.builds, view.standing)?;
    let step = |step, reason: String| {
        Some(RolloutStep {
            step,
            build,
            reason,
        })
    };
    let in_use = view.standing.promoted.filter(|_| has_older(view, build));
    let (Some(in_use), share) = (in_use, view.settings.share) else {
        return step(ImageStep::Promoted, "no other build can be used".to_owned());
    };
    if share >= 1.0 {
        let reason = "the definition wants no canary: its share is 1".to_owned();
        return step(ImageStep::Promoted, reason);
    }
    if share <= 0.0 {
        return None;
    }
    let percent = share * 100.0;
    let reason = format!("a new build is ready: {percent:.0} % of the machines, beside {in_use}");
    step(ImageStep::CanaryStarted, reason)
}

/// Whether a build before this one has a ready upload and was not rolled back.
fn has_older(view: &RolloutView<'_>, build: BuildNumber) -> bool {
    view.builds.iter().any(|older| {
        let number = older.number;
        number < build
            && !view.standing.rejected.contains(&number)
            && view
                .standing
                .promoted
                .is_some_and(|promoted| number <= promoted)
            && has_upload(view, number)
    })
}

fn has_upload(view: &RolloutView<'_>, number: BuildNumber) -> bool {
    let mut builds = view.builds.iter();
    builds.any(|build| build.number == number && build.has_ready_upload())
}

impl Standing {
    /// The decisions after a step of a client.
    pub fn apply(&mut self, step: &RolloutStep, by: &str, at: Timestamp) {
        let decision = BuildDecision {
            at,
            by: by.to_owned(),
            reason: step.reason.clone(),
            is_passed_over: false,
        };
        match step.step {
            ImageStep::CanaryStarted => self.try_build(step.build, at),
            // People are asked; the canary goes on.
            ImageStep::CanaryExpired => {}
            ImageStep::CanaryEnded => self.replace_candidate(None, at),
            ImageStep::Promoted => self.promote(step.build, decision),
            ImageStep::RolledBack => {
                self.replace_candidate(None, at);
                self.reject(step.build, decision);
            }
        }
        self.forget_old_decisions();
    }

    /// Makes a build the candidate, also if it was rolled back.
    pub fn try_build(&mut self, build: BuildNumber, at: Timestamp) {
        self.rejected.remove(&build);
        self.replace_candidate(Some(build), at);
        self.forget_old_decisions();
    }

    /// Starts machines from this build. Returns whether that leads back from a newer one. Then no
    /// machine starts from the newer ones that are ready now, neither from those that served nor
    /// from those that were passed over.
    pub fn use_build(
        &mut self,
        build: BuildNumber,
        builds: &[BuildView],
        decision: BuildDecision,
    ) -> bool {
        let before = self.clone();
        self.promote(build, decision.clone());
        let is_back = [before.newest_used(builds), before.candidate]
            .into_iter()
            .flatten()
            .any(|used| build < used);
        let newer = builds.iter().filter(|newer| {
            let is_known = self.rejected.contains(&newer.number);
            is_back && newer.number > build && newer.ready().is_some() && !is_known
        });
        for newer in newer.map(|newer| newer.number).collect::<Vec<_>>() {
            let decision = BuildDecision {
                is_passed_over: !before.has_served(newer, builds),
                ..decision.clone()
            };
            self.reject(newer, decision);
        }
        self.forget_old_decisions();
        is_back
    }

    /// The newest build from which machines may start without a canary.
    fn newest_used(&self, builds: &[BuildView]) -> Option<BuildNumber> {
        let ready = builds.iter().filter(|build| build.has_ready_upload());
        self.promoted
            .or_else(|| ready.map(|build| build.number).max())
    }

    /// Whether machines may have started from the build.
    fn has_served(&self, build: BuildNumber, builds: &[BuildView]) -> bool {
        let is_used = self.newest_used(builds).is_some_and(|used| build <= used);
        is_used || self.candidate == Some(build) || self.replaced.contains_key(&build)
    }

    fn promote(&mut self, build: BuildNumber, decision: BuildDecision) {
        let before = [self.promoted.replace(build), self.candidate.take()];
        self.note_replaced(before, decision.at);
        self.rejected.remove(&build);
        self.decisions.insert(build, decision);
    }

    fn reject(&mut self, build: BuildNumber, decision: BuildDecision) {
        self.rejected.insert(build);
        self.decisions.insert(build, decision);
    }

    /// Makes another build the candidate, or none.
    fn replace_candidate(&mut self, candidate: Option<BuildNumber>, at: Timestamp) {
        let before = std::mem::replace(&mut self.candidate, candidate);
        self.note_replaced([before], at);
    }

    /// Notes the builds from which no machine starts any more.
    fn note_replaced(
        &mut self,
        before: impl IntoIterator<Item = Option<BuildNumber>>,
        at: Timestamp,
    ) {
        let now = [self.promoted, self.candidate];
        let replaced = before.into_iter().flatten();
        self.replaced.extend(replaced.map(|build| (build, at)));
        self.replaced
            .retain(|build, _| !now.contains(&Some(*build)));
    }

    /// Forgets builds that do not exist any more.
    pub fn forget_missing(&mut self, builds: &[BuildView]) {
        let exists = |number: &BuildNumber| builds.iter().any(|build| build.number == *number);
        self.rejected.retain(exists);
        self.replaced.retain(|number, _| exists(number));
        self.forget_old_decisions();
    }

    fn forget_old_decisions(&mut self) {
        let Self {
            promoted, rejected, ..
        } = self;
        self.decisions
            .retain(|build, _| *promoted == Some(*build) || rejected.contains(build));
    }
}

impl ImageSelection {
    /// The uploads from which machines of each target start. `share` is that of the canary.
    pub fn of<'a>(
        builds: &[BuildView],
        targets: impl Iterator<Item = &'a UploadTargetId>,
        standing: &Standing,
        share: f64,
    ) -> Self {
        let targets = targets
            .map(|target| (target.clone(), image_in_use(builds, target, standing)))
            .filter(|(_, uploads)| uploads.in_use.is_some());
        Self {
            targets: targets.collect(),
            share: match standing.candidate {
                Some(_) => share,
                None => 0.0,
            },
        }
    }
}

#[cfg(test)]
mod tests;
