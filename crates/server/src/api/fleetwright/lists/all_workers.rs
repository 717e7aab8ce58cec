//! The workers of all pools that the caller may list.

use std::collections::HashMap;

use domain::id::{TaskId, WorkerKey};
use domain::supply::Horizon;
use domain::time::Timestamp;
use domain::worker_presence::WorkerPresence;
use serde_json::{Value, json};
use store::all_workers::{CurrentTask, FleetCursor, FleetFilter, FleetWorker};
use store::{StoreError, Tx};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// At most this many pages of rows are read for one page of workers that the caller may list.
const PAGES: usize = 20;
/// Rows of a further page at least.
const LATER_ROWS: usize = 1_000;

/// The order of the list: newest first, then by pool, group and id.
type Cursor = (i64, String, String, String);

/// The part of a list that one request returns.
struct Visible {
    workers: Vec<FleetWorker>,
    /// Where the next request goes on.
    next: Option<FleetCursor>,
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let filter = filter(&call)?;
    let page = call.page::<Cursor>()?;
    let after = page.after.as_ref().map(cursor).transpose()?;
    let (limit, now) = (page.limit, call.now);
    let horizon = call.app.engine.horizon(now);
    let (scopes, of_tasks) = (call.scopes(), call.scopes());
    let may_list = move |worker: &FleetWorker| {
        let pool_id = &worker.key.pool_id;
        scopes.satisfies(&format!("worker-manager:list-workers:{pool_id}"))
    };
    // The name is a part of the definition.
    let may_name = move |id: &TaskId| of_tasks.satisfies(&format!("queue:get-task:{id}"));
    let read = call.scan("all_worker_list", move |tx| {
        let list = |tx: &mut Tx<'_>, after: Option<&FleetCursor>, n_rows: usize| {
            let n_rows = u32::try_from(n_rows).unwrap_or(u32::MAX);
            store::all_workers::list(tx, &filter, &horizon, after, n_rows)
        };
        let found = visible(tx, limit as usize, after, may_list, list)?;
        let busy = found.workers.iter();
        let busy = busy.filter(|worker| worker.presence == Some(WorkerPresence::Busy));
        let tasks =
            store::all_workers::current_tasks(tx, busy.map(|worker| &worker.key), now, may_name)?;
        Ok::<_, StoreError>((found, tasks))
    });
    let (found, tasks) = read.await?;
    let token = found.next.map(|next| page.token(&texts(&next)));
    let workers = found.workers.iter();
    let workers = workers.map(|worker| worker_json(worker, &tasks, &horizon));
    Reply::list("workers", workers, token)
}

fn filter(call: &Call) -> Result<FleetFilter, ApiError> {
    let bad = |problem| ApiError::input(format!("{problem}"));
    let presence = call.query("presence").map(str::parse).transpose();
    let presence: Option<WorkerPresence> = presence.map_err(bad)?;
    let hears = !call.app.engine.demand_source.is_outside();
    if let Some(presence) = presence.filter(|it| !hears && *it != WorkerPresence::Draining) {
        return Err(ApiError::input(format!(
            "Workers ask another deployment's queue, so it is not known which are {presence}: \
             filter by `state`, or by `presence=draining`"
        )));
    }
    Ok(FleetFilter {
        pool_id: call.query_id("workerPoolId")?,
        provider_id: call.query_id("providerId")?,
        launch_config_id: call.query_id("launchConfigId")?,
        state: call
            .query("state")
            .map(str::parse)
            .transpose()
            .map_err(bad)?,
        presence,
        search: call.query("search").unwrap_or_default().to_owned(),
    })
}

/// Reads rows until a page is full of workers that the caller may list, the rows end, or enough
/// were read. `list` returns at most this many rows after a cursor.
fn visible<R>(
    reader: &mut R,
    limit: usize,
    mut after: Option<FleetCursor>,
    may_list: impl Fn(&FleetWorker) -> bool,
    list: impl Fn(&mut R, Option<&FleetCursor>, usize) -> store::Result<Vec<FleetWorker>>,
) -> store::Result<Visible> {
    let mut workers = Vec::new();
    for number in 0..PAGES {
        // A caller who may list little, in small pages, shall not need thousands of requests.
        let batch = if number == 0 {
            limit
        } else {
            limit.max(LATER_ROWS)
        };
        let mut rows = list(reader, after.as_ref(), batch + 1)?;
        let mut has_more = rows.len() > batch;
        rows.truncate(batch);
        let n_rows = rows.len();
        for (number, row) in rows.into_iter().enumerate() {
            after = Some(FleetCursor::from(&row));
            if may_list(&row) {
                workers.push(row);
            }
            if workers.len() == limit {
                has_more |= number + 1 < n_rows;
                break;
            }
        }
        if !has_more {
            return Ok(Visible {
                workers,
                next: None,
            });
        }
        if workers.len() == limit {
            break;
        }
    }
    let next = after;
    Ok(Visible { workers, next })
}

