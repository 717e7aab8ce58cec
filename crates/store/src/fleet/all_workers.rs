//! Workers of all pools, newest first, with what the queue knows of them.

use std::collections::HashMap;

use domain::id::{LaunchConfigId, PoolId, ProviderId, TaskId, WorkerKey};
use domain::supply::Horizon;
use domain::time::Timestamp;
use domain::worker::WorkerState;
use domain::worker_presence::WorkerPresence;
use serde::Deserialize;

use crate::engine::{
    AFTER_ALL, BadRow, Cells, FromRow, Result, Table, Tx, from_row, part, statements, to_json,
};

static TABLE: Table = Table::unlisted("workers", 3);

// The order of `domain::worker_presence`, and the conditions of `domain::supply` for one worker.
macro_rules! presence {
    () => {
        "CASE WHEN w.state <> 'running' THEN NULL \
         WHEN EXISTS (SELECT 1 FROM claimed_tasks AS c WHERE c.task_queue_id = w.worker_pool_id \
         AND c.worker_group = w.worker_group AND c.worker_id = w.worker_id \
         AND c.taken_until > $1) THEN 'busy' \
         WHEN q.quarantine_until >= $1 THEN 'quarantined' \
         WHEN w.draining = 1 THEN 'draining' \
         WHEN (COALESCE(w.registered, w.created) < $2 OR COALESCE(w.registered, w.created) > $3) \
         AND (q.last_date_active IS NULL OR q.last_date_active < $4 OR q.last_date_active > $3) \
         AND (q.last_task_ended IS NULL OR q.last_task_ended < $4 OR q.last_task_ended > $3) \
         THEN 'silent' ELSE 'idle' END"
    };
}

macro_rules! listed {
    ($rows:literal, $state:literal, $order:literal) => {
        concat!(
            "SELECT w.worker_pool_id, w.worker_group, w.worker_id, w.provider_id, \
             w.launch_config_id, w.state, w.capacity, w.created, w.registered, \
             COALESCE(w.first_claim, q.first_claim), w.draining, w.advice_reason, w.price, \
             q.last_date_active, q.quarantine_until, ",
            presence!(),
            " FROM workers AS w LEFT JOIN queue_workers AS q ON q.task_queue_id = w.worker_pool_id \
             AND q.worker_group = w.worker_group AND q.worker_id = w.worker_id WHERE ",
            $rows,
            " AND ($9 = '' OR w.provider_id = $9) AND ($10 = '' OR w.launch_config_id = $10) AND ",
            $state,
            " AND ($12 = '' OR LOWER(w.worker_id) LIKE $12 ESCAPE '!' \
             OR LOWER(w.worker_group) LIKE $12 ESCAPE '!' \
             OR LOWER(w.worker_pool_id) LIKE $12 ESCAPE '!') \
             AND ($13 = '' OR (w.state = 'running' AND CASE $13 \
             WHEN 'quarantined' THEN q.quarantine_until >= $1 WHEN 'draining' THEN w.draining = 1 \
             ELSE $13 = ",
            presence!(),
            " END)) ORDER BY ",
            $order,
            " LIMIT $14"
        )
    };
}

