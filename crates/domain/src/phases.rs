//! Phases: how long machines take from the decision to their first claim.

use std::collections::BTreeMap;

use crate::id::{WorkerGroup, names};
use crate::time::Timestamp;

/// A step of a machine, named by the moment at which it ends. The first step begins when the
/// launch is decided, each other one at the end of the step before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// A process asks the cloud for the machine.
    Requested,
    /// The cloud has answered, or a scan has found the machine.
    Accepted,
    /// The machine has registered.
    Registered,
    /// It has asked for work for the first time.
    FirstClaim,
}

names! {
    Phase, "not a phase (requested, accepted, registered, first-claim)",
    Requested = "requested",
    Accepted = "accepted",
    Registered = "registered",
    FirstClaim = "first-claim",
}

/// When a launched machine came to each step; `None`: not yet, or not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineMoments {
    pub region: WorkerGroup,
    pub decided: Option<Timestamp>,
    pub requested: Option<Timestamp>,
    pub accepted: Timestamp,
    pub registered: Option<Timestamp>,
    pub first_claim: Option<Timestamp>,
}

/// How long one step took for several machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTimes {
    /// Machines that have made the step.
    pub machines: usize,
    /// Half of them took no longer.
    pub median_ms: i64,
    /// 90 of 100 of them took no longer.
    pub p90_ms: i64,
    /// 95 of 100 of them took no longer.
    pub p95_ms: i64,
    pub max_ms: i64,
}

/// Where the spans of histograms begin, in milliseconds; the last one has no end.
pub const SPANS_MS: [i64; 13] = [
    0, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000,
    3_600_000,
];

/// How many times are in each of [`SPANS_MS`].
pub fn histogram(times_ms: impl IntoIterator<Item = i64>) -> [usize; SPANS_MS.len()] {
    let mut counts = [0; SPANS_MS.len()];
    for time_ms in times_ms {
        let span = SPANS_MS.partition_point(|begin_ms| *begin_ms <= time_ms);
        if let Some(count) = counts.get_mut(span.saturating_sub(1)) {
            *count += 1;
        }
    }
    counts
}

/// The times of each phase that some machine has made.
pub type RegionPhases = BTreeMap<Phase, PhaseTimes>;

impl MachineMoments {
    /// How long it took from the decision to the first claim.
    pub fn total_ms(&self) -> Option<i64> {
        Some(self.first_claim?.millis_since(self.decided?).max(0))
    }

    /// How long the step took; 0 if the clock was set back meanwhile.
    pub fn took_ms(&self, phase: Phase) -> Option<i64> {
        let (from, to) = match phase {
            Phase::Requested => (self.decided?, self.requested?),
            Phase::Accepted => (self.requested?, self.accepted),
            Phase::Registered => (self.accepted, self.registered?),
            Phase::FirstClaim => (self.registered?, self.first_claim?),
        };
        Some(to.millis_since(from).max(0))
    }
}

/// The times of the phases in each region.
pub fn by_region(machines: &[MachineMoments]) -> BTreeMap<WorkerGroup, RegionPhases> {
    let machines = machines.iter();
    by_key(machines.map(|machine| (machine.region.clone(), machine)))
}

/// The times of the phases of all machines with the same key.
pub fn by_key<'m, K: Ord>(
    machines: impl IntoIterator<Item = (K, &'m MachineMoments)>,
) -> BTreeMap<K, RegionPhases> {
    let mut times: BTreeMap<K, BTreeMap<Phase, Vec<i64>>> = BTreeMap::new();
    for (key, machine) in machines {
        let of_key = times.entry(key).or_default();
        for phase in Phase::ALL {
            if let Some(took_ms) = machine.took_ms(phase) {
                of_key.entry(phase).or_default().push(took_ms);
            }
        }
    }
    let summed = times.into_iter().map(|(key, phases)| {
        let phases = phases.into_iter();
        let phases = phases.filter_map(|(phase, times)| Some((phase, PhaseTimes::of(times)?)));
        (key, phases.collect())
    });
    summed.collect()
}

impl PhaseTimes {
    /// `None` without any machine.
    fn of(mut times: Vec<i64>) -> Option<Self> {
        times.sort_unstable();
        let machines = times.len();
        // The nearest-rank percentile.
        let within = |percent: usize| {
            let rank = (machines * percent).div_ceil(100);
            times.get(rank.saturating_sub(1)).copied()
        };
        Some(Self {
            machines,
            median_ms: within(50)?,
            p90_ms: within(90)?,
            p95_ms: within(95)?,
            max_ms: within(100)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_one_span_of_a_histogram() {
        let counts = histogram([-1, 0, 999, 1_000, 59_999, 60_000, i64::MAX]);
        assert_eq!(counts, [3, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1]);
    }

    fn machine(region: &str, moments: [i64; 5]) -> MachineMoments {
        let at = |millis: i64| (millis >= 0).then(|| Timestamp::from_millis(millis));
        let [decided, requested, accepted, registered, first_claim] = moments.map(at);
        MachineMoments {
            region: region.parse().unwrap(),
            decided,
            requested,
            accepted: accepted.unwrap(),
            registered,
            first_claim,
        }
    }

    /// Machines, and the times of 50, 90, 95 and 100 of 100.
    fn times(machines: usize, ranks: [i64; 4]) -> PhaseTimes {
        let [median_ms, p90_ms, p95_ms, max_ms] = ranks;
        PhaseTimes {
            machines,
            median_ms,
            p90_ms,
            p95_ms,
            max_ms,
        }
    }

    #[test]
    fn each_region_has_the_times_of_the_steps_that_its_machines_made() {
        let machines = [
            machine("west", [0, 10, 30, 1_030, 1_031]),
            machine("west", [0, 20, 30, 5_030, -1]),
            machine("west", [0, 30, 90, -1, -1]),
            machine("east", [-1, -1, 90, -1, -1]),
        ];
        let regions = by_region(&machines);
        let west = &regions[&"west".parse().unwrap()];
        assert_eq!(west[&Phase::Requested], times(3, [20, 30, 30, 30]));
        assert_eq!(west[&Phase::Accepted], times(3, [20, 60, 60, 60]));
        assert_eq!(
            west[&Phase::Registered],
            times(2, [1_000, 5_000, 5_000, 5_000])
        );
        assert_eq!(west[&Phase::FirstClaim], times(1, [1; 4]));
        assert!(regions[&"east".parse().unwrap()].is_empty());
    }

    #[test]
    fn ranks_are_times_of_machines() {
        assert_eq!(PhaseTimes::of(vec![]), None);
        assert_eq!(PhaseTimes::of(vec![7]), Some(times(1, [7; 4])));
        let many = (1..=100).rev().collect();
        assert_eq!(PhaseTimes::of(many), Some(times(100, [50, 90, 95, 100])));
        let few = (1..=20).collect();
        assert_eq!(PhaseTimes::of(few), Some(times(20, [10, 18, 19, 20])));
    }

    #[test]
    fn a_step_during_which_the_clock_was_set_back_took_no_time() {
        let odd = machine("west", [100, 50, 40, 30, 35]);
        let took = Phase::ALL.map(|phase| odd.took_ms(phase));
        assert_eq!(took, [Some(0), Some(0), Some(0), Some(5)]);
    }
}
