//! Where: which launch configs give what is needed.

use rand::Rng;

use super::need::exact;
use super::notes::{Notes, units};
use super::spot_bids::Budget;
use super::strategy::market::Market;
use super::{Award, MAX_MACHINES, Offer, Snapshot};
use crate::time::Timestamp;

/// What is launched, and when more may be.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) awards: Vec<Award>,
    pub(super) again_at: Option<Timestamp>,
}

pub(super) fn choose(
    snapshot: &Snapshot,
    change: f64,
    notes: &mut Notes,
    rng: &mut dyn Rng,
) -> Chosen {
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
        note_trouble(snapshot, notes);
        if change > 0.0 && budget.machines == 0 {
            let who = if snapshot.has_several_providers() {
                "the providers take"
            } else {
                "the provider takes"
            };
            notes.add(format!("{who} no more machines now"));
        }
        return Chosen::default();
    }
    let mut market = Market::open(snapshot, budget, notes);
    market.try_again();
    snapshot
        .settings
        .strategy
        .strategy()
        .choose(&mut market, rng);
    let is_short = market.budget.wanted > 0.0;
    if is_short {
        let missing = units(market.budget.wanted);
        let why = shortage(snapshot, &market.budget);
        market.notes.add(format!("short by {missing}: {why}"));
    }
    Chosen {
        again_at: market.resting_until.filter(|_| is_short),
        awards: market.awards(),
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

/// Nothing is launched, and yet people want to know how the launch configs are.
fn note_trouble(snapshot: &Snapshot, notes: &mut Notes) {
    for offer in &snapshot.offers {
        if let Some(trouble) = offer.trouble() {
            notes.add(format!("{}: {trouble}", snapshot.name_of(offer)));
        }
    }
}