statements! { TABLE;
    // An empty text means no filter, since ids and states are never empty.
    LIVE "all_worker_list" = listed!(
        "w.state <> 'stopped' AND (w.created, w.worker_pool_id, w.worker_group, w.worker_id) \
         < ($5, $6, $7, $8)",
        "($11 = '' OR w.state = $11)",
        "w.created DESC, w.worker_pool_id DESC, w.worker_group DESC, w.worker_id DESC");
    STOPPED "all_worker_list_stopped" = listed!(
        "w.state = 'stopped' AND (w.created, w.worker_pool_id, w.worker_group, w.worker_id) \
         < ($5, $6, $7, $8)",
        "w.state = $11",
        "w.created DESC, w.worker_pool_id DESC, w.worker_group DESC, w.worker_id DESC");
    OF_POOL "all_worker_list_of_pool" = listed!(
        "w.worker_pool_id = $5 AND (w.created, w.worker_group, w.worker_id) < ($6, $7, $8)",
        "(($11 = '' AND w.state <> 'stopped') OR w.state = $11)",
        "w.created DESC, w.worker_group DESC, w.worker_id DESC");
    TASKS_OF "all_worker_tasks" =
        "SELECT c.task_queue_id, c.worker_group, c.worker_id, c.task_id, c.run_id \
         FROM json_each($1) AS v CROSS JOIN claimed_tasks AS c \
         WHERE c.task_queue_id = v.value ->> 0 AND c.worker_group = v.value ->> 1 \
         AND c.worker_id = v.value ->> 2 AND c.task_id = (\
         SELECT MIN(m.task_id) FROM claimed_tasks AS m WHERE m.task_queue_id = v.value ->> 0 \
         AND m.worker_group = v.value ->> 1 AND m.worker_id = v.value ->> 2 \
         AND m.taken_until > $2) LIMIT $3";
    DEFINITION_SIZES "all_worker_task_sizes" =
        "SELECT CAST(OCTET_LENGTH(d.definition) AS BIGINT) \
         FROM json_each($1) AS v CROSS JOIN task_definitions AS d \
         WHERE d.task_id = v.value ->> 0 ORDER BY d.task_id LIMIT $2";
    DEFINITIONS "all_worker_task_definitions" =
        "SELECT d.task_id, d.definition \
         FROM json_each($1) AS v CROSS JOIN task_definitions AS d \
         WHERE d.task_id = v.value ->> 0 ORDER BY d.task_id LIMIT $2";
}

/// A worker of any pool.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetWorker {
    pub key: WorkerKey,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub state: WorkerState,
    pub capacity: u32,
    pub created: Timestamp,
    pub registered: Option<Timestamp>,
    pub first_claim: Option<Timestamp>,
    /// It was asked to stop when it is next idle.
    pub draining: bool,
    pub advice_reason: Option<String>,
    /// Per hour, as agreed at the launch.
    pub price: Option<f64>,
    pub last_date_active: Option<Timestamp>,
    pub quarantine_until: Option<Timestamp>,
    /// `None`: it does not run.
    pub presence: Option<WorkerPresence>,
}

from_row! { FleetWorker {
    key, provider_id, launch_config_id, state, capacity, created, registered, first_claim, draining,
    advice_reason, price, last_date_active, quarantine_until, presence
} }

/// Selects workers; an empty filter selects all that are not stopped.
#[derive(Clone, Debug, Default)]
pub struct FleetFilter {
    pub pool_id: Option<PoolId>,
    pub provider_id: Option<ProviderId>,
    pub launch_config_id: Option<LaunchConfigId>,
    pub state: Option<WorkerState>,
    /// Quarantined and draining workers are also found while they have a task.
    pub presence: Option<WorkerPresence>,
    /// A part of the worker's id, its group or its pool, in letters of either case.
    pub search: String,
}

/// The last worker of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetCursor {
    pub created: Timestamp,
    pub key: WorkerKey,
}

impl From<&FleetWorker> for FleetCursor {
    fn from(worker: &FleetWorker) -> Self {
        Self {
            created: worker.created,
            key: worker.key.clone(),
        }
    }
}

/// A run that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentTask {
    pub task_id: TaskId,
    pub run_id: u32,
    /// `None`: too many bytes of definitions would have to be read.
    pub name: Option<String>,
}

