//! The offers that a plan can use now, and the budget for them.
//!
//! Offers that are paused, full, ill or out of stock are skipped, each with its reason. An offer
//! that was ill may be tried with one machine. The strategy chooses among the others.

use std::collections::BTreeSet;

use super::super::health::Condition;
use super::super::need::exact;
use super::super::notes::{Notes, units};
use super::super::spot_bids::{Budget, NoBid};
use super::super::usability::Usability;
use super::super::{Award, MAX_MACHINES, Offer, Snapshot};
use crate::time::Timestamp;

/// One plan tries at most this many launch configs whose pause is over: those that have waited
/// longest.
pub const MAX_TRIED: usize = 20;

/// The usable offers of one plan, and its budget.
pub(in crate::plan) struct UsableOffers<'a> {
    pub(in crate::plan) snapshot: &'a Snapshot,
    /// The offers with the lowest weight first.
    pub(in crate::plan) usable: Vec<UsableOffer<'a>>,
    /// The indices of the other offers, each with the reason why it is not used.
    pub(in crate::plan) skipped: Vec<(usize, Skip)>,
    pub(in crate::plan) budget: Budget,
    pub(in crate::plan) notes: &'a mut Notes,
    /// When the next paused offer can be used.
    pub(in crate::plan) resting_until: Option<Timestamp>,
}

/// An offer that can be used now.
pub(in crate::plan) struct UsableOffer<'a> {
    /// Its index among the offers.
    pub(in crate::plan) index: usize,
    /// The index of its provider among the sources.
    pub(in crate::plan) source: usize,
    pub(in crate::plan) offer: &'a Offer,
    /// The index of the first offer of its launch config.
    pub(in crate::plan) group: usize,
    /// Units that its launch config may add.
    room: u64,
    pub(in crate::plan) each: u32,
    /// How many further machines it gives.
    pub(in crate::plan) left: u64,
    /// `None`: it may only be tried.
    pub(in crate::plan) weight: Option<f64>,
    /// Its units that exist, with those of this plan.
    pub(in crate::plan) live: f64,
    pub(in crate::plan) max_price: Option<f64>,
    pub(in crate::plan) won: u32,
}

/// Why an offer is not used now.
pub(in crate::plan) struct Skip {
    pub(in crate::plan) why: String,
    pub(in crate::plan) usability: Usability,
    /// The pool leaves the offering to others.
    pub(in crate::plan) is_left: bool,
}

impl Skip {
    fn new(why: String, usability: Usability) -> Self {
        Self {
            why,
            usability,
            is_left: false,
        }
    }
}

impl From<String> for Skip {
    fn from(why: String) -> Self {
        Self::new(why, Usability::Unusable)
    }
}

/// RFC 191's balance of shares, in which 10 and 5 running units make 0.33 and 0.67.
pub(in crate::plan) struct Balance {
    /// The offers that can give a machine, and their units together.
    n_open: usize,
    total: f64,
}

impl Balance {
    pub(in crate::plan) fn of(usable: &[UsableOffer<'_>], budget: &Budget) -> Self {
        let mut balance = Self {
            n_open: 0,
            total: 0.0,
        };
        // The offers of a launch config are next to each other.
        let mut last = None;
        for offer in usable {
            if offer.weight.is_some() && offer.can_give(budget) && last != Some(offer.group) {
                last = Some(offer.group);
                balance.n_open += 1;
                balance.total += offer.live;
            }
        }
        balance
    }

    /// For one of these offers, with this many units.
    pub(in crate::plan) fn share(&self, live: f64) -> f64 {
        if self.n_open > 1 && self.total > 0.0 {
            1.0 - live / self.total
        } else {
            1.0
        }
    }

    /// For an offer that cannot give a machine now: its share if it were among these.
    pub(in crate::plan) fn share_with(&self, live: f64) -> f64 {
        let others = Self {
            n_open: self.n_open + 1,
            total: self.total + live,
        };
        others.share(live)
    }
}

impl<'a> UsableOffers<'a> {
    pub(in crate::plan) fn open(
        snapshot: &'a Snapshot,
        budget: Budget,
        notes: &'a mut Notes,
    ) -> Self {
        let strategy = snapshot.settings.own_strategy();
        let left_to_others = strategy.left_to_others(snapshot);
        let mut usable = Vec::with_capacity(snapshot.offers.len());
        let mut skipped = Vec::new();
        let mut resting_until: Option<Timestamp> = None;
        for (index, offer) in snapshot.offers.iter().enumerate() {
            let offering = offer.offering().filter(|_| !left_to_others.is_empty());
            let why_left = offering.and_then(|id| left_to_others.get(&id));
            let why_left = why_left.map(String::as_str);
            match UsableOffer::of(snapshot, index, why_left, &budget, notes) {
                Ok(offer) => usable.push(offer),
                Err(skip) => {
                    let (name, why) = (snapshot.name_of(offer), &skip.why);
                    notes.add(match &offer.canary {
                        Some(_) => format!("{name}: {why}"),
                        None => format!("{name}: skipped, {why}"),
                    });
                    let until = skip.usability.next_try();
                    resting_until = resting_until.into_iter().chain(until).min();
                    skipped.push((index, skip));
                }
            }
        }
        usable.sort_by(|a: &UsableOffer<'_>, b| {
            let weight = |offer: &UsableOffer<'_>| offer.weight.unwrap_or(0.0);
            weight(a).total_cmp(&weight(b))
        });
        Self {
            snapshot,
            usable,
            skipped,
            budget,
            notes,
            resting_until,
        }
    }

