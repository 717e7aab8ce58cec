//! Evidence that the canary is worse: bets against "both groups are alike".
//!
//! If they are, then within a block the groups are dealt by chance: every choice of the machines
//! that are the canary is equally likely, whatever the common rates, outages and correlations are.
//! A bet has a tilt: it pays exp(tilt × score) for each machine of the canary, divided by the mean
//! over all choices, so its expected factor is 1. The evidence is the weighted mean of bets, and
//! passes 1 / [`FALSE_ALARM_RATE`] with at most this probability (Ville's inequality).

use super::block::{Block, BlockShape, MAX_GROUP};
use super::metric::CanaryMetric;
use super::trial::{Member, Sequence};
use crate::time::Timestamp;

/// The chance that an image that is as good as the one in use is ever rolled back.
pub const FALSE_ALARM_RATE: f64 = 0.01;

/// A slower registration by less than this factor is accepted: new packages take time to start.
const READY_TOLERANCE: f64 = 1.1;

/// Odds of a failed start against those of the control group, with the weights of the bets.
const START_ODDS: [(f64, f64); 3] = [(3.0, 0.08), (10.0, 0.12), (100.0, 0.2)];
const TASK_ODDS: [(f64, f64); 3] = [(3.0, 0.06), (10.0, 0.06), (100.0, 0.06)];
/// For each of several runs of a machine.
const SEVERAL_TASK_ODDS: [(f64, f64); 2] = [(2.0, 0.06), (5.0, 0.06)];
/// Tilts of the rank within the block, from 0 (the fastest) to 1 (the slowest).
const READY_TILTS: [(f64, f64); 2] = [(2.0, 0.04), (5.0, 0.06)];
const TIME_TILTS: [(f64, f64); 2] = [(1.5, 0.05), (4.0, 0.05)];
const SEVERAL_TIME_TILTS: [(f64, f64); 2] = [(1.5, 0.05), (4.0, 0.05)];

/// "Several runs" of a machine: its first ones. They count as one trial, because a bad machine can
/// fail all of them.
const SEVERAL_RUNS: usize = 4;

/// The evidence of all bets.
#[derive(Clone, Debug)]
pub(super) struct WorseEvidence {
    bets: Vec<WorseBet>,
}

#[derive(Clone, Debug)]
struct WorseBet {
    metric: CanaryMetric,
    weight: f64,
    /// The logarithm of the product of all factors.
    log: f64,
}

/// Bets on blocks of machines that are decided, in any order: a block in which all scores are equal
/// has the factor 1, so fast successes count no sooner than slow failures.
pub(super) fn weigh(
    sequence: &Sequence<'_>,
    shape: BlockShape,
    blocks: &[Block<&Member<'_>>],
) -> WorseEvidence {
    use CanaryMetric::{ReadyTime, Starts, TaskTime, Tasks};
    let mut evidence = WorseEvidence { bets: Vec::new() };

    let failed = |member: &&Member<'_>| {
        member
            .trial
            .start
            .is_good()
            .map(|is_good| f64::from(!is_good))
    };
    let starts: Vec<_> = blocks
        .iter()
        .filter_map(|block| block.map(failed))
        .collect();
    evidence.bet(Starts, &logs(&START_ODDS), &starts);

    let first = shape.cut(sequence.by_moment(|it| failed_runs(it, 1)));
    evidence.bet(Tasks, &logs(&TASK_ODDS), &first);
    let several = shape.cut(sequence.by_moment(|it| failed_runs(it, SEVERAL_RUNS)));
    evidence.bet(Tasks, &logs(&SEVERAL_TASK_ODDS), &several);

    let ready = shape.cut(sequence.by_moment(ready_time));
    evidence.bet(ReadyTime, &READY_TILTS, &ranks(ready, READY_TOLERANCE.ln()));

    let first = shape.cut(sequence.by_moment(|it| task_time(it, 1)));
    evidence.bet(TaskTime, &TIME_TILTS, &ranks(first, 0.0));
    let several = shape.cut(sequence.by_moment(|it| task_time(it, SEVERAL_RUNS)));
    evidence.bet(TaskTime, &SEVERAL_TIME_TILTS, &ranks(several, 0.0));
    evidence
}

/// How many machines of the canary fail to start, without a success, until it is worse, if all
/// others start.
pub(super) fn decisive_failures(shape: BlockShape) -> u32 {
    let block = Block {
        canary: vec![1.0; shape.n_canary],
        control: vec![0.0; shape.n_control],
    };
    let is_proven = |n_blocks: &usize| {
        let mut evidence = WorseEvidence { bets: Vec::new() };
        let blocks = vec![block.clone(); *n_blocks];
        evidence.bet(CanaryMetric::Starts, &logs(&START_ODDS), &blocks);
        evidence.is_proven()
    };
    // Each block multiplies the evidence, so that a few are enough.
    let n_blocks = (1..=MAX_GROUP).find(is_proven).unwrap_or(MAX_GROUP);
    u32::try_from(n_blocks * shape.n_canary).unwrap_or(u32::MAX)
}

