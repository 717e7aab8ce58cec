//! The machines of the fake cloud, and what the clock alone does to them.
//!
//! Whatever is asked costs no more than what it is about: counts are kept, and what happens by itself waits in a queue
//! by its time. A bench keeps 100,000 machines here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use domain::id::{LaunchConfigId, LaunchToken, WorkerId, WorkerKey};
use domain::time::{HOUR_MS, Timestamp};

use crate::Sighting;

/// A machine that is gone can be asked about for so long, as on real clouds.
const REMEMBERED_MS: i64 = HOUR_MS;

#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) key: WorkerKey,
    /// `None`: somebody else's.
    pub(super) token: Option<LaunchToken>,
    pub(super) launch_config_id: Option<LaunchConfigId>,
    pub(super) made: Timestamp,
    /// `None`: it never comes up.
    pub(super) up: Option<Timestamp>,
    pub(super) end_asked: Option<Timestamp>,
    pub(super) gone: Option<(Timestamp, &'static str)>,
    /// It takes up stock.
    counted: bool,
}

#[derive(Default)]
pub(super) struct Inventory {
    machines: HashMap<WorkerId, Machine>,
    by_token: HashMap<LaunchToken, Vec<WorkerId>>,
    /// How many there are, in all and by launch config and region.
    live: u64,
    live_by_place: HashMap<String, u64>,
    /// When to look at which machine again.
    due: BinaryHeap<Reverse<(Timestamp, WorkerId)>>,
}

impl Machine {
    pub(super) fn new(key: WorkerKey, made: Timestamp) -> Self {
        Self {
            key,
            token: None,
            launch_config_id: None,
            made,
            up: Some(made),
            end_asked: None,
            gone: None,
            counted: true,
        }
    }

    /// How the cloud, asked as of this moment, sees it.
    pub(super) fn seen(&self, at: Timestamp) -> Sighting {
        if at < self.made {
            return Sighting::NotFound;
        }
        match (self.gone, self.end_asked) {
            (Some((gone, why)), _) if gone <= at => Sighting::Gone(Some(why.to_owned())),
            (_, Some(asked)) if asked <= at => Sighting::Going,
            _ => Sighting::Alive,
        }
    }

    pub(super) fn is_up(&self, at: Timestamp) -> bool {
        self.up.is_some_and(|up| up <= at) && self.seen(at) == Sighting::Alive
    }

    pub(super) fn is_gone(&self, at: Timestamp) -> bool {
        self.gone.is_some_and(|(gone, _)| gone <= at)
    }

    /// Under which names its stock is counted.
    fn places(&self) -> [Option<&str>; 2] {
        let config = self.launch_config_id.as_ref().map(LaunchConfigId::as_str);
        [config, Some(self.key.group.as_str())]
    }
}

impl Inventory {
    pub(super) fn add(&mut self, machine: Machine) {
        self.live += 1;
        for place in machine.places().into_iter().flatten() {
            *self.live_by_place.entry(place.to_owned()).or_default() += 1;
        }
        let id = machine.key.id.clone();
        if let Some((gone, _)) = machine.gone {
            self.due.push(Reverse((gone, id.clone())));
        }
        if let Some(token) = &machine.token {
            let made = self.by_token.entry(token.clone()).or_default();
            made.push(id.clone());
        }
        self.machines.insert(id, machine);
    }

    /// The machine is gone at this moment, unless it is so before.
    pub(super) fn goes(&mut self, id: &WorkerId, at: Timestamp, why: &'static str) {
        let Some(machine) = self.machines.get_mut(id) else {
            return;
        };
        if machine.gone.is_none_or(|(gone, _)| at < gone) {
            machine.gone = Some((at, why));
            self.due.push(Reverse((at, id.clone())));
        }
    }

    /// Lets happen what has become due.
    pub(super) fn settle(&mut self, now: Timestamp) {
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, id))) = self.due.pop() else {
                return;
            };
            self.look_again(&id, now);
        }
    }

    pub(super) fn get(&self, id: &WorkerId) -> Option<&Machine> {
        self.machines.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &WorkerId) -> Option<&mut Machine> {
        self.machines.get_mut(id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values()
    }

    /// What this launch made, in order; `None`: nothing yet.
    pub(super) fn made_by(&self, token: &LaunchToken) -> Option<Vec<&Machine>> {
        let ids = self.by_token.get(token)?;
        Some(ids.iter().filter_map(|id| self.machines.get(id)).collect())
    }

    pub(super) fn live(&self) -> u64 {
        self.live
    }

    pub(super) fn live_in(&self, place: &str) -> u64 {
        self.live_by_place.get(place).copied().unwrap_or_default()
    }

    fn look_again(&mut self, id: &WorkerId, now: Timestamp) {
        let Some(machine) = self.machines.get_mut(id) else {
            return;
        };
        let Some((gone, _)) = machine.gone.filter(|_| machine.is_gone(now)) else {
            return;
        };
        if std::mem::take(&mut machine.counted) {
            self.live -= 1;
            for place in machine.places().into_iter().flatten() {
                match self.live_by_place.get_mut(place) {
                    Some(live) if *live > 1 => *live -= 1,
                    _ => drop(self.live_by_place.remove(place)),
                }
            }
        }
        let forget = gone.plus_millis(REMEMBERED_MS);
        if now < forget {
            self.due.push(Reverse((forget, id.clone())));
        } else if let Some(token) = self.machines.remove(id).and_then(|gone| gone.token)
            && let Some(made) = self.by_token.get_mut(&token)
        {
            made.retain(|other| other != id);
            if made.is_empty() {
                self.by_token.remove(&token);
            }
        }
    }
}
