//! Where: which launch configs give what is needed.
//!
//! First the offers are sifted: what is paused, full, ill or not to be had is left out, each with its reason. Then
//! one that was ill may be tried with one machine. The rest is drawn, one machine at a time, by the strategy.

use rand::Rng;

use super::health::Condition;
use super::need::exact;
use super::notes::{Notes, units};
use super::spot_bids::{self, Budget, Choice, NoBid, Pricing};
use super::{Award, MAX_MACHINES, NO_MAX_PRICE, Offer, Settings, Snapshot, StrategyName};
use crate::time::Timestamp;

/// One plan tries at most this many launch configs whose pause is over, those first that have
/// waited longest.
pub const MAX_TRIED: usize = 20;

/// An offer that can be used now.
struct Lot<'a> {
    /// Its place among the offers.
    index: usize,
    /// Its provider's place among the sources.
    source: usize,
    offer: &'a Offer,
    each: u32,
    /// How many further machines it gives.
    left: u64,
    /// `None`: it is only to be tried.
    weight: Option<f64>,
    /// Its units that are there, with those of this plan.
    live: f64,
    max_price: Option<f64>,
    won: u32,
}

/// What is launched, and when more may be.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) awards: Vec<Award>,
    pub(super) again_at: Option<Timestamp>,
}

/// Why an offer is not used now.
struct Skipped {
    why: String,
    /// It is left alone until then.
    until: Option<Timestamp>,
}

impl From<String> for Skipped {
    fn from(why: String) -> Self {
        Self { why, until: None }
    }
}

pub(super) fn choose(
    snapshot: &Snapshot,
    change: f64,
    notes: &mut Notes,
    rng: &mut dyn Rng,
) -> Chosen {
    let mut budget = Budget::of(snapshot, change);
    if change > 0.0 && snapshot.demand.pending > 0 && !snapshot.offers.iter().any(is_usable) {
        notes.unserved(match snapshot.offers.is_empty() {
            true => "tasks wait, and the pool has no active launch config",
            false => "tasks wait, and each launch config of the pool has the initialWeight 0",
        });
    }
    if change > exact(budget.units) {
        let (wanted, room) = (units(change), budget.units);
        let max = snapshot.settings.max_capacity;
        notes.add(format!(
            "capped: wanted {wanted}, room for {room} under the maximum of {max}"
        ));
    }
    if !budget.is_open() || budget.units == 0 {
        note_trouble(snapshot, notes);
        if change > 0.0 && budget.machines == 0 {
            let who = match snapshot.has_several_providers() {
                false => "the provider takes",
                true => "the providers take",
            };
            notes.add(format!("{who} no more machines now"));
        }
        return Chosen::default();
    }
    let (mut lots, resting_until) = sift(snapshot, &budget, notes);
    try_again(snapshot, &mut lots, &mut budget, notes);
    match snapshot.settings.strategy {
        StrategyName::Weighted => draw(&mut lots, &mut budget, rng),
        StrategyName::AwsProvisioner => bid(&snapshot.settings, &mut lots, &mut budget, notes, rng),
    }
    if budget.wanted > 0.0 {
        let missing = units(budget.wanted);
        let why = shortage(snapshot, &budget);
        notes.add(format!("short by {missing}: {why}"));
    }
    let is_short = budget.wanted > 0.0;
    lots.retain(|lot| lot.won > 0);
    lots.sort_by_key(|lot| lot.index);
    let awards = lots.into_iter().map(|lot| lot.award(snapshot, notes));
    Chosen {
        awards: awards.collect(),
        again_at: resting_until.filter(|_| is_short),
    }
}

/// May it ever be used by itself?
fn is_usable(offer: &Offer) -> bool {
    offer.initial_weight > 0.0
}

