//! An observer that knows the truth about each build: what must hold after every step.

use std::collections::BTreeSet;

use domain::image::ImageRollout;
use domain::image_reference::{canary_mark, image_uses};
use serde_json::Value;
use store::outbox::OutboxRow;

use super::machines::Quality;
use super::world::CanaryWorld;

/// How often verdicts were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Verdicts about good builds that were compared with a good one, and those that were wrong.
    pub(super) good: u32,
    pub(super) good_rolled_back: u32,
    /// The same about bad builds.
    pub(super) bad: u32,
    pub(super) bad_promoted: u32,
}

/// Follows the events, as a client would that knows nothing else.
#[derive(Default)]
pub(super) struct Observer {
    promoted: Option<u64>,
    candidate: Option<u64>,
    rejected: BTreeSet<u64>,
    n_steps: usize,
    pub(super) tally: Tally,
    pub(super) problems: Vec<String>,
}

impl Observer {
    fn follow(&mut self, row: &OutboxRow, existing: &BTreeSet<u64>) {
        let payload: &Value = &row.payload;
        let build = payload["build"].as_u64().unwrap();
        let is_own = payload["by"] == "fleetwright";
        let is_back = row.topic.ends_with("/image-rolled-back");
        self.n_steps += 1;
        match row.topic.rsplit('/').next().unwrap() {
            "image-canary-started" => {
                self.rejected.remove(&build);
                self.candidate = Some(build);
            }
            "image-canary-ended" => self.candidate = None,
            "image-rolled-back" if is_own => {
                self.candidate = None;
                self.rejected.insert(build);
            }
            "image-promoted" | "image-rolled-back" => {
                self.candidate = None;
                self.promoted = Some(build);
                self.rejected.remove(&build);
                // Forward, newer builds keep their turn.
                if !is_own && is_back {
                    let newer = existing.iter().filter(|number| **number > build);
                    self.rejected.extend(newer);
                }
            }
            _ => {}
        }
    }

    fn is(&self, rollout: &ImageRollout, existing: &BTreeSet<u64>) -> bool {
        let standing = &rollout.standing;
        let rejected: BTreeSet<u64> = standing.rejected.iter().map(|number| number.0).collect();
        let rejected: BTreeSet<&u64> = rejected.intersection(existing).collect();
        standing.promoted.map(|number| number.0) == self.promoted
            && standing.candidate.map(|number| number.0) == self.candidate
            && rejected == self.rejected.intersection(existing).collect()
    }
}

impl CanaryWorld {
    pub(super) async fn check(&mut self) {
        let rows = self.fleet.events().await;
        let rows = rows.iter().filter(|row| row.topic.contains("/image-"));
        for row in rows {
            self.count_verdict(row);
            let line = format!("{}: {}", row.topic, row.payload);
            self.note(line);
            self.observer.follow(row, &self.existing);
        }
        let Some(rollout) = self.stored().await else {
            self.observer
                .problems
                .push("no rollout is stored".to_owned());
            return;
        };
        let mut problems = self.check_decisions(&rollout);
        problems.extend(self.check_launch_configs(&rollout).await);
        let audited = self.audited().await;
        let n_audited = audited.len();
        if n_audited != self.observer.n_steps {
            let n_steps = self.observer.n_steps;
            problems.push(format!(
                "{n_steps} steps are events, {n_audited} are audited"
            ));
        }
        let has_reason = |(_, detail): &(String, Value)| {
            detail["reason"]
                .as_str()
                .is_some_and(|reason| !reason.is_empty())
        };
        if !audited.iter().all(has_reason) {
            problems.push(format!("a step has no reason: {audited:?}"));
        }
        self.observer.problems.extend(problems);
    }

    fn check_decisions(&self, rollout: &ImageRollout) -> Vec<String> {
        let mut problems = Vec::new();
        let standing = &rollout.standing;
        if !self.observer.is(rollout, &self.existing) {
            problems.push(format!("events and decisions differ: {standing:?}"));
        }
        let passed_over = standing
            .decisions
            .iter()
            .filter(|(_, it)| it.is_passed_over);
        for (build, _) in passed_over.filter(|(build, _)| self.served.contains(&build.0)) {
            problems.push(format!(
                "{build} was passed over, and machines started from it"
            ));
        }
        let of_canary = rollout.canary.as_ref().map(|run| run.build);
        if of_canary != standing.candidate {
            problems.push(format!("the canary runs for {of_canary:?}: {standing:?}"));
        }
        if standing
            .candidate
            .is_some_and(|number| standing.rejected.contains(&number))
        {
            problems.push(format!("a rolled back build is tried: {standing:?}"));
        }
        problems
    }

    /// Machines start from the promoted build, and from the candidate in its share.
    async fn check_launch_configs(&self, rollout: &ImageRollout) -> Vec<String> {
        let mut problems = Vec::new();
        let mut n_plain = 0;
        for config in self.active().await {
            let used = image_uses(&config.configuration);
            let Some(build) = used.first().map(|used| used.build) else {
                problems.push(format!("launch config {} has no image", config.id));
                continue;
            };
            if !self.existing.contains(&build) {
                problems.push(format!(
                    "machines start from build {build}, which was removed"
                ));
            }
            let mark = canary_mark(&config.configuration);
            let candidate = rollout.standing.candidate.map(|number| number.0);
            let share = rollout.canary.as_ref().map(|run| run.share);
            match mark {
                Some(mark) => {
                    if candidate != Some(build) || share != Some(mark.share) {
                        problems.push(format!("{build} has {mark:?} without its canary"));
                    }
                }
                None => {
                    n_plain += 1;
                    let is_rejected = rollout
                        .standing
                        .rejected
                        .iter()
                        .any(|number| number.0 == build);
                    if is_rejected || candidate == Some(build) {
                        problems.push(format!("all machines start from build {build}"));
                    }
                }
            }
        }
        if n_plain != 1 {
            problems.push(format!("{n_plain} launch configs are no canaries"));
        }
        problems
    }

    /// Only comparisons of a good build in use count: beside a bad one, a bad one is as good.
    fn count_verdict(&mut self, row: &OutboxRow) {
        let payload: &Value = &row.payload;
        let is_verdict = payload["by"] == "fleetwright" && self.observer.candidate.is_some();
        let build = payload["build"].as_u64().unwrap();
        let is_back = row.topic.ends_with("/image-rolled-back");
        if !is_verdict || !is_back && !row.topic.ends_with("/image-promoted") {
            return;
        }
        if self.is_beside {
            let problem = format!("a verdict about {build}, and no machine ran in it: {payload}");
            self.observer.problems.push(problem);
        }
        if !self.is_good_in_use() {
            return;
        }
        let tally = &mut self.observer.tally;
        if self.quality[&build] == Quality::Good {
            tally.good += 1;
            tally.good_rolled_back += u32::from(is_back);
        } else {
            tally.bad += 1;
            tally.bad_promoted += u32::from(!is_back);
        }
    }

    /// The build from which machines start that are no canaries, by the events so far.
    pub(super) fn in_use(&self) -> Option<u64> {
        let observer = &self.observer;
        let is_usable = |number: &&u64| {
            observer
                .promoted
                .is_none_or(|promoted| **number <= promoted)
                && !observer.rejected.contains(number)
                && observer.candidate != Some(**number)
        };
        self.existing.iter().rev().find(is_usable).copied()
    }

    pub(super) fn is_good_in_use(&self) -> bool {
        let in_use = self.in_use().and_then(|number| self.quality.get(&number));
        in_use == Some(&Quality::Good)
    }
}
