//! The strategy `balanced`: short waits for little money.
//!
//! Each offering has an expected cost for a useful hour: its price, the boot, the machines that
//! never register, and the work that interruptions repeat. Machines are spread over the offerings
//! that cost about as little as the best. Few are started for short tasks, since running workers
//! will take them first; idle workers are kept for as long as that costs less than starting others.

mod foresight;
mod outlook;

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;

use self::foresight::Foresight;
use self::outlook::Outlook;
use super::super::advice::View;
use super::super::cover::{self, Kind};
use super::super::health::Condition;
use super::super::need::{Load, OVER_SHARE, exact, whole};
use super::super::notes::Notes;
use super::super::spot_bids::NoBid;
use super::super::{Candidate, NO_MAX_PRICE, Offer, Settings, Snapshot};
use super::Strategy;
use super::usable_offers::UsableOffers;
use super::weighted::{Weighted, draw};
use crate::demand::Demand;
use crate::id::{LaunchConfigId, OfferingId};
use crate::market::{BreakerState, Contest, Given, OfferingMemory, QuotaUse, Trouble};
use crate::time::Timestamp;

/// An offering that is this share dearer than the best gets 1/e of its machines.
const SPREAD: f64 = 0.06;
/// Where machines differ in size, an offering whose share would be less than this, as it is 18 %
/// dearer, gets none: the cheapest cover is what is looked for.
const LEAST_SHARE: f64 = 0.05;
/// If the best offering registers less than this part of the machines that its provider promised,
/// idle workers are kept: others may never come.
const REPLACEABLE: f64 = 0.7;

pub(super) struct Balanced;

impl Strategy for Balanced {
    fn default_ratio(&self) -> f64 {
        1.0
    }

    fn min_ratio(&self) -> f64 {
        0.0
    }

    fn most_pending(&self, settings: &Settings) -> f64 {
        Weighted.most_pending(settings)
    }

    fn target(&self, _settings: &Settings, demand: &Demand) -> f64 {
        exact(demand.pending) + exact(demand.claimed)
    }

    /// Without memory: a machine for each task that no idle worker takes. Machines that are coming
    /// are not subtracted, as some may be late.
    fn need(&self, settings: &Settings, load: &Load) -> f64 {
        let existing = load.running + load.coming;
        let backlog = (load.pending - load.idle()).max(0.0);
        backlog
            .max(exact(settings.least()) - existing)
            .min(exact(settings.max_capacity) - existing)
    }

    fn need_if_all_come(&self, settings: &Settings, load: &Load) -> f64 {
        let existing = load.running + load.coming;
        let backlog = (load.pending - load.idle()).max(0.0);
        let wanted = (backlog * settings.scaling_ratio.max(1.0)).ceil() - load.coming;
        wanted
            .max(exact(settings.least()) - existing)
            .min(exact(settings.max_capacity) - existing)
    }

    fn need_in(&self, snapshot: &Snapshot, load: &Load) -> f64 {
        let settings = &snapshot.settings;
        let outlook = Outlook::of(snapshot);
        let late: u64 = snapshot.offers.iter().map(|offer| offer.late).sum();
        let coming = (load.coming - exact(late)).max(0.0);
        let foresight = Foresight::of(snapshot, &outlook);
        let backlog = load.pending + foresight.due
            - load.idle()
            - freed(snapshot, load, (outlook.boot_ms, foresight.due));
        let wanted = if backlog > 0.0 {
            (backlog * ratio(snapshot, &outlook) - 1e-9).ceil() - coming
        } else {
            // Nothing is missing; idle workers are let go by their retention, not by need.
            0.0
        };
        let existing = load.running + load.coming;
        wanted
            .max(exact(settings.least()) - load.running - coming)
            .max(foresight.floor - load.running - coming)
            .min(exact(settings.max_capacity) - existing)
    }

    fn note_need(&self, snapshot: &Snapshot, notes: &mut Notes) {
        Foresight::of(snapshot, &Outlook::of(snapshot)).note(snapshot, notes);
    }

    fn keep(&self, _settings: &Settings, load: &Load, _target: f64) -> f64 {
        load.pending + load.claimed
    }

    fn let_go(&self, view: &mut View<'_>) {
        let snapshot = view.snapshot;
        let keep = kept(snapshot, &view.load);
        view.release(keep, |_| true);
        let mut given = Given::default();
        for quota in ContestedQuota::all(snapshot) {
            let uses = |candidate: &Candidate| quota.is_used_by(candidate);
            view.release(needed(snapshot, &view.load), uses);
            let released = view.released_units(uses);
            if let Some(contest) = quota.contest(snapshot, &view.load, released, &given) {
                view.drain(contest.give(&mut given), uses);
            }
        }
    }

