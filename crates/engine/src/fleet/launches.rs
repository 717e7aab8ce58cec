//! Starts launches: calls the cloud, and writes its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use cloud::{CloudError, LaunchError, LaunchOrder, LaunchedMachine};
use domain::event::WorkerChange;
use domain::id::{LaunchToken, PoolId, ProviderId, WorkerKey};
use domain::launch::{Cause, Launch, LaunchAnswer, LaunchState};
use domain::launch_config::LaunchConfig;
use domain::lifecycle;
use domain::phases::Phase;
use domain::plan::first_pause_ms;
use domain::pool::Pool;
use domain::pool_resources::{PoolResources, ResourcesState};
use domain::time::Timestamp;
use domain::worker::{NewWorker, Terms, Worker};
use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio_util::task::TaskTracker;

use super::launch_deadlines::{
    MAX_CALL, MAX_CALL_DELAY_MS, MAX_CALL_START_MS, MAX_PERMIT_WAIT, SHUTDOWN_WAIT,
};
use super::offering_news;
use super::pool_errors::report_launch_error;
use super::resource_call::call;
use super::worker_end::request_stop;
use crate::Engine;
use crate::change::Change;
use crate::measures::{LAUNCHES, Stopwatch};

/// Concurrent launches of one provider.
const MAX_AT_ONCE: usize = 16;

/// The running launches of this process.
#[derive(Default)]
pub struct LaunchTracker {
    tracker: TaskTracker,
    permits: Mutex<BTreeMap<ProviderId, Arc<Semaphore>>>,
    decision_locks: Mutex<BTreeMap<String, Arc<DecisionLock>>>,
}

/// Held while a process decides how many machines to launch with a limited provider, or under a
/// budget. Decisions of other processes conflict in the store.
type DecisionLock = tokio::sync::Mutex<()>;

impl LaunchTracker {
    /// Waits for the answers of running launches, within a limit. The scan finds the rest.
    pub async fn finish(&self) {
        self.tracker.close();
        let _ = tokio::time::timeout(SHUTDOWN_WAIT, self.tracker.wait()).await;
    }

    /// Runs something that makes a machine and ends it, so that a stop of the process waits for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(work);
    }

    /// Whether the process stops.
    pub(crate) fn is_finishing(&self) -> bool {
        self.tracker.is_closed()
    }

    /// Waits until no other decision of this process concerns these limits. In the order of their
    /// names, so that decisions do not deadlock.
    pub(super) async fn lock_decisions(
        &self,
        limits: BTreeSet<String>,
    ) -> Vec<OwnedMutexGuard<()>> {
        let locks = || {
            let locks = self.decision_locks.lock();
            locks.unwrap_or_else(PoisonError::into_inner)
        };
        // Those of deleted budgets would stay for ever.
        locks().retain(|_, lock| Arc::strong_count(lock) > 1);
        let mut taken = Vec::new();
        for name in limits {
            let lock = Arc::clone(locks().entry(name).or_default());
            taken.push(lock.lock_owned().await);
        }
        taken
    }

    fn permits_of(&self, provider_id: &ProviderId) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        let all = || Arc::new(Semaphore::new(MAX_AT_ONCE));
        Arc::clone(permits.entry(provider_id.clone()).or_insert_with(all))
    }
}

/// A launch that was decided, with everything for its provider.
#[derive(Clone)]
pub struct PlannedLaunch {
    pub launch: Launch,
    pub launch_config: Arc<LaunchConfig>,
    /// The data of the bid that won.
    pub bid_data: Arc<Map<String, Value>>,
}

/// Starts launches in the background, so that a slow cloud does not delay decisions.
pub fn start_launches(engine: &Arc<Engine>, pool: &Pool, launches: Vec<PlannedLaunch>) {
    for planned in launches {
        let (engine, pool) = (Arc::clone(engine), pool.clone());
        let tracker = engine.launch_tracker.tracker.clone();
        tracker.spawn(async move { run_launch(&engine, &pool, planned).await });
    }
}