impl WorseEvidence {
    fn bet(&mut self, metric: CanaryMetric, tilts: &[(f64, f64)], blocks: &[Block<f64>]) {
        self.bets
            .extend(tilts.iter().map(|&(tilt, weight)| WorseBet {
                metric,
                weight,
                log: blocks.iter().map(|block| log_factor(block, tilt)).sum(),
            }));
    }

    /// The logarithm of the evidence as a share of its bound.
    pub(super) fn share(&self) -> f64 {
        self.log(|_| true) / -FALSE_ALARM_RATE.ln()
    }

    /// The part of one metric in it.
    pub(super) fn share_of(&self, metric: CanaryMetric) -> f64 {
        self.log(|bet| bet.metric == metric) / -FALSE_ALARM_RATE.ln()
    }

    pub(super) fn is_proven(&self) -> bool {
        self.share() >= 1.0
    }

    /// The metric with the most evidence.
    pub(super) fn strongest(&self) -> CanaryMetric {
        let by_share = |one: &CanaryMetric, other: &CanaryMetric| {
            self.share_of(*one).total_cmp(&self.share_of(*other))
        };
        // The first of equal ones.
        let metrics = CanaryMetric::ALL.into_iter().rev();
        metrics.max_by(by_share).unwrap_or(CanaryMetric::Starts)
    }

    fn log(&self, selects: impl Fn(&WorseBet) -> bool) -> f64 {
        let bets = self.bets.iter().filter(|bet| selects(bet));
        log_sum(bets.map(|bet| bet.weight.ln() + bet.log))
    }
}

/// The logarithm of a sum, of the logarithms of its parts.
pub(super) fn log_sum(logs: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + logs.map(|log| (log - largest).exp()).sum::<f64>().ln()
}

fn logs<const N: usize>(odds: &[(f64, f64); N]) -> [(f64, f64); N] {
    odds.map(|(odds, weight)| (odds.ln(), weight))
}

/// How many of the first runs failed, since the last of them ended.
fn failed_runs(member: &Member<'_>, n: usize) -> Option<(Timestamp, f64)> {
    let runs = member.runs.get(..n)?;
    let n_failed = runs.iter().filter(|run| !run.is_good).count();
    Some((runs.last()?.resolved, n_failed as f64))
}

/// The logarithm of the time until the machine was ready.
fn ready_time(member: &Member<'_>) -> Option<(Timestamp, f64)> {
    let ms = member.trial.valid_ready()?;
    Some((member.trial.created.plus_millis(ms), log_ms(ms)))
}

/// The mean logarithm of the first durations of good runs.
fn task_time(member: &Member<'_>, n: usize) -> Option<(Timestamp, f64)> {
    let good = member.runs.iter().filter(|run| run.is_good);
    let durations = good.filter_map(|run| Some((run.resolved, run.valid_duration()?)));
    let durations: Vec<_> = durations.take(n).collect();
    let (moment, _) = *durations.last().filter(|_| durations.len() == n)?;
    let total: f64 = durations.iter().map(|(_, ms)| log_ms(*ms)).sum();
    Some((moment, total / n as f64))
}

pub(super) fn log_ms(ms: i64) -> f64 {
    (ms.max(1) as f64).ln()
}

/// The blocks with ranks as values: the shares of other members that are faster. Members with the
/// same value are half faster. The values of the canary are first reduced by the tolerance.
fn ranks(blocks: Vec<Block<f64>>, tolerance: f64) -> Vec<Block<f64>> {
    let ranked = blocks.into_iter().map(|mut block| {
        for value in &mut block.canary {
            *value -= tolerance;
        }
        let all: Vec<f64> = [&block.canary[..], &block.control[..]].concat();
        let rank = |value: &f64| {
            let faster = all.iter().filter(|other| *other < value).count() as f64;
            let same = all.iter().filter(|other| *other == value).count() as f64;
            Some((faster + (same - 1.0) / 2.0) / (all.len() as f64 - 1.0))
        };
        block.map(rank)
    });
    ranked.flatten().collect()
}

