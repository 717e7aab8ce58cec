//! Evidence that the canary is as good: bets against "it is worse by the margin".
//!
//! Each machine of the canary is compared with its own control machines, in the order of creation.
//! The gain of a comparison has an expectation of at most 0 if the canary is worse by the margin,
//! so the factor `1 + stake × gain` has one of at most 1. A machine without an outcome counts in
//! the worst way: otherwise fast successes would count sooner than slow failures.

use super::block::Block;
use super::metric::CanaryMetric;
use super::trial::{Member, RunTrial};
use super::worse::{log_ms, log_sum};

/// The chance that an image that is worse by a margin is ever promoted.
pub const WRONG_PROMOTION_RATE: f64 = 0.02;
/// Worse by the margin: at least this share of the starts fails that would have been good.
pub const START_MARGIN: f64 = 0.1;
/// The same for the first task of a machine.
pub const TASK_MARGIN: f64 = 0.15;
/// Slower by the margin: by this factor …
const SLOWER_BY: f64 = 1.3;
/// … and in this share of the comparisons with a control machine.
const SLOWER_IN: f64 = 0.7;

/// Stakes as shares of the largest possible one, with their weights.
const STAKES: [(f64, f64); 2] = [(0.4, 0.4), (0.8, 0.6)];

/// The evidence for each metric, in the order of [`CanaryMetric::ALL`].
#[derive(Clone, Debug)]
pub(super) struct AsGoodEvidence {
    metrics: [MetricBets; 4],
    /// Machines of the canary whose comparison is complete.
    n_compared: usize,
}

/// The bets about one metric.
#[derive(Clone, Debug)]
struct MetricBets {
    /// The logarithms of their values, with their weights.
    bets: Vec<AsGoodBet>,
}

#[derive(Clone, Copy, Debug)]
struct AsGoodBet {
    log: f64,
    /// The logarithm of the factor of a comparison without a failure.
    log_if_good: f64,
}

/// The gain of one comparison, between these limits as long as outcomes are missing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gain {
    least: f64,
    most: f64,
}

/// Something that may not be known yet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Known(f64),
    Pending,
    /// It will never be known, and shows nothing: a task of a machine that did not start.
    Absent,
}

/// The outcomes of control machines.
struct Controls {
    known: Vec<f64>,
    n_pending: usize,
}

/// One kind of comparison: the gains of all machines, and the largest loss.
struct Comparison {
    gains: Vec<Gain>,
    largest_loss: f64,
    /// The gain of a comparison without a failure.
    good: f64,
    weight: f64,
}

pub(super) fn weigh(blocks: &[Block<&Member<'_>>]) -> AsGoodEvidence {
    let metrics = CanaryMetric::ALL.map(|metric| match metric {
        CanaryMetric::Starts => MetricBets::of(&[share_kept(blocks, started, START_MARGIN)]),
        CanaryMetric::Tasks => {
            MetricBets::of(&[share_kept(blocks, first_run_is_good, TASK_MARGIN)])
        }
        CanaryMetric::ReadyTime => MetricBets::of(&speeds(blocks, ready_time)),
        CanaryMetric::TaskTime => MetricBets::of(&speeds(blocks, first_task_time)),
    });
    let is_complete = |(canary, controls): &(&&Member<'_>, &[&Member<'_>])| {
        let is_pending = |member: &Member<'_>| member.trial.start.is_good().is_none();
        !is_pending(canary) && !controls.iter().any(|control| is_pending(control))
    };
    let pairs = blocks.iter().flat_map(Block::pairs);
    AsGoodEvidence {
        metrics,
        n_compared: pairs.filter(is_complete).count(),
    }
}

impl AsGoodEvidence {
    /// The logarithm of the evidence as a share of its bound.
    pub(super) fn share_of(&self, metric: CanaryMetric) -> f64 {
        self.bets_of(metric).share_after(0)
    }