    /// Tries the offers whose pause is over with one machine each, at most [`MAX_TRIED`]. While
    /// other offers work, only one is tried, and not with the only machine that is wanted if a
    /// failure would take long to appear.
    pub(in crate::plan) fn retry_paused(&mut self) {
        let some_work = self.usable.iter().any(|offer| offer.weight.is_some());
        let mut due: Vec<usize> = (0..self.usable.len())
            .filter(|at| self.usable[*at].weight.is_none())
            .collect();
        due.sort_by_key(|at| {
            let offer = self.usable[*at].offer;
            (
                offer.health.last_failure.max(offer.tries.last),
                self.usable[*at].index,
            )
        });
        if some_work {
            let wanted = self.budget.wanted;
            due.retain(|at| {
                let offer = &self.usable[*at];
                wanted > f64::from(offer.each) || !offer.offer.health.fails_late()
            });
            due.truncate(1);
        }
        // One of the bids for a launch config shows whether it works again.
        let mut groups = BTreeSet::new();
        due.retain(|at| groups.insert(self.usable[*at].group));
        for at in due.into_iter().take(MAX_TRIED) {
            if self.budget.is_open() && self.usable[at].can_give(&self.budget) {
                self.take(at);
                let offer = self.usable[at].offer;
                let failures_text = offer.failures_text().unwrap_or_default();
                let name = self.snapshot.name_of(offer);
                self.notes
                    .add(format!("{name}: tried again, {failures_text}"));
            }
        }
    }

    /// Takes one machine of an offer.
    pub(in crate::plan) fn take(&mut self, at: usize) {
        let offer = &mut self.usable[at];
        offer.won += 1;
        offer.left -= 1;
        let (each, source, group) = (offer.each, offer.source, offer.group);
        self.budget.spend(each, source);
        for offer in self.usable.iter_mut().filter(|offer| offer.group == group) {
            offer.live += f64::from(each);
            offer.room = offer.room.saturating_sub(each.into());
            offer.left = offer.left.min(offer.room / u64::from(offer.each));
        }
    }

    /// The machines that were taken, in the order of the offers.
    pub(in crate::plan) fn awards(self) -> Vec<Award> {
        let mut usable = self.usable;
        usable.retain(|offer| offer.won > 0);
        usable.sort_by_key(|offer| offer.index);
        let awards = usable.into_iter();
        awards
            .map(|offer| offer.award(self.snapshot, self.notes))
            .collect()
    }
}