/// The logarithm of the factor of one block: the product of exp(tilt × score) over the canary,
/// divided by the mean of this product over all choices of as many members.
fn log_factor(block: &Block<f64>, tilt: f64) -> f64 {
    let all = || block.canary.iter().chain(&block.control);
    let largest = all().copied().fold(f64::NEG_INFINITY, f64::max);
    if all().all(|score| *score >= largest) {
        return 0.0;
    }
    let canary = block.canary.iter();
    let paid: f64 = canary.map(|score| tilt * (score - largest)).sum();
    // Sums over all choices of each size (elementary symmetric polynomials), and their numbers.
    let mut sums = [(0.0, 0.0); MAX_GROUP + 1];
    sums[0] = (1.0, 1.0);
    let n_canary = block.canary.len().min(MAX_GROUP);
    for score in all() {
        let payment = (tilt * (score - largest)).exp();
        for size in (1..=n_canary).rev() {
            let (sum, n_choices) = sums[size - 1];
            sums[size].0 += payment * sum;
            sums[size].1 += n_choices;
        }
    }
    let (sum, n_choices): (f64, f64) = sums[n_canary];
    paid - (sum / n_choices).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(canary: &[f64], control: &[f64]) -> Block<f64> {
        Block {
            canary: canary.to_vec(),
            control: control.to_vec(),
        }
    }

    #[test]
    fn a_failure_of_the_canary_alone_pays_almost_the_size_of_the_block() {
        let good = [0.0; 9];
        let factor = log_factor(&block(&[1.0], &good), 100_f64.ln()).exp();
        assert!((factor - 1_000.0 / 109.0).abs() < 1e-9, "{factor}");
        let control_failed = log_factor(&block(&[0.0], &[1.0]), 100_f64.ln()).exp();
        assert!((control_failed - 2.0 / 101.0).abs() < 1e-9);
    }

    #[test]
    fn a_block_of_equal_outcomes_decides_nothing() {
        for score in [0.0, 1.0, -7.25] {
            for (n_canary, n_control) in [(1, 9), (5, 5), (20, 20), (20, 1)] {
                let block = block(&vec![score; n_canary], &vec![score; n_control]);
                assert_eq!(log_factor(&block, 100_f64.ln()), 0.0);
            }
        }
    }

    #[test]
    fn the_expected_factor_over_all_choices_is_1() {
        let scores = [0.0, 1.0, 1.0, 0.3, 0.3, 4.0];
        for tilt in [0.5, 2.0, 4.6] {
            let mut factors = Vec::new();
            for first in 0..scores.len() {
                for second in 0..first {
                    let is_canary = |place: &usize| *place == first || *place == second;
                    let (canary, control): (Vec<usize>, Vec<usize>) =
                        (0..scores.len()).partition(is_canary);
                    let values = |places: Vec<usize>| -> Vec<f64> {
                        places.into_iter().map(|place| scores[place]).collect()
                    };
                    let block = block(&values(canary), &values(control));
                    factors.push(log_factor(&block, tilt).exp());
                }
            }
            let mean = factors.iter().sum::<f64>() / factors.len() as f64;
            assert!((mean - 1.0).abs() < 1e-12, "{mean}");
        }
    }

    /// Numbers from 0 to below 1.
    fn fractions(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695);
            let mut mixed = state ^ (state >> 33);
            mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
            ((mixed ^ (mixed >> 33)) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    #[test]
    fn equal_images_pass_the_bound_at_any_time_no_more_often_than_stated() {
        let (n_sequences, n_blocks) = (2_000, 100);
        let mut n_wrong = 0;
        for sequence in 0..n_sequences {
            let mut fraction = fractions(sequence * 7_919 + 1);
            let mut logs = START_ODDS.map(|(_, weight)| (weight / 0.4_f64).ln());
            let mut highest = f64::NEG_INFINITY;
            for _ in 0..n_blocks {
                // The common rate changes all the time.
                let rate = fraction() * 0.4;
                let mut score = || f64::from(fraction() < rate);
                let block = block(&[score()], &[(); 9].map(|()| score()));
                for (log, (odds, _)) in logs.iter_mut().zip(START_ODDS) {
                    *log += log_factor(&block, odds.ln());
                }
                highest = highest.max(log_sum(logs.iter().copied()));
            }
            n_wrong += u32::from(highest >= -FALSE_ALARM_RATE.ln());
        }
        let share = f64::from(n_wrong) / n_sequences as f64;
        assert!(n_wrong > 0 && share <= FALSE_ALARM_RATE, "{share}");
    }

    #[test]
    fn equal_durations_share_their_ranks() {
        let ranked = ranks(vec![block(&[2.0], &[1.0, 2.0, 3.0])], 0.0);
        assert_eq!(ranked, [block(&[0.5], &[0.0, 0.5, 1.0])]);
        let tolerated = ranks(vec![block(&[2.0], &[1.0, 1.9])], 0.2);
        assert_eq!(tolerated, [block(&[0.5], &[0.0, 1.0])]);
    }

    #[test]
    fn the_weights_of_all_bets_add_up_to_1() {
        let sequence = Sequence::new(&[], Timestamp::from_millis(0));
        let evidence = weigh(&sequence, BlockShape::of_share(0.1), &[]);
        assert!(evidence.share().abs() < 1e-9, "{}", evidence.share());
    }
}
