//! The verdict of a canary: whether machines of a new image do as well as others.
//!
//! A sequential test that may be read at any time. Evidence for "worse" is a bet against "both
//! groups are alike": the chance that it ever passes its bound, if they are, is at most
//! [`FALSE_ALARM_RATE`]. Evidence for "as good" consists of bets against "worse by the margin":
//! the chance that all of them pass their bound, if it is, is at most [`WRONG_PROMOTION_RATE`].
//! Decision record 18 has the reasons and the figures.

mod as_good;
mod block;
mod course;
mod evidence;
mod metric;
mod trial;
mod verdict;
mod worse;

#[cfg(test)]
mod tests;

pub use self::as_good::{START_MARGIN, TASK_MARGIN, WRONG_PROMOTION_RATE};
pub use self::course::{CanaryCourse, CoursePoint};
pub use self::evidence::{CanaryEvidence, GroupEvidence, MetricEvidence};
pub use self::metric::CanaryMetric;
pub use self::trial::{CanaryGroup, RunTrial, StartOutcome, Trial};
pub use self::verdict::{CanaryStarts, CanaryVerdict};
pub use self::worse::FALSE_ALARM_RATE;

use std::fmt;

use self::block::{Block, BlockShape};
use self::trial::{Member, Sequence};
use super::definition::CanarySettings;
use crate::time::{SECOND_MS, Timestamp};

/// Without an ended run, starts alone can promote an image after this share of the time: the
/// outcomes of tasks are not known then.
const RUNS_AWAITED: f64 = 0.5;

/// The result of a canary, and the verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryJudgement {
    pub verdict: CanaryVerdict,
    pub evidence: CanaryEvidence,
}

impl fmt::Display for CanaryJudgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, evidence } = self;
        write!(f, "{verdict}")?;
        let left_out = [evidence.canary, evidence.control].map(|group| group.beside_image);
        if left_out == [0, 0] {
            return Ok(());
        }
        let [canary, control] = left_out;
        let all = canary.saturating_add(control);
        let (starts, workers) = match all {
            1 => ("start is", "its worker"),
            _ => ("starts are", "their workers"),
        };
        write!(
            f,
            " {all} {starts} left out ({canary} of the canary, {control} beside it): {workers} did \
             not run in the file system of the image."
        )
    }
}

/// How many machines of a canary may be starting while none of it is known to be good: twice as
/// many as decide if all of them fail.
pub fn most_open_starts(share: f64) -> u32 {
    let decisive = worse::decisive_failures(BlockShape::of_share(share));
    decisive.saturating_mul(2)
}

/// Judges a canary that began at `since`. The order of `trials` does not matter.
///
/// The groups must be comparable: each machine could have started from either image, and chance or
/// a fixed rhythm selected one. Machines that were created before `since` do not count.
pub fn judge(
    settings: &CanarySettings,
    since: Timestamp,
    trials: &[Trial],
    now: Timestamp,
) -> CanaryJudgement {
    let sequence = Sequence::new(trials, since);
    let shape = BlockShape::of_share(settings.share);
    let blocks: Vec<Block<&Member<'_>>> = shape.cut(sequence.by_creation());
    let worse = worse::weigh(&sequence, shape, &blocks);
    let as_good = as_good::weigh(&blocks);
    let evidence_of = |group| {
        let counted = GroupEvidence::count(sequence.group(group));
        counted.with_left_out(trials, since, group)
    };
    let canary = evidence_of(CanaryGroup::Canary);
    let control = evidence_of(CanaryGroup::Control);

    let elapsed_ms = now.millis_since(since);
    let limit_ms = i64::from(settings.max_seconds).saturating_mul(SECOND_MS);
    let waits_for_runs = (elapsed_ms as f64) < RUNS_AWAITED * limit_ms as f64;
    let is_required = |metric: CanaryMetric| match metric {
        CanaryMetric::Starts => true,
        CanaryMetric::Tasks => waits_for_runs || canary.runs + control.runs > 0,
        CanaryMetric::ReadyTime => sequence.has_ready_times(),
        CanaryMetric::TaskTime => sequence.has_durations(),
    };
    let evidence = CanaryEvidence::new(canary, control, &worse, &as_good, is_required)
        .with_forecast(settings.min_starts, &as_good);

    let starts = CanaryStarts {
        known: canary.decided(),
        all: canary.started,
    };
    let has_min_starts = canary.good >= settings.min_starts;
    let verdict = if worse.is_proven() {
        CanaryVerdict::RollBack {
            starts,
            metric: worse.strongest(),
            canary,
            control,
        }
    } else if has_min_starts && evidence.is_as_good() {
        CanaryVerdict::Promote { starts }
    } else if elapsed_ms >= limit_ms {
        CanaryVerdict::Expired {
            starts,
            max_seconds: settings.max_seconds,
        }
    } else {
        CanaryVerdict::Undecided {
            starts,
            more_starts: evidence.more_starts,
            has_control: control.started > 0 || canary.started == 0,
        }
    };
    CanaryJudgement { verdict, evidence }
}