async fn run_launch(engine: &Arc<Engine>, pool: &Pool, planned: PlannedLaunch) {
    let stopwatch = Stopwatch::start();
    let answer = call_cloud(engine, pool, &planned).await;
    let launch = planned.launch;
    let answer = match answer {
        Ok(Some(answer)) => answer,
        Ok(None) => return,
        // The cloud was not called; the scan withdraws the launch.
        Err(problem) => {
            tracing::error!(launch.token = %launch.token, pool.id = %launch.pool_id,
                "a launch cannot be carried out: {problem}");
            return;
        }
    };
    let outcome = match &answer {
        Answer::NotAsked { .. } => "withdrawn",
        Answer::Asked(Ok(_)) => "accepted",
        Answer::Asked(Err(LaunchError::Refused { cause, .. })) => cause.as_str(),
        Answer::Asked(Err(LaunchError::Unknown(_))) => "unknown",
    };
    let labels = [
        ("providerId", launch.provider_id.to_string()),
        ("outcome", outcome.to_owned()),
    ];
    metrics::histogram!(LAUNCHES, &labels).record(stopwatch.elapsed().as_secs_f64());
    let (token, now) = (launch.token.clone(), engine.clock.now());
    let plan_at = next_plan_time(&launch, &answer, now);
    let written = engine.change(
        "launch_settle",
        now,
        move |change| match store::launches::get(change.tx, &token)? {
            Some(launch) => write_answer(change, launch, &answer),
            None => Ok(()),
        },
    );
    let written: store::Result<()> = written.await;
    engine.launch_answers.wake(&launch.token);
    if let Some(at) = plan_at {
        engine.wakeups.wake_pool_at(&launch.pool_id, at);
    }
    // The scan finds the machines by their token.
    if let Err(problem) = written {
        tracing::error!(launch.token = %launch.token, pool.id = %launch.pool_id,
            "the outcome of a launch could not be stored: {problem}");
    }
}

/// When to plan the pool again: at once if the launch config may give more or was not asked, after
/// its pause if it refused. A strategy that learns uses another offering at once. `None`: the next
/// round is early enough.
fn next_plan_time(launch: &Launch, answer: &Answer, now: Timestamp) -> Option<Timestamp> {
    match answer {
        Answer::Asked(Ok(_)) | Answer::NotAsked { .. } => Some(now),
        Answer::Asked(Err(LaunchError::Refused { .. })) if launch.offering.is_some() => Some(now),
        Answer::Asked(Err(LaunchError::Refused { cause, .. })) => {
            Some(now.plus_millis(first_pause_ms(*cause)))
        }
        Answer::Asked(Err(LaunchError::Unknown(_))) => None,
    }
}

enum Answer {
    Asked(Result<Vec<LaunchedMachine>, LaunchError>),
    /// The cloud was not called, and why.
    NotAsked {
        problem: String,
        /// When the call was written down, if it was.
        asked: Option<Timestamp>,
    },
}

/// Calls the cloud. `None`: another process has done so, or the launch is over.
async fn call_cloud(
    engine: &Arc<Engine>,
    pool: &Pool,
    planned: &PlannedLaunch,
) -> store::Result<Option<Answer>> {
    let launch = &planned.launch;
    let not_asked = |asked: Option<Timestamp>, problem: &str| {
        let problem = problem.to_owned();
        Ok(Some(Answer::NotAsked { problem, asked }))
    };
    let Some(machines) = engine.providers.machines(&launch.provider_id) else {
        return not_asked(None, "the provider is out of service");
    };
    let pool_data = match prepare_pool(engine, pool, &launch.provider_id).await? {
        Ok(pool_data) => pool_data,
        Err(refusal) => return Ok(Some(Answer::Asked(Err(refusal)))),
    };
    let permits = engine.launch_tracker.permits_of(&launch.provider_id);
    let Ok(Ok(_permit)) = tokio::time::timeout(MAX_PERMIT_WAIT, permits.acquire()).await else {
        return not_asked(None, "too many launches of this provider are under way");
    };
    let asked = match permit_call(engine, &launch.token).await? {
        CallPermission::CallNow(asked) => asked,
        CallPermission::TooLate => return not_asked(None, "it was decided too long ago"),
        CallPermission::Settled => return Ok(None),
    };
    let now = engine.clock.now();
    if now.millis_since(asked) > MAX_CALL_DELAY_MS {
        return not_asked(Some(asked), "this process was held up before it asked");
    }
    let order = LaunchOrder {
        token: &launch.token,
        pool,
        launch_config: &planned.launch_config,
        machines: launch.machines,
        capacity_each: launch.capacity_each,
        max_price: launch.max_price,
        price: launch.price,
        bid_data: &planned.bid_data,
        pool_data: &pool_data,
        root_url: &engine.root_url,
        now,
    };
    let call = AssertUnwindSafe(machines.launch(&order)).catch_unwind();
    let answer = match tokio::time::timeout(MAX_CALL, call).await {
        Ok(Ok(Ok(made))) if made.is_empty() => Err(LaunchError::Refused {
            cause: Cause::Capacity,
            error: "the provider made no machine and gave no reason".to_owned(),
        }),
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(LaunchError::Unknown(
            "the provider's code panicked".to_owned(),
        )),
        Err(_) => Err(LaunchError::Unknown(format!(
            "no answer within {} s",
            MAX_CALL.as_secs()
        ))),
    };
    Ok(Some(Answer::Asked(answer)))
}

