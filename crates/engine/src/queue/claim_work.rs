//! One transaction in which waiting workers claim tasks, and are noted as seen.

use std::collections::HashMap;
use std::sync::Arc;

use domain::id::{PoolId, WorkerKey};
use domain::phases::Phase;
use domain::queue_worker::{QueueWorker, TaskRun};
use domain::task::Task;
use domain::time::{DAY_MS, MINUTE_MS, SECOND_MS, Timestamp};
use domain::worker::WorkerState;
use store::{Part, StoreError, Tx};

use super::transitions::apply_transition;
use crate::Engine;
use crate::change::Change;

/// At most this many workers are served in one transaction.
pub(super) const SERVED_AT_ONCE: usize = 64;
/// At most this many claims are made in one transaction.
const CLAIMS_AT_ONCE: u32 = 128;
const _: () = assert!(
    SERVED_AT_ONCE <= CLAIMS_AT_ONCE as usize,
    "each worker of a batch can get a task"
);
/// A worker that sends no request for this long is removed.
const REMEMBERED_MS: i64 = DAY_MS;
/// The precision of the time at which a worker was last seen.
const SEEN_EVERY_MS: i64 = MINUTE_MS;

#[derive(Clone, Debug)]
pub(super) struct Claimant {
    pub(super) worker: WorkerKey,
    pub(super) wanted: u32,
    /// It has just asked, so its last activity may have to be written.
    pub(super) is_new: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimResult {
    Nothing,
    Tasks(Vec<Task>),
    /// No tasks, now and later: the worker is stopping or stopped.
    Refused(WorkerState),
}

/// Whether tasks remain for workers that got none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemainingWork {
    /// No task is pending, as far as is known.
    None,
    /// Tasks that the served workers do not want, or may not have.
    ForOthers,
    /// More tasks than one transaction claims.
    ForAll,
}

#[derive(Debug)]
pub(super) struct ListOutcome {
    /// For each worker, in the order of the list.
    pub(super) results: Vec<ClaimResult>,
    pub(super) remaining: RemainingWork,
}

/// The records of the workers that are served.
type ClaimantRecords = HashMap<WorkerKey, store::claimants::Claimant>;

/// The end of a claim that is made now.
pub(super) fn claim_end(engine: &Engine, now: Timestamp) -> Timestamp {
    now.plus_millis(i64::from(engine.claim_seconds) * SECOND_MS)
}

/// The state for which a worker gets no tasks; `None`: it may have some.
pub(super) fn refusal(state: Option<WorkerState>) -> Option<WorkerState> {
    match state {
        Some(state @ (WorkerState::Stopping | WorkerState::Stopped)) => Some(state),
        // No row: it may be a worker that we did not start.
        Some(WorkerState::Requested | WorkerState::Running) | None => None,
    }
}

/// Serves each list in rounds: one task to each worker, then a second one, and so on.
pub(super) async fn serve_lists(
    engine: &Arc<Engine>,
    lists: Vec<(PoolId, Vec<Claimant>)>,
) -> Result<Vec<ListOutcome>, Arc<StoreError>> {
    let now = engine.clock.now();
    let asked = lists.clone();
    let outcomes = engine
        .store
        .read("claim_look", move |tx| read_outcomes(tx, &asked, now));
    if let Some(outcomes) = outcomes.await.map_err(Arc::new)? {
        return Ok(outcomes);
    }
    let until = claim_end(engine, now);
    let written = engine.change_alone("claim_work", now, move |change| {
        // Claims of the first list change the tasks that wait, so those of others are read later.
        if let [(queue, list)] = lists.as_slice() {
            let wanted: u32 = list.iter().map(|claimant| claimant.wanted).sum();
            change.tx.ask(|tx| {
                store::pending_tasks::next(tx, queue, now, wanted.min(CLAIMS_AT_ONCE))?;
                store::task_queues::note_used(tx, queue, now, true)
            });
        }
        let known = read_claimants(change.tx, &lists)?;
        let mut room = CLAIMS_AT_ONCE;
        let mut n_behind: usize = lists.iter().map(|(_, list)| list.len()).sum();
        let lists = lists.iter().map(|(queue, list)| {
            n_behind -= list.len();
            // Leaves room for one claim of each worker in the later lists.
            let most = room.saturating_sub(u32::try_from(n_behind).unwrap_or(room));
            let (outcome, n_claimed) = serve_list(change, queue, list, &known, until, most)?;
            room -= n_claimed;
            Ok(outcome)
        });
        lists.collect::<store::Result<Vec<_>>>()
    });
    written.await.map_err(Arc::new)
}