impl<'a> UsableOffer<'a> {
    fn of(
        snapshot: &'a Snapshot,
        index: usize,
        why_left: Option<&str>,
        budget: &Budget,
        notes: &mut Notes,
    ) -> Result<Self, Skip> {
        let (settings, offer) = (&snapshot.settings, &snapshot.offers[index]);
        let strategy = settings.own_strategy();
        if let Some(canary) = &offer.canary {
            return Err(Skip::new(canary.text(), Usability::Usable));
        }
        let each = offer.capacity_each.max(1);
        let left = offer.machines(settings.max_capacity, snapshot.now)?;
        let id = &offer.provider_id;
        let mut sources = snapshot.sources.iter();
        let source = sources.position(|source| source.provider_id == *id);
        let source = source.ok_or_else(|| format!("the pool has no provider {id}"))?;
        if !budget.has_room(source) {
            let why = format!("the provider {id} accepts no more machines now");
            return Err(why.into());
        }
        if !budget.has_units(each) {
            let room = budget.units;
            let why = format!("a machine has {each} units, and there is room for {room}");
            return Err(why.into());
        }
        let condition = strategy.condition(settings, offer, snapshot.now);
        let weight = weight(offer, condition)?;
        let max_price = strategy.max_price(settings, offer).map_err(|no_bid| {
            if let NoBid::Alarming { .. } = no_bid {
                notes.alarm(format!("{}: {no_bid}", snapshot.name_of(offer)));
            }
            no_bid.to_string()
        })?;
        if let Some(why) = why_left {
            return Err(Skip {
                is_left: true,
                ..Skip::from(why.to_owned())
            });
        }
        if let (Some(weight), Some(failures_text)) = (weight, offer.failures_text()) {
            notes.add(format!(
                "{}: weight {}, {failures_text}",
                snapshot.name_of(offer),
                units(weight)
            ));
        }
        Ok(Self {
            index,
            source,
            offer,
            group: first_of(index, offer),
            room: offer.room(settings.max_capacity),
            each,
            left,
            weight,
            live: exact(offer.live),
            max_price,
            won: 0,
        })
    }

    pub(in crate::plan) fn can_give(&self, budget: &Budget) -> bool {
        self.left > 0 && budget.has_units(self.each) && budget.has_room(self.source)
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
        let bid = self.offer.bid.as_ref().ok();
        Award {
            launch_config_id: self.offer.launch_config_id.clone(),
            bid_number: self.offer.bid_number,
            provider_id,
            machines: self.won,
            capacity_each: self.each,
            max_price: self.max_price,
            price: bid.and_then(|bid| bid.price),
            data: bid.map(|bid| bid.data.clone()).unwrap_or_default(),
        }
    }
}

impl Budget {
    /// The maximum that a strategy may take.
    pub(in crate::plan) fn of(snapshot: &Snapshot, change: f64) -> Self {
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

    /// For one machine, whatever the maximum of the pool.
    pub(in crate::plan) fn one_machine(snapshot: &Snapshot) -> Self {
        Self {
            wanted: 1.0,
            units: u64::MAX,
            machines: 1,
            rooms: snapshot.rooms(),
        }
    }
}

impl Snapshot {
    pub(in crate::plan) fn has_several_providers(&self) -> bool {
        self.sources.len() > 1
    }

    pub(in crate::plan) fn rooms(&self) -> Vec<u64> {
        let rooms = self.sources.iter().map(|source| source.room);
        rooms.map(|room| room.unwrap_or(u64::MAX)).collect()
    }

    /// The offer for people: its provider if there are several, its place and its id.
    pub(in crate::plan) fn name_of(&self, offer: &Offer) -> String {
        match self.has_several_providers() {
            false => offer.name(),
            true => format!("{} {}", offer.provider_id, offer.name()),
        }
    }
}

/// The index of the first offer of a launch config, which has one for each bid.
pub(in crate::plan) fn first_of(index: usize, offer: &Offer) -> usize {
    index.saturating_sub(offer.bid_number as usize)
}

/// The weight of an offer in the choice of machines; `None`: it may only be tried.
fn weight(offer: &Offer, condition: Condition) -> Result<Option<f64>, Skip> {
    let failures_text = || offer.failures_text().unwrap_or_default();
    match condition {
        Condition::Usable(share) => Ok(Some(offer.initial_weight * share)),
        Condition::Due => Ok(None),
        Condition::Resting { until } => Err(Skip::new(
            format!("{}, tried again at {}", failures_text(), time_of_day(until)),
            Usability::ShutOff { until },
        )),
        Condition::ShutOff { trouble, until } => Err(Skip::new(
            format!("shut off: {trouble}, next try {}", time_of_day(until)),
            Usability::ShutOff { until },
        )),
        Condition::OnTrial { until } => Err(Skip::new(
            format!("on trial with one machine, next try {}", time_of_day(until)),
            Usability::OnTrial { until: Some(until) },
        )),
        Condition::Awaited => {
            let when = "tried again when it is known whether its last machine starts";
            Err(Skip::new(
                format!("{}, {when}", failures_text()),
                Usability::OnTrial { until: None },
            ))
        }
    }
}

/// `12:03:10`
fn time_of_day(moment: Timestamp) -> String {
    let text = moment.to_string();
    format!("{}Z", text.get(11..19).unwrap_or(&text))
}