/// Why there is not as much as is wanted.
fn shortage(snapshot: &Snapshot, budget: &Budget) -> String {
    let full = snapshot.sources.iter().zip(&budget.rooms);
    let full = full.filter_map(|(source, left)| {
        let room = source.room.filter(|room| *room > 0 && *left == 0)?;
        Some(match snapshot.has_several_providers() {
            false => format!("the provider takes {room} more machines now"),
            true => {
                let id = &source.provider_id;
                format!("the provider {id} takes {room} more machines now")
            }
        })
    });
    let full: Vec<String> = full.collect();
    if !full.is_empty() {
        return full.join(", ");
    }
    match budget.machines {
        0 => format!("one plan starts at most {MAX_MACHINES} machines, the next goes on"),
        _ => "no launch config can give more now".to_owned(),
    }
}

/// How likely each offer is to give the next machine that a strategy `weighted` launches, in their order.
pub fn chances(snapshot: &Snapshot) -> Vec<f64> {
    let budget = Budget {
        wanted: 1.0,
        units: u64::MAX,
        machines: 1,
        rooms: snapshot.rooms(),
    };
    let (lots, _) = sift(snapshot, &budget, &mut Notes::default());
    let weights = weights(&lots, &budget);
    let total: f64 = weights.iter().sum();
    let mut chances = vec![0.0; snapshot.offers.len()];
    for (lot, weight) in lots.iter().zip(weights) {
        if total > 0.0 {
            chances[lot.index] = weight / total;
        }
    }
    chances
}

impl Budget {
    /// Whatever a strategy wants, this is all that it gets.
    fn of(snapshot: &Snapshot, change: f64) -> Self {
        let taken = snapshot.capacity.all();
        let rooms = snapshot.rooms();
        let machines = rooms.iter().copied().fold(0, u64::saturating_add);
        Self {
            wanted: change.max(0.0),
            units: snapshot.settings.max_capacity.saturating_sub(taken),
            machines: machines.min(MAX_MACHINES),
            rooms,
        }
    }
}

impl Snapshot {
    fn has_several_providers(&self) -> bool {
        self.sources.len() > 1
    }

    fn rooms(&self) -> Vec<u64> {
        let rooms = self.sources.iter().map(|source| source.room);
        rooms.map(|room| room.unwrap_or(u64::MAX)).collect()
    }

    /// For people: from whom if there are several, where, and what it is.
    fn name_of(&self, offer: &Offer) -> String {
        match self.has_several_providers() {
            false => offer.name(),
            true => format!("{} {}", offer.provider_id, offer.name()),
        }
    }
}

impl Lot<'_> {
    fn can_give(&self, budget: &Budget) -> bool {
        self.left > 0 && budget.has_units(self.each) && budget.has_room(self.source)
    }

    fn give(&mut self, budget: &mut Budget) {
        self.won += 1;
        self.left -= 1;
        self.live += f64::from(self.each);
        budget.spend(self.each, self.source);
    }

    fn award(self, snapshot: &Snapshot, notes: &mut Notes) -> Award {
        let machines = if self.won == 1 { "machine" } else { "machines" };
        let price = self
            .max_price
            .map(|price| format!(", at most ${price} an hour each"));
        let (won, price) = (self.won, price.unwrap_or_default());
        let name = snapshot.name_of(self.offer);
        notes.add(format!("{name}: {won} {machines}{price}"));
        let provider_id = snapshot
            .has_several_providers()
            .then(|| self.offer.provider_id.clone());
        Award {
            launch_config_id: self.offer.launch_config_id.clone(),
            provider_id,
            machines: self.won,
            capacity_each: self.each,
            max_price: self.max_price,
        }
    }
}

/// The offers that can be used or tried now, those with the least weight first; and when the next
/// one can be.
fn sift<'a>(
    snapshot: &'a Snapshot,
    budget: &Budget,
    notes: &mut Notes,
) -> (Vec<Lot<'a>>, Option<Timestamp>) {
    let mut lots = Vec::new();
    let mut resting_until: Option<Timestamp> = None;
    for (index, offer) in snapshot.offers.iter().enumerate() {
        match lot(snapshot, index, offer, budget, notes) {
            Ok(lot) => lots.push(lot),
            Err(Skipped { why, until }) => {
                notes.add(format!("{}: skipped, {why}", snapshot.name_of(offer)));
                resting_until = resting_until.into_iter().chain(until).min();
            }
        }
    }
    lots.sort_by(|a: &Lot<'_>, b| {
        let weight = |lot: &Lot<'_>| lot.weight.unwrap_or(0.0);
        weight(a).total_cmp(&weight(b))
    });
    (lots, resting_until)
}

