//! Bids on spot markets by the strategy `aws-provisioner`: chosen at random, not cheapest first.
//!
//! Random choice finds the markets that have capacity, which markets do not tell. A bid is twice
//! the current price, so that it outlasts a rise. The original had three defects, which
//! [`Pricing::literal`] restores: one expensive choice ended the round although cheap choices were
//! left, one alarming choice discarded the bids made before it, and a minimum price could lower a
//! bid below the market, where it is always refused.

use rand::Rng;

/// A bid above this many dollars per hour and machine is a mistake.
pub const ALARM_PRICE: f64 = 10.0;
/// A bid is this many times the current price.
const HEADROOM: f64 = 2.0;

/// A machine type in a market, at a price.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub capacity: u32,
    /// The usefulness of a machine compared with others.
    pub utility: f64,
    /// Dollars per hour and machine now; `None` if not known.
    pub price: Option<f64>,
    /// Maximum number of machines.
    pub limit: u64,
    /// The provider; choices of one source share its room.
    pub source: usize,
}

/// The prices to pay, in dollars per hour and unit of utility.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pricing {
    pub min_price: f64,
    /// `None`: no maximum.
    pub max_price: Option<f64>,
    pub literal: bool,
}

/// The limits of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Units that are wanted; the last machine may exceed them.
    pub wanted: f64,
    /// Maximum number of units.
    pub units: u64,
    pub machines: u64,
    /// Further machines of each source; a source that is not listed has no limit.
    pub rooms: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpotBid {
    /// Index of the choice in the list.
    pub choice: usize,
    /// Dollars per hour and machine; `None` pays the market's price.
    pub price: Option<f64>,
    /// The current price for a unit of utility.
    pub true_price: Option<f64>,
}

/// Why there is no bid for a choice.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoBid {
    #[error("its price of ${true_price} an hour for a unit of utility is above the maximum")]
    Dear { true_price: f64 },
    #[error("its bid of ${bid} an hour is above ${ALARM_PRICE}")]
    Alarming { bid: f64 },
    #[error("its price is not known, and the pool has a maxPrice")]
    NoPrice,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    pub bids: Vec<SpotBid>,
    /// An alarming choice that ended a literal round.
    pub alarm: Option<NoBid>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no bid is possible: no region, instance type and zone matches the config")]
pub struct NoChoice;

/// Bids until enough is bought. Each choice is drawn from those that are still possible.
pub fn round(
    pricing: &Pricing,
    choices: &[Choice],
    mut budget: Budget,
    rng: &mut dyn Rng,
) -> Result<Round, NoChoice> {
    if choices.is_empty() {
        return Err(NoChoice);
    }
    let quotes: Vec<_> = choices.iter().map(|choice| pricing.quote(choice)).collect();
    let mut left: Vec<u64> = choices.iter().map(|choice| choice.limit).collect();
    let mut done = Round::default();
    let mut open = Vec::with_capacity(choices.len());
    while budget.is_open() {
        open.clear();
        open.extend((0..choices.len()).filter(|index| {
            let drawn = pricing.literal || quotes[*index].is_ok();
            drawn && left[*index] > 0 && budget.fits(&choices[*index])
        }));
        if open.is_empty() {
            break;
        }
        let choice = open[below(rng, open.len())];
        match quotes[choice] {
            Ok((price, true_price)) => {
                done.bids.push(SpotBid {
                    choice,
                    price,
                    true_price,
                });
                left[choice] -= 1;
                budget.spend(choices[choice].capacity, choices[choice].source);
            }
            Err(NoBid::Dear { .. } | NoBid::NoPrice) => break,
            Err(alarming @ NoBid::Alarming { .. }) => {
                done.bids.clear();
                done.alarm = Some(alarming);
                break;
            }
        }
    }
    Ok(done)
}

impl Pricing {
    /// The bid, and the current price for a unit of utility.
    pub fn quote(&self, choice: &Choice) -> Result<(Option<f64>, Option<f64>), NoBid> {
        let Some(price) = choice.price else {
            return match self.max_price {
                Some(_) => Err(NoBid::NoPrice),
                None => Ok((None, None)),
            };
        };
        let utility = if choice.utility > 0.0 {
            choice.utility
        } else {
            1.0
        };
        let true_price = price / utility;
        let by_market = micro_ceil(price * HEADROOM);
        let bid = if true_price >= self.min_price {
            by_market
        } else if self.literal {
            micro_ceil(self.min_price / utility)
        } else {
            by_market.max(micro_ceil(self.min_price / utility))
        };
        let affordable = self.max_price.is_none_or(|max| true_price <= max);
        if !affordable || !true_price.is_finite() {
            return Err(NoBid::Dear { true_price });
        }
        if bid > ALARM_PRICE {
            return Err(NoBid::Alarming { bid });
        }
        Ok((Some(bid), Some(true_price)))
    }
}

impl Budget {
    pub(super) fn is_open(&self) -> bool {
        self.wanted > 0.0 && self.machines > 0
    }

    fn fits(&self, choice: &Choice) -> bool {
        self.has_units(choice.capacity) && self.has_room(choice.source)
    }

    pub(super) fn has_units(&self, capacity: u32) -> bool {
        u64::from(capacity) <= self.units
    }

    pub(super) fn has_room(&self, source: usize) -> bool {
        self.rooms.get(source).is_none_or(|room| *room > 0)
    }

    pub(super) fn spend(&mut self, capacity: u32, source: usize) {
        if let Some(room) = self.rooms.get_mut(source) {
            *room = room.saturating_sub(1);
        }
        self.wanted -= f64::from(capacity);
        self.units = self.units.saturating_sub(u64::from(capacity));
        self.machines = self.machines.saturating_sub(1);
    }
}

/// Rounds up to a millionth of a dollar.
fn micro_ceil(price: f64) -> f64 {
    (price * 1e6).ceil() / 1e6
}

/// A number from 0 to just below `n`, all equally likely; `n` is at least 1.
fn below(rng: &mut dyn Rng, n: usize) -> usize {
    let wide = u128::from(rng.next_u64()) * u128::try_from(n).unwrap_or(1);
    usize::try_from(wide >> 64).unwrap_or(0)
}