    /// How many more comparisons without a failure lead to the bound, if the durations go on as
    /// before. `None`: more than this limit.
    pub(super) fn n_missing(&self, metric: CanaryMetric, limit: u32) -> Option<u32> {
        let bets = self.bets_of(metric);
        let reaches = |n: u32| match metric {
            CanaryMetric::Starts | CanaryMetric::Tasks => bets.share_after(n) >= 1.0,
            CanaryMetric::ReadyTime | CanaryMetric::TaskTime => {
                let share = bets.share_after(0);
                let gained = share / self.n_compared.max(1) as f64;
                share + gained * f64::from(n) >= 1.0
            }
        };
        if !reaches(limit) {
            return None;
        }
        let (mut too_few, mut enough) = (0, limit);
        if reaches(0) {
            return Some(0);
        }
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if reaches(middle) {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        Some(enough)
    }

    fn bets_of(&self, metric: CanaryMetric) -> &MetricBets {
        let [starts, tasks, ready, task_time] = &self.metrics;
        match metric {
            CanaryMetric::Starts => starts,
            CanaryMetric::Tasks => tasks,
            CanaryMetric::ReadyTime => ready,
            CanaryMetric::TaskTime => task_time,
        }
    }
}

impl MetricBets {
    /// The value is the largest over all places of this product: up to the place, missing outcomes
    /// count in the worst way; after it, only losses count. Each of them is at most the product of
    /// the true factors up to the place, whose maximum Ville's inequality bounds.
    fn of(comparisons: &[Comparison]) -> Self {
        let stakes = comparisons.iter().flat_map(|comparison| {
            STAKES.iter().map(move |(share, weight)| {
                let stake = share / comparison.largest_loss;
                (comparison, stake, (weight * comparison.weight).ln())
            })
        });
        let stakes: Vec<_> = stakes.collect();
        let start = stakes.iter().map(|(comparison, stake, weight)| {
            let losses = comparison.gains.iter().map(|gain| gain.log_loss(*stake));
            weight + losses.sum::<f64>()
        });
        let mut logs: Vec<f64> = start.collect();
        let mut best = (f64::NEG_INFINITY, logs.clone());
        let n = comparisons.first().map_or(0, |it| it.gains.len());
        for place in 0..=n {
            let gains = || comparisons.iter().filter_map(|it| it.gains.get(place));
            // To go beyond known outcomes never loses anything.
            let is_last = place == n || gains().any(|gain| gain.least < gain.most);
            let total = if is_last {
                log_sum(logs.iter().copied())
            } else {
                f64::NEG_INFINITY
            };
            if total > best.0 {
                best = (total, logs.clone());
            }
            for (log, (comparison, stake, _)) in logs.iter_mut().zip(&stakes) {
                if let Some(gain) = comparison.gains.get(place) {
                    *log += (stake * gain.least).ln_1p() - gain.log_loss(*stake);
                }
            }
        }
        let bets = best.1.into_iter().zip(&stakes);
        let bets = bets.map(|(log, (comparison, stake, _))| AsGoodBet {
            log,
            log_if_good: (stake * comparison.good).ln_1p(),
        });
        Self {
            bets: bets.collect(),
        }
    }

    /// As a share of the bound, after further comparisons without a failure.
    fn share_after(&self, n: u32) -> f64 {
        let bets = self.bets.iter();
        let logs = bets.map(|bet| bet.log + f64::from(n) * bet.log_if_good);
        log_sum(logs) / -WRONG_PROMOTION_RATE.ln()
    }
}

impl Gain {
    const NONE: Self = Self {
        least: 0.0,
        most: 0.0,
    };

    /// The logarithm of the factor if the comparison is lost in any case, else 0.
    fn log_loss(self, stake: f64) -> f64 {
        if self.most < 0.0 {
            (stake * self.most).ln_1p()
        } else {
            0.0
        }
    }
}

impl Controls {
    fn of(members: &[&Member<'_>], outcome: impl Fn(&Member<'_>) -> Outcome) -> Self {
        let mut controls = Self {
            known: Vec::new(),
            n_pending: 0,
        };
        for member in members {
            match outcome(member) {
                Outcome::Known(value) => controls.known.push(value),
                Outcome::Pending => controls.n_pending += 1,
                Outcome::Absent => {}
            }
        }
        controls
    }

    fn is_empty(&self) -> bool {
        self.known.is_empty() && self.n_pending == 0
    }