/// From newest to oldest.
pub fn list(
    tx: &mut Tx<'_>,
    filter: &FleetFilter,
    horizon: &Horizon,
    after: Option<&FleetCursor>,
    limit: u32,
) -> Result<Vec<FleetWorker>> {
    let signs = (
        horizon.now,
        horizon.registered_since,
        horizon.until,
        horizon.asked_since,
    );
    let (created, pool, group, id) = match after {
        Some(FleetCursor { created, key }) => (
            created.as_millis(),
            key.pool_id.as_str(),
            key.group.as_str(),
            key.id.as_str(),
        ),
        None => (i64::MAX, AFTER_ALL, AFTER_ALL, AFTER_ALL),
    };
    let search = match filter.search.as_str() {
        "" => String::new(),
        part => format!("%{}%", escaped(&part.to_lowercase())),
    };
    let filters = (
        filter.provider_id.as_ref().map_or("", ProviderId::as_str),
        filter
            .launch_config_id
            .as_ref()
            .map_or("", LaunchConfigId::as_str),
        filter.state.map_or("", WorkerState::as_str),
        search.as_str(),
        filter.presence.map_or("", WorkerPresence::as_str),
        limit,
    );
    if let Some(only) = &filter.pool_id {
        let after = (only, created, group, id);
        return tx.rows(&OF_POOL, (signs, after, filters));
    }
    let after = (created, pool, group, id);
    match filter.state {
        Some(WorkerState::Stopped) => tx.rows(&STOPPED, (signs, after, filters)),
        Some(WorkerState::Requested | WorkerState::Running | WorkerState::Stopping) | None => {
            tx.rows(&LIVE, (signs, after, filters))
        }
    }
}

/// A text in which no character stands for others, in a pattern whose escape character is `!`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '%' | '_' | '!') {
            escaped.push('!');
        }
        escaped.push(character);
    }
    escaped
}

/// A run that each of these workers has now, with the name of its task.
pub fn current_tasks<'k>(
    tx: &mut Tx<'_>,
    keys: impl IntoIterator<Item = &'k WorkerKey>,
    now: Timestamp,
    may_name: impl Fn(&TaskId) -> bool,
) -> Result<HashMap<WorkerKey, CurrentTask>> {
    let keys = keys.into_iter();
    let keys: Vec<[&str; 3]> = keys
        .map(|key| [key.pool_id.as_str(), key.group.as_str(), key.id.as_str()])
        .collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let found: Vec<(WorkerKey, TaskId, u32)> =
        tx.rows(&TASKS_OF, (&to_json(&keys), now, count(&keys)))?;
    let ids = found.iter().map(|(_, task_id, _)| task_id);
    let mut names = task_names(tx, ids.filter(|id| may_name(id)))?;
    let tasks = found.into_iter().map(|(key, task_id, run_id)| {
        let name = names.remove(&task_id);
        let task = CurrentTask {
            task_id,
            run_id,
            name,
        };
        (key, task)
    });
    Ok(tasks.collect())
}

fn count<T>(rows: &[T]) -> u32 {
    u32::try_from(rows.len()).unwrap_or(u32::MAX)
}

/// The part of a definition that names the task.
#[derive(Deserialize)]
struct Named {
    metadata: NamedMetadata,
}

#[derive(Deserialize)]
struct NamedMetadata {
    name: String,
}

struct NamedTask {
    task_id: TaskId,
    name: Option<String>,
}

impl FromRow for NamedTask {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (task_id, definition): (_, String) = cells.next()?;
        let named = serde_json::from_str::<Named>(&definition).ok();
        Ok(Self {
            task_id,
            name: named.map(|named| named.metadata.name),
        })
    }
}

fn task_names<'t>(
    tx: &mut Tx<'_>,
    task_ids: impl Iterator<Item = &'t TaskId>,
) -> Result<HashMap<TaskId, String>> {
    let mut ids: Vec<[&str; 1]> = task_ids.map(|id| [id.as_str()]).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    ids.sort_unstable();
    let list = to_json(&ids);
    let read = part::read(tx, &DEFINITION_SIZES, &DEFINITIONS, &list, count(&ids))?;
    let named = read.items.into_iter();
    let named = named.filter_map(|task: NamedTask| Some((task.task_id, task.name?)));
    Ok(named.collect())
}