fn read_claimants(
    tx: &mut Tx<'_>,
    lists: &[(PoolId, Vec<Claimant>)],
) -> store::Result<ClaimantRecords> {
    store::claimants::list(tx, &workers_of(lists))
}

fn workers_of(lists: &[(PoolId, Vec<Claimant>)]) -> Vec<WorkerKey> {
    let claimants = lists.iter().flat_map(|(_, list)| list);
    claimants.map(|claimant| claimant.worker.clone()).collect()
}

/// Reads first, since reading is cheap. `None`: a transaction has something to write.
fn read_outcomes(
    tx: &mut Tx<'_>,
    lists: &[(PoolId, Vec<Claimant>)],
    now: Timestamp,
) -> store::Result<Option<Vec<ListOutcome>>> {
    let queues: Vec<PoolId> = lists.iter().map(|(queue, _)| queue.clone()).collect();
    tx.ask(|tx| read_claimants(tx, lists));
    let with_work = store::pending_tasks::queues_with_work(tx, &queues, now)?;
    let known = read_claimants(tx, lists)?;
    let mut outcomes = Vec::with_capacity(lists.len());
    for (queue, list) in lists {
        let has_work = with_work.contains(queue);
        let mut results = Vec::with_capacity(list.len());
        for claimant in list {
            let (wanted, result) = check_claimant(claimant, &known, now);
            let record = known.get(&claimant.worker);
            let seen = record.and_then(|record| record.known.as_ref());
            let is_seen = !claimant.is_new || seen.is_some_and(|seen| is_freshly_seen(seen, now));
            if result == ClaimResult::Nothing && (!is_seen || (has_work && wanted > 0)) {
                return Ok(None);
            }
            results.push(result);
        }
        let remaining = if has_work {
            RemainingWork::ForOthers
        } else {
            RemainingWork::None
        };
        outcomes.push(ListOutcome { results, remaining });
    }
    Ok(Some(outcomes))
}

/// How many tasks a worker may claim, and its result if none is pending.
fn check_claimant(
    claimant: &Claimant,
    known: &ClaimantRecords,
    now: Timestamp,
) -> (u32, ClaimResult) {
    let Some(known) = known.get(&claimant.worker) else {
        return (claimant.wanted, ClaimResult::Nothing);
    };
    if let Some(state) = refusal(known.state) {
        return (0, ClaimResult::Refused(state));
    }
    let is_quarantined = known
        .known
        .as_ref()
        .is_some_and(|worker| worker.is_quarantined(now));
    let wanted = if is_quarantined { 0 } else { claimant.wanted };
    (wanted, ClaimResult::Nothing)
}

/// Makes at most `most` claims, and returns how many.
fn serve_list(
    change: &mut Change<'_, '_>,
    queue: &PoolId,
    list: &[Claimant],
    known: &ClaimantRecords,
    until: Timestamp,
    most: u32,
) -> store::Result<(ListOutcome, u32)> {
    let now = change.now;
    let checked = list
        .iter()
        .map(|claimant| check_claimant(claimant, known, now));
    let (wanted, mut results): (Vec<u32>, Vec<ClaimResult>) = checked.unzip();
    let limit = wanted.iter().sum::<u32>().min(most);
    let Part {
        items: next,
        is_cut,
    } = store::pending_tasks::next(change.tx, queue, now, limit)?;
    let n_next = u32::try_from(next.len()).unwrap_or(limit);
    let mut tasks = vec![Vec::new(); list.len()];
    for (task, place) in next.into_iter().zip(deal_rounds(&wanted)) {
        let worker = &list[place].worker;
        let claimed = claim_task(change, &task, worker, until)?;
        tasks[place].extend(claimed);
    }
    let is_left_out = |(wanted, tasks): (&u32, &Vec<Task>)| *wanted > 0 && tasks.is_empty();
    let some_got_nothing = wanted.iter().zip(&tasks).any(is_left_out);
    let some_got_tasks = tasks.iter().any(|tasks| !tasks.is_empty());
    let is_exhausted = match limit {
        0 => !store::pending_tasks::any(change.tx, queue, now)?,
        _ => n_next < limit && !is_cut,
    };
    let remaining = match (is_exhausted, some_got_nothing) {
        (true, _) => RemainingWork::None,
        (false, false) => RemainingWork::ForOthers,
        (false, true) if is_cut && some_got_tasks => RemainingWork::ForAll,
        // Tasks that cannot be claimed now are tried again by the next sweep.
        (false, true) => RemainingWork::None,
    };
    for ((claimant, result), tasks) in list.iter().zip(&mut results).zip(tasks) {
        if matches!(result, ClaimResult::Refused(_)) {
            continue;
        }
        let known = known
            .get(&claimant.worker)
            .and_then(|known| known.known.clone());
        note_worker_seen(change, &claimant.worker, known, &tasks, now)?;
        if !tasks.is_empty() {
            *result = ClaimResult::Tasks(tasks);
        }
    }
    store::task_queues::note_used(change.tx, queue, now, true)?;
    Ok((ListOutcome { results, remaining }, n_next))
}

