//! The scenarios that strategies are compared in.

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use domain::time::{DAY_MS, HOUR_MS};

use super::clouds::{Outages, PRICE, add_storms, drifting_price, four, hours, offering};
use super::loads::{Bursts, Durations, LoadDraws, window};
use super::{Arrival, BadPool, Follower, Scenario, SimulatedPool, Timing};
use crate::draws::Draws;
use crate::offering::{BootTime, Offering};

/// The maximum capacity of every pool.
const MAX_CAPACITY: u64 = 1_000;

macro_rules! scenarios {
    (
        [$($name:ident = $text:literal, $about:literal;)+]
        [$($more:ident = $more_text:literal, $more_about:literal;)+]
    ) => {
        /// A scenario of the catalog.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ScenarioName {
            $(#[doc = $about] $name,)+
            $(#[doc = $more_about] $more,)+
        }

        impl ScenarioName {
            /// Those of the comparison of strategies.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$name),+];
            /// Those that show what foresight is worth.
            pub const FURTHER: [Self; [$($more_text),+].len()] = [$(Self::$more),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                    $(Self::$more => $more_text,)+
                }
            }

            /// The load and the clouds, for people.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$name => $about,)+
                    $(Self::$more => $more_about,)+
                }
            }
        }
    };
}

scenarios! {
    [
    Steady = "steady", "50 tasks run on average, 10 minutes each, for 12 hours; equal offerings";
    Burst = "burst", "bursts of 20 to 300 tasks every half hour, 15 minutes each; equal offerings";
    Diurnal = "diurnal", "10 to 140 tasks run, by the time of day, with small bursts; equal offerings";
    Flaky = "flaky", "80 tasks run, with bursts; the two cheap offerings are often down for 10 to 40 minutes";
    FlakyAsync = "flaky-async", "as flaky, but launches fail a minute after they were accepted";
    Quota = "quota", "90 tasks run, with bursts; the cheaper an offering, the lower its quota";
    BrokenOne = "broken-one", "60 tasks run, with bursts; machines of one offering do not register for 6 hours";
    BrokenAll = "broken-all", "40 tasks run, with bursts; no machine registers for 3 hours";
    SlowBoot = "slow-boot", "40 tasks run, with bursts; machines boot for 15 minutes";
    Spot = "spot", "80 tasks run, half an hour each; four cheap offerings are interrupted, one is not";
    MixedPrice = "mixed-price", "80 tasks run, with bursts; six offerings with drifting prices";
    Short = "short", "bursts of 50 to 400 tasks of 45 seconds every 15 minutes; equal offerings";
    Long = "long", "bursts of 5 to 40 tasks of 2 hours every 90 minutes; equal offerings";
    TraceBLinux = "trace-b-linux", "a day of builds of Firefox, as recorded; four prices";
    TraceDecision = "trace-decision", "a day of decision tasks, as recorded, about 160; equal offerings";
    Fair = "fair", "three pools, two with bursts and a small one, share a quota that is too low for all";
    Combined = "combined", "a day with bursts; five offerings with outages, quotas, interruptions, and broken machines";
    LongAmongShort = "long-among-short", "a few tasks of 10 seconds every hour, and now and then one of 3 hours; equal offerings";
    FullRegion = "full-region", "a large pool in three regions, and a small pool that can only use the first, which is often full";
    Unreliable = "unreliable", "bursts for 3 hours, then a quiet night; two machines of five never register, as the provider says";
    ]
    [
    Groups = "groups", "groups of 5 to 60 builds every 40 minutes, and 1 to 6 tests after each build; equal offerings";
    Days = "days", "five days: 10 to 140 tasks run, by the time of day, with small bursts; equal offerings";
    WeekBLinux = "week-b-linux", "all recorded builds of Firefox; four prices";
    WeekLinuxLarge = "week-linux-large", "five days of tests of Firefox, as recorded; four prices";
    ]
}

