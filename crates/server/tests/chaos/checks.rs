//! The invariants that must hold after every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::id::{LaunchConfigId, PoolId, WorkerKey};
use domain::launch::{Launch, LaunchState};
use domain::launch_config::LaunchConfig;
use domain::plan::{LOST_ANSWER_MS, START_UP_MS};
use domain::supply::{AHEAD_MS, FRESH_MS};
use domain::time::{HOUR_MS, Timestamp};
use domain::worker::{Worker, WorkerState};
use serde_json::Value;
use store::{Store, StoreError};

use crate::picture::Picture;
use crate::run::Kind;
use crate::world::{CLOUDS, World};

/// Machines that appeared after they were given up: they are ended at once, and do not count.
const UNEXPECTED: [&str; 3] = [
    "its pool was deleted",
    "its pool has left the provider",
    "appeared after its launch was given up",
];

/// Maximum wait for the outcome of a launch in a cloud that cannot be listed.
const GIVE_UP_MS: i64 = 6 * HOUR_MS;

/// Launches beyond the need, as far as the pictures before and after show.
struct Excess {
    pool_id: PoolId,
    /// Units beyond those that the tasks before the step explain.
    beyond_tasks_before: u64,
    text: String,
}

impl World {
    /// Takes a picture and compares it with the one before.
    pub(crate) async fn check(self: &Arc<Self>) {
        let now = self.now();
        let after = Picture::take(&self.observer, now).await;
        let before = self.state().before.take();
        let before = before.unwrap_or_else(|| after.clone());
        self.check_limits(&before, &after);
        self.check_machines(&before, &after);
        self.check_demand(&before, &after, now).await;
        self.check_refusals(&before, &after);
        self.check_ends(&before, &after, now);
        self.check_foreign();
        self.check_events(&after).await;
        self.see_runs().await;
        if self.kind == Kind::WrongClocks {
            self.check_times(&before, &after).await;
        }
        if self.kind == Kind::ShortOfMoney {
            self.check_budgets(&before, &after).await;
        }
        let mut state = self.state();
        state.said.clear();
        state.before = Some(after);
    }

    /// I1: never above the maximum, unless it was lowered meanwhile; then never more than before.
    fn check_limits(&self, before: &Picture, after: &Picture) {
        for (id, pool) in &after.pools {
            let old = before.pools.get(id).unwrap_or(pool);
            let limit = max_of(&pool.definition.config).max(max_of(&old.definition.config));
            let allowed = limit.max(before.units(id, None));
            let units = after.units(id, None);
            if units > allowed {
                self.problem(format!("I1: {units} units in {id}, where {allowed} may be"));
            }
        }
        for config in &after.configs {
            let Some(max) = config.configuration.get("workerManager").map(max_in) else {
                continue;
            };
            let units = |picture: &Picture| picture.units(&config.pool_id, Some(config));
            let (had, has) = (units(before), units(after));
            if has > max.max(had) {
                let (pool, id) = (&config.pool_id, &config.id);
                self.problem(format!(
                    "I1: {has} units of {id} in {pool}, where {max} may be"
                ));
            }
        }
        for (id, max) in CLOUDS {
            let (had, has) = (before.machines(id), after.machines(id));
            if max.is_some_and(|max| has > max.max(had)) {
                self.problem(format!("I1: {has} machines of {id}, where {max:?} may be"));
            }
        }
    }

