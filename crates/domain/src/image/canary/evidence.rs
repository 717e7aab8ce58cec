//! The evidence of a canary so far, for people and programs.

use serde::{Deserialize, Serialize};

use super::as_good::AsGoodEvidence;
use super::metric::CanaryMetric;
use super::trial::{CanaryGroup, Member, StartOutcome, Trial};
use super::worse::WorseEvidence;
use crate::time::Timestamp;

/// A forecast of more starts than this says nothing.
const MAX_FORECAST: u32 = 10_000;

/// The evidence of a canary so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryEvidence {
    pub canary: GroupEvidence,
    pub control: GroupEvidence,
    /// How much speaks for "worse": 0 is nothing, at 1 the image is rolled back. The logarithm of
    /// the evidence as a share of its bound.
    pub worse: f64,
    /// The same for "as good": at 1 the image is promoted, if enough machines have started.
    pub as_good: f64,
    /// The parts of each metric. The image is as good if all of them are at 1.
    pub metrics: Vec<MetricEvidence>,
    /// After this many more starts without a failure the image is promoted. Absent: not in sight.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub more_starts: Option<u32>,
}

/// The machines of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupEvidence {
    /// All machines.
    pub started: u32,
    pub pending: u32,
    pub good: u32,
    pub never_registered: u32,
    pub never_claimed: u32,
    pub refused: u32,
    /// Machines that are left out, also of `started`: their workers did not run in the image.
    #[serde(default)]
    pub beside_image: u32,
    pub ready_median_ms: Option<i64>,
    #[serde(rename = "ready95Ms")]
    pub ready_95_ms: Option<i64>,
    pub runs: u32,
    pub failed_runs: u32,
    /// Of good runs.
    pub run_median_ms: Option<i64>,
}

/// The evidence for "worse" and for "as good" about one metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricEvidence {
    pub metric: CanaryMetric,
    pub worse: f64,
    pub as_good: f64,
    /// False: nothing was measured, and the metric decides nothing.
    pub is_required: bool,
}

impl GroupEvidence {
    pub(super) fn count<'a, 'b: 'a>(members: impl Iterator<Item = &'a Member<'b>>) -> Self {
        let mut group = Self::default();
        let (mut ready, mut durations) = (Vec::new(), Vec::new());
        for member in members {
            let trial = member.trial;
            group.started = group.started.saturating_add(1);
            let counter = match trial.start {
                StartOutcome::Pending => &mut group.pending,
                StartOutcome::Good => &mut group.good,
                StartOutcome::NeverRegistered => &mut group.never_registered,
                StartOutcome::NeverClaimed => &mut group.never_claimed,
                StartOutcome::Refused => &mut group.refused,
                StartOutcome::BesideImage => &mut group.beside_image,
            };
            *counter = counter.saturating_add(1);
            ready.extend(trial.valid_ready());
            for run in &member.runs {
                group.runs = group.runs.saturating_add(1);
                if run.is_good {
                    durations.extend(run.valid_duration());
                } else {
                    group.failed_runs = group.failed_runs.saturating_add(1);
                }
            }
        }
        group.ready_median_ms = percentile(&mut ready, 50);
        group.ready_95_ms = percentile(&mut ready, 95);
        group.run_median_ms = percentile(&mut durations, 50);
        group
    }

    /// With the number of machines of the group that are left out.
    pub(super) fn with_left_out(
        self,
        trials: &[Trial],
        since: Timestamp,
        group: CanaryGroup,
    ) -> Self {
        let is_left_out = |it: &&Trial| {
            it.group == group && it.created >= since && it.start == StartOutcome::BesideImage
        };
        let beside_image = trials.iter().filter(is_left_out).count();
        Self {
            beside_image: u32::try_from(beside_image).unwrap_or(u32::MAX),
            ..self
        }
    }

    /// Machines whose start succeeded or failed.
    pub fn decided(&self) -> u32 {
        self.started.saturating_sub(self.pending)
    }
}

impl CanaryEvidence {
    pub(super) fn new(
        canary: GroupEvidence,
        control: GroupEvidence,
        worse: &WorseEvidence,
        as_good: &AsGoodEvidence,
        is_required: impl Fn(CanaryMetric) -> bool,
    ) -> Self {
        let metrics = CanaryMetric::ALL.map(|metric| MetricEvidence {
            metric,
            worse: visible(worse.share_of(metric)),
            as_good: visible(as_good.share_of(metric)),
            is_required: is_required(metric),
        });
        let required = metrics.iter().filter(|metric| metric.is_required);
        Self {
            canary,
            control,
            worse: visible(worse.share()),
            as_good: required.map(|metric| metric.as_good).fold(1.0, f64::min),
            metrics: metrics.to_vec(),
            more_starts: None,
        }
    }

    pub(super) fn with_forecast(mut self, min_starts: u32, as_good: &AsGoodEvidence) -> Self {
        let required = self.metrics.iter().filter(|metric| metric.is_required);
        let missing = required.map(|it| as_good.n_missing(it.metric, MAX_FORECAST));
        let for_evidence = missing.collect::<Option<Vec<u32>>>();
        let for_minimum = min_starts.saturating_sub(self.canary.good);
        self.more_starts = for_evidence.map(|missing| {
            let most = missing.into_iter().max().unwrap_or_default();
            most.max(for_minimum)
        });
        self
    }

    /// Whether every required metric has reached its bound.
    pub(super) fn is_as_good(&self) -> bool {
        self.as_good >= 1.0
    }
}

/// Evidence against is shown as none.
fn visible(share: f64) -> f64 {
    share.clamp(0.0, 1.0)
}

/// The smallest value that is not below this percentage of the values.
fn percentile(values: &mut [i64], percent: usize) -> Option<i64> {
    if values.is_empty() {
        return None;
    }
    let place = (values.len() * percent).div_ceil(100).saturating_sub(1);
    let (_, value, _) = values.select_nth_unstable(place);
    Some(*value)
}
