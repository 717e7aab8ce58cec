//! The strategy `external`: follows the answer of a strategy service, within the pool's limits.
//!
//! It decides only with a valid answer; without one, the fallback strategy decides alone. Whether a
//! launch config can be used, and for what price, is always the fallback's decision.

use rand::Rng;

use super::super::advice::View;
use super::super::health::Condition;
use super::super::need::{Load, exact};
use super::super::notes::{Notes, units};
use super::super::spot_bids::NoBid;
use super::super::{MAX_MACHINES, Offer, ProposedLaunch, Settings, Snapshot};
use super::Strategy;
use super::balanced::Trials;
use super::usable_offers::UsableOffers;
use crate::demand::Demand;
use crate::time::Timestamp;

pub(super) struct External;

/// Adds what the service answered, or why the fallback decides.
pub(in crate::plan) fn note_service(snapshot: &Snapshot, notes: &mut Notes) {
    let (Some(external), Some(proposal)) = (&snapshot.settings.external, snapshot.proposal())
    else {
        return;
    };
    let service = &external.service;
    let proposal = match proposal {
        Ok(proposal) => proposal,
        Err(why) => {
            let fallback = external.fallback;
            notes.add(format!(
                "the fallback {fallback} decides without the strategy service {service}: {why}"
            ));
            return;
        }
    };
    let total = proposal.launches.iter().map(|launch| launch.machines);
    let machines = total.fold(0, u64::saturating_add);
    let start = counted(machines, "machine");
    let stop = counted(proposal.stop.len() as u64, "worker");
    notes.add(format!(
        "the strategy service {service} decides: start {start}, let {stop} go"
    ));
    for reason in &proposal.reasons {
        notes.add(format!("{service}: {reason}"));
    }
    let added = snapshot.units_since_asked();
    if added > 0 && machines > 0 {
        notes.add(format!(
            "{added} units were added since the service was asked: that much less is started"
        ));
    }
    for launch in &proposal.launches {
        let id = &launch.launch_config_id;
        let mut offers = snapshot.offers.iter();
        if !offers.any(|offer| launch.is_of(offer)) {
            let machines = launch.machines;
            let bid = match launch.bid_number {
                0 => String::new(),
                number => format!(" with the bid {number}"),
            };
            notes.add(format!(
                "the service starts {machines} of {id}{bid}: none, it is no active launch config of the \
                 pool"
            ));
        }
    }
}

impl Strategy for External {
    fn default_ratio(&self) -> f64 {
        1.0
    }

    fn min_ratio(&self) -> f64 {
        0.0
    }

    fn most_pending(&self, settings: &Settings) -> f64 {
        settings.own_strategy().most_pending(settings)
    }

    fn target(&self, settings: &Settings, demand: &Demand) -> f64 {
        settings.own_strategy().target(settings, demand)
    }

    fn need(&self, settings: &Settings, load: &Load) -> f64 {
        settings.own_strategy().need(settings, load)
    }

    /// The machines of the answer, less those added meanwhile; at least the pool's minimum.
    fn need_in(&self, snapshot: &Snapshot, load: &Load) -> f64 {
        let Some(Ok(proposal)) = snapshot.proposal() else {
            return self.need(&snapshot.settings, load);
        };
        let added = exact(snapshot.units_since_asked());
        let wanted = (snapshot.proposed_units(proposal) - added).max(0.0);
        wanted.max(below_minimum(snapshot, load))
    }

    fn keep(&self, settings: &Settings, load: &Load, target: f64) -> f64 {
        settings.own_strategy().keep(settings, load, target)
    }

    fn let_go(&self, view: &mut View<'_>) {
        let snapshot = view.snapshot;
        let Some(Ok(proposal)) = snapshot.proposal() else {
            return;
        };
        view.stop_listed(&proposal.stop, exact(snapshot.settings.least()));
        let wanted = view.load.running + view.load.coming + self.need_in(snapshot, &view.load);
        view.target = wanted.min(exact(snapshot.settings.max_capacity));
    }

    fn condition(&self, settings: &Settings, offer: &Offer, now: Timestamp) -> Condition {
        settings.own_strategy().condition(settings, offer, now)
    }

