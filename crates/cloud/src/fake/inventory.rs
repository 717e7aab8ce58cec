//! The machines of the fake cloud, and what happens to them as time passes.
//!
//! A query costs as much as its result: counts are kept, and future changes wait in a queue ordered
//! by time. A benchmark keeps 100,000 machines here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use domain::id::{LaunchConfigId, LaunchToken, PoolId, WorkerId, WorkerKey};
use domain::time::{HOUR_MS, Timestamp};
use domain::worker::Worker;

use crate::{MachineEnd, Sighting};

/// An ended machine is shown for this long, as on real clouds.
const REMEMBERED_MS: i64 = HOUR_MS;

#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) key: WorkerKey,
    /// `None`: a machine that no launch of ours made.
    pub(super) token: Option<LaunchToken>,
    pub(super) launch_config_id: Option<LaunchConfigId>,
    /// Its kind, if its launch config has several.
    pub(super) kind: Option<String>,
    /// The image that it boots, if its launch config names one.
    pub(super) image: Option<String>,
    pub(super) made: Timestamp,
    /// `None`: its worker never starts.
    pub(super) up: Option<Timestamp>,
    pub(super) end_asked: Option<Timestamp>,
    pub(super) ends: Option<(Timestamp, &'static str)>,
    /// Dollars per hour, as agreed when it was ordered.
    pub(super) price: Option<f64>,
    /// Whether it counts against the stock.
    counted: bool,
}

#[derive(Default)]
pub(super) struct Inventory {
    machines: HashMap<WorkerId, Machine>,
    by_token: HashMap<LaunchToken, Vec<WorkerId>>,
    /// Number of machines: in total, and by launch config, kind and region.
    live: u64,
    live_by_place: HashMap<String, u64>,
    /// Whether ended machines are shown for ever.
    pub(super) keeps_ended: bool,
    /// When to look at each machine again.
    due: BinaryHeap<Reverse<(Timestamp, WorkerId)>>,
}

impl Machine {
    pub(super) fn new(key: WorkerKey, made: Timestamp) -> Self {
        Self {
            key,
            token: None,
            launch_config_id: None,
            kind: None,
            image: None,
            made,
            up: Some(made),
            end_asked: None,
            ends: None,
            price: None,
            counted: true,
        }
    }

    /// Whether it is the machine of this worker, which we made or took over.
    pub(super) fn is_of(&self, worker: &Worker) -> bool {
        self.key == worker.key && (self.token.is_some() || worker.terms.taken_over)
    }

    /// The sighting that the cloud reports as of this moment.
    pub(super) fn seen(&self, at: Timestamp) -> Sighting {
        if at < self.made {
            return Sighting::NotFound;
        }
        match (self.ends, self.end_asked) {
            (Some((ends, why)), _) if ends <= at => Sighting::Ended(MachineEnd {
                why: Some(why.to_owned()),
                at: Some(ends),
                cause: None,
            }),
            (_, Some(asked)) if asked <= at => Sighting::Ending,
            _ => Sighting::Alive,
        }
    }

    pub(super) fn is_up(&self, at: Timestamp) -> bool {
        self.up.is_some_and(|up| up <= at) && self.seen(at) == Sighting::Alive
    }

    pub(super) fn has_ended(&self, at: Timestamp) -> bool {
        self.ends.is_some_and(|(ends, _)| ends <= at)
    }

    /// The names under which it counts against the stock.
    fn places(&self) -> Vec<String> {
        let group = self.key.group.to_string();
        let config = self.launch_config_id.as_ref();
        let kind = config
            .zip(self.kind.as_ref())
            .map(|(config, kind)| kind_of(config, kind));
        let config = config.map(LaunchConfigId::to_string);
        config.into_iter().chain(kind).chain([group]).collect()
    }
}

/// The name under which machines of this kind count.
pub(super) fn kind_of(config: &LaunchConfigId, kind: &str) -> String {
    format!("{config} {kind}")
}

impl Inventory {
    pub(super) fn add(&mut self, machine: Machine) {
        self.live += 1;
        for place in machine.places() {
            *self.live_by_place.entry(place).or_default() += 1;
        }
        let id = machine.key.id.clone();
        if let Some((ends, _)) = machine.ends {
            self.due.push(Reverse((ends, id.clone())));
        }
        if let Some(token) = &machine.token {
            let made = self.by_token.entry(token.clone()).or_default();
            made.push(id.clone());
        }
        self.machines.insert(id, machine);
    }

    /// Sets the moment at which the machine ends, unless it ends earlier.
    pub(super) fn end_at(&mut self, id: &WorkerId, at: Timestamp, why: &'static str) {
        let Some(machine) = self.machines.get_mut(id) else {
            return;
        };
        if machine.ends.is_none_or(|(ends, _)| at < ends) {
            machine.ends = Some((at, why));
            self.due.push(Reverse((at, id.clone())));
        }
    }

    /// Applies all changes up to now.
    pub(super) fn settle(&mut self, now: Timestamp) {
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, id))) = self.due.pop() else {
                return;
            };
            self.update_machine(&id, now);
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

    /// The machines that this launch made, in order; `None`: none yet.
    pub(super) fn made_by(&self, token: &LaunchToken) -> Option<Vec<&Machine>> {
        let ids = self.by_token.get(token)?;
        Some(ids.iter().filter_map(|id| self.machines.get(id)).collect())
    }

    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// The machines of a pool that have not ended.
    pub(super) fn live_of_pool(&self, pool_id: &PoolId) -> usize {
        let of_pool = |machine: &&Machine| machine.key.pool_id == *pool_id && machine.counted;
        self.machines.values().filter(of_pool).count()
    }

    pub(super) fn live_in(&self, place: &str) -> u64 {
        self.live_by_place.get(place).copied().unwrap_or_default()
    }

    fn update_machine(&mut self, id: &WorkerId, now: Timestamp) {
        let Some(machine) = self.machines.get_mut(id) else {
            return;
        };
        let Some((ended, _)) = machine.ends.filter(|_| machine.has_ended(now)) else {
            return;
        };
        if std::mem::take(&mut machine.counted) {
            self.live -= 1;
            for place in machine.places() {
                match self.live_by_place.get_mut(&place) {
                    Some(live) if *live > 1 => *live -= 1,
                    _ => drop(self.live_by_place.remove(&place)),
                }
            }
        }
        let forget = ended.plus_millis(REMEMBERED_MS);
        if self.keeps_ended {
            return;
        }
        if now < forget {
            self.due.push(Reverse((forget, id.clone())));
        } else if let Some(token) = self.machines.remove(id).and_then(|machine| machine.token)
            && let Some(made) = self.by_token.get_mut(&token)
        {
            made.retain(|other| other != id);
            if made.is_empty() {
                self.by_token.remove(&token);
            }
        }
    }
}