fn lot<'a>(
    snapshot: &Snapshot,
    index: usize,
    offer: &'a Offer,
    budget: &Budget,
    notes: &mut Notes,
) -> Result<Lot<'a>, Skipped> {
    let settings = &snapshot.settings;
    let each = offer.capacity_each.max(1);
    let left = offer.machines(settings.max_capacity)?;
    let id = &offer.provider_id;
    let mut sources = snapshot.sources.iter();
    let source = sources.position(|source| source.provider_id == *id);
    let source = source.ok_or_else(|| format!("the pool has no provider {id}"))?;
    if !budget.has_room(source) {
        let why = format!("the provider {id} takes no more machines now");
        return Err(why.into());
    }
    if !budget.has_units(each) {
        let room = budget.units;
        let why = format!("a machine has {each} units, and there is room for {room}");
        return Err(why.into());
    }
    let literal = is_literal(settings);
    let weight = weight(offer, literal, snapshot.now)?;
    let trouble = offer.trouble().unwrap_or_default();
    let mut max_price = None;
    if settings.strategy == StrategyName::AwsProvisioner && !literal {
        let quote = pricing(settings).quote(&choice(offer, left, source));
        (max_price, _) = quote.map_err(|no_bid| {
            if let NoBid::Alarming { .. } = no_bid {
                notes.alarm(format!("{}: {no_bid}", snapshot.name_of(offer)));
            }
            no_bid.to_string()
        })?;
    }
    if let (Some(weight), false) = (weight, trouble.is_empty()) {
        notes.add(format!(
            "{}: weight {}, {trouble}",
            snapshot.name_of(offer),
            units(weight)
        ));
    }
    Ok(Lot {
        index,
        source,
        offer,
        each,
        left,
        weight,
        live: exact(offer.live),
        max_price,
        won: 0,
    })
}

/// How much it counts when machines are drawn; `None`: it is only to be tried.
fn weight(offer: &Offer, literal: bool, now: Timestamp) -> Result<Option<f64>, Skipped> {
    let condition = match literal {
        true => offer.health.condition_without_memory(&offer.tries, now),
        false => offer.health.condition(&offer.tries, now),
    };
    let trouble = || offer.trouble().unwrap_or_default();
    match condition {
        Condition::Usable(share) => Ok(Some(offer.initial_weight * share)),
        Condition::Due => Ok(None),
        Condition::Resting { until } => Err(Skipped {
            why: format!("{}, tried again at {}", trouble(), time_of_day(until)),
            until: Some(until),
        }),
        Condition::Awaited => {
            let when = "tried again when it is known whether its last machine comes up";
            Err(format!("{}, {when}", trouble()).into())
        }
    }
}