    /// Every existing machine is known or will be found. None lacks a stored launch, and none has a
    /// stopped worker although no call ended the machine (I2, I4).
    fn check_machines(&self, before: &Picture, after: &Picture) {
        let mut units: BTreeMap<PoolId, u64> = BTreeMap::new();
        let has_frozen = self.state().has_frozen;
        for machine in self.clouds.iter().flat_map(|cloud| cloud.machines()) {
            let Some(token) = &machine.token else {
                continue;
            };
            let Some(launch) = after.launches.get(token) else {
                self.problem(format!("I2: nobody intended {}", machine.key));
                continue;
            };
            let counts = match after.workers.get(&machine.key) {
                Some(worker) if worker.state == WorkerState::Stopped => {
                    let reason = worker.terms.end_reason.as_deref().unwrap_or_default();
                    let was_believed_gone = reason.starts_with("its machine ended")
                        || reason.starts_with("the cloud has no such machine");
                    if was_believed_gone && !machine.is_going {
                        self.problem(format!("I4: {} is there, and {reason:?}", machine.key));
                    }
                    false
                }
                Some(worker) => !is_unexpected(worker),
                None => match &launch.state {
                    LaunchState::Open | LaunchState::Unknown { .. } => true,
                    LaunchState::Refused { .. } => false,
                    // A process that froze after it had stored that it asks will ask too late; then
                    // the next scan finds the machine. A process that froze before does not ask.
                    LaunchState::Accepted | LaunchState::Withdrawn { .. }
                        if has_frozen && launch.asked.is_some() =>
                    {
                        false
                    }
                    // So does the next scan, when a cloud that could not be listed for hours
                    // answers again.
                    LaunchState::Accepted if was_given_up(launch) => false,
                    LaunchState::Accepted | LaunchState::Withdrawn { .. } => {
                        self.problem(format!(
                            "I2: no row has {}, and its launch is over",
                            machine.key
                        ));
                        false
                    }
                },
            };
            if counts {
                *units.entry(launch.pool_id.clone()).or_default() +=
                    u64::from(launch.capacity_each);
            }
        }
        for (id, units) in units {
            let limit = |picture: &Picture| {
                let pool = picture.pools.get(&id);
                pool.map_or(0, |pool| max_of(&pool.definition.config))
            };
            let known = before.units(&id, None).max(after.units(&id, None));
            if units > limit(before).max(limit(after)).max(known) {
                self.problem(format!("I1: {units} units of machines in {id}"));
            }
        }
    }

    /// Machines that have been starting for less than this time are counted on. `balanced` counts
    /// on none that is late for its offering, which is after two minutes at the earliest.
    fn start_up_ms(&self) -> i64 {
        if self.learns() { 120_000 } else { START_UP_MS }
    }

    /// I2: launches of this step, together with pending and recent machines, do not exceed the
    /// need.
    fn find_excess(&self, before: &Picture, after: &Picture, now: Timestamp) -> Vec<Excess> {
        let mut too_many = Vec::new();
        // Machines of archived launch configs do not count.
        let is_kept = |pool: &PoolId, id: &LaunchConfigId| {
            before.has_active(pool, id) && after.has_active(pool, id)
        };
        for (id, pool) in &after.pools {
            let of_pool = after
                .launches
                .values()
                .filter(|launch| launch.pool_id == *id);
            let new: Vec<&Launch> = of_pool
                .clone()
                .filter(|launch| !before.launches.contains_key(&launch.token))
                .collect();
            let Some(largest) = new
                .iter()
                .map(|launch| u64::from(launch.capacity_each))
                .max()
            else {
                continue;
            };
            // A machine that appears after its launch was given up comes in addition, and so does
            // the machine of an answer that was lost for so long that others were launched.
            let is_expected = |worker: &Worker| {
                let token = worker.terms.launch_token.as_ref();
                let launch = token.and_then(|token| after.launches.get(&token.parse().ok()?));
                let since = launch.map_or(worker.created, |launch| launch.created);
                let config = worker.launch_config_id.as_ref();
                config.is_none_or(|config| is_kept(id, config))
                    && pool.has_provider(&worker.provider_id)
                    && now.millis_since(since) < self.start_up_ms()
                    && !launch.is_some_and(|launch| was_lost(launch, now))
            };
            let is_coming = |worker: &&Worker| {
                let is_requested = worker.state == WorkerState::Requested;
                is_expected(worker) && (is_requested || is_about_to_claim(after, worker, now))
            };
            let requested: u64 = after
                .workers_of(id)
                .filter(is_coming)
                .map(|worker| u64::from(worker.capacity))
                .sum();
            let is_promising = |launch: &&Launch| {
                pool.has_provider(&launch.provider_id)
                    && is_kept(id, &launch.launch_config_id)
                    && now.millis_since(launch.created) < self.start_up_ms()
                    && !was_lost(launch, now)
            };
            let coming: u64 = requested + of_pool.filter(is_promising).map(to_come).sum::<u64>();
            // A launch may have been decided on before people changed the pool in the same step.
            let min_in = |picture: &Picture| {
                let pool = picture.pools.get(id);
                pool.map_or(0, |pool| min_of(&pool.definition.config))
            };
            let min = min_in(before).max(min_in(after));
            let pending = |picture: &Picture| picture.demand[id].pending;
            let said = self.state().said.get(id).copied().unwrap_or(0);
            let wanted = pending(before).max(pending(after)).max(said).max(min);
            if coming > wanted + largest - 1 {
                let text = format!(
                    "I2: {coming} units come for {wanted} in {id}: {requested} on machines; tasks {} then and {} now, \
                     {said} said, minimum {min}, launches of this step {new:?}",
                    pending(before),
                    pending(after)
                );
                let most = before.demand[id].pending + largest - 1;
                too_many.push(Excess {
                    pool_id: id.clone(),
                    beyond_tasks_before: coming.saturating_sub(most),
                    text,
                });
            }
        }
        too_many
    }

