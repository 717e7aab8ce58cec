//! Keeps the launches of a plan within budgets of money.

use super::notes::Notes;
use super::{Award, Snapshot};
use crate::budgets::{BudgetRoom, micros_of};

/// Takes away the machines that no budget has money for.
pub(super) fn keep_within_budgets(snapshot: &Snapshot, awards: &mut Vec<Award>, notes: &mut Notes) {
    if snapshot.budgets.is_empty() {
        return;
    }
    let mut rooms: Vec<BudgetRoom> = snapshot.budgets.clone();
    for award in awards.iter_mut() {
        let Some((_, offer)) = snapshot.offer_of(award) else {
            continue;
        };
        let price = award.price.map(micros_of);
        let limiting = |room: &&mut BudgetRoom| room.limits(&offer.provider_id);
        let mut machines = u64::from(award.machines);
        for room in rooms.iter_mut().filter(limiting) {
            let affordable = room.affords(price);
            if affordable < machines {
                let name = snapshot.name_of(offer);
                let brief = room.brief();
                notes.add(format!(
                    "{name}: {affordable} of {machines} machines: {brief}"
                ));
                machines = affordable;
            }
        }
        for room in rooms.iter_mut().filter(limiting) {
            room.take(price, machines);
        }
        award.machines = u32::try_from(machines).unwrap_or(award.machines);
    }
    awards.retain(|award| award.machines > 0);
}