    fn condition(&self, _settings: &Settings, offer: &Offer, now: Timestamp) -> Condition {
        let Some(memory) = &offer.memory else {
            return Condition::Usable(1.0);
        };
        match (memory.state(now), memory.breaker.trouble) {
            (BreakerState::Open { until }, Some(trouble)) => Condition::ShutOff { trouble, until },
            (BreakerState::Open { until }, None) => Condition::Resting { until },
            (BreakerState::OnTrial { until }, _) => Condition::OnTrial { until },
            (BreakerState::Closed | BreakerState::HalfOpen, _) => Condition::Usable(1.0),
        }
    }

    fn left_to_others(&self, snapshot: &Snapshot) -> BTreeMap<OfferingId, String> {
        let load = Load::of(snapshot);
        let left = ContestedQuota::all(snapshot)
            .into_iter()
            .filter_map(|quota| {
                let contest = quota.contest(snapshot, &load, 0.0, &Given::default())?;
                let surplus = contest.surplus()?;
                let why = format!("{OVER_SHARE}{surplus:.0} more than its fair share of it");
                Some((quota.offering.clone(), why))
            });
        left.collect()
    }

    fn max_price(&self, settings: &Settings, offer: &Offer) -> Result<Option<f64>, NoBid> {
        if settings.max_price >= NO_MAX_PRICE {
            return Ok(None);
        }
        let bid = offer.bid.as_ref().ok();
        let true_price = bid.and_then(|bid| Some(bid.price? / bid.utility));
        match true_price {
            None => Err(NoBid::NoPrice),
            Some(true_price) if true_price > settings.max_price => Err(NoBid::Dear { true_price }),
            Some(_) => Ok(None),
        }
    }

    fn weights(&self, offers: &UsableOffers<'_>) -> Option<Vec<f64>> {
        let mut weights = Vec::new();
        let sizes = Sizes::of(offers);
        sizes.weigh(offers, &scores(offers), &mut weights);
        Some(weights)
    }

    /// Takes machines of the offerings that cost about as little as the best, one at a time.
    fn choose(&self, offers: &mut UsableOffers<'_>, rng: &mut dyn Rng) {
        let mut trials = Trials::limit(offers);
        let scores = scores(offers);
        if let Some(at) = due_trial(offers, &scores) {
            offers.take(at);
            trials.note(offers, at);
        }
        let sizes = Sizes::of(offers);
        let mut weights = Vec::new();
        let mut is_stale = true;
        while offers.budget.is_open() {
            if is_stale {
                sizes.weigh(offers, &scores, &mut weights);
            }
            let Some(at) = draw(&weights, rng) else { break };
            if offers.usable[at].can_give(&offers.budget) {
                offers.take(at);
                trials.note(offers, at);
            }
            is_stale = sizes == Sizes::Different || !offers.usable[at].can_give(&offers.budget);
        }
    }
}

/// The offerings that give only few machines now. Launch configs of one offering share them.
pub(in crate::plan) struct Trials(Vec<Trial>);

struct Trial {
    /// The usable offers of one offering.
    offers: Vec<usize>,
    left: u64,
}

impl Trials {
    /// An offering after a failure gives one machine; one with failed boots gives few.
    pub(in crate::plan) fn limit(offers: &mut UsableOffers<'_>) -> Self {
        let snapshot = offers.snapshot;
        let is_limited = |memory: &OfferingMemory| {
            memory.window.is_some() || memory.state(snapshot.now) == BreakerState::HalfOpen
        };
        let mut trials: BTreeMap<OfferingId, Trial> = BTreeMap::new();
        for (at, usable) in offers.usable.iter().enumerate() {
            let offer = usable.offer;
            let Some(memory) = offer.memory.as_ref().filter(|it| is_limited(it)) else {
                continue;
            };
            let Some(id) = offer.offering() else { continue };
            let trial = trials.entry(id).or_insert_with_key(|id| {
                let starting = snapshot.starting_of(id);
                let window = memory.window.map(u64::from);
                let left = window.map_or(u64::MAX, |window| window.saturating_sub(starting));
                let is_tried = memory.state(snapshot.now) == BreakerState::HalfOpen;
                Trial {
                    offers: Vec::new(),
                    left: if is_tried { left.min(1) } else { left },
                }
            });
            trial.offers.push(at);
        }
        let trials = Self(trials.into_values().collect());
        for trial in &trials.0 {
            trial.apply(offers);
        }
        trials
    }

