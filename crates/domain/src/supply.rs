//! Supply: running workers that ask for work, and workers that have just registered.
//!
//! A silent worker occupies capacity, because its machine exists, but it is no supply for tasks.

use std::collections::HashMap;

use crate::id::{LaunchConfigId, PoolId, ProviderId, names};
use crate::plan::Capacity;
use crate::time::{MINUTE_MS, Timestamp};
use crate::worker::WorkerState;

/// A worker that asked for work or ended a task this recently is supply. Accurate to a minute.
pub const ASKED_MS: i64 = 3 * MINUTE_MS;
/// A worker that registered this recently is supply, too: it may still be starting.
pub const STARTING_MS: i64 = 5 * MINUTE_MS;
/// A worker that registered this recently and had no task yet will soon claim one.
pub const FRESH_MS: i64 = MINUTE_MS;
/// A sign further in the future than this is ignored, as the clock was set back. The clocks of
/// processes differ by less.
pub const AHEAD_MS: i64 = MINUTE_MS;

/// The signs of activity of a running worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    /// When it registered, or was declared.
    pub registered: Timestamp,
    pub last_asked: Option<Timestamp>,
    pub last_task_ended: Option<Timestamp>,
    pub has_task: bool,
}

/// Whether a running worker is supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It works, or asks for work.
    Asking,
    /// It registered a short while ago and has not asked yet.
    Starting,
    /// It runs and does not ask for work: no supply.
    Silent,
}

/// The times since which signs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    pub now: Timestamp,
    pub asked_since: Timestamp,
    pub registered_since: Timestamp,
    pub fresh_since: Timestamp,
    /// Later signs are ignored.
    pub until: Timestamp,
    /// Whether workers ask us for work. Otherwise they ask another deployment's queue, which does
    /// not tell who asked.
    pub hears_workers: bool,
    /// Whether we learn which workers have asked for work at least once.
    pub hears_claims: bool,
}

impl Horizon {
    /// `listening_since`: since when workers could ask us for work without an interruption. `None`:
    /// they ask another deployment's queue, so nothing is known. No worker counts as silent before
    /// its signs could have been received.
    pub fn new(now: Timestamp, listening_since: Option<Timestamp>) -> Self {
        let hears = listening_since.is_some_and(|since| now.millis_since(since) > ASKED_MS);
        let registered_since = match hears {
            true => now.plus_millis(-STARTING_MS),
            false => Timestamp::from_millis(i64::MIN),
        };
        let until = match hears {
            true => now.plus_millis(AHEAD_MS),
            false => Timestamp::from_millis(i64::MAX),
        };
        Self {
            now,
            asked_since: now.plus_millis(-ASKED_MS),
            registered_since,
            fresh_since: now.plus_millis(-FRESH_MS),
            until,
            hears_workers: listening_since.is_some(),
            hears_claims: listening_since.is_some(),
        }
    }

    pub fn presence(&self, signs: &Signs) -> Presence {
        let counts =
            |at: Option<Timestamp>| at.is_some_and(|at| at >= self.asked_since && at <= self.until);
        if signs.has_task || counts(signs.last_asked) || counts(signs.last_task_ended) {
            return Presence::Asking;
        }
        match signs.registered >= self.registered_since && signs.registered <= self.until {
            true => Presence::Starting,
            false => Presence::Silent,
        }
    }

    /// Whether it has just registered and had no task yet.
    pub fn is_fresh(&self, signs: &Signs) -> bool {
        signs.registered >= self.fresh_since
            && signs.registered <= self.until
            && signs.last_task_ended.is_none()
            && !signs.has_task
    }
}

names! {
    Presence, "not the presence of a worker",
    Asking = "asking",
    Starting = "starting",
    Silent = "silent",
}

/// Workers of one pool with the same properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub pool_id: PoolId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub state: WorkerState,
    /// Asked to stop when it is next idle.
    pub draining: bool,
    pub count: u64,
    pub capacity: u64,
}

/// Launches without an answer that have the same properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedLaunches {
    pub pool_id: PoolId,
    pub launch_config_id: LaunchConfigId,
    pub provider_id: ProviderId,
    /// Decided before the time that the reader named.
    pub is_old: bool,
    /// The units that may still appear.
    pub capacity: u64,
}

/// The workers and open launches of one pool.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// Each worker that is not stopped is in one of these groups.
    pub workers: Vec<Group>,
    /// Whether a running worker belongs to an archived launch config.
    pub has_archived: bool,
    /// The running workers that are quarantined.
    pub quarantined: Vec<Group>,
    /// The running workers that are silent and not quarantined.
    pub silent: Vec<Group>,
    /// The running workers that registered recently and had no task yet.
    pub fresh: Vec<Group>,
    /// The requested workers that should have registered by now or will stop as soon as they
    /// register, because the pool no longer uses their provider or their launch config is archived.
    pub overdue: Vec<Group>,
    pub awaited: Vec<AwaitedLaunches>,
}

