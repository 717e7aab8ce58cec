//! Orders the changes of a plan by their dependencies.

use std::collections::BTreeSet;

use super::change::{Action, Change, Plan};
use super::kind::Kind;

impl Plan {
    /// Roles and clients come before the items that need their scopes; removals come last. A
    /// configuration that gives up a worker type comes before the configuration that gets it, and
    /// before a pool that replaces it.
    pub(super) fn order(&mut self) {
        let defined = self
            .changes
            .iter()
            .filter(|change| change.kind == Kind::WorkerPool && change.action != Action::Remove);
        let mut gained: BTreeSet<_> = defined.map(|change| change.id.clone()).collect();
        gained.extend(self.changes.iter().flat_map(Change::gains));
        let rank = |change: &Change| {
            let gives = !change.loses().is_disjoint(&gained);
            match change.action {
                Action::Create | Action::Update => (false, change.kind as u8),
                Action::Remove if gives => (false, change.kind as u8),
                Action::Remove => (true, u8::MAX - change.kind as u8),
            }
        };
        self.changes
            .sort_by(|left, right| (rank(left), &left.id).cmp(&(rank(right), &right.id)));
        let start = self
            .changes
            .iter()
            .position(|change| change.kind == Kind::WorkerConfiguration);
        let Some(start) = start else { return };
        let same_rank = |change: &Change| rank(change) == (false, Kind::WorkerConfiguration as u8);
        let length = self.changes[start..]
            .iter()
            .take_while(|change| same_rank(change))
            .count();
        let mut waiting: Vec<Change> = self.changes.drain(start..start + length).collect();
        let mut ordered = Vec::with_capacity(length);
        while !waiting.is_empty() {
            let others: Vec<&Change> = waiting.iter().collect();
            let is_free = |candidate: &&Change| awaited(candidate, &others).is_none();
            // A cycle is a conflict of the plan, so its order does not matter.
            let next = others.iter().position(is_free).unwrap_or(0);
            ordered.push(waiting.remove(next));
        }
        self.changes.splice(start..start, ordered);
    }

    /// Reports cycles of worker configurations that exchange worker types.
    pub(super) fn check_cycles(&mut self) {
        let configurations = self.changes.iter();
        let mut waiting: Vec<&Change> = configurations
            .filter(|change| change.kind == Kind::WorkerConfiguration)
            .collect();
        loop {
            let is_free = |candidate: &&Change| awaited(candidate, &waiting).is_none();
            if let Some(free) = waiting.iter().position(is_free) {
                waiting.remove(free);
                continue;
            }
            let Some(mut now) = waiting.first().copied() else {
                return;
            };
            let mut chain: Vec<(&Change, String)> = Vec::new();
            while !chain.iter().any(|(known, _)| known.id == now.id) {
                let (other, pool) =
                    awaited(now, &waiting).expect("changes that wait for no other were removed");
                chain.push((now, pool));
                now = other;
            }
            let start = chain.iter().position(|(known, _)| known.id == now.id);
            self.conflicts
                .push(cycle_message(&chain[start.unwrap_or(0)..]));
            waiting.retain(|change| change.id != now.id);
        }
    }
}

/// A change that must come first: it gives up a worker type that this change gets.
fn awaited<'a>(change: &Change, among: &[&'a Change]) -> Option<(&'a Change, String)> {
    let gains = change.gains();
    let mut others = among.iter().filter(|other| other.id != change.id);
    others.find_map(|other| Some((*other, other.loses().intersection(&gains).next()?.clone())))
}

/// The conflict of a cycle: what each configuration waits for, and how to resolve it.
fn cycle_message(circle: &[(&Change, String)]) -> String {
    let waits: Vec<_> = circle
        .iter()
        .zip(circle.iter().cycle().skip(1))
        .map(|((change, pool), (other, _))| {
            format!("{} waits for {pool} of {}", change.id, other.id)
        })
        .collect();
    let [(first, pool), ..] = circle else {
        return String::new();
    };
    let giver = circle.get(1).map_or(&first.id, |(other, _)| &other.id);
    format!(
        "{}s exchange worker types in a cycle: {}. Use two steps: first apply files in which \
         neither {giver} nor {} has {pool}, then these",
        first.kind.noun(),
        waits.join(", "),
        first.id,
    )
}