    /// Counts a machine that was taken.
    pub(in crate::plan) fn note(&mut self, offers: &mut UsableOffers<'_>, taken: usize) {
        let mut trials = self.0.iter_mut();
        if let Some(trial) = trials.find(|trial| trial.offers.contains(&taken)) {
            trial.left = trial.left.saturating_sub(1);
            trial.apply(offers);
        }
    }
}

impl Trial {
    fn apply(&self, offers: &mut UsableOffers<'_>) {
        for at in &self.offers {
            let usable = &mut offers.usable[*at];
            usable.left = usable.left.min(self.left);
        }
    }
}

impl Snapshot {
    /// Machines of the offering that have not registered, of all launch configs.
    fn starting_of(&self, offering: &OfferingId) -> u64 {
        let offers = self.offers.iter();
        let own = offers.filter(|offer| offer.offering().as_ref() == Some(offering));
        own.map(|offer| offer.starting).sum()
    }
}

/// The cheapest offering whose pause is over, though others cost less: a machine of it shows soon
/// whether an outage has ended. An offering that may fail late is not the only one of a plan.
fn due_trial(offers: &UsableOffers<'_>, scores: &[f64]) -> Option<usize> {
    let (now, wanted) = (offers.snapshot.now, offers.budget.wanted);
    let is_due = |memory: &OfferingMemory| {
        memory.state(now) == BreakerState::HalfOpen
            && memory.breaker.trouble.is_some_and(Trouble::is_cheap_to_try)
            && (wanted > 1.0 || !memory.breaker.fails_late)
    };
    let due = offers.usable.iter().enumerate().filter(|(_, usable)| {
        usable.offer.memory.as_ref().is_some_and(is_due)
            && usable.weight.is_some_and(|weight| weight > 0.0)
            && usable.can_give(&offers.budget)
    });
    let places = due.map(|(at, _)| at).filter(|_| offers.budget.is_open());
    places.min_by(|a, b| scores[*a].total_cmp(&scores[*b]))
}

/// The expected costs of the usable offers.
fn scores(offers: &UsableOffers<'_>) -> Vec<f64> {
    let outlook = Outlook::of(offers.snapshot);
    let usable = offers.usable.iter();
    usable
        .map(|usable| outlook.score(offers.snapshot, usable.offer))
        .collect()
}

/// Whether the machines that can be used differ in their units.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    Same,
    Different,
}

impl Sizes {
    fn of(offers: &UsableOffers<'_>) -> Self {
        let mut sizes = offers.usable.iter().map(|usable| usable.each);
        let first = sizes.next();
        match sizes.all(|size| Some(size) == first) {
            true => Self::Same,
            false => Self::Different,
        }
    }

    /// The weights for the next machine. Its size is that of the next machine of the cheapest cover
    /// of the need: a large machine for a small need costs more than its price for a unit says.
    fn weigh(self, offers: &UsableOffers<'_>, scores: &[f64], weights: &mut Vec<f64>) {
        if self == Self::Same {
            weigh(offers, scores, |_| true, weights);
            return;
        }
        let usable = offers.usable.iter().zip(scores);
        let kinds = usable.map(|(usable, score)| {
            let is_open = usable.weight.is_some_and(|weight| weight > 0.0)
                && usable.can_give(&offers.budget)
                && score.is_finite();
            Kind {
                units: usable.each,
                cost: score * f64::from(usable.each),
                limit: if is_open { usable.left } else { 0 },
            }
        });
        let kinds: Vec<Kind> = kinds.collect();
        let next = cover::next(&kinds, whole(offers.budget.wanted));
        let size = next.map(|at| kinds[at].units);
        weigh(offers, scores, |at| Some(kinds[at].units) == size, weights);
        for weight in weights.iter_mut().zip(&offers.usable) {
            let (weight, usable) = weight;
            if *weight < LEAST_SHARE * usable.weight.unwrap_or(0.0) {
                *weight = 0.0;
            }
        }
    }
}

/// The weight of each usable offering: the author's weight, less for those that cost more.
fn weigh(
    offers: &UsableOffers<'_>,
    scores: &[f64],
    is_wanted: impl Fn(usize) -> bool,
    weights: &mut Vec<f64>,
) {
    let open = |at: usize| is_wanted(at) && offers.usable[at].can_give(&offers.budget);
    let costs = scores.iter().enumerate();
    let best = costs.filter(|(at, _)| open(*at)).map(|(_, score)| *score);
    let best = best.fold(f64::INFINITY, f64::min);
    weights.clear();
    weights.extend(scores.iter().enumerate().map(|(at, score)| {
        if !open(at) {
            return 0.0;
        }
        let weight = offers.usable[at].weight.unwrap_or(0.0);
        weight * (-(score / best - 1.0) / SPREAD).exp()
    }));
}