    /// The limits of a mean of values from 0 to 1, if pending ones can still become absent.
    fn mean(&self, value: impl Fn(f64) -> f64) -> Gain {
        let n_known = self.known.len() as f64;
        let n_all = n_known + self.n_pending as f64;
        let total: f64 = self.known.iter().map(|known| value(*known)).sum();
        Gain {
            least: total / n_all,
            most: (total + self.n_pending as f64) / n_all,
        }
    }
}

/// The share of good outcomes that the canary keeps: it loses less than the margin. Failures that
/// both groups have, as in an outage, gain nothing.
fn share_kept(
    blocks: &[Block<&Member<'_>>],
    outcome: impl Fn(&Member<'_>) -> Outcome,
    margin: f64,
) -> Comparison {
    let gain = |(canary, controls): (&&Member<'_>, &[&Member<'_>])| {
        let controls = Controls::of(controls, &outcome);
        let good = if controls.is_empty() {
            // At most all of them would have been good.
            Gain {
                least: 1.0,
                most: 1.0,
            }
        } else {
            controls.mean(|is_good| is_good)
        };
        let kept = 1.0 - margin;
        match outcome(canary) {
            Outcome::Known(is_good) => Gain {
                least: is_good - kept * good.most,
                most: is_good - kept * good.least,
            },
            Outcome::Pending => Gain {
                least: -kept * good.most,
                most: 1.0 - kept * good.least,
            },
            Outcome::Absent => Gain::NONE,
        }
    };
    Comparison {
        gains: blocks.iter().flat_map(Block::pairs).map(gain).collect(),
        largest_loss: 1.0 - margin,
        good: margin,
        weight: 1.0,
    }
}

/// Two comparisons of durations: reduced by the factor of the margin, the canary wins more than
/// half of the time; or unreduced, it wins more often than the margin says. A small spread makes
/// the first clear soon, a large spread the second.
fn speeds(
    blocks: &[Block<&Member<'_>>],
    outcome: impl Fn(&Member<'_>) -> Outcome + Copy,
) -> [Comparison; 2] {
    [(SLOWER_BY.ln(), 0.5), (0.0, 1.0 - SLOWER_IN)].map(|(reduction, least_wins)| {
        let gain = |(canary, controls): (&&Member<'_>, &[&Member<'_>])| {
            let controls = Controls::of(controls, outcome);
            let canary = outcome(canary);
            if controls.is_empty() {
                return Gain::NONE;
            }
            match canary {
                Outcome::Known(time) => {
                    let wins = controls.mean(|control| win(time - reduction, control));
                    Gain {
                        least: wins.least - least_wins,
                        most: wins.most - least_wins,
                    }
                }
                Outcome::Pending => Gain {
                    least: -least_wins,
                    most: 1.0 - least_wins,
                },
                Outcome::Absent => Gain::NONE,
            }
        };
        Comparison {
            gains: blocks.iter().flat_map(Block::pairs).map(gain).collect(),
            largest_loss: least_wins,
            good: 0.5 - least_wins,
            weight: 0.5,
        }
    })
}

/// 1 if the first is faster, a half if both are equal.
fn win(time: f64, other: f64) -> f64 {
    match time.total_cmp(&other) {
        std::cmp::Ordering::Less => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Greater => 0.0,
    }
}

fn started(member: &Member<'_>) -> Outcome {
    match member.trial.start.is_good() {
        Some(is_good) => Outcome::Known(f64::from(is_good)),
        None => Outcome::Pending,
    }
}

/// A machine that started well has claimed a task, so its first run will end.
fn first_run(member: &Member<'_>, value: impl Fn(&RunTrial) -> Outcome) -> Outcome {
    match (member.trial.start.is_good(), member.runs.first()) {
        (_, Some(run)) => value(run),
        (Some(false), None) => Outcome::Absent,
        (Some(true) | None, None) => Outcome::Pending,
    }
}

fn first_run_is_good(member: &Member<'_>) -> Outcome {
    first_run(member, |run| Outcome::Known(f64::from(run.is_good)))
}

/// The duration of a failed run says nothing about speed.
fn first_task_time(member: &Member<'_>) -> Outcome {
    first_run(member, |run| {
        let duration = run.valid_duration().filter(|_| run.is_good);
        duration.map_or(Outcome::Absent, |ms| Outcome::Known(log_ms(ms)))
    })
}

fn ready_time(member: &Member<'_>) -> Outcome {
    let trial = member.trial;
    match (trial.valid_ready(), trial.start.is_good()) {
        (Some(ms), _) => Outcome::Known(log_ms(ms)),
        (None, None) => Outcome::Pending,
        (None, Some(_)) => Outcome::Absent,
    }
}
