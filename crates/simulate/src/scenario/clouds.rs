//! Clouds: offerings with their failures, drawn at random.

use domain::time::{HOUR_MS, MINUTE_MS};

use super::loads::random_times;
use crate::draws::Draws;
use crate::offering::{BootTime, Offering, Period, Price, Storm};
use crate::units::{to_ms, to_seconds};

/// Dollars per machine and hour, where prices do not matter.
pub(super) const PRICE: f64 = 0.40;
pub(super) const BOOT: BootTime = BootTime {
    mean_seconds: 180.0,
    sigma: 0.25,
};
/// A storm takes this share of the machines.
const STORM_SHARE: f64 = 0.8;

/// Outages in a row. All limits are those of a random length.
#[derive(Clone, Copy)]
pub(super) struct Outages {
    pub(super) first_hours: (f64, f64),
    pub(super) length_minutes: (f64, f64),
    /// From the end of an outage to the next one.
    pub(super) gap_hours: (f64, f64),
}

pub(super) fn offering(index: usize, price: f64) -> Offering {
    Offering::plain(format!("offering-{index}"), price, BOOT)
}

/// Four equal offerings without failures.
pub(super) fn four() -> Vec<Offering> {
    (0..4).map(|index| offering(index, PRICE)).collect()
}

pub(super) fn hours(from: i64, to: i64) -> Period {
    Period {
        from_ms: from * HOUR_MS,
        to_ms: to * HOUR_MS,
    }
}

impl Outages {
    pub(super) fn draw(self, draws: &mut Draws, until_ms: i64) -> Vec<Period> {
        let hours = |draws: &mut Draws, (least, most)| to_ms(draws.between(least, most) * 3_600.0);
        let mut outages = Vec::new();
        let mut from_ms = hours(draws, self.first_hours);
        while from_ms < until_ms {
            let (least, most) = self.length_minutes;
            let to_ms = from_ms + to_ms(draws.between(least, most) * 60.0);
            outages.push(Period { from_ms, to_ms });
            from_ms = to_ms + hours(draws, self.gap_hours);
        }
        outages
    }
}

/// Adds storms at random times, on average one in `every` hours. After each, the offering is down
/// for a while.
pub(super) fn add_storms(offering: &mut Offering, draws: &mut Draws, every: f64, until_ms: i64) {
    let rate = 1.0 / (every * 3_600.0);
    for at in random_times(draws, to_seconds(until_ms), |_| rate) {
        let at_ms = to_ms(at);
        offering.storms.push(Storm {
            at_ms,
            share: STORM_SHARE,
        });
        let length_ms = to_ms(draws.between(10.0, 45.0) * 60.0);
        offering.outages.push(Period {
            from_ms: at_ms,
            to_ms: at_ms + length_ms,
        });
    }
}

/// A price that drifts around this one, in steps of half an hour.
pub(super) fn drifting_price(draws: &mut Draws, base: f64, until_ms: i64) -> Price {
    let mut price = base;
    let mut steps = Vec::new();
    let mut at_ms = 30 * MINUTE_MS;
    while at_ms < until_ms {
        price = (price * (0.08 * draws.normal()).exp()).clamp(0.6 * base, 2.0 * base);
        steps.push((at_ms, price));
        at_ms += 30 * MINUTE_MS;
    }
    Price::steps(base, steps)
}