/// Waiting tasks that running workers will take before a machine that is started now is there,
/// beside those that arrive meanwhile.
fn freed(snapshot: &Snapshot, load: &Load, (boot_ms, due): (f64, f64)) -> f64 {
    let Some(learned) = &snapshot.learned else {
        return 0.0;
    };
    let n_runs = snapshot.demand.claimed;
    let started = learned.starts_within(boot_ms, n_runs, snapshot.ordinary_runs);
    // Workers that are no supply take no further task.
    let supply = load.claimed / exact(n_runs.max(1));
    let arriving = (learned.arrivals * boot_ms / 1_000.0 - due).max(0.0);
    (started * supply - arriving).max(0.0)
}

/// The share of the backlog for which machines are started: fewer where the boot of a machine
/// costs more than the waits that it saves.
fn ratio(snapshot: &Snapshot, outlook: &Outlook) -> f64 {
    let settings = &snapshot.settings;
    if !settings.learns_ratio {
        return settings.scaling_ratio;
    }
    let learned = snapshot.learned.as_ref();
    let Some(task_ms) = learned.and_then(|learned| learned.task_ms) else {
        return 1.0;
    };
    let overhead = 2.0 * outlook.boot_ms * outlook.price;
    (settings.wait_price * task_ms / (2.0 * overhead))
        .sqrt()
        .min(1.0)
}

/// The units for all tasks, or the minimum.
fn needed(snapshot: &Snapshot, load: &Load) -> f64 {
    (load.pending + load.claimed).max(exact(snapshot.settings.least()))
}

/// How many running units stay although they are idle: all, while machines of the pool's offerings
/// do not come up as promised. If it has no offering now, such as during a pause, people have
/// decided that, and there is nothing to wait for.
fn kept(snapshot: &Snapshot, load: &Load) -> f64 {
    let outlook = Outlook::of(snapshot);
    let mut offers = snapshot.offers.iter();
    let has_offering = offers.any(|offer| offer.bid.is_ok() && offer.initial_weight > 0.0);
    if has_offering && outlook.kept_promise < REPLACEABLE {
        return f64::INFINITY;
    }
    let foresight = Foresight::of(snapshot, &outlook);
    let needed = (needed(snapshot, load) + foresight.soon).max(foresight.floor);
    let learned = snapshot.learned.as_ref();
    let highest = learned.map_or(0, |learned| learned.retention.highest_kept(snapshot.now));
    needed.max(exact(highest))
}

/// The quota of an offering for which other pools compete with this one.
struct ContestedQuota<'a> {
    offering: &'a OfferingId,
    /// The launch configs of this pool that use it.
    configs: BTreeSet<&'a LaunchConfigId>,
    /// Their units that run or are to come.
    held: u64,
}

impl<'a> ContestedQuota<'a> {
    fn all(snapshot: &'a Snapshot) -> Vec<Self> {
        let contested = snapshot.rivals.iter().flat_map(|rival| rival.quotas.keys());
        let quota = |offering| Self {
            offering,
            configs: BTreeSet::new(),
            held: 0,
        };
        let quotas = contested.map(|offering| (offering, quota(offering)));
        let mut quotas: BTreeMap<&OfferingId, Self> = quotas.collect();
        if quotas.is_empty() {
            return Vec::new();
        }
        for offer in &snapshot.offers {
            let offering = offer.offering();
            if let Some(quota) = offering.and_then(|id| quotas.get_mut(&id)) {
                quota.configs.insert(&offer.launch_config_id);
                quota.held = quota.held.saturating_add(offer.held);
            }
        }
        quotas.into_values().collect()
    }

    fn is_used_by(&self, candidate: &Candidate) -> bool {
        let id = candidate.launch_config_id.as_ref();
        let offering = candidate.offering.as_ref();
        id.is_some_and(|id| self.configs.contains(id))
            && offering.is_none_or(|offering| offering == self.offering)
    }

    /// `released`: units of this pool there that the load does not contain any more.
    fn contest(
        &self,
        snapshot: &Snapshot,
        load: &Load,
        released: f64,
        given: &Given,
    ) -> Option<Contest> {
        let own = QuotaUse {
            needed: (load.pending + load.claimed).min(exact(snapshot.settings.max_capacity)),
            everywhere: load.running + load.coming,
            held: (exact(self.held) - released).max(0.0),
        };
        let rivals = snapshot.rivals.iter().enumerate();
        let rivals = rivals.filter_map(|(number, rival)| {
            let rival = QuotaUse {
                needed: exact(rival.demand),
                everywhere: exact(rival.held),
                held: exact(*rival.quotas.get(self.offering)?),
            };
            Some((number, rival))
        });
        Contest::of(own, rivals, given)
    }
}
