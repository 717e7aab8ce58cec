//! One transaction in which waiting workers claim what there is, and are seen.

use std::collections::HashMap;
use std::sync::Arc;

use domain::id::{PoolId, WorkerKey};
use domain::queue_worker::{QueueWorker, TaskRun};
use domain::task::Task;
use domain::time::{DAY_MS, MINUTE_MS, SECOND_MS, Timestamp};
use domain::worker::WorkerState;
use store::{Part, StoreError, Tx};

use super::moves::carry_out;
use crate::Engine;
use crate::change::Change;

/// At most this many workers are served in one transaction.
pub(super) const SERVED_AT_ONCE: usize = 64;
/// So many claims are made in one transaction.
const CLAIMS_AT_ONCE: u32 = 128;
const _: () = assert!(
    SERVED_AT_ONCE <= CLAIMS_AT_ONCE as usize,
    "each worker of a batch can get a task"
);
/// A worker that is not heard of for so long is forgotten.
const REMEMBERED_MS: i64 = DAY_MS;
/// When a worker was last seen is exact to this.
const SEEN_EVERY_MS: i64 = MINUTE_MS;

/// A worker that asks for tasks.
#[derive(Clone, Debug)]
pub(super) struct Claimant {
    pub(super) worker: WorkerKey,
    pub(super) wanted: u32,
    /// It has just asked, and is not known to be seen yet.
    pub(super) is_new: bool,
}

/// What a worker gets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Share {
    Nothing,
    Tasks(Vec<Task>),
    /// Nothing, now and later: it is on its way out, or has left.
    Refused(WorkerState),
}

/// What is left for those who were not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// No work, as far as is known.
    Nothing,
    /// Work that those who were served do not want, or may not have.
    ForOthers,
    /// Work that was too much for one transaction.
    ForAll,
}

/// What became of one line.
#[derive(Debug)]
pub(super) struct Outcome {
    /// For each worker, in the order of the line.
    pub(super) shares: Vec<Share>,
    pub(super) left: Left,
}

/// What is known of the workers that are served.
type Known = HashMap<WorkerKey, store::claimants::Claimant>;

/// When a claim that is made now runs out.
pub(super) fn claim_end(engine: &Engine, now: Timestamp) -> Timestamp {
    now.plus_millis(i64::from(engine.claim_seconds) * SECOND_MS)
}

/// Why a worker in this state gets no tasks; `None`: it may have some.
pub(super) fn refusal(state: Option<WorkerState>) -> Option<WorkerState> {
    match state {
        Some(state @ (WorkerState::Stopping | WorkerState::Stopped)) => Some(state),
        // It may be a worker that we did not start.
        Some(WorkerState::Requested | WorkerState::Running) | None => None,
    }
}

/// Serves each line from its head: one task to each worker, then a second one, and so on.
pub(super) async fn serve_lines(
    engine: &Arc<Engine>,
    lines: Vec<(PoolId, Vec<Claimant>)>,
) -> Result<Vec<Outcome>, Arc<StoreError>> {
    let now = engine.clock.now();
    let asked = lines.clone();
    let look = engine
        .store
        .read("claim_look", move |tx| look(tx, &asked, now));
    if let Some(outcomes) = look.await.map_err(Arc::new)? {
        return Ok(outcomes);
    }
    let until = claim_end(engine, now);
    let written = engine.change("claim_work", now, move |change| {
        let known = known(change.tx, &lines)?;
        let mut room = CLAIMS_AT_ONCE;
        let mut n_behind: usize = lines.iter().map(|(_, line)| line.len()).sum();
        let lines = lines.iter().map(|(queue, line)| {
            n_behind -= line.len();
            // However much these want, those behind them get something, too.
            let most = room.saturating_sub(u32::try_from(n_behind).unwrap_or(room));
            let (outcome, n_claimed) = serve_line(change, queue, line, &known, until, most)?;
            room -= n_claimed;
            Ok(outcome)
        });
        lines.collect::<Result<Vec<_>, StoreError>>()
    });
    written.await.map_err(Arc::new)
}