/// Reads the traces that scenarios replay.
pub trait TraceSource {
    /// The tasks of the trace with this file name.
    fn trace(&self, file: &str) -> Result<Vec<Arrival>, String>;
}

#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("{0:?} is not a scenario; use {list}", list = names())]
    Unknown(String),
    #[error("the scenario {scenario} needs a trace: {problem}")]
    Trace {
        scenario: ScenarioName,
        problem: String,
    },
    #[error(transparent)]
    Pool(#[from] BadPool),
}

fn names() -> String {
    let all = ScenarioName::ALL.into_iter().chain(ScenarioName::FURTHER);
    all.map(ScenarioName::as_str).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for ScenarioName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ScenarioName {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let mut all = Self::ALL.into_iter().chain(Self::FURTHER);
        let named = all.find(|name| name.as_str() == text);
        named.ok_or_else(|| ScenarioError::Unknown(text.to_owned()))
    }
}

const fn durations(mean_seconds: f64, sigma: f64) -> Durations {
    Durations {
        mean_seconds,
        sigma,
    }
}

fn bursts(every_seconds: f64, n_tasks: (f64, f64), durations: Durations) -> Bursts {
    Bursts {
        every_seconds,
        n_tasks,
        durations,
        spread_seconds: 60.0,
    }
}

/// The bursts of most scenarios: one each hour.
fn hourly(n_tasks: (f64, f64), durations: Durations) -> Bursts {
    bursts(3_600.0, n_tasks, durations)
}

const BUILDS: Durations = durations(900.0, 0.3);
const TESTS: Durations = durations(600.0, 0.5);
/// A quarter of an hour.
const USUAL: Durations = durations(900.0, 0.7);

/// Below and above the middle by the same amount, lowest at midnight.
fn by_time_of_day(middle: f64, amount: f64) -> impl Fn(f64) -> f64 {
    move |part| middle - amount * (2.0 * PI * part).cos()
}

impl ScenarioName {
    /// The traces that the scenario replays, by their file names.
    pub fn traces(self) -> &'static [&'static str] {
        match self {
            Self::TraceBLinux | Self::WeekBLinux => &["gecko-3-b-linux.dat"],
            Self::WeekLinuxLarge => &["gecko-t-t-linux-large.dat"],
            Self::TraceDecision => &["mobile-3-decision.dat", "mobile-1-decision.dat"],
            Self::Steady
            | Self::Burst
            | Self::Diurnal
            | Self::Flaky
            | Self::FlakyAsync
            | Self::Quota
            | Self::BrokenOne
            | Self::BrokenAll
            | Self::SlowBoot
            | Self::Spot
            | Self::MixedPrice
            | Self::Short
            | Self::Long
            | Self::Fair
            | Self::Combined
            | Self::LongAmongShort
            | Self::FullRegion
            | Self::Unreliable
            | Self::Groups
            | Self::Days => &[],
        }
    }

    /// The pools, each with the number of the offerings that it may use, from the first.
    fn pools(self) -> &'static [(&'static str, usize)] {
        if self == Self::Fair {
            &[
                ("simulated/large-1", usize::MAX),
                ("simulated/large-2", usize::MAX),
                ("simulated/small", usize::MAX),
            ]
        } else if self == Self::FullRegion {
            &[("simulated/large", usize::MAX), ("simulated/small", 1)]
        } else if self == Self::Groups {
            &[
                ("simulated/builds", usize::MAX),
                ("simulated/tests", usize::MAX),
            ]
        } else {
            &[("simulated/pool", usize::MAX)]
        }
    }

    /// Makes the scenario with its random draws.
    pub fn build(self, seed: u64, traces: &dyn TraceSource) -> Result<Scenario, ScenarioError> {
        let mut timing = Timing::default();
        if matches!(self, Self::Days | Self::WeekBLinux | Self::WeekLinuxLarge) {
            // The time after the end of a record says nothing.
            timing.drain_ms = 0;
        }
        let offerings = self.offerings(seed);
        let pools = self.pools().iter().map(|(id, n_offerings)| {
            let own = &offerings[..offerings.len().min(*n_offerings)];
            SimulatedPool::new(id, 0, MAX_CAPACITY, own, &timing)
        });
        let arrivals = self.arrivals(seed, traces)?;
        Ok(Scenario {
            pools: pools.collect::<Result<_, _>>()?,
            followers: if self == Self::Groups {
                tests_after(&arrivals, seed)
            } else {
                Vec::new()
            },
            arrivals,
            offerings,
            timing,
        })
    }
}