/// Tries those whose pause is over with one machine each, at most [`MAX_TRIED`]; next to others
/// that work, only one of them, and not with the only machine that is wanted if its failure would
/// be long in showing.
fn try_again(snapshot: &Snapshot, lots: &mut [Lot<'_>], budget: &mut Budget, notes: &mut Notes) {
    let some_work = lots.iter().any(|lot| lot.weight.is_some());
    let mut due: Vec<usize> = (0..lots.len())
        .filter(|at| lots[*at].weight.is_none())
        .collect();
    due.sort_by_key(|at| {
        let offer = lots[*at].offer;
        (
            offer.health.last_failure.max(offer.tries.last),
            lots[*at].index,
        )
    });
    if some_work {
        let wanted = budget.wanted;
        due.retain(|at| {
            let lot = &lots[*at];
            wanted > f64::from(lot.each) || !lot.offer.health.fails_late()
        });
        due.truncate(1);
    }
    for at in due.into_iter().take(MAX_TRIED) {
        if budget.is_open() && lots[at].can_give(budget) {
            lots[at].give(budget);
            let offer = lots[at].offer;
            let trouble = offer.trouble().unwrap_or_default();
            let name = snapshot.name_of(offer);
            notes.add(format!("{name}: tried again, {trouble}"));
        }
    }
}

/// Draws in proportion to weight, with replacement, one machine at a time.
fn draw(lots: &mut [Lot<'_>], budget: &mut Budget, rng: &mut dyn Rng) {
    while budget.is_open() {
        let weights = weights(lots, budget);
        let total: f64 = weights.iter().sum();
        let mut point = fraction(rng) * total;
        let mut drawn = None;
        for (at, weight) in weights.into_iter().enumerate() {
            if weight > 0.0 {
                drawn = Some(at);
                if point < weight {
                    break;
                }
                point -= weight;
            }
        }
        match drawn {
            Some(at) => lots[at].give(budget),
            None => break,
        }
    }
}

/// Weights for the next draw: initial weight times health times RFC 191's balance of shares, by which 10 and 5
/// running units make 0.33 and 0.67. The balance follows each draw. In the long run launch configs share in
/// proportion to the square roots of their weights.
fn weights(lots: &[Lot<'_>], budget: &Budget) -> Vec<f64> {
    let open = || {
        lots.iter()
            .filter(|lot| lot.weight.is_some() && lot.can_give(budget))
    };
    let total: f64 = open().map(|lot| lot.live).sum();
    let balanced = open().nth(1).is_some() && total > 0.0;
    let weight = |lot: &Lot<'_>| match lot.weight {
        Some(weight) if lot.can_give(budget) => {
            let share = if balanced { lot.live / total } else { 0.0 };
            weight * (1.0 - share)
        }
        Some(_) | None => 0.0,
    };
    lots.iter().map(weight).collect()
}

/// Bids at random among all that can be used.
fn bid(
    settings: &Settings,
    lots: &mut [Lot<'_>],
    budget: &mut Budget,
    notes: &mut Notes,
    rng: &mut dyn Rng,
) {
    lots.sort_by_key(|lot| lot.index);
    let usable: Vec<usize> = (0..lots.len())
        .filter(|at| lots[*at].weight.is_some())
        .collect();
    let choices: Vec<_> = usable
        .iter()
        .map(|at| choice(lots[*at].offer, lots[*at].left, lots[*at].source))
        .collect();
    let Ok(round) = spot_bids::round(&pricing(settings), &choices, budget.clone(), rng) else {
        return;
    };
    if let Some(alarm) = round.alarm {
        notes.alarm(format!(
            "no bid is made: of a choice that was drawn, {alarm}"
        ));
    }
    for bid in round.bids {
        let lot = &mut lots[usable[bid.choice]];
        lot.max_price = bid.price;
        lot.give(budget);
    }
}

fn is_literal(settings: &Settings) -> bool {
    settings.strategy == StrategyName::AwsProvisioner && settings.literal
}

fn pricing(settings: &Settings) -> Pricing {
    Pricing {
        min_price: settings.min_price,
        max_price: (settings.max_price < NO_MAX_PRICE).then_some(settings.max_price),
        literal: settings.literal,
    }
}

fn choice(offer: &Offer, limit: u64, source: usize) -> Choice {
    let bid = offer.bid.as_ref().ok();
    Choice {
        capacity: offer.capacity_each.max(1),
        utility: bid.map_or(1.0, |bid| bid.utility),
        price: bid.and_then(|bid| bid.price),
        limit,
        source,
    }
}

/// Nothing is launched, and yet people want to know how the launch configs are.
fn note_trouble(snapshot: &Snapshot, notes: &mut Notes) {
    for offer in &snapshot.offers {
        if let Some(trouble) = offer.trouble() {
            notes.add(format!("{}: {trouble}", snapshot.name_of(offer)));
        }
    }
}

/// From 0 to just below 1.
fn fraction(rng: &mut dyn Rng) -> f64 {
    exact(rng.next_u64() >> 11) / exact(1 << 53)
}

/// `12:03:10`
fn time_of_day(moment: Timestamp) -> String {
    let text = moment.to_string();
    text.get(11..19).unwrap_or(&text).to_owned()
}