fn known(tx: &mut Tx<'_>, lines: &[(PoolId, Vec<Claimant>)]) -> Result<Known, StoreError> {
    let claimants = lines.iter().flat_map(|(_, line)| line);
    let keys: Vec<WorkerKey> = claimants.map(|claimant| claimant.worker.clone()).collect();
    store::claimants::list(tx, &keys)
}

/// Reading costs little: without tasks and news of workers, nothing is written. `None`: there is something to
/// write.
fn look(
    tx: &mut Tx<'_>,
    lines: &[(PoolId, Vec<Claimant>)],
    now: Timestamp,
) -> Result<Option<Vec<Outcome>>, StoreError> {
    let queues: Vec<PoolId> = lines.iter().map(|(queue, _)| queue.clone()).collect();
    let with_work = store::pending_tasks::queues_with_work(tx, &queues, now)?;
    let known = known(tx, lines)?;
    let mut outcomes = Vec::with_capacity(lines.len());
    for (queue, line) in lines {
        let has_work = with_work.contains(queue);
        let mut shares = Vec::with_capacity(line.len());
        for claimant in line {
            let (wanted, share) = standing(claimant, &known, now);
            let is_seen = !claimant.is_new || is_seen(&known, &claimant.worker, now);
            if share == Share::Nothing && (!is_seen || (has_work && wanted > 0)) {
                return Ok(None);
            }
            shares.push(share);
        }
        let left = if has_work {
            Left::ForOthers
        } else {
            Left::Nothing
        };
        outcomes.push(Outcome { shares, left });
    }
    Ok(Some(outcomes))
}

/// How many tasks a worker may have, and what it gets if there are none.
fn standing(claimant: &Claimant, known: &Known, now: Timestamp) -> (u32, Share) {
    let Some(known) = known.get(&claimant.worker) else {
        return (claimant.wanted, Share::Nothing);
    };
    if let Some(state) = refusal(known.state) {
        return (0, Share::Refused(state));
    }
    let is_kept_away = known
        .known
        .as_ref()
        .is_some_and(|worker| worker.is_quarantined(now));
    let wanted = if is_kept_away { 0 } else { claimant.wanted };
    (wanted, Share::Nothing)
}

/// Makes at most so many claims, and says how many.
fn serve_line(
    change: &mut Change<'_, '_>,
    queue: &PoolId,
    line: &[Claimant],
    known: &Known,
    until: Timestamp,
    most: u32,
) -> Result<(Outcome, u32), StoreError> {
    let now = change.now;
    let standings = line.iter().map(|claimant| standing(claimant, known, now));
    let (wanted, mut shares): (Vec<u32>, Vec<Share>) = standings.unzip();
    let limit = wanted.iter().sum::<u32>().min(most);
    let Part {
        items: next,
        is_cut,
    } = store::pending_tasks::next(change.tx, queue, now, limit)?;
    let n_next = u32::try_from(next.len()).unwrap_or(limit);
    let mut tasks = vec![Vec::new(); line.len()];
    for (task, place) in next.into_iter().zip(deal(&wanted)) {
        let worker = &line[place].worker;
        let claimed = claim(change, &task, worker, until)?;
        tasks[place].extend(claimed);
    }
    let is_left_out = |(wanted, tasks): (&u32, &Vec<Task>)| *wanted > 0 && tasks.is_empty();
    let some_got_nothing = wanted.iter().zip(&tasks).any(is_left_out);
    let some_got_tasks = tasks.iter().any(|tasks| !tasks.is_empty());
    let is_exhausted = match limit {
        0 => !store::pending_tasks::any(change.tx, queue, now)?,
        _ => n_next < limit && !is_cut,
    };
    let left = match (is_exhausted, some_got_nothing) {
        (true, _) => Left::Nothing,
        (false, false) => Left::ForOthers,
        (false, true) if is_cut && some_got_tasks => Left::ForAll,
        // What cannot be claimed now is looked at again in a moment.
        (false, true) => Left::Nothing,
    };
    for ((claimant, share), tasks) in line.iter().zip(&mut shares).zip(tasks) {
        if matches!(share, Share::Refused(_)) {
            continue;
        }
        let known = known
            .get(&claimant.worker)
            .and_then(|known| known.known.clone());
        see(change.tx, &claimant.worker, known, &tasks, now)?;
        if !tasks.is_empty() {
            *share = Share::Tasks(tasks);
        }
    }
    store::task_queues::note_used(change.tx, queue, now, true)?;
    Ok((Outcome { shares, left }, n_next))
}