/// Loads.
impl ScenarioName {
    fn arrivals(self, seed: u64, traces: &dyn TraceSource) -> Result<Vec<Arrival>, ScenarioError> {
        let load = |hours| LoadDraws::new(seed, self.as_str(), hours);
        let load = match self {
            Self::Steady => load(12).busy(50.0, durations(600.0, 0.6)),
            Self::Burst => load(12).bursts(bursts(1_800.0, (20.0, 300.0), USUAL)),
            Self::Diurnal => load(24)
                .busy_by_time(by_time_of_day(75.0, 65.0), USUAL)
                .bursts(bursts(5_400.0, (10.0, 60.0), durations(600.0, 0.7))),
            Self::Flaky | Self::FlakyAsync | Self::MixedPrice => load(12)
                .busy(80.0, USUAL)
                .bursts(hourly((20.0, 150.0), USUAL)),
            Self::Quota => load(12)
                .busy(90.0, USUAL)
                .bursts(hourly((20.0, 120.0), USUAL)),
            Self::BrokenOne => load(12)
                .busy(60.0, USUAL)
                .bursts(hourly((20.0, 150.0), USUAL)),
            Self::BrokenAll => load(10)
                .busy(40.0, USUAL)
                .bursts(hourly((20.0, 80.0), USUAL)),
            Self::SlowBoot => {
                let tasks = durations(1_200.0, 0.6);
                load(12)
                    .busy(40.0, tasks)
                    .bursts(hourly((20.0, 120.0), tasks))
            }
            Self::Spot => {
                let tasks = durations(1_800.0, 0.6);
                let bursts = bursts(5_400.0, (20.0, 100.0), tasks);
                load(16).busy(80.0, tasks).bursts(bursts)
            }
            Self::Short => {
                let tasks = durations(45.0, 0.5);
                let bursts = Bursts {
                    spread_seconds: 120.0,
                    ..bursts(900.0, (50.0, 400.0), tasks)
                };
                load(8).bursts(bursts).busy(9.0, tasks)
            }
            Self::Long => load(24).bursts(bursts(5_400.0, (5.0, 40.0), durations(7_200.0, 0.5))),
            Self::Fair => return Ok(fair(seed)),
            Self::Combined => load(24)
                .busy_by_time(by_time_of_day(70.0, 55.0), USUAL)
                .bursts(hourly((20.0, 150.0), USUAL)),
            Self::LongAmongShort => load(24)
                .bursts(hourly((3.0, 12.0), durations(10.0, 0.3)))
                .busy(0.5, durations(10_800.0, 0.2)),
            Self::FullRegion => return Ok(full_region(seed)),
            Self::Unreliable => load(3).bursts(bursts(1_200.0, (10.0, 60.0), USUAL)),
            Self::Groups => load(12).bursts(bursts(2_400.0, (5.0, 60.0), BUILDS)),
            Self::Days => load(120)
                .busy_by_time(|part| by_time_of_day(75.0, 65.0)(5.0 * part), USUAL)
                .bursts(bursts(5_400.0, (10.0, 60.0), durations(600.0, 0.7))),
            Self::TraceBLinux => return self.replay(seed % 10 * 35, DAY_MS, traces),
            Self::TraceDecision => return self.replay(seed % 10 * 28, DAY_MS, traces),
            Self::WeekBLinux | Self::WeekLinuxLarge => return self.replay(0, i64::MAX, traces),
        };
        Ok(load.arrivals())
    }