    fn max_price(&self, settings: &Settings, offer: &Offer) -> Result<Option<f64>, NoBid> {
        settings.own_strategy().max_price(settings, offer)
    }

    /// The service names the launch configs, also those that are to be tried.
    fn retries_paused(&self) -> bool {
        false
    }

    /// Takes what the service starts. If the pool's minimum needs more, the fallback chooses that.
    fn choose(&self, offers: &mut UsableOffers<'_>, rng: &mut dyn Rng) {
        let snapshot = offers.snapshot;
        let Some(Ok(proposal)) = snapshot.proposal() else {
            return;
        };
        let mut trials = Trials::limit(offers);
        let wanted = offers.budget.wanted;
        let before = offers.budget.units;
        for launch in &proposal.launches {
            take(offers, launch, &mut trials);
        }
        let taken = exact(before - offers.budget.units);
        let missing = below_minimum(snapshot, &View::of(snapshot).load) - taken;
        if missing > 0.0 {
            let fallback = snapshot.settings.own_strategy_name();
            let (least, more) = (snapshot.settings.least(), units(missing));
            offers.notes.add(format!(
                "the minimum of {least} needs {more} more: the fallback {fallback} chooses"
            ));
            offers.budget.wanted = missing;
            snapshot.settings.own_strategy().choose(offers, rng);
            let chosen = missing - offers.budget.wanted;
            offers.budget.wanted = wanted - taken - chosen;
        }
    }
}

/// Units that are missing to the pool's minimum.
fn below_minimum(snapshot: &Snapshot, load: &Load) -> f64 {
    exact(snapshot.settings.least()) - load.running - load.coming
}

/// Takes machines of one launch config, and adds why it gives fewer than the service starts.
fn take(offers: &mut UsableOffers<'_>, launch: &ProposedLaunch, trials: &mut Trials) {
    let mut usable = offers.usable.iter();
    let at = usable.position(|usable| launch.is_of(usable.offer));
    let snapshot = offers.snapshot;
    let Some(at) = at else {
        let mut skipped = offers.skipped.iter();
        let skip = skipped.find(|(index, _)| launch.is_of(&snapshot.offers[*index]));
        // Launch configs that the pool does not have were noted before.
        if let Some((index, skip)) = skip.filter(|_| launch.machines > 0) {
            let name = snapshot.name_of(&snapshot.offers[*index]);
            let (machines, why) = (launch.machines, &skip.why);
            let line = format!("the service starts {machines} of {name}: none, {why}");
            offers.notes.add(line);
        }
        return;
    };
    let is_trial = offers.usable[at].weight.is_none();
    let most = if is_trial { 1 } else { u64::MAX };
    let mut given = 0;
    while given < launch.machines.min(most)
        && offers.budget.is_open()
        && offers.usable[at].can_give(&offers.budget)
    {
        offers.take(at);
        trials.note(offers, at);
        given += 1;
    }
    if given < launch.machines {
        let why = shortfall(offers, at, is_trial && given == 1);
        let name = snapshot.name_of(offers.usable[at].offer);
        let machines = launch.machines;
        let line = format!("the service starts {machines} of {name}: {given}, {why}");
        offers.notes.add(line);
    }
}

/// Which limit ended the taking.
fn shortfall(offers: &UsableOffers<'_>, at: usize, is_trial: bool) -> String {
    let (usable, budget) = (&offers.usable[at], &offers.budget);
    let max = offers.snapshot.settings.max_capacity;
    if is_trial {
        "it is tried with one machine after failures".to_owned()
    } else if budget.machines == 0 && budget.rooms.iter().all(|room| *room > 0) {
        format!("one plan starts at most {MAX_MACHINES} machines")
    } else if !budget.has_room(usable.source) {
        let id = &usable.offer.provider_id;
        format!("the provider {id} accepts no more machines now")
    } else if !budget.has_units(usable.each) {
        let room = budget.units;
        format!("there is room for {room} more units under the maximum of {max}")
    } else if usable.left == 0 {
        "it can give no more now".to_owned()
    } else {
        "what was added since the service was asked is enough".to_owned()
    }
}

/// `1 worker`, `2 workers`.
fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