/// Indexes of workers, one for each task: in rounds, until each worker has as many as it wants.
fn deal_rounds(wanted: &[u32]) -> impl Iterator<Item = usize> {
    let rounds = wanted.iter().copied().max().unwrap_or(0);
    (0..rounds).flat_map(move |round| (0..wanted.len()).filter(move |place| wanted[*place] > round))
}

fn claim_task(
    change: &mut Change<'_, '_>,
    task: &Task,
    worker: &WorkerKey,
    until: Timestamp,
) -> store::Result<Option<Task>> {
    let Some((run_id, _)) = task.last_run() else {
        return Ok(None);
    };
    let now = change.now;
    let moved = task
        .clone()
        .claim(run_id, &worker.group, &worker.id, now, until);
    // A pending task can be claimed until its deadline has passed; then it is left to the deadline.
    let Ok(moved) = moved else {
        return Ok(None);
    };
    apply_transition(change, task, moved).map(Some)
}

/// Records that a worker is active, and its claims.
pub(super) fn note_worker_seen<'a>(
    change: &mut Change<'_, '_>,
    key: &WorkerKey,
    known: Option<QueueWorker>,
    claimed: impl IntoIterator<Item = &'a Task>,
    now: Timestamp,
) -> store::Result<()> {
    let expires = now.plus_millis(REMEMBERED_MS);
    let is_fresh = known
        .as_ref()
        .is_some_and(|known| is_freshly_seen(known, now));
    let mut claimed = claimed.into_iter().peekable();
    if is_fresh && claimed.peek().is_none() {
        return Ok(());
    }
    let mut worker = known.unwrap_or_else(|| QueueWorker::new(key.clone(), now, expires));
    worker.last_date_active = Some(now);
    worker.expires = worker.expires.max(expires);
    worker.note_claims(claimed.filter_map(|task| {
        let (run_id, _) = task.last_run()?;
        let task_id = task.id.to_string();
        Some(TaskRun { task_id, run_id })
    }));
    store::queue_workers::upsert(change.tx, &worker)?;
    // Once a minute and not for each claim: whether this claim is its first.
    if !is_fresh && let Some(worker) = store::workers::note_first_claim(change.tx, key, now)? {
        let registered = worker.terms.registered_at.map(Timestamp::from_millis);
        change.measure_phase(&worker, Phase::FirstClaim, registered, now);
    }
    Ok(())
}

/// A time in the future, after the clock was set back, does not count.
fn is_freshly_seen(worker: &QueueWorker, now: Timestamp) -> bool {
    worker
        .last_date_active
        .is_some_and(|at| (0..SEEN_EVERY_MS).contains(&now.millis_since(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_given_out_in_rounds() {
        let dealt = |wanted: &[u32]| deal_rounds(wanted).collect::<Vec<_>>();
        assert_eq!(dealt(&[2, 0, 3]), [0, 2, 0, 2, 2]);
        assert_eq!(dealt(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(dealt(&[]), Vec::<usize>::new());
        assert_eq!(dealt(&[0, 0]), Vec::<usize>::new());
    }
}