    /// The recorded tasks of this time, which begins this many hundredths of a day after the start.
    fn replay(
        self,
        hundredths: u64,
        length_ms: i64,
        traces: &dyn TraceSource,
    ) -> Result<Vec<Arrival>, ScenarioError> {
        let from_ms = i64::try_from(hundredths).unwrap_or_default() * DAY_MS / 100;
        let mut arrivals = Vec::new();
        for file in self.traces() {
            let trace = traces.trace(file);
            let trace = trace.map_err(|problem| ScenarioError::Trace {
                scenario: self,
                problem,
            })?;
            arrivals.extend(window(&trace, from_ms, length_ms));
        }
        arrivals.sort_unstable();
        Ok(arrivals)
    }
}

/// The tests that each build announces, in the second pool.
fn tests_after(builds: &[Arrival], seed: u64) -> Vec<Follower> {
    let mut draws = Draws::new(seed, "tests", &[]);
    let mut tests = Vec::new();
    for after in 0..builds.len() {
        for _ in 0..1 + draws.number() % 6 {
            tests.push(Follower {
                after,
                duration_ms: TESTS.draw_ms(&mut draws),
                pool: 1,
            });
        }
    }
    tests
}

/// Two large pools with bursts, and a small one without.
fn fair(seed: u64) -> Vec<Arrival> {
    let tasks = durations(900.0, 0.6);
    let pools = [(60.0, true), (60.0, true), (15.0, false)];
    let mut arrivals = Vec::new();
    for (pool, (n_running, has_bursts)) in pools.into_iter().enumerate() {
        let name = format!("fair {pool}");
        let mut load = LoadDraws::new(seed, &name, 8).of_pool(pool);
        load = load.busy(n_running, tasks);
        if has_bursts {
            load = load.bursts(hourly((50.0, 150.0), tasks));
        }
        arrivals.extend(load.arrivals());
    }
    arrivals.sort_unstable();
    arrivals
}

/// A large pool with bursts, and a small one without.
fn full_region(seed: u64) -> Vec<Arrival> {
    let tasks = durations(900.0, 0.6);
    let large = LoadDraws::new(seed, "full-region large", 8);
    let large = large.busy(60.0, tasks).bursts(hourly((20.0, 80.0), tasks));
    let small = LoadDraws::new(seed, "full-region small", 8).of_pool(1);
    let mut arrivals = large.arrivals();
    arrivals.extend(small.busy(12.0, tasks).arrivals());
    arrivals.sort_unstable();
    arrivals
}

/// Clouds.
impl ScenarioName {
    fn offerings(self, seed: u64) -> Vec<Offering> {
        let mut draws = Draws::new(seed, self.as_str(), &[1]);
        match self {
            Self::Steady
            | Self::Burst
            | Self::Diurnal
            | Self::Short
            | Self::Long
            | Self::LongAmongShort
            | Self::Groups
            | Self::Days
            | Self::TraceDecision => four(),
            Self::Flaky => flaky(&mut draws, false),
            Self::FlakyAsync => flaky(&mut draws, true),
            Self::Quota => priced(&[0.8, 0.9, 1.0, 1.0], |index, offering| {
                offering.quota = Some([20, 40, 60, 120][index]);
            }),
            Self::BrokenOne => priced(&[1.0; 4], |index, offering| {
                if index == 1 {
                    offering.broken_images = vec![hours(3, 9)];
                }
            }),
            Self::BrokenAll => priced(&[1.0; 4], |_, offering| {
                offering.broken_images = vec![hours(3, 6)];
            }),
            Self::SlowBoot => priced(&[1.0; 4], |_, offering| {
                offering.boot = BootTime {
                    mean_seconds: 900.0,
                    sigma: 0.3,
                };
            }),
            Self::Spot => spot(&mut draws),
            Self::MixedPrice => mixed_price(&mut draws),
            Self::TraceBLinux | Self::WeekBLinux | Self::WeekLinuxLarge => {
                priced(&[0.8, 0.9, 1.0, 1.1], |_, _| ())
            }
            Self::Fair => priced(&[1.0; 4], |_, offering| offering.quota = Some(40)),
            Self::Combined => combined(&mut draws),
            Self::FullRegion => priced(&[0.8, 1.0, 1.0], |index, offering| {
                offering.quota = (index == 0).then_some(30);
            }),
            Self::Unreliable => priced(&[1.0; 2], |_, offering| {
                offering.failing_boots = 0.4;
                offering.promised_reliability = Some(0.6);
            }),
        }
    }
}