impl Inventory {
    /// The units by kind of supply.
    pub fn capacity(&self, has_provider: impl Fn(&ProviderId) -> bool) -> Capacity {
        let mut capacity = Capacity::default();
        for group in &self.workers {
            let place = match (group.state, group.draining) {
                (WorkerState::Running, false) => &mut capacity.running,
                (WorkerState::Running, true) => &mut capacity.draining,
                (WorkerState::Requested, _) => &mut capacity.requested,
                (WorkerState::Stopping, _) => &mut capacity.stopping,
                (WorkerState::Stopped, _) => continue,
            };
            *place += group.capacity;
        }
        for group in &self.quarantined {
            let place = match group.draining {
                true => &mut capacity.draining,
                false => &mut capacity.running,
            };
            *place = place.saturating_sub(group.capacity);
            capacity.quarantined += group.capacity;
        }
        for group in self.silent.iter().filter(|group| !group.draining) {
            capacity.running = capacity.running.saturating_sub(group.capacity);
            capacity.silent += group.capacity;
        }
        for group in self.fresh.iter().filter(|group| !group.draining) {
            capacity.fresh += group.capacity;
        }
        for group in &self.overdue {
            capacity.requested = capacity.requested.saturating_sub(group.capacity);
            capacity.overdue += group.capacity;
        }
        for launches in &self.awaited {
            let is_promising = !launches.is_old && has_provider(&launches.provider_id);
            let place = match is_promising {
                true => &mut capacity.intended,
                false => &mut capacity.overdue,
            };
            *place += launches.capacity;
        }
        capacity
    }

    /// The units that exist or may still appear, by launch config.
    pub fn live(&self) -> HashMap<&LaunchConfigId, u64> {
        let mut live = HashMap::new();
        let workers = self.workers.iter();
        let workers =
            workers.filter_map(|group| Some((group.launch_config_id.as_ref()?, group.capacity)));
        let awaited = self.awaited.iter();
        let awaited = awaited.map(|launches| (&launches.launch_config_id, launches.capacity));
        for (id, units) in workers.chain(awaited) {
            *live.entry(id).or_default() += units;
        }
        live
    }

    /// The units that run or are to come, by launch config.
    pub fn held(
        &self,
        has_provider: impl Fn(&ProviderId) -> bool,
    ) -> HashMap<&LaunchConfigId, u64> {
        let of = |group: &Group| match (group.state, group.draining) {
            (WorkerState::Requested, _) | (WorkerState::Running, false) => group.capacity,
            (WorkerState::Running, true) | (WorkerState::Stopping | WorkerState::Stopped, _) => 0,
        };
        let mut held: HashMap<&LaunchConfigId, u64> = HashMap::new();
        for group in &self.workers {
            if let Some(id) = &group.launch_config_id {
                *held.entry(id).or_default() += of(group);
            }
        }
        let lost = self.quarantined.iter().chain(&self.silent);
        for group in lost.chain(&self.overdue) {
            if let Some(units) = group
                .launch_config_id
                .as_ref()
                .and_then(|id| held.get_mut(id))
            {
                *units = units.saturating_sub(of(group));
            }
        }
        for launches in &self.awaited {
            if !launches.is_old && has_provider(&launches.provider_id) {
                *held.entry(&launches.launch_config_id).or_default() += launches.capacity;
            }
        }
        held
    }

