//! The weight of each launch config now, with the numbers behind it (RFC 191).

use super::need::exact;
use super::notes::Notes;
use super::spot_bids::Budget;
use super::strategy::usable_offers::{Balance, UsableOffers};
use super::usability::Usability;
use super::{Offer, Snapshot};
use crate::market::BreakerState;
use crate::time::Timestamp;

/// The weight of an offer in the next draw. The strategy `weighted` draws by these weights, and
/// `balanced` by expected costs; other strategies choose by rules of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferWeight {
    pub initial: f64,
    /// The share that balances running units: 10 and 5 units make 0.33 and 0.67.
    pub balance: f64,
    /// The share of the machines of the last hour that did not fail.
    pub health: f64,
    /// How likely it is to give the next machine, if the strategy draws.
    pub chance: Option<f64>,
    pub usability: Usability,
    /// Why it is not chosen by its weight now, for people.
    pub reason: Option<String>,
    /// The pause after one more failure, in milliseconds, if its launches failed lately.
    pub next_pause_ms: Option<i64>,
}

impl OfferWeight {
    /// The product of the three shares.
    pub fn weight(&self) -> f64 {
        self.initial * self.balance * self.health
    }

    /// Adds a further bid for the launch config. It can be used if one of its bids can be.
    fn add_bid(&mut self, other: Self) {
        let chances = self.chance.zip(other.chance);
        let chance = chances.map(|(one, other)| one + other);
        if other.usability == Usability::Usable && self.usability != Usability::Usable {
            *self = other;
        }
        self.chance = chance;
    }
}

/// The weights of the launch configs, in their order.
pub fn weights(snapshot: &Snapshot) -> Vec<OfferWeight> {
    let offers = snapshot.offers.iter().zip(offer_weights(snapshot));
    let mut weights: Vec<OfferWeight> = Vec::with_capacity(snapshot.offers.len());
    for (offer, weight) in offers {
        match weights.last_mut().filter(|_| offer.bid_number > 0) {
            Some(first) => first.add_bid(weight),
            None => weights.push(weight),
        }
    }
    weights
}

fn offer_weights(snapshot: &Snapshot) -> Vec<OfferWeight> {
    let mut notes = Notes::default();
    let offers = UsableOffers::open(snapshot, Budget::one_machine(snapshot), &mut notes);
    let balance = Balance::of(&offers.usable, &offers.budget);
    let weight = |offer: &Offer| OfferWeight {
        initial: offer.initial_weight,
        balance: balance.share_with(exact(offer.live)),
        health: offer.health.share(),
        chance: None,
        usability: Usability::Unusable,
        reason: None,
        next_pause_ms: offer.next_pause_ms(),
    };
    let mut weights: Vec<OfferWeight> = snapshot.offers.iter().map(weight).collect();
    for usable in &offers.usable {
        let weight = &mut weights[usable.index];
        let is_due = usable.weight.is_none() || usable.offer.is_half_open(snapshot.now);
        if usable.weight.is_some() {
            weight.balance = balance.share(usable.live);
        }
        weight.usability = if is_due {
            weight.reason = usable.offer.failures_text();
            Usability::Due
        } else {
            Usability::Usable
        };
    }
    add_chances(&offers, &mut weights);
    for (index, skip) in offers.skipped {
        let weight = &mut weights[index];
        weight.usability = skip.usability;
        weight.reason = Some(skip.why);
    }
    weights
}

fn add_chances(offers: &UsableOffers<'_>, weights: &mut [OfferWeight]) {
    let strategy = offers.snapshot.settings.strategy.strategy();
    let Some(drawn_by) = strategy.weights(offers) else {
        return;
    };
    for weight in weights.iter_mut() {
        weight.chance = Some(0.0);
    }
    let total: f64 = drawn_by.iter().sum();
    if total > 0.0 {
        for (usable, drawn_by) in offers.usable.iter().zip(drawn_by) {
            weights[usable.index].chance = Some(drawn_by / total);
        }
    }
}

impl Offer {
    fn next_pause_ms(&self) -> Option<i64> {
        match &self.memory {
            Some(memory) => memory.breaker.next_pause_ms(),
            None => self.health.next_pause_ms(&self.tries),
        }
    }

    /// Whether the strategy `balanced` tries it with one machine.
    fn is_half_open(&self, now: Timestamp) -> bool {
        let memory = self.memory.as_ref();
        memory.is_some_and(|memory| memory.state(now) == BreakerState::HalfOpen)
    }
}
