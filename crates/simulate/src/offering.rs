//! Offerings: what a simulated cloud offers, with its price, its limits and its failures.

use std::sync::Arc;

use crate::draws::Draws;
use crate::units::HOUR;

/// One kind of machine in one place. Pools share it: its quota and its failures concern all of
/// them.
#[derive(Clone, Debug, PartialEq)]
pub struct Offering {
    pub name: String,
    pub price: Price,
    /// How many machines may exist at the same time. No planner sees it. `None`: any number.
    pub quota: Option<u64>,
    /// Times at which it gives no machines.
    pub outages: Vec<Period>,
    /// Outages are noticed late: it accepts launches, and the machines fail after a minute.
    pub fails_late: bool,
    /// Times at which machines are made that never register.
    pub broken_images: Vec<Period>,
    pub boot: BootTime,
    /// Boot times in seconds, from which any may be drawn instead. Empty: none was observed.
    pub observed_boots: Arc<[f64]>,
    /// The share of machines that never register, at any time.
    pub failing_boots: f64,
    /// The share of machines that register, as its bids say. `None`: they say nothing about it.
    pub promised_reliability: Option<f64>,
    /// How often one running machine is taken back, per hour.
    pub interruptions_per_hour: f64,
    pub storms: Vec<Storm>,
}

/// Dollars per machine and hour, as steps in time: from each moment on, a price.
#[derive(Clone, Debug, PartialEq)]
pub struct Price(Vec<(i64, f64)>);

/// A time from a moment on, and up to another moment, which does not belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub from_ms: i64,
    pub to_ms: i64,
}

/// The time from a launch to the registration: a log-normal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BootTime {
    pub mean_seconds: f64,
    /// The deviation of its logarithm; 0 makes all boots equal.
    pub sigma: f64,
}

/// A moment at which the cloud begins to take back a share of the machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storm {
    pub at_ms: i64,
    pub share: f64,
}

impl Offering {
    /// An offering of constant price without limits or failures.
    pub fn plain(name: impl Into<String>, price: f64, boot: BootTime) -> Self {
        Self {
            name: name.into(),
            price: Price::constant(price),
            quota: None,
            outages: Vec::new(),
            fails_late: false,
            broken_images: Vec::new(),
            boot,
            observed_boots: Arc::default(),
            failing_boots: 0.0,
            promised_reliability: None,
            interruptions_per_hour: 0.0,
            storms: Vec::new(),
        }
    }

    /// A boot time in seconds.
    pub(crate) fn draw_boot(&self, draws: &mut Draws) -> f64 {
        match &self.observed_boots[..] {
            [] => self.boot.mean_seconds * draws.log_normal(self.boot.sigma),
            observed => observed[draws.index(observed.len())],
        }
    }

    pub(crate) fn is_down(&self, at_ms: i64) -> bool {
        self.outages.iter().any(|outage| outage.contains(at_ms))
    }

    pub(crate) fn makes_broken_machines(&self, at_ms: i64) -> bool {
        self.broken_images.iter().any(|time| time.contains(at_ms))
    }
}

impl Price {
    pub fn constant(price: f64) -> Self {
        Self(vec![(0, price)])
    }

    /// The steps are in the order of their times. Before the first step, its price counts.
    pub fn steps(first: f64, later: impl IntoIterator<Item = (i64, f64)>) -> Self {
        let mut steps = vec![(0, first)];
        steps.extend(later);
        Self(steps)
    }

    /// The price at a moment.
    pub fn at(&self, at_ms: i64) -> f64 {
        let n_before = self.0.partition_point(|(from_ms, _)| *from_ms <= at_ms);
        self.0[n_before.saturating_sub(1)].1
    }

    /// The dollars for a machine during this time.
    pub fn cost(&self, period: Period) -> f64 {
        let mut cost = 0.0;
        for (index, (from_ms, price)) in self.0.iter().enumerate() {
            let end_ms = self.0.get(index + 1).map_or(i64::MAX, |(from, _)| *from);
            let start_ms = if index == 0 { i64::MIN } else { *from_ms };
            let common_ms = end_ms.min(period.to_ms) - start_ms.max(period.from_ms);
            if common_ms > 0 {
                cost += price * common_ms as f64 / HOUR;
            }
        }
        cost
    }
}

impl Period {
    pub fn contains(&self, at_ms: i64) -> bool {
        self.from_ms <= at_ms && at_ms < self.to_ms
    }
}

#[cfg(test)]
mod tests {
    use domain::time::HOUR_MS;

    use super::*;

    fn during(from_ms: i64, to_ms: i64) -> Period {
        Period { from_ms, to_ms }
    }

    #[test]
    fn a_price_holds_until_the_next_step() {
        let price = Price::steps(0.2, [(100, 0.4), (200, 0.1)]);
        let at = [-5, 0, 99, 100, 199, 200, 9_999].map(|at_ms| price.at(at_ms));
        assert_eq!(at, [0.2, 0.2, 0.2, 0.4, 0.4, 0.1, 0.1]);
        assert_eq!(Price::constant(0.3).at(12), 0.3);
    }

    #[test]
    fn a_machine_costs_each_price_for_as_long_as_it_holds() {
        let price = Price::steps(0.2, [(HOUR_MS, 0.4), (3 * HOUR_MS, 1.0)]);
        let cost = |from, to| price.cost(during(from * HOUR_MS / 2, to * HOUR_MS / 2));
        assert_eq!(cost(0, 2), 0.2);
        assert_eq!(cost(1, 4), 0.1 + 0.4);
        assert_eq!(cost(0, 8), 0.2 + 0.8 + 1.0);
        assert_eq!(cost(4, 4), 0.0);
        assert_eq!(cost(7, 9), 1.0);
    }

    #[test]
    fn a_period_ends_before_its_last_moment() {
        let offering = Offering {
            outages: vec![during(10, 20), during(30, 31)],
            broken_images: vec![during(0, 5)],
            ..Offering::plain(
                "a",
                0.4,
                BootTime {
                    mean_seconds: 1.0,
                    sigma: 0.0,
                },
            )
        };
        let down = [9, 10, 19, 20, 29, 30, 31].map(|at_ms| offering.is_down(at_ms));
        assert_eq!(down, [false, true, true, false, false, true, false]);
        assert!(offering.makes_broken_machines(4) && !offering.makes_broken_machines(5));
    }
}
