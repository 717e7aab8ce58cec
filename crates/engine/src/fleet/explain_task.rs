//! Explains why a task waits, from the facts and the decision of its pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::facts::{Facts, RecentLaunch, Starting};
use domain::id::{LaunchConfigId, PoolId, ProviderId, TaskId};
use domain::launch::LaunchState;
use domain::lifecycle::{first_claim_timeout, inactivity_timeout};
use domain::market::MAX_UNOBSERVED_MS;
use domain::plan::{LOST_ANSWER_MS, PoolWait, START_UP_MS, Snapshot};
use domain::task::{Run, Task, TaskState};
use domain::task_wait::{PendingFacts, StartingMachines, WaitAnswer};
use domain::time::Timestamp;
use domain::waits::{EndedWait, LATE_MS, WaitCause, WaitPart};
use store::running_workers::SilentWorker;
use store::{StoreError, Tx};

use super::decide::{is_planned, preview};
use super::facts::read_facts;
use super::waits::WaitFacts;
use crate::Engine;

/// At most this many dependencies, silent workers and other pools are read.
const NAMED: u32 = 20;
/// At most this many of the last launches of the pool are read, for the words of its clouds.
const MAX_LAUNCHES: u32 = 100;

/// Why a task waits, and where its waiting time went.
pub struct TaskExplanation {
    pub task: Task,
    /// `None`: it does not wait.
    pub answer: Option<WaitAnswer>,
    /// How many tasks are claimed before it; `None`: it is not pending.
    pub n_ahead: Option<u64>,
    /// The parts of the waits of its runs, each with the number of the run.
    pub parts: Vec<(usize, WaitPart)>,
}

/// The facts of the store about a pending task.
struct PendingRead {
    facts: Option<Facts>,
    n_ahead: u64,
    starting: Vec<Starting>,
    free_at: Option<Timestamp>,
    quarantine_ends: Option<Timestamp>,
    silent: Vec<SilentWorker>,
    n_running: u64,
    /// Since when the pool has its present cause, if that is a decision to come.
    deciding_since: Option<Timestamp>,
    /// The newest first.
    launches: Vec<RecentLaunch>,
    /// When a planner last worked.
    observed: Option<Timestamp>,
}

/// `None`: the task does not exist.
pub async fn explain_task(
    engine: &Arc<Engine>,
    id: &TaskId,
    now: Timestamp,
) -> store::Result<Option<TaskExplanation>> {
    let (inner, id) = (Arc::clone(engine), id.clone());
    let read = engine.store.read("explain_task", move |tx| {
        let Some(task) = store::tasks::get(tx, &id)? else {
            return Ok(None);
        };
        let parts = read_parts(tx, &task, now)?;
        let answer = match task.state() {
            TaskState::Unscheduled => Some(of_dependencies(tx, &task)?),
            TaskState::Pending
            | TaskState::Running
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Exception => None,
        };
        let pending = match task.state() {
            TaskState::Pending => Some(read_pending(&inner, tx, &task, now)?),
            TaskState::Unscheduled
            | TaskState::Running
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Exception => None,
        };
        Ok::<_, StoreError>(Some((task, parts, answer, pending)))
    });
    let Some((task, parts, mut answer, pending)) = read.await? else {
        return Ok(None);
    };
    let n_ahead = pending.as_ref().map(|pending| pending.n_ahead);
    if let Some(pending) = pending {
        answer = Some(explain_pending(engine, &task, pending, now).await?);
    }
    Ok(Some(TaskExplanation {
        task,
        answer,
        n_ahead,
        parts,
    }))
}

fn of_dependencies(tx: &mut Tx<'_>, task: &Task) -> store::Result<WaitAnswer> {
    let open = store::task_waits::dependencies(tx, &task.id, NAMED)?;
    let n_open = store::dependencies::count_open(tx, &task.id, NAMED.saturating_mul(10))?;
    let n_more = n_open.saturating_sub(open.len());
    let deadline = task.definition.deadline;
    Ok(WaitAnswer::of_dependencies(&open, n_more, deadline))
}

