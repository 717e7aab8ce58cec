//! A scenario: a kind of request, and the results of its rounds.

use std::time::Duration;

use super::figures::{Sample, median};
use super::load::{Length, Requests};
use super::processor::ProcessorTime;

/// How long each side of a scenario is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// In all rounds together.
    pub(crate) length: Length,
    pub(crate) rounds: u32,
    /// The longest wait for a server to become idle before it is measured.
    pub(crate) settling: Duration,
}

/// A kind of request with the source of each round's requests.
pub(crate) struct Scenario<'a> {
    pub(crate) name: &'static str,
    make: Box<dyn FnMut() -> Requests + 'a>,
}

/// A round of requests to one server.
pub(crate) struct Round {
    pub(crate) sample: Sample,
    /// The processor time that the requests took, if the system reports it.
    pub(crate) used: Option<ProcessorTime>,
}

/// The results of all rounds of requests to one server: medians, and means of processor time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// For each request, in seconds.
    pub(crate) used: Option<ProcessorTime>,
}

/// The result of a scenario for one of the measured servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) server: Contender,
    pub(crate) side: Side,
    /// The median of the ratio of its rate to the rate of the minimal server, by round.
    pub(crate) ratio: f64,
    /// The same of the ratio to the rate of the first measured server.
    pub(crate) of_first: f64,
}

/// A measured server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// The program on a new database.
    Fresh,
    /// The same on a database as it is after a year.
    YearOld,
    /// An older program on a new database.
    Before,
}

/// The result of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) bare: Side,
    pub(crate) measured: Vec<Measured>,
}

impl Pace {
    /// One round of this number of requests. Its figures mean nothing.
    pub(crate) fn smallest(n_requests: usize) -> Self {
        Self {
            length: Length::Requests(n_requests),
            rounds: 1,
            settling: Duration::ZERO,
        }
    }

    pub(crate) fn round(self) -> Length {
        self.length.divided(self.rounds)
    }
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

impl Contender {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::YearOld => "year-old",
            Self::Before => "before",
        }
    }
}

impl Outcome {
    /// The result of rounds of all servers that ran one after the other.
    pub(crate) fn new(
        name: &'static str,
        bare: &[Round],
        measured: &[(Contender, Vec<Round>)],
    ) -> Self {
        let first = measured.first().map_or(bare, |(_, rounds)| rounds);
        let measured = measured.iter().map(|(server, rounds)| Measured {
            server: *server,
            side: Side::new(rounds),
            ratio: ratio(rounds, bare),
            of_first: ratio(rounds, first),
        });
        Self {
            name,
            bare: Side::new(bare),
            measured: measured.collect(),
        }
    }
}

fn ratio(rounds: &[Round], base: &[Round]) -> f64 {
    let pairs = rounds.iter().zip(base);
    median(pairs.map(|(round, base)| round.sample.per_second() / base.sample.per_second()))
}

impl Side {
    fn new(rounds: &[Round]) -> Self {
        let samples = || rounds.iter().map(|round| &round.sample);
        let mut used = Some(ProcessorTime::default());
        for round in rounds {
            used = used.zip(round.used).map(|(sum, used)| sum + used);
        }
        let n_requests: f64 = samples().map(Sample::requests).sum();
        Self {
            per_second: median(samples().map(Sample::per_second)),
            p50_ms: median(samples().map(|sample| sample.percentile_ms(50))),
            p99_ms: median(samples().map(|sample| sample.percentile_ms(99))),
            used: used.map(|used| used.divided(n_requests.max(1.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(requests: usize) -> Round {
        let latencies = vec![Duration::from_millis(1); requests];
        let used = ProcessorTime {
            server: 0.5,
            database: 0.25,
            client: 0.1,
        };
        Round {
            sample: Sample::new(latencies, Duration::from_secs(1)),
            used: Some(used),
        }
    }

    #[test]
    fn the_ratio_compares_rounds_that_ran_together() {
        // The machine was twice as fast in the second round; that makes no difference.
        let bare = [round(100), round(200)];
        let fresh = vec![round(50), round(100)];
        let outcome = Outcome::new("x", &bare, &[(Contender::Fresh, fresh)]);
        let measured = outcome.measured[0];
        assert!((measured.ratio - 0.5).abs() < 1e-9);
        assert!((measured.of_first - 1.0).abs() < 1e-9);
        // Time: computed from given rounds.
        assert!((measured.side.per_second - 75.0).abs() < 1e-9);
    }

    #[test]
    fn processor_time_is_that_of_a_request() {
        let side = Side::new(&[round(50), round(100)]);
        let used = side.used.unwrap();
        assert!((used.server - 1.0 / 150.0).abs() < 1e-9);
        assert!((used.answering() - 1.5 / 150.0).abs() < 1e-9);
        assert!((used.client - 0.2 / 150.0).abs() < 1e-9);
    }
}