    /// In the middle of a step there may have been more tasks than before and after it: each new
    /// pending task excuses one unit.
    async fn check_demand(&self, before: &Picture, after: &Picture, now: Timestamp) {
        for excess in self.find_excess(before, after, now) {
            let n_new = self.count_new_runs(&excess.pool_id, before.at, now).await;
            if excess.beyond_tasks_before > n_new {
                self.problem(excess.text);
            }
        }
    }

    /// Runs that became pending after one time and up to another.
    async fn count_new_runs(&self, pool_id: &PoolId, after: Timestamp, until: Timestamp) -> u64 {
        let (ids, pool_id) = (self.state().tasks.clone(), pool_id.clone());
        let read = self.observer.read("new_runs", move |tx| {
            let mut n_new = 0;
            for id in &ids {
                let task = store::tasks::get(tx, &id.parse().unwrap())?;
                let task = task.filter(|task| task.definition.task_queue_id == pool_id);
                let runs = task.iter().flat_map(|task| &task.runs);
                let new = runs.filter(|run| after < run.scheduled && run.scheduled <= until);
                n_new += new.count() as u64;
            }
            Ok::<_, StoreError>(n_new)
        });
        read.await.unwrap()
    }

    /// I5, I6: a worker is ended only for a reason that is true now.
    fn check_ends(&self, before: &Picture, after: &Picture, now: Timestamp) {
        for (key, worker) in &after.workers {
            let old = before.workers.get(key);
            if let Some(old) = old.filter(|old| old.state > worker.state) {
                self.problem(format!(
                    "{key} moves back from {} to {}",
                    old.state, worker.state
                ));
            }
            let ended_before = old.is_some_and(|old| old.state >= WorkerState::Stopping);
            if worker.state < WorkerState::Stopping || ended_before {
                continue;
            }
            let reason = worker.terms.end_reason.as_deref().unwrap_or("none");
            self.note(format!("{key} is {}: {reason}", worker.state));
            if !self.is_legitimate(worker, reason, now) {
                self.problem(format!("I5: {key} is ended, and this is not so: {reason}"));
            }
        }
    }

