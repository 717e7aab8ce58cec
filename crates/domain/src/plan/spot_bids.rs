//! Bids on spot markets by the strategy `aws-provisioner`: chosen at random, not cheapest first.
//!
//! Random choice finds the markets that have capacity, which markets do not tell. A bid is twice
//! the current price, so that it outlasts a rise. The original had three defects, which
//! [`Pricing::literal`] restores: one expensive choice ended the round although cheap choices were
//! left, one alarming choice discarded the bids made before it, and a minimum price could lower a
//! bid below the market, where it is always refused.

use std::collections::BTreeMap;

use rand::Rng;

use super::spot_prices::PriceTable;

/// A bid above this many dollars per hour and machine is a mistake.
pub const ALARM_PRICE: f64 = 10.0;
/// A bid is this many times the current price.
const HEADROOM: f64 = 2.0;

/// Families of instance types that some zones do not have, although their prices are published.
const DENIED: [(&str, &str); 8] = [
    ("r3", "us-east-1b"),
    ("r3", "us-east-1f"),
    ("m3", "us-east-1b"),
    ("m3", "us-east-1f"),
    ("c3", "us-east-1b"),
    ("c3", "us-east-1f"),
    ("c5", "us-east-1e"),
    ("g2", "eu-central-1c"),
];

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

/// A spot market: a machine type in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpotMarket {
    pub region: String,
    pub instance_type: String,
    pub zone: String,
}

/// The spot markets that a pool would use.
#[derive(Clone, Debug, Default)]
pub struct SpotRequest {
    pub regions: Vec<String>,
    /// Name, capacity, utility.
    pub instance_types: Vec<(String, u32, f64)>,
    /// Region and zone; a region without a zone in this list may use all its zones.
    pub zones: Vec<(String, String)>,
}

/// All choices in the requested markets, in the order of the request.
pub fn choices(
    request: &SpotRequest,
    markets: &BTreeMap<String, PriceTable>,
) -> Vec<(SpotMarket, Choice)> {
    let mut found = Vec::new();
    for region in &request.regions {
        let table = markets.get(region).into_iter();
        let table = table.flat_map(|table| table.iter());
        let prices: BTreeMap<_, _> = table.collect();
        let mut own_zones = request
            .zones
            .iter()
            .filter(|(of, _)| of == region)
            .peekable();
        let is_restricted = own_zones.peek().is_some();
        let own_zones: Vec<&String> = own_zones.map(|(_, zone)| zone).collect();
        for (instance_type, capacity, utility) in &request.instance_types {
            let zones = prices
                .get(instance_type)
                .into_iter()
                .flat_map(|zones| zones.iter());
            for (zone, price) in zones {
                if is_denied(instance_type, zone) || is_restricted && !own_zones.contains(&zone) {
                    continue;
                }
                let place = SpotMarket {
                    region: region.clone(),
                    instance_type: instance_type.clone(),
                    zone: zone.clone(),
                };
                let choice = Choice {
                    capacity: *capacity,
                    utility: *utility,
                    price: Some(*price),
                    limit: u64::MAX,
                    source: 0,
                };
                found.push((place, choice));
            }
        }
    }
    found
}

/// Whether this zone is known not to have this type.
pub fn is_denied(instance_type: &str, zone: &str) -> bool {
    let family = instance_type.split('.').next().unwrap_or_default();
    DENIED.contains(&(family, zone))
}

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
