//! Carrying a launch out: the call to the cloud, and writing down what it said.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cloud::{LaunchError, LaunchOrder, LaunchedMachine};
use domain::Version;
use domain::event::WorkerChange;
use domain::id::{LaunchToken, PoolId, ProviderId, WorkerKey};
use domain::launch::{Cause, Launch, LaunchState};
use domain::launch_config::LaunchConfig;
use domain::lifecycle;
use domain::plan::first_pause_ms;
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{Terms, Worker, WorkerState};
use futures_util::FutureExt;
use serde_json::{Map, json};
use store::StoreError;
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio_util::task::TaskTracker;

use super::changes::{event, told_to_go};
use super::problems::{Problem, report};
use super::timing::{MAX_CALL, MAX_DECIDED_MS, MAX_HAND_OVER_MS, MAX_WAIT};
use crate::Engine;
use crate::change::Change;
use crate::measures::{LAUNCHES, Stopwatch};

/// Launches of one provider that are under way at the same time.
const MAX_AT_ONCE: usize = 16;
/// Whoever is told to stop waits no longer for a cloud.
const LAST_ANSWERS: Duration = Duration::from_secs(15);

/// The launches that are under way in this process.
#[derive(Default)]
pub struct Launching {
    tracker: TaskTracker,
    places: Mutex<BTreeMap<ProviderId, Arc<Semaphore>>>,
    turns: Mutex<BTreeMap<ProviderId, Arc<Turn>>>,
}

/// Whoever takes from what a provider has left waits for the others of this process. Those of other
/// processes are seen by the store.
type Turn = tokio::sync::Mutex<()>;

impl Launching {
    /// Waits a moment for the answers that are still to come. What they would have said the next process finds out.
    pub async fn finish(&self) {
        self.tracker.close();
        let _ = tokio::time::timeout(LAST_ANSWERS, self.tracker.wait()).await;
    }

    /// Waits until nobody else in this process decides about what these providers have left. They
    /// come in order, so that nobody waits in a circle.
    pub(super) async fn take_turns(
        &self,
        providers: BTreeSet<ProviderId>,
    ) -> Vec<OwnedMutexGuard<()>> {
        let mut taken = Vec::new();
        for id in providers {
            taken.push(self.turn_of(id).lock_owned().await);
        }
        taken
    }

    fn turn_of(&self, provider_id: ProviderId) -> Arc<Turn> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(provider_id).or_default())
    }

    fn places_of(&self, provider_id: &ProviderId) -> Arc<Semaphore> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = || Arc::new(Semaphore::new(MAX_AT_ONCE));
        Arc::clone(places.entry(provider_id.clone()).or_insert_with(place))
    }
}

/// Carries launches out beside whoever decided on them, so that a slow cloud holds nobody up.
pub fn launch(engine: &Arc<Engine>, pool: &Pool, launches: Vec<(Launch, Arc<LaunchConfig>)>) {
    for (launch, config) in launches {
        let (engine, pool) = (Arc::clone(engine), pool.clone());
        let tracker = engine.launching.tracker.clone();
        tracker.spawn(async move { carry_out(&engine, &pool, launch, &config).await });
    }
}