    /// The number of running workers.
    pub fn n_running(&self) -> u64 {
        let is_running = |group: &&Group| group.state == WorkerState::Running;
        let running = self.workers.iter().filter(is_running);
        running.map(|group| group.count).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.workers.is_empty() && self.awaited.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{DAY_MS, HOUR_MS};

    const NOW: i64 = 100 * DAY_MS;

    fn ago(ms: i64) -> Timestamp {
        Timestamp::from_millis(NOW - ms)
    }

    /// Registered this long ago, without a sign since.
    fn mute(registered_ms: i64) -> Signs {
        Signs {
            registered: ago(registered_ms),
            last_asked: None,
            last_task_ended: None,
            has_task: false,
        }
    }

    fn presence(signs: Signs) -> Presence {
        Horizon::new(ago(0), Some(ago(DAY_MS))).presence(&signs)
    }

    #[test]
    fn a_worker_counts_if_it_works_or_asks_or_has_just_registered() {
        use Presence::{Asking, Silent, Starting};
        let asked = |ms| Signs {
            last_asked: Some(ago(ms)),
            ..mute(HOUR_MS)
        };
        let ended = |ms| Signs {
            last_task_ended: Some(ago(ms)),
            ..mute(HOUR_MS)
        };
        let works = Signs {
            has_task: true,
            ..mute(HOUR_MS)
        };
        let cases = [
            (mute(0), Starting),
            (mute(STARTING_MS), Starting),
            (mute(STARTING_MS + 1), Silent),
            (mute(HOUR_MS), Silent),
            (works, Asking),
            (asked(0), Asking),
            (asked(ASKED_MS), Asking),
            (asked(ASKED_MS + 1), Silent),
            (ended(ASKED_MS), Asking),
            (ended(ASKED_MS + 1), Silent),
            // Signs in the future do not count, except for small differences between clocks.
            (mute(-AHEAD_MS), Starting),
            (mute(-AHEAD_MS - 1), Silent),
            (asked(-AHEAD_MS), Asking),
            (asked(-AHEAD_MS - 1), Silent),
        ];
        for (signs, expected) in cases {
            assert_eq!(presence(signs), expected, "{signs:?}");
        }
    }

    #[test]
    fn no_worker_is_silent_before_its_signs_could_be_received() {
        let at = |since| Horizon::new(ago(0), since).presence(&mute(HOUR_MS));
        assert_eq!(at(Some(ago(ASKED_MS + 1))), Presence::Silent);
        assert_eq!(at(Some(ago(ASKED_MS))), Presence::Starting);
        assert_eq!(at(Some(ago(0))), Presence::Starting);
        assert_eq!(at(None), Presence::Starting);
    }

    #[test]
    fn a_worker_is_fresh_for_a_minute_or_until_its_first_task() {
        let horizon = Horizon::new(ago(0), Some(ago(DAY_MS)));
        let fresh = |signs: Signs| horizon.is_fresh(&signs);
        assert!(fresh(mute(0)) && fresh(mute(FRESH_MS)));
        assert!(!fresh(mute(FRESH_MS + 1)));
        assert!(!fresh(Signs {
            has_task: true,
            ..mute(0)
        }));
        assert!(!fresh(Signs {
            last_task_ended: Some(ago(0)),
            ..mute(0)
        }));
        // Asking for work is not enough: while tasks wait, a worker that asks gets one.
        assert!(fresh(Signs {
            last_asked: Some(ago(0)),
            ..mute(0)
        }));
    }

    fn group(state: WorkerState, config: &str, draining: bool, capacity: u64) -> Group {
        Group {
            pool_id: "a/b".parse().unwrap(),
            launch_config_id: (!config.is_empty()).then(|| config.parse().unwrap()),
            state,
            draining,
            count: capacity,
            capacity,
        }
    }

    fn awaited(config: &str, provider: &str, is_old: bool, capacity: u64) -> AwaitedLaunches {
        AwaitedLaunches {
            pool_id: "a/b".parse().unwrap(),
            launch_config_id: config.parse().unwrap(),
            provider_id: provider.parse().unwrap(),
            is_old,
            capacity,
        }
    }

    fn capacity(inventory: &Inventory) -> Capacity {
        inventory.capacity(|id| id.as_str() == "cloud")
    }

    #[test]
    fn each_unit_is_counted_in_one_place() {
        use WorkerState::{Requested, Running, Stopped, Stopping};
        let inventory = Inventory {
            workers: vec![
                group(Running, "active", false, 100),
                group(Running, "active", true, 20),
                group(Requested, "active", false, 10),
                group(Stopping, "active", false, 3),
                group(Stopped, "active", false, 1_000),
            ],
            has_archived: false,
            quarantined: vec![
                group(Running, "active", false, 5),
                group(Running, "active", true, 2),
            ],
            silent: vec![
                group(Running, "active", false, 30),
                group(Running, "active", true, 4),
            ],
            fresh: vec![
                group(Running, "active", false, 7),
                group(Running, "active", true, 1),
            ],
            overdue: vec![group(Requested, "active", false, 6)],
            awaited: vec![
                awaited("active", "cloud", false, 8),
                awaited("active", "cloud", true, 9),
                awaited("active", "left", false, 11),
            ],
        };
        let counted = capacity(&inventory);
        let expected = Capacity {
            running: 65,
            draining: 18,
            quarantined: 7,
            silent: 30,
            fresh: 7,
            requested: 4,
            overdue: 26,
            intended: 8,
            stopping: 3,
        };
        assert_eq!(counted, expected);
        assert_eq!(counted.all(), 161);
        let active: LaunchConfigId = "active".parse().unwrap();
        assert_eq!(inventory.live()[&active], 1_161);
        let held = inventory.held(|id| id.as_str() == "cloud")[&active];
        assert_eq!(held, expected.running + expected.coming());
    }
}