/// To whom the first task goes, the second, …: in rounds, until everybody has what they want.
fn deal(wanted: &[u32]) -> impl Iterator<Item = usize> {
    let rounds = wanted.iter().copied().max().unwrap_or(0);
    (0..rounds).flat_map(move |round| (0..wanted.len()).filter(move |place| wanted[*place] > round))
}

fn claim(
    change: &mut Change<'_, '_>,
    task: &Task,
    worker: &WorkerKey,
    until: Timestamp,
) -> Result<Option<Task>, StoreError> {
    let Some((run_id, _)) = task.last_run() else {
        return Ok(None);
    };
    let now = change.now;
    let moved = task
        .clone()
        .claim(run_id, &worker.group, &worker.id, now, until);
    // What waits can be claimed, as long as its deadline has not passed; then it is left alone.
    let Ok(moved) = moved else {
        return Ok(None);
    };
    carry_out(change, task, moved).map(Some)
}

/// Remembers that a worker was heard of, and what it has claimed.
pub(super) fn see(
    tx: &mut Tx<'_>,
    key: &WorkerKey,
    known: Option<QueueWorker>,
    claimed: &[Task],
    now: Timestamp,
) -> Result<(), StoreError> {
    let expires = now.plus_millis(REMEMBERED_MS);
    let is_fresh = known
        .as_ref()
        .is_some_and(|known| is_freshly_seen(known, now));
    if is_fresh && claimed.is_empty() {
        return Ok(());
    }
    let mut worker = known.unwrap_or_else(|| QueueWorker::new(key.clone(), now, expires));
    worker.last_date_active = Some(now);
    worker.expires = worker.expires.max(expires);
    worker.note_claims(claimed.iter().filter_map(|task| {
        let (run_id, _) = task.last_run()?;
        let task_id = task.id.to_string();
        Some(TaskRun { task_id, run_id })
    }));
    store::queue_workers::upsert(tx, &worker)?;
    // Not for each claim of a busy worker: whether it is its first is asked once a minute.
    if !is_fresh {
        store::workers::note_first_claim(tx, key, now)?;
    }
    Ok(())
}

fn is_seen(known: &Known, worker: &WorkerKey, now: Timestamp) -> bool {
    known
        .get(worker)
        .and_then(|known| known.known.as_ref())
        .is_some_and(|known| is_freshly_seen(known, now))
}

/// A moment that is still to come, because the clock was set back, says nothing.
fn is_freshly_seen(worker: &QueueWorker, now: Timestamp) -> bool {
    worker
        .last_date_active
        .is_some_and(|at| (0..SEEN_EVERY_MS).contains(&now.millis_since(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_dealt_in_rounds() {
        let dealt = |wanted: &[u32]| deal(wanted).collect::<Vec<_>>();
        assert_eq!(dealt(&[2, 0, 3]), [0, 2, 0, 2, 2]);
        assert_eq!(dealt(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(dealt(&[]), Vec::<usize>::new());
        assert_eq!(dealt(&[0, 0]), Vec::<usize>::new());
    }
}