async fn carry_out(engine: &Arc<Engine>, pool: &Pool, launch: Launch, config: &LaunchConfig) {
    let watch = Stopwatch::start();
    let answer = match ask(engine, pool, &launch, config).await {
        Ok(Some(answer)) => answer,
        Ok(None) => return,
        // Nobody asked the cloud; the scan withdraws the launch.
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
    metrics::histogram!(LAUNCHES, &labels).record(watch.elapsed().as_secs_f64());
    let (token, now) = (launch.token.clone(), engine.clock.now());
    let look_again = next_look(&answer, now);
    let written = engine.change(
        "launch_settle",
        now,
        move |change| match store::launches::get(change.tx, &token)? {
            Some(launch) => settle(change, launch, &answer),
            None => Ok(()),
        },
    );
    let written: Result<(), StoreError> = written.await;
    engine.launch_answers.wake(&launch.token);
    if let Some(at) = look_again {
        engine.wake.pool_at(&launch.pool_id, at);
    }
    // The scan finds by its token what was made.
    if let Err(problem) = written {
        tracing::error!(launch.token = %launch.token, pool.id = %launch.pool_id,
            "the outcome of a launch could not be stored: {problem}");
    }
}

/// When to look at the pool because of this answer: at once if the launch config may give more or
/// was not asked, after its pause if it refused. `None`: nothing follows that the next round would
/// not see.
fn next_look(answer: &Answer, now: Timestamp) -> Option<Timestamp> {
    match answer {
        Answer::Asked(Ok(_)) | Answer::NotAsked { .. } => Some(now),
        Answer::Asked(Err(LaunchError::Refused { cause, .. })) => {
            Some(now.plus_millis(first_pause_ms(*cause)))
        }
        Answer::Asked(Err(LaunchError::Unknown(_))) => None,
    }
}

/// What came of a launch.
enum Answer {
    Asked(Result<Vec<LaunchedMachine>, LaunchError>),
    /// We did not come to ask the cloud, and why.
    NotAsked {
        problem: String,
        /// When we wrote down that we would, if we did.
        asked: Option<Timestamp>,
    },
}

/// `None`: another process has asked, or the launch is over.
async fn ask(
    engine: &Arc<Engine>,
    pool: &Pool,
    launch: &Launch,
    config: &LaunchConfig,
) -> Result<Option<Answer>, StoreError> {
    let not_asked = |asked: Option<Timestamp>, problem: &str| {
        let problem = problem.to_owned();
        Ok(Some(Answer::NotAsked { problem, asked }))
    };
    let provider = engine.providers.get(&launch.provider_id);
    let Some(machines) = provider.ok().and_then(|provider| provider.machines()) else {
        return not_asked(None, "the provider is out of service");
    };
    let places = engine.launching.places_of(&launch.provider_id);
    let Ok(Ok(_place)) = tokio::time::timeout(MAX_WAIT, places.acquire()).await else {
        return not_asked(None, "too many launches of this provider are under way");
    };
    let asked = match begin(engine, &launch.token).await? {
        Begun::AskNow(asked) => asked,
        Begun::TooLate => return not_asked(None, "it was decided too long ago"),
        Begun::NotOurs => return Ok(None),
    };
    let now = engine.clock.now();
    if now.millis_since(asked) > MAX_HAND_OVER_MS {
        return not_asked(Some(asked), "this process was held up before it asked");
    }
    let order = LaunchOrder {
        token: &launch.token,
        pool,
        launch_config: config,
        machines: launch.machines,
        capacity_each: launch.capacity_each,
        max_price: launch.max_price,
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

/// Whether a launch may be carried out now.
enum Begun {
    /// By us alone, from this moment.
    AskNow(Timestamp),
    TooLate,
    /// Another process has asked, or the launch is over.
    NotOurs,
}

/// Writes down that we ask the cloud, unless somebody did, so that one process asks, and once.
async fn begin(engine: &Arc<Engine>, token: &LaunchToken) -> Result<Begun, StoreError> {
    let (clock, token) = (Arc::clone(&engine.clock), token.clone());
    let written = engine.store.write("launch_begin", move |tx| {
        let Some(mut launch) = store::launches::get(tx, &token)? else {
            return Ok(Begun::NotOurs);
        };
        if launch.state != LaunchState::Open || launch.asked.is_some() {
            return Ok(Begun::NotOurs);
        }
        let now = clock.now();
        if now.millis_since(launch.created) > MAX_DECIDED_MS {
            return Ok(Begun::TooLate);
        }
        launch.asked = Some(now);
        launch.last_modified = now;
        store::launches::update(tx, &launch)?;
        Ok(Begun::AskNow(now))
    });
    written.await
}

/// Writes down what the cloud said. May be said again, and late.
fn settle(
    change: &mut Change<'_, '_>,
    mut launch: Launch,
    answer: &Answer,
) -> Result<(), StoreError> {
    let was_pending = launch.state.is_pending();
    match answer {
        Answer::Asked(Ok(made)) => {
            for machine in made {
                adopt(change, &launch, machine)?;
            }
            launch.made = launch
                .made
                .max(u32::try_from(made.len()).unwrap_or(u32::MAX));
            launch.state = LaunchState::Accepted;
        }
        // The scan has found machines of it, or given it up: either is more than this knows.
        Answer::Asked(Err(_)) | Answer::NotAsked { .. } if !was_pending => return Ok(()),
        // Another process asks, or has.
        Answer::NotAsked { asked, .. } if launch.asked != *asked => return Ok(()),
        Answer::NotAsked { problem, .. } => {
            let problem = problem.clone();
            launch.state = LaunchState::Withdrawn { problem };
        }
        Answer::Asked(Err(LaunchError::Unknown(problem))) => {
            let told = unknown_outcome(&launch, problem);
            report(change, &launch.pool_id, &launch.provider_id, &told)?;
            let problem = problem.clone();
            launch.state = LaunchState::Unknown { problem };
        }
        Answer::Asked(Err(LaunchError::Refused {
            cause,
            error: problem,
        })) if launch.made == 0 => {
            launch.state = LaunchState::Refused {
                cause: *cause,
                problem: problem.clone(),
            };
            let told = refusal(&launch, *cause, problem);
            report(change, &launch.pool_id, &launch.provider_id, &told)?;
        }
        // Some of its machines have been seen: it was not refused, whatever the answer says.
        Answer::Asked(Err(LaunchError::Refused { .. })) => launch.state = LaunchState::Accepted,
    }
    launch.last_modified = change.now;
    store::launches::update(change.tx, &launch)?;
    Ok(())
}

/// Gives a machine its row, unless it has one. One that nobody waits for any more is told to go at once.
pub(super) fn adopt(
    change: &mut Change<'_, '_>,
    launch: &Launch,
    machine: &LaunchedMachine,
) -> Result<(), StoreError> {
    // No machine is older than its launch: then the clock has been set back, and once it is right again the machine
    // would seem to be late for hours.
    let (tx, made) = (&mut *change.tx, change.now.max(launch.created));
    let pool = store::pools::get(tx, &launch.pool_id)?;
    let config = store::launch_configs::get(tx, &launch.pool_id, &launch.launch_config_id)?;
    let mut worker = requested(pool.as_ref(), launch, config.as_ref(), machine, made);
    if !store::workers::insert(tx, &worker)? {
        return Ok(());
    }
    change.announce([event(&worker, WorkerChange::Requested)])?;
    let unwanted = match pool {
        None => Some("its pool is gone"),
        Some(pool) if !pool.knows_provider(&launch.provider_id) => {
            Some("its pool has left the provider")
        }
        // Another machine may have been decided on in its place.
        Some(_) if !launch.state.is_pending() => Some("appeared after its launch was given up"),
        Some(_) => None,
    };
    if let Some(reason) = unwanted {
        told_to_go(change, &mut worker, reason)?;
    }
    Ok(())
}

/// The worker on a machine whose launch nobody knows: enough for its provider to end it.
pub(super) fn machine_of_nobody(
    provider_id: &ProviderId,
    pool_id: PoolId,
    machine: LaunchedMachine,
    now: Timestamp,
) -> Worker {
    Worker {
        key: WorkerKey {
            pool_id,
            group: machine.group,
            id: machine.id,
        },
        provider_id: provider_id.clone(),
        launch_config_id: None,
        state: WorkerState::Stopping,
        capacity: 1,
        created: now,
        expires: now,
        last_modified: now,
        last_checked: now,
        terms: Terms::default(),
        provider_data: machine.provider_data,
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    }
}

fn requested(
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
    Worker {
        key: WorkerKey {
            pool_id: launch.pool_id.clone(),
            group: machine.group.clone(),
            id: machine.id.clone(),
        },
        provider_id: launch.provider_id.clone(),
        launch_config_id: Some(launch.launch_config_id.clone()),
        state: WorkerState::Requested,
        capacity: launch.capacity_each,
        created: made,
        expires: made.plus_millis(Worker::DEFAULT_LIFE_MS),
        last_modified: made,
        last_checked: made,
        terms: lifecycle::at_launch(pool_config, made, worker_config, &launch.token),
        provider_data: machine.provider_data.clone(),
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    }
}

/// Machines may have been made, or not: the scan finds out.
fn unknown_outcome(launch: &Launch, problem: &str) -> Problem {
    let description = format!(
        "It is unknown whether machines were made: {problem}. A scan finds those that were, by the launch's token."
    );
    Problem {
        title: "Instance Creation Outcome Unknown",
        description,
        ..creation_error(launch, "unknown")
    }
}

fn refusal(launch: &Launch, cause: Cause, problem: &str) -> Problem {
    Problem {
        description: problem.to_owned(),
        ..creation_error(launch, cause.as_str())
    }
}

/// The launch config is named and not shown: more people hear of errors than may see what is in it.
fn creation_error(launch: &Launch, code: &str) -> Problem {
    let extra = json!({"code": code, "machines": launch.machines,
        "launch": launch.token.as_str()});
    Problem {
        kind: "creation-error",
        title: "Instance Creation Error",
        description: String::new(),
        extra: extra.as_object().cloned().unwrap_or_default(),
        launch_config_id: Some(launch.launch_config_id.clone()),
        worker: None,
    }
}
