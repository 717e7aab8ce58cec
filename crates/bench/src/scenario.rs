//! One kind of request, and what its rounds gave.

use super::figures::{Sample, median};
use super::load::Requests;

/// A kind of request, and where its next round's requests come from.
pub(crate) struct Scenario<'a> {
    pub(crate) name: &'static str,
    make: Box<dyn FnMut() -> Requests + 'a>,
}

/// The medians of one side's rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// What a scenario gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) bare: Side,
    pub(crate) ours: Side,
    /// Our rate for each request of the bare server, round by round; the median of that.
    pub(crate) ratio: f64,
}

impl<'a> Scenario<'a> {
    pub(crate) fn new(name: &'static str, make: impl FnMut() -> Requests + 'a) -> Self {
        Self {
            name,
            make: Box::new(make),
        }
    }

    pub(crate) fn next_round(&mut self) -> Requests {
        (self.make)()
    }
}

impl Outcome {
    /// From rounds of the bare server and of ours, in pairs that ran one after the other.
    pub(crate) fn new(name: &'static str, rounds: &[(Sample, Sample)]) -> Self {
        Self {
            name,
            bare: Side::of(rounds.iter().map(|(bare, _)| bare)),
            ours: Side::of(rounds.iter().map(|(_, ours)| ours)),
            ratio: median(
                rounds
                    .iter()
                    .map(|(bare, ours)| ours.per_second() / bare.per_second()),
            ),
        }
    }
}

impl Side {
    fn of<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Self {
        Self {
            per_second: median(samples.clone().map(Sample::per_second)),
            p50_ms: median(samples.clone().map(|sample| sample.percentile_ms(50))),
            p99_ms: median(samples.map(|sample| sample.percentile_ms(99))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_ratio_compares_rounds_that_ran_together() {
        let sample = |requests: usize| {
            Sample::new(
                vec![Duration::from_millis(1); requests],
                Duration::from_secs(1),
            )
        };
        // The machine was twice as fast in the second round; that is no difference.
        let rounds = [(sample(100), sample(50)), (sample(200), sample(100))];
        let outcome = Outcome::new("x", &rounds);
        assert!((outcome.ratio - 0.5).abs() < 1e-9);
        assert!((outcome.ours.per_second - 75.0).abs() < 1e-9);
    }
}