fn read_pending(
    engine: &Engine,
    tx: &mut Tx<'_>,
    task: &Task,
    now: Timestamp,
) -> store::Result<PendingRead> {
    let queue = &task.definition.task_queue_id;
    let mut read = PendingRead {
        facts: None,
        n_ahead: store::task_waits::n_ahead(tx, &task.id, now)?,
        starting: Vec::new(),
        free_at: store::task_waits::free_at(tx, queue)?,
        quarantine_ends: store::task_waits::quarantine_ends(tx, queue, now)?,
        silent: Vec::new(),
        launches: Vec::new(),
        n_running: 0,
        deciding_since: None,
        observed: store::pool_memories::time(tx)?.map(|time| time.clock),
    };
    let Some(pool) = store::pools::get(tx, queue)? else {
        return Ok(read);
    };
    let horizon = engine.horizon(now);
    if is_planned(engine, &pool) {
        let since = now.plus_millis(-START_UP_MS);
        let lost_since = now.plus_millis(-LOST_ANSWER_MS);
        read.starting = store::launches::starting(tx, queue, since, lost_since)?;
        read.launches = store::launches::recent(tx, queue, MAX_LAUNCHES)?;
        read.silent = store::running_workers::list_silent(tx, &horizon, queue, NAMED)?;
    }
    let present = store::pool_waits::get(tx, queue)?;
    let present = present.filter(|present| present.cause == WaitCause::Deciding);
    read.deciding_since = present.map(|present| present.at);
    let demand = BTreeMap::from([(queue.clone(), store::demand::of(tx, queue, now)?)]);
    let facts = read_facts(tx, vec![pool], &demand, &horizon, engine.strategies)?.pop();
    read.n_running = facts
        .as_ref()
        .map_or(0, |facts| facts.inventory.n_running());
    read.facts = facts;
    Ok(read)
}

async fn explain_pending(
    engine: &Arc<Engine>,
    task: &Task,
    read: PendingRead,
    now: Timestamp,
) -> store::Result<WaitAnswer> {
    let queue = &task.definition.task_queue_id;
    let deadline = task.definition.deadline;
    let Some(facts) = read.facts.clone() else {
        return Ok(WaitAnswer::of_unknown_queue(queue, deadline));
    };
    let config = facts.pool.definition.config.clone();
    let n_pending = facts.n_pending;
    let planned = is_planned(engine, &facts.pool);
    let (Some((snapshot, plan)), true) = (preview(engine, facts).await?, planned) else {
        return Ok(WaitAnswer::of_declared(queue, read.n_running, deadline));
    };
    let wait = snapshot.wait(&plan, n_pending);
    let silence_ends = read.silent.iter().map(|worker| {
        let signs = &worker.signs;
        match signs.last_asked.max(signs.last_task_ended) {
            Some(last) => last.plus_millis(inactivity_timeout(&config)),
            None => signs.registered.plus_millis(first_claim_timeout(&config)),
        }
    });
    let silence_ends = silence_ends.min();
    let pending = PendingFacts {
        now,
        deadline,
        n_ahead: read.n_ahead,
        snapshot: &snapshot,
        wait: &wait,
        late_since: late_since(task, &read, &wait, now),
        starting: starting(&read, &snapshot),
        free_at: read.free_at,
        quarantine_ends: read.quarantine_ends,
        silence_ends,
        sharers: sharers(engine, queue, &wait).await?,
        refusals: refusals(&read.launches),
        setup_errors: setup_errors(engine, &snapshot),
    };
    Ok(pending.answer())
}

/// Since when the planner should have decided; `None`: it is not late.
fn late_since(
    task: &Task,
    read: &PendingRead,
    wait: &PoolWait,
    now: Timestamp,
) -> Option<Timestamp> {
    let last = read.observed;
    let gap = last.filter(|last| now.millis_since(*last) > MAX_UNOBSERVED_MS);
    if gap.is_some() {
        return gap;
    }
    let scheduled = task.last_run().map(|(_, run)| run.scheduled)?;
    let since = read.deciding_since?.max(scheduled);
    let is_deciding = wait.cause_for(read.n_ahead) == WaitCause::Deciding;
    (is_deciding && now.millis_since(since) > LATE_MS).then_some(since)
}

fn starting(read: &PendingRead, snapshot: &Snapshot) -> Vec<StartingMachines> {
    let machines = read.starting.iter().map(|starting| {
        let offers = snapshot.offers.iter();
        let mut own = offers.filter(|offer| offer.launch_config_id == starting.launch_config_id);
        let first = own.clone().next();
        // Of several bids, the one that won.
        let offer = own
            .find(|offer| offer.offering() == starting.offering)
            .or(first);
        StartingMachines {
            since: starting.since,
            machines: starting.machines,
            name: starting.launch_config_id.to_string(),
            usual_ms: offer.and_then(|offer| offer.ready_ms()),
            failure: failure(&read.launches, starting),
        }
    });
    machines.collect()
}