    fn is_legitimate(&self, worker: &Worker, reason: &str, now: Timestamp) -> bool {
        let terms = &worker.terms;
        let machines = || self.clouds.iter().flat_map(|cloud| cloud.machines());
        let machine = machines().find(|machine| machine.key == worker.key);
        let registered = terms.registered_at.map(Timestamp::from_millis);
        if reason.starts_with("never registered") {
            registered.is_none()
        } else if let Some(rest) = reason.strip_prefix("did not register within ") {
            let seconds = rest.split(' ').next().and_then(|word| word.parse().ok());
            let is_late = |seconds: i64| now.millis_since(worker.created) > seconds * 1_000;
            registered.is_none() && seconds.is_some_and(is_late)
        } else if reason.starts_with("terminateAfter") {
            terms
                .terminate_after
                .is_some_and(|limit| limit < now.as_millis())
        } else if reason.starts_with("worker never claimed")
            || reason.starts_with("worker inactive")
        {
            // A worker that was asked to stop may still claim; that came later than the decision.
            let active = self.state().active.get(&worker.key).copied();
            let last = active.max(registered).unwrap_or(worker.created);
            let limit = terms.queue_inactivity_timeout.unwrap_or(i64::MAX);
            now.millis_since(last) > limit
        } else if reason.starts_with("its machine is shutting down") {
            machine.is_none_or(|machine| machine.is_going)
        } else if reason.starts_with("its machine ended") || reason.starts_with("the cloud has no")
        {
            machine.is_none()
        } else {
            reason.starts_with("it stopped by itself") || UNEXPECTED.contains(&reason)
        }
    }

    /// I14: machines of others are unchanged.
    fn check_foreign(&self) {
        let foreign = self.state().foreign.clone();
        for (place, key) in foreign {
            let machines = self.clouds[place].machines();
            let found = machines.iter().find(|machine| machine.key == key);
            if found.is_none_or(|machine| machine.is_going) {
                self.problem(format!("I14: {key} was ended, and is not ours"));
                self.state().foreign.retain(|(_, other)| *other != key);
            }
        }
    }

    /// I16: an edit keeps the launch configs that it names, with their ids, and changes no other
    /// pool.
    pub(crate) async fn check_edit(&self, pool: &str, body: &Value, before: &[LaunchConfig]) {
        let after = launch_configs(&self.observer, pool).await;
        let wanted = body["config"]["launchConfigs"]
            .as_array()
            .map_or(0, Vec::len);
        let active = after.iter().filter(|config| !config.archived).count();
        if active != wanted {
            self.problem(format!(
                "I16: {pool} has {active} launch configs instead of {wanted}"
            ));
        }
        for old in before {
            let Some(new) = after.iter().find(|config| config.id == old.id) else {
                self.problem(format!("I16: {} of {pool} was forgotten", old.id));
                continue;
            };
            if new.configuration != old.configuration && !old.is_same_for_clients(new) {
                self.problem(format!("I16: {} of {pool} is another one now", old.id));
            }
        }
    }
}

pub(crate) async fn launch_configs(observer: &Store, pool: &str) -> Vec<LaunchConfig> {
    let id: PoolId = pool.parse().unwrap();
    let read = observer.read("launch_configs", move |tx| {
        store::launch_configs::all(tx, &id)
    });
    let read: Result<Vec<LaunchConfig>, StoreError> = read.await;
    let mut configs = read.unwrap();
    for config in &mut configs {
        let steering = config.configuration.get_mut("workerManager");
        if let Some(steering) = steering.and_then(Value::as_object_mut) {
            // No edit names the cloud of a launch config.
            steering.remove("providerId");
        }
    }
    configs
}

impl Picture {
    /// Units of a pool (or of one of its launch configs) that exist or may still come.
    fn units(&self, pool: &PoolId, config: Option<&LaunchConfig>) -> u64 {
        let there = self.workers_of(pool).filter(|worker| {
            worker.state != WorkerState::Stopped
                && !is_unexpected(worker)
                && config.is_none_or(|config| worker.launch_config_id.as_ref() == Some(&config.id))
        });
        let coming = self.launches.values().filter(|launch| {
            launch.pool_id == *pool
                && config.is_none_or(|config| launch.launch_config_id == config.id)
        });
        there.map(|worker| u64::from(worker.capacity)).sum::<u64>()
            + coming.map(to_come).sum::<u64>()
    }