/// The data of the provider for launches of this pool. Makes its resources if there are none yet.
/// The row is written before the provider is asked, so a crash between both leaves a row: then the
/// provider is asked again, or asked to remove the resources. The inner error refuses the launch.
pub async fn prepare_pool(
    engine: &Arc<Engine>,
    pool: &Pool,
    provider_id: &ProviderId,
) -> store::Result<Result<Value, LaunchError>> {
    let provider = engine.providers.get(provider_id);
    let Some(maker) = provider.ok().and_then(|provider| provider.pool_resources()) else {
        return Ok(Ok(Value::Null));
    };
    // Several launches of a new pool begin at once.
    let name = format!("resources:{}:{provider_id}", pool.id);
    let _lock = engine
        .launch_tracker
        .lock_decisions(BTreeSet::from([name]))
        .await;
    let known = begin_preparation(engine, &pool.id, provider_id).await?;
    let refused = |cause, error: String| Ok(Err(LaunchError::Refused { cause, error }));
    match known.state {
        ResourcesState::Ready => return Ok(Ok(known.data)),
        ResourcesState::Releasing => {
            let text = format!(
                "the earlier resources of {} at {provider_id} are being released",
                pool.id
            );
            return refused(Cause::Unavailable, text);
        }
        ResourcesState::Preparing if !known.is_due(engine.clock.now()) => {
            return refused(Cause::Unavailable, preparation_failed(&known));
        }
        ResourcesState::Preparing => {}
    }
    match call(maker.prepare_pool(pool, &known.data)).await {
        Ok(data) => {
            let completed = known.clone().complete(data.clone());
            // Another process may have been first: both have the same resources.
            match write_resources(engine, completed).await {
                Ok(()) => Ok(Ok(data)),
                Err(problem) => Err(problem),
            }
        }
        Err(problem) => {
            let failed = known.fail(problem.to_string(), engine.clock.now());
            let text = preparation_failed(&failed);
            write_resources(engine, failed).await?;
            refused(cause_of(&problem), text)
        }
    }
}

fn preparation_failed(row: &PoolResources) -> String {
    format!(
        "{} could not make the resources of {}: {}. The server tries again",
        row.provider_id, row.pool_id, row.problem
    )
}

/// The row, inserted if there is none.
async fn begin_preparation(
    engine: &Arc<Engine>,
    pool_id: &PoolId,
    provider_id: &ProviderId,
) -> store::Result<PoolResources> {
    let (pool_id, provider_id) = (pool_id.clone(), provider_id.clone());
    let now = engine.clock.now();
    let written =
        engine.change(
            "pool_resources_begin",
            now,
            move |change| match store::pool_resources::get(change.tx, &pool_id, &provider_id)? {
                Some(known) => Ok(known),
                None => {
                    let row = PoolResources::new(pool_id.clone(), provider_id.clone(), now);
                    store::pool_resources::insert(change.tx, &row)?;
                    Ok(row)
                }
            },
        );
    written.await
}

