//! Strategies: how much a pool needs, which launch configs give it, and which workers go.

mod aws_provisioner;
pub(super) mod market;
mod weighted;

use rand::Rng;

use super::health::Condition;
use super::letting_go::View;
use super::need::{Load, rounded};
use super::spot_bids::NoBid;
use super::{Offer, Settings, StrategyName};
use crate::demand::Demand;
use crate::time::Timestamp;

pub use market::MAX_TRIED;
use market::Market;
pub use weighted::chances;

/// One way to plan. A strategy has no state: all it knows is in the view and the settings.
pub(super) trait Strategy: Sync {
    /// What the pool's scaling ratio is when it names none.
    fn default_ratio(&self) -> f64;

    /// The least scaling ratio that a pool may name.
    fn min_ratio(&self) -> f64;

    /// The number of waiting tasks beyond which no plan changes.
    fn most_pending(&self, settings: &Settings) -> f64;

    /// The capacity that all tasks together deserve, before the pool's limits.
    fn target(&self, settings: &Settings, demand: &Demand) -> f64;

    /// How many units more there should be under this load; negative: there are too many.
    fn need(&self, settings: &Settings, load: &Load) -> f64;

    /// No worker is let go if less capacity than this would be left.
    fn keep(&self, settings: &Settings, load: &Load, target: f64) -> f64;

    /// Decides which idle workers go, and which of those that were advised to go stay.
    fn let_go(&self, view: &mut View<'_>) {
        let settings = &view.snapshot.settings;
        let keep = self.keep(settings, &view.load, view.target);
        view.balance(keep, |load| rounded(self.need(settings, load)));
    }

    /// Whether an offer can be used now, by how it has been doing.
    fn condition(&self, _settings: &Settings, offer: &Offer, now: Timestamp) -> Condition {
        offer.health.condition(&offer.tries, now)
    }

    /// The most to pay for a machine of this offer; `None` leaves it to the provider.
    fn max_price(&self, _settings: &Settings, _offer: &Offer) -> Result<Option<f64>, NoBid> {
        Ok(None)
    }

    /// Takes machines from the market until its budget is spent or it has no more.
    fn choose(&self, market: &mut Market<'_>, rng: &mut dyn Rng);
}

impl StrategyName {
    pub(super) fn strategy(self) -> &'static dyn Strategy {
        match self {
            Self::Weighted => &weighted::Weighted,
            Self::AwsProvisioner => &aws_provisioner::AwsProvisioner,
        }
    }

    /// By the name in a pool's config.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "weighted" => Some(Self::Weighted),
            "aws-provisioner" => Some(Self::AwsProvisioner),
            _ => None,
        }
    }
}