fn worker_json(
    worker: &FleetWorker,
    tasks: &HashMap<WorkerKey, CurrentTask>,
    horizon: &Horizon,
) -> Value {
    let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let quarantine = worker
        .quarantine_until
        .filter(|until| *until >= horizon.now);
    // Without the queue, only what people and plans decided is known.
    let presence = worker
        .presence
        .filter(|presence| horizon.hears_workers || *presence == WorkerPresence::Draining);
    let reason = worker.advice_reason.as_ref().filter(|_| worker.draining);
    let task = tasks.get(&worker.key).map(|task| {
        without_nulls(json!({
            "taskId": task.task_id.as_str(), "runId": task.run_id, "name": task.name,
        }))
    });
    without_nulls(json!({
        "workerPoolId": worker.key.pool_id.as_str(),
        "workerGroup": worker.key.group.as_str(),
        "workerId": worker.key.id.as_str(),
        "providerId": worker.provider_id.as_str(),
        "launchConfigId": worker.launch_config_id.as_ref().map(|id| id.as_str()),
        "state": worker.state.as_str(),
        "presence": presence.map(WorkerPresence::as_str),
        "capacity": worker.capacity,
        "created": worker.created.to_string(),
        "registered": text(worker.registered),
        "firstClaim": text(worker.first_claim),
        "lastDateActive": text(worker.last_date_active),
        "quarantineUntil": text(quarantine),
        "draining": worker.draining,
        "adviceReason": reason,
        "price": worker.price,
        "task": task,
    }))
}

fn texts(cursor: &FleetCursor) -> Cursor {
    let key = &cursor.key;
    (
        cursor.created.as_millis(),
        key.pool_id.to_string(),
        key.group.to_string(),
        key.id.to_string(),
    )
}

fn cursor((created, pool_id, group, id): &Cursor) -> Result<FleetCursor, ApiError> {
    Ok(FleetCursor {
        created: Timestamp::from_millis(*created),
        key: WorkerKey::parse(pool_id.parse()?, group, id)?,
    })
}

#[cfg(test)]
mod tests {
    use domain::worker::WorkerState;
    use testing::sizes_around;

    use super::*;

    const LIMIT: usize = 3;

    /// One of these many workers, the newest first; each third one is in a pool that is listed.
    fn worker(number: usize) -> FleetWorker {
        let pool_id = if number % 3 == 2 {
            "p/listed"
        } else {
            "p/other"
        };
        FleetWorker {
            key: WorkerKey::parse(pool_id.parse().unwrap(), "g", &format!("w{number}")).unwrap(),
            provider_id: "fake".parse().unwrap(),
            launch_config_id: None,
            state: WorkerState::Running,
            capacity: 1,
            created: Timestamp::from_millis(-i64::try_from(number).unwrap()),
            registered: None,
            first_claim: None,
            draining: false,
            advice_reason: None,
            price: None,
            last_date_active: None,
            quarantine_until: None,
            presence: None,
        }
    }

    fn page(count: usize, after: Option<FleetCursor>, n_reads: &mut usize) -> Visible {
        let may_list = |worker: &FleetWorker| worker.key.pool_id.as_str() == "p/listed";
        let list = |n_reads: &mut usize, after: Option<&FleetCursor>, n_rows: usize| {
            *n_reads += 1;
            let first = after.map_or(0, |it| 1 - it.created.as_millis());
            let first = usize::try_from(first).unwrap();
            Ok((first..count).take(n_rows).map(worker).collect())
        };
        visible(n_reads, LIMIT, after, may_list, list).unwrap()
    }

    #[test]
    fn pages_go_on_past_workers_that_the_caller_may_not_list() {
        // Each read returns a page of rows.
        for n_pages in sizes_around("server::api::fleetwright::lists::all_workers::PAGES", PAGES) {
            let count = n_pages * LATER_ROWS;
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let mut n_reads = 0;
                let part = page(count, after, &mut n_reads);
                assert!(n_reads <= PAGES && part.workers.len() <= LIMIT);
                seen.extend(part.workers);
                after = part.next;
                if after.is_none() {
                    break;
                }
            }
            let all = (0..count).map(worker);
            let listed = all.filter(|worker| worker.key.pool_id.as_str() == "p/listed");
            assert!(seen.into_iter().eq(listed), "{n_pages}");
        }
    }

    #[test]
    fn a_caller_who_may_list_nothing_gets_empty_pages_that_end() {
        let none = |_: &FleetWorker| false;
        let count = LIMIT + (PAGES - 1) * LATER_ROWS + 1;
        let list = |(): &mut (), after: Option<&FleetCursor>, n_rows: usize| {
            let first = after.map_or(0, |it| 1 - it.created.as_millis());
            let first = usize::try_from(first).unwrap();
            Ok((first..count).take(n_rows).map(worker).collect())
        };
        let first = visible(&mut (), LIMIT, None, none, list).unwrap();
        assert!(first.workers.is_empty() && first.next.is_some());
        let last = visible(&mut (), LIMIT, first.next, none, list).unwrap();
        assert!(last.workers.is_empty() && last.next.is_none());
    }
}
