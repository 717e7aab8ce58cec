//! Sums of the comparisons of a pool with its shadow, over the kept decisions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Agreement, Comparison, LaunchedUnits, Opinion};
use crate::id::LaunchConfigId;

/// The actions of both strategies in these decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonSums {
    /// Decisions in which at least one of them did something.
    pub decisions: u64,
    pub same: u64,
    pub other_launch_configs: u64,
    pub different: u64,
    /// Decisions in which the shadow made no plan; they are different.
    pub failed: u64,
    pub live: OpinionSums,
    pub shadow: OpinionSums,
}

/// The actions of one strategy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpinionSums {
    pub units: u64,
    /// Ordered by launch config.
    pub launches: Vec<LaunchedUnits>,
    pub let_go: u64,
    pub called_back: u64,
    pub price_per_hour: f64,
    pub without_price: u64,
    pub price_of_let_go_per_hour: f64,
}

impl ComparisonSums {
    pub fn of(comparisons: &[&Comparison]) -> Self {
        let acting = comparisons
            .iter()
            .filter(|comparison| !comparison.is_idle());
        let acting: Vec<&Comparison> = acting.copied().collect();
        let count = |agreement: Agreement| {
            let equal = acting.iter().filter(|it| it.agreement == agreement);
            equal.count() as u64
        };
        let failed = acting.iter().filter(|it| it.shadow.error.is_some());
        Self {
            decisions: acting.len() as u64,
            same: count(Agreement::Same),
            other_launch_configs: count(Agreement::OtherLaunchConfigs),
            different: count(Agreement::Different),
            failed: failed.count() as u64,
            live: OpinionSums::of(acting.iter().map(|comparison| &comparison.live)),
            shadow: OpinionSums::of(acting.iter().map(|comparison| &comparison.shadow)),
        }
    }
}

impl OpinionSums {
    fn of<'a>(opinions: impl Iterator<Item = &'a Opinion>) -> Self {
        let mut sums = Self::default();
        let mut launches: BTreeMap<&LaunchConfigId, LaunchedUnits> = BTreeMap::new();
        for opinion in opinions {
            sums.units += opinion.units;
            sums.let_go += opinion.n_let_go;
            sums.called_back += opinion.n_called_back;
            sums.price_per_hour += opinion.price_per_hour;
            sums.without_price += opinion.n_without_price;
            sums.price_of_let_go_per_hour += opinion.price_of_let_go_per_hour;
            for launched in &opinion.launches {
                let entry = launches.entry(&launched.launch_config_id);
                let sum = entry.or_insert_with(|| LaunchedUnits {
                    machines: 0,
                    units: 0,
                    price_per_hour: None,
                    ..launched.clone()
                });
                sum.machines += launched.machines;
                sum.units += launched.units;
                if let Some(price) = launched.price_per_hour {
                    *sum.price_per_hour.get_or_insert(0.0) += price;
                }
            }
        }
        sums.launches = launches.into_values().collect();
        sums
    }
}
