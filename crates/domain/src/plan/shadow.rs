//! The shadow of a pool: a strategy that plans beside the one that decides, and never acts.
//!
//! Its input is a part of the snapshot, so the stored input makes both plans again. The plan of the
//! pool does not read that part.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::{Candidate, Offer, Plan, Rival, Settings, Snapshot, StrategyName, plan};
use crate::demand::Demand;
use crate::market::{OfferingMemory, PoolNews};

/// The part of the input that only the shadow reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Shadow {
    pub settings: Settings,
    /// Waiting tasks are counted as far as its plan may depend on them.
    pub demand: Demand,
    /// The memory of the pool's tasks, if the shadow learns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<PoolNews>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<Rival>,
    /// Its knowledge of each offer of the snapshot, in their order; empty if it learns nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<OfferKnowledge>,
    /// The running workers, if only the shadow may change their advice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<Candidate>,
}

/// The knowledge that a strategy that learns has of an offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfferKnowledge {
    /// Its machines that are starting.
    #[serde(default)]
    pub starting: u64,
    /// Units of machines that have been starting for longer than expected.
    #[serde(default)]
    pub late: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<OfferingMemory>,
}

/// The plan of a shadow, which is not executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShadowPlan {
    pub strategy: StrategyName,
    /// `Err`: it made no plan, and why.
    pub plan: Result<Plan, String>,
}

impl OfferKnowledge {
    pub(crate) fn add_to(self, offer: &mut Offer) {
        offer.starting = self.starting;
        offer.late = self.late;
        offer.memory = self.memory;
    }
}

impl Snapshot {
    /// The snapshot from which the shadow plans; `None`: the pool has no shadow.
    pub fn for_shadow(&self) -> Option<Self> {
        let shadow = self.shadow.as_ref()?;
        let mut offers = self.offers.clone();
        for (index, offer) in offers.iter_mut().enumerate() {
            let knowledge = shadow.offers.get(index).copied();
            knowledge.unwrap_or_default().add_to(offer);
        }
        let workers = if self.workers.is_empty() {
            &shadow.workers
        } else {
            &self.workers
        };
        Some(Self {
            now: self.now,
            pool_id: self.pool_id.clone(),
            sources: self.sources.clone(),
            settings: shadow.settings.clone(),
            demand: shadow.demand,
            capacity: self.capacity,
            offers,
            overrides: self.overrides.clone(),
            budgets: self.budgets.clone(),
            lowered_from: self.lowered_from,
            learned: shadow.learned.clone(),
            announced: self.announced.clone(),
            ordinary_runs: self.ordinary_runs,
            rivals: shadow.rivals.clone(),
            answer: None,
            workers: workers.clone(),
            shadow: None,
        })
    }

    /// The snapshot of the strategy that learns: the one that decides, or else its shadow.
    pub fn for_learning(self) -> Self {
        if self.settings.own_strategy_name().learns() {
            return self;
        }
        self.for_shadow().unwrap_or(self)
    }
}

/// The plan of the shadow, with the random numbers of the plan.
pub(super) fn shadow_plan(snapshot: &Snapshot, seed: u64) -> Option<Box<ShadowPlan>> {
    let of_shadow = snapshot.for_shadow()?;
    let make = || plan(&of_shadow, &mut StdRng::seed_from_u64(seed));
    Some(Box::new(ShadowPlan {
        strategy: of_shadow.settings.strategy,
        plan: without_panic(make),
    }))
}

/// An error of the shadow must not prevent the plan.
fn without_panic(make: impl FnOnce() -> Plan) -> Result<Plan, String> {
    catch_unwind(AssertUnwindSafe(make)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text: String = text.unwrap_or("no message").chars().take(200).collect();
        format!("the shadow panicked: {text}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_that_panics_is_an_answer() {
        let told = |message: &'static str| without_panic(|| panic!("{message}")).unwrap_err();
        assert_eq!(told("index"), "the shadow panicked: index");
        let formatted = without_panic(|| panic!("{} {}", "index", 7)).unwrap_err();
        assert_eq!(formatted, "the shadow panicked: index 7");
        let long = "x".repeat(1_000).leak();
        assert_eq!(told(long).len(), "the shadow panicked: ".len() + 200);
    }
}
