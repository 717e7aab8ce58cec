//! One transaction in which waiting workers claim what there is, and are seen.

use std::sync::Arc;

use domain::id::{PoolId, WorkerKey};
use domain::queue_worker::{QueueWorker, TaskRun};
use domain::task::Task;
use domain::time::{DAY_MS, MINUTE_MS, SECOND_MS, Timestamp};
use store::{Part, StoreError, Tx};

use super::moves::{Hints, carry_out};
use crate::app::App;

/// So many claims are made in one transaction.
const CLAIMS_AT_ONCE: u32 = 128;
/// A worker that is not heard of for so long is forgotten.
const REMEMBERED_MS: i64 = DAY_MS;
/// When a worker was last seen is exact to this.
const SEEN_EVERY_MS: i64 = MINUTE_MS;

/// A worker that asks for tasks.
#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    pub(crate) worker: WorkerKey,
    pub(crate) wanted: u32,
    /// It has just asked, and is not known to be seen yet.
    pub(crate) is_new: bool,
}

/// What became of one line.
pub(crate) struct Served {
    /// For each worker, in the order of the line.
    pub(crate) tasks: Vec<Vec<Task>>,
    /// There is no more.
    pub(crate) is_exhausted: bool,
}

/// When a claim that is made now runs out.
pub(crate) fn claim_end(app: &App, now: Timestamp) -> Timestamp {
    now.plus_millis(i64::from(app.config.queue.claim_seconds) * SECOND_MS)
}

/// Serves each line from its head: one task to each worker, then a second one, and so on.
pub(crate) async fn serve_lines(
    app: &Arc<App>,
    lines: Vec<(PoolId, Vec<Claimant>)>,
) -> Result<Vec<Served>, Arc<StoreError>> {
    let now = app.clock.now();
    let asked = lines.clone();
    let look = app
        .store
        .read("claim_look", move |tx| anything_to_do(tx, &asked, now));
    if !look.await.map_err(Arc::new)? {
        let nothing = lines.iter().map(|(_, line)| Served {
            tasks: vec![Vec::new(); line.len()],
            is_exhausted: true,
        });
        return Ok(nothing.collect());
    }
    let writer = Arc::clone(app);
    let written = app.write("claim_work", move |tx| {
        let mut room = CLAIMS_AT_ONCE;
        let lines = lines.iter();
        lines
            .map(|(queue, line)| serve_line(&writer, tx, queue, line, now, &mut room))
            .collect::<Result<Vec<_>, StoreError>>()
    });
    written.await.map_err(Arc::new)
}

/// Reading costs little: without tasks and news of workers, nothing is written.
fn anything_to_do(
    tx: &mut Tx<'_>,
    lines: &[(PoolId, Vec<Claimant>)],
    now: Timestamp,
) -> Result<bool, StoreError> {
    for (queue, line) in lines {
        if store::task_any_waiting(tx, queue, now)? {
            return Ok(true);
        }
        for claimant in line.iter().filter(|claimant| claimant.is_new) {
            let known = store::queue_worker_get(tx, &claimant.worker)?;
            if known.is_none_or(|known| !is_freshly_seen(&known, now)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn serve_line(
    app: &App,
    tx: &mut Tx<'_>,
    queue: &PoolId,
    line: &[Claimant],
    now: Timestamp,
    room: &mut u32,
) -> Result<Served, StoreError> {
    let mut known = Vec::with_capacity(line.len());
    let mut wanted = Vec::with_capacity(line.len());
    for claimant in line {
        let worker = store::queue_worker_get(tx, &claimant.worker)?;
        let is_kept_away = worker
            .as_ref()
            .is_some_and(|worker| worker.is_quarantined(now));
        wanted.push(if is_kept_away { 0 } else { claimant.wanted });
        known.push(worker);
    }
    let n_wanted = wanted.iter().sum::<u32>();
    let limit = n_wanted.min(*room);
    let Part {
        items: next,
        is_cut,
    } = store::task_next(tx, queue, now, limit)?;
    let n_next = u32::try_from(next.len()).unwrap_or(limit);
    let is_exhausted = n_wanted == 0 || (n_next < limit && !is_cut);
    *room -= n_next;
    let mut tasks = vec![Vec::new(); line.len()];
    // Claiming makes nothing pending: there is nobody to be told.
    let mut hints = Hints::default();
    for (task, place) in next.into_iter().zip(deal(&wanted)) {
        let worker = &line[place].worker;
        let claimed = claim(app, tx, &task, worker, now, &mut hints)?;
        tasks[place].extend(claimed);
    }
    for ((claimant, known), tasks) in line.iter().zip(known).zip(&tasks) {
        see(tx, &claimant.worker, known, tasks, now)?;
    }
    store::task_queue_seen(tx, queue, now, true)?;
    Ok(Served {
        tasks,
        is_exhausted,
    })
}

/// To whom the first task goes, the second, …: in rounds, until everybody has what they want.
fn deal(wanted: &[u32]) -> impl Iterator<Item = usize> {
    let rounds = wanted.iter().copied().max().unwrap_or(0);
    (0..rounds).flat_map(move |round| (0..wanted.len()).filter(move |place| wanted[*place] > round))
}

fn claim(
    app: &App,
    tx: &mut Tx<'_>,
    task: &Task,
    worker: &WorkerKey,
    now: Timestamp,
    hints: &mut Hints,
) -> Result<Option<Task>, StoreError> {
    let Some((run_id, _)) = task.last_run() else {
        return Ok(None);
    };
    let until = claim_end(app, now);
    let moved = task
        .clone()
        .claim(run_id, &worker.group, &worker.id, now, until);
    // What waits can be claimed, as long as its deadline has not passed; then it is left alone.
    let Ok(moved) = moved else {
        return Ok(None);
    };
    carry_out(app, tx, task, moved, now, hints).map(Some)
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
    worker
        .recent_tasks
        .extend(claimed.iter().filter_map(|task| {
            let (run_id, _) = task.last_run()?;
            let task_id = task.id.to_string();
            Some(TaskRun { task_id, run_id })
        }));
    let n_recent = worker.recent_tasks.len();
    let n_too_many = n_recent.saturating_sub(QueueWorker::MAX_RECENT_TASKS);
    worker.recent_tasks.drain(..n_too_many);
    store::queue_worker_upsert(tx, &worker)?;
    // Not for each claim of a busy worker: whether it is its first is asked once a minute.
    if !is_fresh {
        store::worker_note_first_claim(tx, key, now)?;
    }
    Ok(())
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
