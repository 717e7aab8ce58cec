//! The costs of the offerings of a pool, all things considered.

use super::super::super::{Bid, Offer, Snapshot};
use crate::market::{OfferingMemory, PoolMemory, USUAL_BOOT_MS, USUAL_TASK_MS};
use crate::time::{HOUR_MS, MINUTE_MS, Timestamp};

/// Dollars for an hour of a unit where a provider names no price, or none at all: less than any
/// cloud charges, and more than nothing, because a machine always costs something.
const LEAST_PRICE: f64 = 0.001;
/// No task is expected to be interrupted after more than half of this.
const LONGEST_TASK_MS: f64 = 4.0 * HOUR_MS as f64;
/// A worker is expected to be used for at least this long.
const SHORTEST_LIFE_MS: f64 = 30.0 * MINUTE_MS as f64;
/// A machine that does not register is replaced after this time, as far as is known.
const USUAL_PATIENCE_MS: f64 = 15.0 * MINUTE_MS as f64;

/// The best of the offerings that can be used now, or of all if none can.
pub(super) struct Outlook {
    /// The shortest boot in milliseconds.
    pub(super) boot_ms: f64,
    /// The lowest price of a unit for an hour.
    pub(super) price: f64,
    /// The highest share of machines that register, in proportion to what the provider promised.
    pub(super) kept_promise: f64,
    task_ms: f64,
}

impl Outlook {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let learned = snapshot.learned.as_ref();
        let task_ms = learned.and_then(|learned| learned.task_ms);
        let mut outlook = Self {
            boot_ms: f64::INFINITY,
            price: f64::INFINITY,
            kept_promise: 0.0,
            task_ms: task_ms.unwrap_or(USUAL_TASK_MS),
        };
        let now = snapshot.now;
        let any_usable = snapshot.offers.iter().any(|offer| is_usable(offer, now));
        for offer in &snapshot.offers {
            let Ok(bid) = &offer.bid else { continue };
            if is_usable(offer, now) || !any_usable {
                outlook.boot_ms = outlook.boot_ms.min(boot_ms(offer, bid));
                outlook.price = outlook.price.min(unit_price(offer, bid));
            }
            if is_usable(offer, now) || is_full(offer) {
                let memory = offer.memory.as_ref();
                let kept = memory.map_or(1.0, |memory| memory.kept_promise(bid.reliability, now));
                outlook.kept_promise = outlook.kept_promise.max(kept);
            }
        }
        if !outlook.boot_ms.is_finite() {
            outlook.boot_ms = USUAL_BOOT_MS;
            outlook.price = LEAST_PRICE;
        }
        outlook
    }

    /// Dollars that an hour of useful work of one unit costs there: the price with the boot, over
    /// the share of machines that work, what interruptions repeat and delay, and the wait for
    /// machines that do not register.
    pub(super) fn score(&self, snapshot: &Snapshot, offer: &Offer) -> f64 {
        let Ok(bid) = &offer.bid else {
            return f64::INFINITY;
        };
        let wait_price = snapshot.settings.wait_price;
        let (price, boot_ms) = (unit_price(offer, bid), boot_ms(offer, bid));
        let works = reliability(offer, bid, snapshot.now);
        let memory = offer.memory.as_ref();
        let hazard = memory.map_or(0.0, |memory| memory.hazard(snapshot.now));
        let hour = HOUR_MS as f64;
        let lost_hours = (self.task_ms.min(LONGEST_TASK_MS) / 2.0 + boot_ms) / hour;
        let life_ms = (2.0 * self.task_ms).max(SHORTEST_LIFE_MS);
        let patience = memory.map_or(USUAL_PATIENCE_MS, OfferingMemory::usual_patience_ms);
        let repeated = hazard * lost_hours;
        price * (1.0 + repeated + boot_ms / life_ms) / works.powi(2)
            + wait_price * repeated
            + wait_price * (1.0 / works - 1.0) * patience / life_ms
    }
}

/// Dollars for an hour of one unit of utility.
pub(super) fn unit_price(offer: &Offer, bid: &Bid) -> f64 {
    let units = f64::from(offer.capacity_each.max(1)) * bid.utility;
    let price = bid.price.unwrap_or(0.0) / units;
    if price.is_finite() {
        price.max(LEAST_PRICE)
    } else {
        LEAST_PRICE
    }
}

fn boot_ms(offer: &Offer, bid: &Bid) -> f64 {
    let memory = offer.memory.unwrap_or_default();
    memory.boot_ms(bid.ready_ms)
}

fn reliability(offer: &Offer, bid: &Bid, now: Timestamp) -> f64 {
    let memory = offer.memory.as_ref();
    memory.map_or(1.0, |memory| memory.reliability(bid.reliability, now))
}

/// Whether a machine can be had there now.
fn is_usable(offer: &Offer, now: Timestamp) -> bool {
    offer.initial_weight > 0.0
        && offer.bid.is_ok()
        && offer.memory.is_none_or(|memory| memory.is_usable(now))
}

/// Whether only a quota keeps it from being used.
fn is_full(offer: &Offer) -> bool {
    let memory = offer.memory.as_ref();
    memory.is_some_and(OfferingMemory::lacks_quota)
}

impl Snapshot {
    /// The cost of a missing worker of this pool, with this outlook.
    pub(super) fn missing_ms_with(&self, outlook: &Outlook) -> f64 {
        let wait_price = self.settings.wait_price;
        let task_ms = outlook.task_ms;
        PoolMemory::missing_with(task_ms, outlook.boot_ms, outlook.price, wait_price)
    }

    /// The cost of a missing worker of this pool now, see [`PoolMemory::missing_ms`].
    pub fn missing_ms(&self, memory: &PoolMemory) -> f64 {
        let outlook = Outlook::of(self);
        memory.missing_ms(outlook.boot_ms, outlook.price, self.settings.wait_price)
    }
}