/// Writes the row, unless another process has changed it since it was read.
async fn write_resources(engine: &Arc<Engine>, row: PoolResources) -> store::Result<()> {
    let written = engine.change("pool_resources_write", engine.clock.now(), move |change| {
        let known = store::pool_resources::get(change.tx, &row.pool_id, &row.provider_id)?;
        if known.is_some_and(|known| known.version == row.version) {
            store::pool_resources::update(change.tx, &row)?;
        }
        Ok(())
    });
    written.await
}

fn cause_of(problem: &CloudError) -> Cause {
    match problem {
        CloudError::Throttled(_) => Cause::Throttled,
        CloudError::Credentials(_) => Cause::Credentials,
        CloudError::Unavailable(_) => Cause::Unavailable,
        CloudError::Refused(_) => Cause::Configuration,
    }
}

/// Whether this process may call the cloud now.
enum CallPermission {
    /// Only this process may, from this moment.
    CallNow(Timestamp),
    TooLate,
    /// Another process has called, or the launch is over.
    Settled,
}

/// Writes that this process calls the cloud, so that only one process does, and only once.
async fn permit_call(engine: &Arc<Engine>, token: &LaunchToken) -> store::Result<CallPermission> {
    let (clock, token) = (Arc::clone(&engine.clock), token.clone());
    let written = engine.store.write("launch_begin", move |tx| {
        let Some(launch) = store::launches::get(tx, &token)? else {
            return Ok(CallPermission::Settled);
        };
        let (now, created) = (clock.now(), launch.created);
        let Ok(launch) = launch.ask(now) else {
            return Ok(CallPermission::Settled);
        };
        if now.millis_since(created) > MAX_CALL_START_MS {
            return Ok(CallPermission::TooLate);
        }
        store::launches::update(tx, &launch)?;
        Ok(CallPermission::CallNow(now))
    });
    written.await
}

/// Writes the answer of the cloud. May be repeated, and may come late.
fn write_answer(change: &mut Change<'_, '_>, launch: Launch, answer: &Answer) -> store::Result<()> {
    if let Answer::Asked(Ok(made)) = answer {
        insert_workers(change, &launch, made)?;
    }
    let was_lost = matches!(launch.state, LaunchState::Unknown { .. });
    let settled = match answer {
        Answer::NotAsked { problem, asked } => launch.withdraw(*asked, problem.clone(), change.now),
        Answer::Asked(answer) => launch.settle(answer_of(answer), change.now),
    };
    // Another process asks, or a scan has settled it.
    let Ok(launch) = settled else {
        return Ok(());
    };
    let details = match &launch.state {
        LaunchState::Unknown { problem } => {
            let text = format!(
                "It is unknown whether machines were made: {problem}. A scan finds those that were, by the launch's token."
            );
            Some(("Instance Creation Outcome Unknown", "unknown", text))
        }
        LaunchState::Refused { cause, problem } => {
            Some(("Instance Creation Error", cause.as_str(), problem.clone()))
        }
        LaunchState::Open | LaunchState::Accepted | LaunchState::Withdrawn { .. } => None,
    };
    if let Some((title, code, description)) = details {
        let extra = json!({"code": code, "machines": launch.machines,
            "launch": launch.token.as_str()});
        report_launch_error(change, &launch, title, description, extra)?;
    }
    store::launches::update(change.tx, &launch)?;
    offering_news::note_answer(change, &launch, was_lost)
}

fn answer_of(answer: &Result<Vec<LaunchedMachine>, LaunchError>) -> LaunchAnswer {
    match answer {
        Ok(made) => LaunchAnswer::Made(u32::try_from(made.len()).unwrap_or(u32::MAX)),
        Err(LaunchError::Unknown(problem)) => LaunchAnswer::Unknown {
            problem: problem.clone(),
        },
        Err(LaunchError::Refused { cause, error }) => LaunchAnswer::Refused {
            cause: *cause,
            problem: error.clone(),
        },
    }
}

