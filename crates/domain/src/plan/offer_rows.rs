//! The offers of a plan: each launch config with its numbers, and why it was taken or not.

use serde::{Deserialize, Serialize};

use super::need::exact;
use super::notes::{Notes, units};
use super::spot_bids::Budget;
use super::strategy::usable_offers::UsableOffers;
use super::{Offer, Plan, Snapshot, StrategyName};
use crate::id::{LaunchConfigId, ProviderId};

/// A bid for a launch config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferRow {
    pub launch_config_id: LaunchConfigId,
    pub provider_id: ProviderId,
    /// Location and type, for people.
    pub place: String,
    /// Units of a machine.
    pub capacity_each: u32,
    /// Dollars per hour and machine, if known.
    pub price: Option<f64>,
    /// Dollars for an hour of useful work of one unit: the price over utility, units of a machine
    /// and the share of machines that register, as far as these are known.
    pub price_per_useful_hour: Option<f64>,
    /// The expected time from launch to registration, if known.
    pub ready_ms: Option<i64>,
    /// How many machines it could give.
    pub offered: u64,
    /// How many of them the plan starts.
    pub taken: u32,
    /// `taken`, `not needed`, or why it was not used.
    pub why: String,
}

impl Snapshot {
    /// The offers of the launch configs, in the pool's order. `plan` is the plan of this snapshot.
    pub fn offer_rows(&self, plan: &Plan) -> Vec<OfferRow> {
        let mut notes = Notes::default();
        let mut budget = Budget::of(self, plan.change);
        if plan.change <= 0.0 {
            // Nothing is needed; offers are shown as if there were room.
            budget.units = u64::MAX;
        }
        let rooms = budget.rooms.clone();
        let offers = UsableOffers::open(self, budget, &mut notes);
        let mut states: Vec<State> = vec![State::default(); self.offers.len()];
        for usable in &offers.usable {
            let room = rooms.get(usable.source).copied().unwrap_or(u64::MAX);
            states[usable.index] = State {
                offered: usable.left.min(room),
                skipped: None,
                only_tried: usable.weight.is_none(),
            };
        }
        for (index, skip) in &offers.skipped {
            states[*index].skipped = Some(skip.why.clone());
        }
        let taken = |offer: &Offer| {
            let mut awards = plan.awards.iter();
            let award = awards.find(|award| offer.is_awarded(award));
            award.map_or(0, |award| award.machines)
        };
        let used: Vec<&Offer> = self
            .offers
            .iter()
            .filter(|offer| taken(offer) > 0)
            .collect();
        let rows = self.offers.iter().zip(states).map(|(offer, state)| {
            let (taken, useful_price) = (taken(offer), self.useful_price(offer));
            OfferRow {
                launch_config_id: offer.launch_config_id.clone(),
                provider_id: offer.provider_id.clone(),
                place: offer
                    .bid
                    .as_ref()
                    .map_or_else(|_| String::new(), |bid| bid.place.clone()),
                capacity_each: offer.capacity_each,
                price: offer.bid.as_ref().ok().and_then(|bid| bid.price),
                price_per_useful_hour: useful_price,
                ready_ms: offer.ready_ms(),
                offered: state.offered,
                taken,
                why: why(plan, taken, state, || self.drawback(plan, offer, &used)),
            }
        });
        rows.collect()
    }

    /// Why the machines that the plan takes are preferred to those of this offer, if the strategy
    /// compares them. Bids for the same launch config are always compared.
    fn drawback(&self, plan: &Plan, offer: &Offer, used: &[&Offer]) -> Option<String> {
        let is_compared = |other: &&&Offer| {
            self.compares_prices() || other.launch_config_id == offer.launch_config_id
        };
        let used: Vec<&&Offer> = used.iter().filter(is_compared).collect();
        let price = |offer: &Offer| self.useful_price(offer);
        let dearest = used.iter().filter_map(|other| price(other));
        let dearest = dearest.fold(f64::NEG_INFINITY, f64::max);
        if used.is_empty() {
            return None;
        }
        if price(offer).is_some_and(|price| price > dearest) {
            return Some("dearer".to_owned());
        }
        let (each, needed) = (offer.capacity_each.max(1), plan.change.ceil());
        if f64::from(each) > needed {
            let needed = units(needed);
            return Some(format!(
                "a machine has {each} units, and the need is {needed}"
            ));
        }
        let latest = used.iter().map(|other| other.ready_ms()).max().flatten();
        let is_later = offer
            .ready_ms()
            .zip(latest)
            .is_some_and(|(own, latest)| own > latest);
        is_later.then(|| "ready later".to_owned())
    }

    fn useful_price(&self, offer: &Offer) -> Option<f64> {
        let bid = offer.bid.as_ref().ok()?;
        let memory = offer.memory.as_ref();
        let reliability = match memory {
            Some(memory) => memory.reliability(bid.reliability, self.now),
            None => bid.reliability.unwrap_or(1.0),
        };
        let units = exact(offer.capacity_each.max(1).into()) * bid.utility * reliability;
        let price = bid.price? / units;
        price.is_finite().then_some(price)
    }

    /// Whether the strategy prefers cheap offers.
    fn compares_prices(&self) -> bool {
        match self.settings.own_strategy_name() {
            StrategyName::Balanced => true,
            // They draw at random.
            StrategyName::Weighted | StrategyName::AwsProvisioner | StrategyName::External => false,
        }
    }
}

impl Offer {
    /// The expected time from launch to registration, if it is known.
    pub fn ready_ms(&self) -> Option<i64> {
        let promised = self.bid.as_ref().ok()?.ready_ms;
        match &self.memory {
            Some(memory) => memory.known_boot_ms(promised),
            None => promised,
        }
    }
}

/// The use that a plan could make of an offer.
#[derive(Clone, Default)]
struct State {
    offered: u64,
    skipped: Option<String>,
    /// Its pause is over, and it may be tried with one machine.
    only_tried: bool,
}

fn why(plan: &Plan, taken: u32, state: State, drawback: impl FnOnce() -> Option<String>) -> String {
    if taken > 0 {
        return "taken".to_owned();
    }
    if let Some(why) = state.skipped {
        return why;
    }
    let is_needed = plan.change > 0.0;
    let why = match (is_needed, plan.awards.is_empty()) {
        (true, _) if state.only_tried => "not tried: one launch config is tried at a time",
        (true, true) => "not taken",
        (true, false) => {
            let drawback = drawback().map(|it| format!(": {it}")).unwrap_or_default();
            return format!("not needed{drawback}");
        }
        (false, _) => "not needed",
    };
    why.to_owned()
}
