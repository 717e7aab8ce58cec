//! The strategies that can be simulated, by their names.

use std::fmt;
use std::str::FromStr;

use domain::plan::StrategyName;

use crate::planner::{Accounting, Planner, Production, Taskcluster};
use crate::scenario::{BadPool, Scenario};

/// A strategy of the server, or a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedStrategy {
    /// Taskcluster's worker-manager as it is deployed: it counts requested capacity twice.
    Taskcluster,
    /// The same, counting once, with workers that stop after the idle time.
    TaskclusterFixed,
    /// A strategy of the server.
    Production(StrategyName),
    /// `balanced` in pools that look ahead.
    Foresight,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {why}; use {list}", why = refusal(text), list = names())]
pub struct UnknownStrategy {
    text: String,
}

fn refusal(text: &str) -> &'static str {
    if text == StrategyName::External.as_str() {
        "cannot be simulated, because it asks a service"
    } else {
        "is not a strategy"
    }
}

fn names() -> String {
    SimulatedStrategy::all()
        .map(SimulatedStrategy::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

impl SimulatedStrategy {
    pub fn all() -> impl Iterator<Item = Self> {
        let baselines = [Self::Taskcluster, Self::TaskclusterFixed];
        let ours = StrategyName::ALL.into_iter();
        // A service cannot be asked in simulated time.
        let ours = ours.filter(|name| *name != StrategyName::External);
        let ours = ours.map(Self::Production);
        baselines.into_iter().chain(ours).chain([Self::Foresight])
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Taskcluster => "taskcluster",
            Self::TaskclusterFixed => "taskcluster-fixed",
            Self::Production(name) => name.as_str(),
            Self::Foresight => "balanced-foresight",
        }
    }

    /// The planner of this strategy for the pools of a scenario.
    pub fn planner(self, scenario: &Scenario, seed: u64) -> Result<Box<dyn Planner>, BadPool> {
        let baseline = |accounting| Taskcluster::new(scenario, accounting, seed);
        Ok(match self {
            Self::Taskcluster => Box::new(baseline(Accounting::Deployed)?),
            Self::TaskclusterFixed => Box::new(baseline(Accounting::Once)?),
            Self::Production(name) => Box::new(Production::new(scenario, Some(name), seed)?),
            Self::Foresight => Box::new(Production::with_foresight(scenario, seed)?),
        })
    }
}

impl fmt::Display for SimulatedStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SimulatedStrategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        let mut all = Self::all();
        let named = all.find(|strategy| strategy.as_str() == text);
        named.ok_or_else(|| UnknownStrategy {
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_that_asks_a_service_is_refused_with_the_reason() {
        let refusal = |text: &str| text.parse::<SimulatedStrategy>().unwrap_err().to_string();
        let list = "taskcluster, taskcluster-fixed, weighted, aws-provisioner, balanced, \
                    balanced-foresight";
        let why = "\"external\" cannot be simulated, because it asks a service";
        assert_eq!(refusal("external"), format!("{why}; use {list}"));
        assert_eq!(
            refusal("luck"),
            format!("\"luck\" is not a strategy; use {list}")
        );
    }
}