/// An offering for each share of the usual price.
fn priced(shares: &[f64], change: impl Fn(usize, &mut Offering)) -> Vec<Offering> {
    let offerings = shares.iter().enumerate().map(|(index, share)| {
        let mut offering = offering(index, PRICE * share);
        change(index, &mut offering);
        offering
    });
    offerings.collect()
}

/// The two cheap offerings are often down.
fn flaky(draws: &mut Draws, fails_late: bool) -> Vec<Offering> {
    let outages = Outages {
        first_hours: (0.3, 1.5),
        length_minutes: (10.0, 40.0),
        gap_hours: (0.7, 2.0),
    };
    let mut offerings = priced(&[0.7, 0.7, 1.0, 1.0], |_, offering| {
        offering.fails_late = fails_late;
    });
    for offering in &mut offerings[..2] {
        offering.outages = outages.draw(draws, 12 * HOUR_MS);
    }
    offerings
}

/// Four offerings that may be interrupted, and a dear one without interruptions.
fn spot(draws: &mut Draws) -> Vec<Offering> {
    let markets = [
        (0.10, 0.6, 2.0),
        (0.13, 0.10, 6.0),
        (0.15, 0.03, 12.0),
        (0.18, 0.02, 20.0),
    ];
    let markets = markets.into_iter().enumerate();
    let mut offerings: Vec<Offering> = markets
        .map(|(index, (price, per_hour, storm_hours))| {
            let mut offering = offering(index, price);
            offering.interruptions_per_hour = per_hour;
            add_storms(&mut offering, draws, storm_hours, 16 * HOUR_MS);
            offering
        })
        .collect();
    offerings.push(offering(offerings.len(), PRICE));
    offerings
}

fn mixed_price(draws: &mut Draws) -> Vec<Offering> {
    let bases = [0.20, 0.25, 0.30, 0.40, 0.50, 0.60];
    let offerings = bases.into_iter().enumerate().map(|(index, base)| Offering {
        price: drifting_price(draws, base, 24 * HOUR_MS),
        quota: Some(80),
        ..offering(index, base)
    });
    offerings.collect()
}

fn combined(draws: &mut Draws) -> Vec<Offering> {
    let outages = Outages {
        first_hours: (0.5, 3.0),
        length_minutes: (10.0, 60.0),
        gap_hours: (1.0, 5.0),
    };
    let markets = [
        (0.25, 60),
        (0.28, 60),
        (0.34, 120),
        (0.40, 200),
        (0.45, 300),
    ];
    let markets = markets.into_iter().enumerate();
    let offerings = markets.map(|(index, (price, quota))| {
        let mut offering = offering(index, price);
        offering.quota = Some(quota);
        offering.fails_late = index == 1;
        offering.interruptions_per_hour = if index < 2 { 0.05 } else { 0.0 };
        if index < 3 {
            offering.outages = outages.draw(draws, 24 * HOUR_MS);
        }
        if index == 2 {
            offering.broken_images = vec![hours(8, 12)];
        }
        offering
    });
    offerings.collect()
}