/// Inserts the rows of machines, unless they exist. A machine that is no longer wanted is stopped.
pub(super) fn insert_workers(
    change: &mut Change<'_, '_>,
    launch: &Launch,
    machines: &[LaunchedMachine],
) -> store::Result<()> {
    let key = |machine: &LaunchedMachine| machine.key(launch.pool_id.clone());
    let (tx, keys) = (&mut *change.tx, machines.iter().map(key));
    let keys: BTreeSet<WorkerKey> = keys.collect();
    let (pool_id, config_id) = (&launch.pool_id, &launch.launch_config_id);
    tx.ask(|tx| {
        store::pools::get(tx, pool_id)?;
        store::launch_configs::get(tx, pool_id, config_id)
    });
    let known = store::workers::get_some(tx, &keys)?;
    let mut known: BTreeSet<WorkerKey> =
        known.into_iter().map(|worker| worker.key.clone()).collect();
    let pool = store::pools::get(tx, pool_id)?;
    let config = store::launch_configs::get(tx, pool_id, config_id)?;
    for machine in machines {
        if known.insert(key(machine)) {
            insert_worker(change, launch, (pool.as_ref(), config.as_ref()), machine)?;
        }
    }
    Ok(())
}

fn insert_worker(
    change: &mut Change<'_, '_>,
    launch: &Launch,
    (pool, config): (Option<&Pool>, Option<&LaunchConfig>),
    machine: &LaunchedMachine,
) -> store::Result<()> {
    // No machine is older than its launch: otherwise the clock was set back, and with the correct
    // time the machine would seem to be hours late.
    let made = change.now.max(launch.created);
    let mut worker = requested_worker(pool, launch, config, machine, made);
    store::workers::insert_new(change.tx, &worker)?;
    change.announce_worker(&worker, WorkerChange::Requested)?;
    if let Some(asked) = launch.asked {
        change.measure_phase(&worker, Phase::Requested, Some(launch.created), asked);
        change.measure_phase(&worker, Phase::Accepted, Some(asked), made);
    }
    let unwanted = match pool {
        None => Some("its pool was deleted"),
        Some(pool) if !pool.knows_provider(&launch.provider_id) => {
            Some("its pool has left the provider")
        }
        // Another machine may have been launched instead.
        Some(_) if !launch.state.is_pending() => Some("appeared after its launch was given up"),
        Some(_) => None,
    };
    if let Some(reason) = unwanted {
        request_stop(change, &mut worker, reason)?;
    }
    Ok(())
}

/// The worker of a machine without a known launch, with what its provider needs to end it.
pub(super) fn unknown_worker(
    provider_id: ProviderId,
    pool_id: PoolId,
    machine: LaunchedMachine,
    now: Timestamp,
) -> Worker {
    let new = NewWorker {
        key: machine.key(pool_id),
        provider_id,
        launch_config_id: None,
        capacity: 1,
        price: None,
        expires: now,
        terms: Terms::default(),
        provider_data: machine.provider_data,
    };
    new.reject(now)
}

fn requested_worker(
    pool: Option<&Pool>,
    launch: &Launch,
    config: Option<&LaunchConfig>,
    machine: &LaunchedMachine,
    made: Timestamp,
) -> Worker {
    let worker_config = config.and_then(|config| config.configuration.get("workerConfig"));
    let worker_config = worker_config.cloned().unwrap_or_else(|| json!({}));
    let nothing = Map::new();
    let pool_config = pool.map_or(&nothing, |pool| &pool.definition.config);
    let new = NewWorker {
        key: machine.key(launch.pool_id.clone()),
        provider_id: launch.provider_id.clone(),
        launch_config_id: Some(launch.launch_config_id.clone()),
        capacity: launch.capacity_each,
        price: launch.price,
        expires: made.plus_millis(Worker::DEFAULT_LIFE_MS),
        terms: Terms {
            made_at: machine.made.map(Timestamp::as_millis),
            offering: launch.offering.clone(),
            ..lifecycle::at_launch(pool_config, made, worker_config, &launch.token)
        },
        provider_data: machine.provider_data.clone(),
    };
    new.request(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn locks_of_limits_that_nobody_decides_on_are_dropped() {
        let tracker = LaunchTracker::default();
        let held = tracker.lock_decisions(limits(&["budget:a"])).await;
        for number in 0..10 {
            tracker
                .lock_decisions(limits(&[&format!("budget:{number}")]))
                .await;
        }
        let names = || {
            let locks = tracker.decision_locks.lock().unwrap();
            locks.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(names(), ["budget:9", "budget:a"]);
        drop(held);
        drop(tracker.lock_decisions(BTreeSet::new()).await);
        assert_eq!(names(), Vec::<String>::new());
    }
}