/// Why it is not known whether the machines of a launch exist.
fn failure(launches: &[RecentLaunch], of: &Starting) -> Option<String> {
    let same = |launch: &&RecentLaunch| {
        launch.launch_config_id == of.launch_config_id && launch.since == of.since
    };
    launches
        .iter()
        .filter(same)
        .find_map(|launch| match &launch.state {
            LaunchState::Unknown { problem } => Some(problem.clone()),
            LaunchState::Open
            | LaunchState::Accepted
            | LaunchState::Refused { .. }
            | LaunchState::Withdrawn { .. } => None,
        })
}

/// The words of the cloud, for each launch config whose last launch was refused.
fn refusals(launches: &[RecentLaunch]) -> BTreeMap<LaunchConfigId, String> {
    let mut last = BTreeMap::new();
    for launch in launches {
        let words = match &launch.state {
            LaunchState::Refused { problem, .. } => Some(problem.clone()),
            LaunchState::Open
            | LaunchState::Accepted
            | LaunchState::Unknown { .. }
            | LaunchState::Withdrawn { .. } => None,
        };
        last.entry(launch.launch_config_id.clone()).or_insert(words);
    }
    let refused = last.into_iter();
    refused
        .filter_map(|(id, words)| Some((id, words.filter(|words| !words.is_empty())?)))
        .collect()
}

fn setup_errors(engine: &Engine, snapshot: &Snapshot) -> BTreeMap<ProviderId, String> {
    let ids: BTreeSet<&ProviderId> = snapshot
        .offers
        .iter()
        .map(|offer| &offer.provider_id)
        .collect();
    let errors = ids
        .into_iter()
        .filter_map(|id| Some((id.clone(), engine.providers.setup_error(id)?)));
    errors.collect()
}

/// The other pools with machines of the providers whose quota is used up.
async fn sharers(
    engine: &Engine,
    pool_id: &PoolId,
    wait: &PoolWait,
) -> store::Result<Vec<(PoolId, u64)>> {
    let blocked = wait.blocked.iter();
    let full = blocked.filter(|offer| offer.cause == WaitCause::Quota);
    let providers: BTreeSet<ProviderId> = full.map(|offer| offer.provider_id.clone()).collect();
    if providers.is_empty() {
        return Ok(Vec::new());
    }
    let pool_id = pool_id.clone();
    let read = engine.store.read("explain_sharers", move |tx| {
        let mut all: BTreeMap<PoolId, u64> = BTreeMap::new();
        for provider in &providers {
            for (id, units) in store::task_waits::sharers(tx, provider, &pool_id, NAMED)? {
                *all.entry(id).or_default() += units;
            }
        }
        Ok::<_, StoreError>(all)
    });
    let mut all: Vec<(PoolId, u64)> = read.await?.into_iter().collect();
    all.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    Ok(all)
}

/// The parts of the waits of all runs of the task, up to now.
fn read_parts(
    tx: &mut Tx<'_>,
    task: &Task,
    now: Timestamp,
) -> store::Result<Vec<(usize, WaitPart)>> {
    let runs = task.runs.iter().enumerate();
    let mut waits: Vec<EndedWait> = runs
        .map(|(run_id, run)| wait_of(task, run_id, run, now))
        .collect();
    if waits.is_empty() {
        // It waits for its dependencies.
        waits.push(wait_of(
            task,
            0,
            &Run::pending(domain::task::StartReason::Scheduled, now),
            now,
        ));
    }
    let facts = WaitFacts::read(tx, &waits, now)?;
    let parts = waits.iter().flat_map(|wait| {
        let parts = facts.parts(wait).into_iter();
        parts.map(|part| (wait.run_id, part))
    });
    Ok(parts.collect())
}

fn wait_of(task: &Task, run_id: usize, run: &Run, now: Timestamp) -> EndedWait {
    let queue = task.definition.task_queue_id.clone();
    let claim = run.claim.as_ref();
    let ended = run.end.map(|end| end.at);
    EndedWait {
        task_id: task.id.clone(),
        run_id,
        since: run.scheduled,
        until: claim.map(|claim| claim.started).or(ended).unwrap_or(now),
        worker: claim.map(|claim| domain::id::WorkerKey {
            pool_id: queue.clone(),
            group: claim.group.clone(),
            id: claim.worker_id.clone(),
        }),
        queue,
    }
}
