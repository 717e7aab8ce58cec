//! The choice of launch configs for the capacity that is needed.

use rand::Rng;

use super::canary::share_out;
use super::money::keep_within_budgets;
use super::need::exact;
use super::notes::{Notes, units};
use super::spot_bids::Budget;
use super::strategy::usable_offers::UsableOffers;
use super::{Award, MAX_MACHINES, Offer, Snapshot};
use crate::time::Timestamp;

/// The launches of a plan, and when a further plan is useful.
#[derive(Default)]
pub(super) struct LaunchDecision {
    pub(super) awards: Vec<Award>,
    pub(super) again_at: Option<Timestamp>,
}

pub(super) fn choose(
    snapshot: &Snapshot,
    change: f64,
    notes: &mut Notes,
    rng: &mut dyn Rng,
) -> LaunchDecision {
    let budget = Budget::of(snapshot, change);
    if change > 0.0 && snapshot.demand.pending > 0 && !snapshot.offers.iter().any(is_usable) {
        notes.unserved(if snapshot.offers.is_empty() {
            "tasks wait, and the pool has no active launch config"
        } else {
            "tasks wait, and each launch config of the pool has the initialWeight 0"
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
        note_failures(snapshot, notes);
        if change > 0.0 && budget.machines == 0 {
            let who = if snapshot.has_several_providers() {
                "the providers accept"
            } else {
                "the provider accepts"
            };
            notes.add(format!("{who} no more machines now"));
        }
        return LaunchDecision::default();
    }
    let mut offers = UsableOffers::open(snapshot, budget, notes);
    let strategy = snapshot.strategy();
    if strategy.retries_paused() {
        offers.retry_paused();
    }
    strategy.choose(&mut offers, rng);
    let is_short = offers.budget.wanted > 0.0;
    if is_short {
        let missing = units(offers.budget.wanted);
        let noun = if missing == "1" { "unit" } else { "units" };
        let why = shortage(snapshot, &offers.budget);
        offers
            .notes
            .add(format!("still missing {missing} {noun}: {why}"));
    }
    let again_at = offers.resting_until.filter(|_| is_short);
    let mut awards = offers.awards();
    share_out(snapshot, &mut awards, notes, rng);
    keep_within_budgets(snapshot, &mut awards, notes);
    LaunchDecision { awards, again_at }
}

/// Whether it may ever be launched automatically.
fn is_usable(offer: &Offer) -> bool {
    offer.initial_weight > 0.0
}

/// Why the plan does not give all capacity that is wanted.
fn shortage(snapshot: &Snapshot, budget: &Budget) -> String {
    let full = snapshot.sources.iter().zip(&budget.rooms);
    let full = full.filter_map(|(source, left)| {
        let room = source.room.filter(|room| *room > 0 && *left == 0)?;
        Some(match snapshot.has_several_providers() {
            false => format!("the provider accepts {room} more machines now"),
            true => {
                let id = &source.provider_id;
                format!("the provider {id} accepts {room} more machines now")
            }
        })
    });
    let full: Vec<String> = full.collect();
    if !full.is_empty() {
        return full.join(", ");
    }
    match budget.machines {
        0 => format!("one plan starts at most {MAX_MACHINES} machines, the next plan starts more"),
        _ => "no launch config can give more now".to_owned(),
    }
}

/// Nothing is launched; people still want to know the state of the launch configs.
fn note_failures(snapshot: &Snapshot, notes: &mut Notes) {
    for offer in &snapshot.offers {
        if let Some(failures_text) = offer.failures_text() {
            notes.add(format!("{}: {failures_text}", snapshot.name_of(offer)));
        }
    }
}
