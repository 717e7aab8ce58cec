//! Means over seeds, and differences between strategies with the same seeds.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{SeedResult, StrategyResult};
use crate::metrics::Metrics;
use crate::statistics::{Estimate, mean};

macro_rules! measures {
    ($($name:ident = $text:literal, |$metrics:ident| $value:expr;)+) => {
        /// A number that a simulation results in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Measure {
            $($name,)+
        }

        impl Measure {
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$name),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// `None`: this simulation says nothing about it.
            fn of(self, metrics: &Metrics) -> Option<f64> {
                match self {
                    $(Self::$name => { let $metrics = metrics; $value })+
                }
            }
        }
    };
}

measures! {
    J = "j", |metrics| Some(metrics.j);
    Cost = "cost", |metrics| Some(metrics.cost);
    Delay = "delayMean", |metrics| Some(metrics.delay.mean);
    DelayP50 = "delayP50", |metrics| Some(metrics.delay.p50);
    DelayP95 = "delayP95", |metrics| Some(metrics.delay.p95);
    DelayP99 = "delayP99", |metrics| Some(metrics.delay.p99);
    DelayWorst = "delayWorst", |metrics| Some(metrics.delay.worst);
    OverProvisioned = "overProvisionedHours", |metrics| Some(metrics.over_provisioned_hours);
    Launches = "launches", |metrics| Some(metrics.launches as f64);
    Refused = "refused", |metrics| Some(metrics.refused as f64);
    Wasted = "wasted", |metrics| Some(metrics.wasted as f64);
    WastedCost = "wastedCost", |metrics| Some(metrics.wasted_cost);
    Interrupted = "interrupted", |metrics| Some(metrics.interrupted as f64);
    Recovery = "recovery", |metrics| metrics.recovery;
    Fairness = "fairness", |metrics| metrics.fairness;
    Unfinished = "unfinished", |metrics| Some(metrics.unfinished as f64);
}

/// The mean of each measure over the seeds that say something about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary(Vec<Option<Estimate>>);

/// How each measure differs from that of another strategy. Differences are paired: they are taken
/// seed by seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    estimates: Vec<Option<Estimate>>,
    /// The means of the other strategy.
    bases: Vec<f64>,
}

/// The difference of a measure, in its unit and in percent of the other mean.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DifferenceEntry {
    #[serde(flatten)]
    absolute: Estimate,
    percent: Option<f64>,
    percent_margin: Option<f64>,
}

impl Summary {
    pub(super) fn of(seeds: &[SeedResult]) -> Self {
        let estimate = |measure: Measure| {
            let values = seeds.iter().filter_map(|seed| measure.of(&seed.metrics));
            Estimate::of(&values.collect::<Vec<_>>())
        };
        Self(Measure::ALL.map(estimate).into())
    }

    pub fn get(&self, measure: Measure) -> Option<Estimate> {
        self.0[measure as usize]
    }
}

impl Difference {
    pub(super) fn of(first: &StrategyResult, seeds: &[SeedResult]) -> Self {
        let (estimates, bases) = Measure::ALL
            .into_iter()
            .map(|measure| {
                let pairs = first.seeds.iter().zip(seeds);
                let pairs = pairs.filter_map(|(first, seed)| {
                    let base = measure.of(&first.metrics)?;
                    Some((base, measure.of(&seed.metrics)? - base))
                });
                let (bases, differences): (Vec<f64>, Vec<f64>) = pairs.unzip();
                (Estimate::of(&differences), mean(&bases))
            })
            .unzip();
        Self { estimates, bases }
    }

    /// In the unit of the measure.
    pub fn get(&self, measure: Measure) -> Option<Estimate> {
        self.estimates[measure as usize]
    }

    /// In percent of the mean of the other strategy. `None`: that mean is 0.
    pub fn percent(&self, measure: Measure) -> Option<Estimate> {
        let base = self.bases[measure as usize];
        let estimate = self.get(measure).filter(|_| base.abs() > 0.0)?;
        Some(Estimate {
            mean: 100.0 * estimate.mean / base,
            margin: estimate.margin.map(|margin| 100.0 * margin / base.abs()),
        })
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Measure::ALL.len()))?;
        for measure in Measure::ALL {
            map.serialize_entry(measure.as_str(), &self.get(measure))?;
        }
        map.end()
    }
}

impl Serialize for Difference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Measure::ALL.len()))?;
        for measure in Measure::ALL {
            let percent = self.percent(measure);
            let entry = self.get(measure).map(|absolute| DifferenceEntry {
                absolute,
                percent: percent.map(|percent| percent.mean),
                percent_margin: percent.and_then(|percent| percent.margin),
            });
            map.serialize_entry(measure.as_str(), &entry)?;
        }
        map.end()
    }
}
