//! Strategies: the capacity of a pool, its launch configs, and which workers stop.

mod aws_provisioner;
pub(super) mod balanced;
mod external;
pub(super) mod usable_offers;
mod weighted;

use std::collections::BTreeMap;

use rand::Rng;

use super::advice::View;
use super::health::Condition;
use super::need::{Load, rounded};
use super::notes::Notes;
use super::spot_bids::NoBid;
use super::{Offer, Settings, Snapshot, StrategyName};
use crate::demand::Demand;
use crate::id::{OfferingId, names};
use crate::time::Timestamp;

pub(super) use external::note_service;
pub use usable_offers::MAX_TRIED;
use usable_offers::UsableOffers;

/// A way to plan. A strategy has no state: its input is the view and the settings.
pub(super) trait Strategy: Sync {
    /// The scaling ratio of a pool that sets none.
    fn default_ratio(&self) -> f64;

    /// The minimum scaling ratio of a pool.
    fn min_ratio(&self) -> f64;

    /// The number of waiting tasks beyond which no plan changes.
    fn most_pending(&self, settings: &Settings) -> f64;

    /// The capacity that all tasks together need, before the pool's limits.
    fn target(&self, settings: &Settings, demand: &Demand) -> f64;

    /// How many further units this load needs; negative if there are too many.
    fn need(&self, settings: &Settings, load: &Load) -> f64;

    /// The same, if all machines that are coming are in time. At least what `need_in` finds then.
    fn need_if_all_come(&self, settings: &Settings, load: &Load) -> f64 {
        self.need(settings, load)
    }

    /// The need, with all that the snapshot contains.
    fn need_in(&self, snapshot: &Snapshot, load: &Load) -> f64 {
        self.need(&snapshot.settings, load)
    }

    /// Adds to the reasons what the need counts besides tasks that wait.
    fn note_need(&self, _snapshot: &Snapshot, _notes: &mut Notes) {}

    /// No worker is asked to stop if less capacity than this would be left.
    fn keep(&self, settings: &Settings, load: &Load, target: f64) -> f64;

    /// Decides which idle workers stop, and which that were asked to stop stay.
    fn let_go(&self, view: &mut View<'_>) {
        let settings = &view.snapshot.settings;
        let keep = self.keep(settings, &view.load, view.target);
        view.balance(keep, |load| rounded(self.need(settings, load)));
    }

    /// Whether an offer can be used now, from the results of its launches.
    fn condition(&self, _settings: &Settings, offer: &Offer, now: Timestamp) -> Condition {
        offer.health.condition(&offer.tries, now)
    }

    /// The offerings that the pool leaves to others, though they may have machines, and why.
    fn left_to_others(&self, _snapshot: &Snapshot) -> BTreeMap<OfferingId, String> {
        BTreeMap::new()
    }

    /// Maximum price for a machine of this offer; `None` leaves it to the provider.
    fn max_price(&self, _settings: &Settings, _offer: &Offer) -> Result<Option<f64>, NoBid> {
        Ok(None)
    }

    /// Whether launch configs whose pause is over are tried before the choice.
    fn retries_paused(&self) -> bool {
        true
    }

    /// The weights of the usable offers in the next draw; `None` if the strategy does not draw by
    /// weights.
    fn weights(&self, _offers: &UsableOffers<'_>) -> Option<Vec<f64>> {
        None
    }

    /// Takes machines from the usable offers until the budget is spent or none is left.
    fn choose(&self, offers: &mut UsableOffers<'_>, rng: &mut dyn Rng);
}

names! {
    StrategyName, "not a strategy",
    Weighted = "weighted",
    AwsProvisioner = "aws-provisioner",
    Balanced = "balanced",
    External = "external",
}

impl StrategyName {
    /// Whether it learns from launches, workers and tasks.
    pub fn learns(self) -> bool {
        match self {
            Self::Balanced => true,
            Self::Weighted | Self::AwsProvisioner | Self::External => false,
        }
    }

    pub(super) fn strategy(self) -> &'static dyn Strategy {
        match self {
            Self::External => &external::External,
            Self::Weighted => &weighted::Weighted,
            Self::AwsProvisioner => &aws_provisioner::AwsProvisioner,
            Self::Balanced => &balanced::Balanced,
        }
    }
}

impl Settings {
    /// The strategy of our own that decides: for `external`, the fallback.
    pub fn own_strategy_name(&self) -> StrategyName {
        let external = self.external.as_ref();
        external.map_or(self.strategy, |external| external.fallback)
    }

    pub(super) fn own_strategy(&self) -> &'static dyn Strategy {
        self.own_strategy_name().strategy()
    }
}

impl Snapshot {
    /// The strategy that decides: `external` only with a valid answer of its service.
    pub(super) fn strategy(&self) -> &'static dyn Strategy {
        match self.proposal() {
            Some(Ok(_)) => &external::External,
            Some(Err(_)) | None => self.settings.own_strategy(),
        }
    }
}