    fn machines(&self, provider: &str) -> u64 {
        let there = self.workers.values().filter(|worker| {
            worker.provider_id.as_str() == provider
                && worker.state != WorkerState::Stopped
                && !is_unexpected(worker)
        });
        let coming = self
            .launches
            .values()
            .filter(|launch| launch.provider_id.as_str() == provider && launch.state.is_pending());
        let coming = coming.map(|launch| u64::from(launch.machines.saturating_sub(launch.made)));
        there.count() as u64 + coming.sum::<u64>()
    }
}

/// Only some of its machines were found in the hours after the launch; then the others were given
/// up.
fn was_given_up(launch: &Launch) -> bool {
    let asked = launch.asked.unwrap_or(launch.created);
    launch.made < launch.machines && launch.last_modified.millis_since(asked) > GIVE_UP_MS
}

/// It has just registered, and will take a task as soon as it asks.
fn is_about_to_claim(picture: &Picture, worker: &Worker, now: Timestamp) -> bool {
    let seen = picture.seen.get(&worker.key);
    let registered = worker.terms.registered_at.map(Timestamp::from_millis);
    // A time far ahead was written before the clocks were set back: such a worker is not expected
    // to claim.
    let is_fresh = |at| (-AHEAD_MS..FRESH_MS).contains(&now.millis_since(at));
    worker.state == WorkerState::Running
        && !worker.terms.is_draining()
        && registered.is_some_and(is_fresh)
        && seen.is_none_or(|seen| seen.recent_tasks.is_empty() && !seen.is_quarantined(now))
}

pub(crate) fn is_unexpected(worker: &Worker) -> bool {
    let reason = worker.terms.end_reason.as_deref();
    worker.state >= WorkerState::Stopping
        && reason.is_some_and(|reason| UNEXPECTED.contains(&reason))
}

/// Whether the answer was lost for so long that nothing counted on the launch any more. The time at
/// which an answer came in the end is the best that is known of a launch that was accepted.
fn was_lost(launch: &Launch, now: Timestamp) -> bool {
    let waited_ms = match &launch.state {
        LaunchState::Unknown { .. } => Some(now.millis_since(launch.last_modified)),
        LaunchState::Accepted => launch.asked.map(|at| launch.last_modified.millis_since(at)),
        LaunchState::Open | LaunchState::Refused { .. } | LaunchState::Withdrawn { .. } => None,
    };
    waited_ms.is_some_and(|waited_ms| waited_ms > LOST_ANSWER_MS)
}

pub(crate) fn to_come(launch: &Launch) -> u64 {
    match launch.state.is_pending() {
        true => {
            u64::from(launch.machines.saturating_sub(launch.made)) * u64::from(launch.capacity_each)
        }
        false => 0,
    }
}

pub(crate) fn max_of(config: &serde_json::Map<String, Value>) -> u64 {
    config
        .get("maxCapacity")
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

fn min_of(config: &serde_json::Map<String, Value>) -> u64 {
    config
        .get("minCapacity")
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

fn max_in(steering: &Value) -> u64 {
    steering["maxCapacity"].as_u64().unwrap_or(u64::MAX)
}

/// A worker's name in events.
pub(crate) fn key_in(payload: &Value) -> Option<WorkerKey> {
    let text = |name: &str| payload[name].as_str();
    Some(WorkerKey {
        pool_id: text("workerPoolId")?.parse().ok()?,
        group: text("workerGroup")?.parse().ok()?,
        id: text("workerId")?.parse().ok()?,
    })
}
