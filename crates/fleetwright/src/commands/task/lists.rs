//! Lists of tasks: of a pool, of all queues, of a group.

use clap::{ArgGroup, Args};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::client::{Call, QUEUE, WORKER_MANAGER};
use crate::commands::name;
use crate::failure::{Exit, Failure};
use crate::output::{Column, Progress};
use crate::session::{Limit, Session};

/// Queues that are asked at once.
const PARALLEL: usize = 8;
/// Queues that one call counts.
const BATCH: usize = 1_000;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("of"))]
pub(crate) struct ListArguments {
    /// Only tasks of this pool
    #[arg(long, value_name = "POOL", value_parser = name::pool, group = "of")]
    pool: Option<String>,
    /// All tasks of this task group
    #[arg(long, value_name = "GROUP", value_parser = name::task, group = "of")]
    task_group: Option<String>,
    /// Only tasks in this state; repeatable (default: pending and running, of a group all)
    #[arg(
        long,
        value_name = "STATE",
        value_delimiter = ',',
        value_parser = ["unscheduled", "pending", "running", "completed", "failed", "exception"]
    )]
    state: Vec<String>,
    #[command(flatten)]
    limit: Limit,
}

const LIST: &[Column] = &[
    Column::text("TASK", "taskId"),
    Column::text("STATE", "state"),
    Column::text("POOL", "taskQueueId"),
    Column::text("PRIORITY", "priority"),
    Column::age("SINCE", "since"),
    Column::age("CREATED", "created"),
    Column::text("WORKER", "workerId"),
    Column::prose("NAME", "name"),
];

/// Tasks that ended: their definitions are not read.
const ENDED: [&str; 3] = ["completed", "failed", "exception"];

pub(super) async fn list(arguments: ListArguments, session: &Session) -> Result<(), Failure> {
    let wanted = Wanted {
        states: arguments.state,
        most: arguments.limit.limit.unwrap_or(usize::MAX),
    };
    if wanted.has("unscheduled") && arguments.task_group.is_none() {
        return Err(Failure::usage(
            "tasks that wait for other tasks are listed by group only: use --task-group",
        ));
    }
    let rows = match (arguments.pool, arguments.task_group) {
        (_, Some(group)) => of_group(&group, &wanted, session).await?,
        (Some(pool), None) => of_pool(&pool, &wanted, session).await?,
        (None, None) => of_all(&wanted, session).await?,
    };
    session.rows(&json!({ "tasks": rows }), "tasks", LIST);
    Ok(())
}

struct Wanted {
    /// Empty: the usual ones.
    states: Vec<String>,
    most: usize,
}

impl Wanted {
    fn has(&self, state: &str) -> bool {
        let usual = ["pending", "running"];
        match self.states.is_empty() {
            true => usual.contains(&state),
            false => self.states.iter().any(|wanted| wanted == state),
        }
    }

    fn has_ended_ones(&self) -> bool {
        ENDED.iter().any(|state| self.has(state))
    }
}

/// Running tasks first, then pending ones, then ended ones.
async fn of_pool(pool: &str, wanted: &Wanted, session: &Session) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    for (place, state, since) in [
        ("claimed", "running", "claimed"),
        ("pending", "pending", "inserted"),
    ] {
        let left = wanted.most.saturating_sub(rows.len());
        if left == 0 || !wanted.has(state) {
            continue;
        }
        let call = Call::get(QUEUE, &["task-queues", pool, place])
            .to(format!("list the {state} tasks of pool {pool}"))
            .list_command("fleetwright pool list");
        let document = session.client.pages(&call, "tasks", limit(left)).await?;
        let tasks = document["tasks"].as_array().into_iter().flatten();
        rows.extend(tasks.map(|item| summary(item, &item["task"], &json!(state), &item[since])));
    }
    if wanted.has_ended_ones() && rows.len() < wanted.most {
        rows.extend(ended(pool, wanted, session).await?);
    }
    for row in &mut rows {
        row["taskQueueId"] = json!(pool);
    }
    rows.truncate(wanted.most);
    Ok(rows)
}

fn limit(most: usize) -> Option<usize> {
    (most < usize::MAX).then_some(most)
}

/// The last runs of a pool that ended, as far as they are kept. Each task once, as it ended last.
async fn ended(pool: &str, wanted: &Wanted, session: &Session) -> Result<Vec<Value>, Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-state", "pool", pool])
        .to(format!("list the task runs of pool {pool}"))
        .list_command("fleetwright pool list");
    let document = match session.client.pages(&call, "taskRuns", None).await {
        // A queue without a pool.
        Err(failure) if failure.exit == Exit::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    Ok(ended_rows(&document, wanted))
}

fn ended_rows(document: &Value, wanted: &Wanted) -> Vec<Value> {
    let mut rows: Vec<Value> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for run in document["taskRuns"].as_array().into_iter().flatten() {
        let task = run["taskId"].as_str().unwrap_or_default();
        let outcome = run["outcome"].as_str().unwrap_or_default();
        // The newest come first.
        if known.insert(task.to_owned()) && wanted.has(outcome) {
            rows.push(json!({
                "taskId": task,
                "state": outcome,
                "since": run["resolved"],
                "workerId": run["workerId"],
            }));
        }
    }
    rows
}

/// The tasks of all queues that have some.
async fn of_all(wanted: &Wanted, session: &Session) -> Result<Vec<Value>, Failure> {
    let call = Call::get(QUEUE, &["task-queues"]).to("list task queues");
    let document = session.client.pages(&call, "taskQueues", None).await?;
    let queues = document["taskQueues"].as_array().into_iter().flatten();
    let queues = queues.filter_map(|queue| queue["taskQueueId"].as_str());
    let mut queues: Vec<String> = queues.map(str::to_owned).collect();
    if !wanted.has_ended_ones() {
        queues = with_tasks(queues, session).await?;
    }
    let mut progress = Progress::start();
    let mut rows = Vec::new();
    for (position, some) in queues.chunks(PARALLEL).enumerate() {
        if rows.len() >= wanted.most {
            break;
        }
        let n_read = position * PARALLEL;
        progress.report(|| format!("list tasks: {n_read} of {} queues", queues.len()));
        let read = join_all(some.iter().map(|queue| of_pool(queue, wanted, session))).await;
        for of_queue in read {
            rows.extend(of_queue?);
        }
    }
    rows.truncate(wanted.most);
    Ok(rows)
}

/// The queues in which tasks wait or run.
async fn with_tasks(queues: Vec<String>, session: &Session) -> Result<Vec<String>, Failure> {
    let ask = async |ids: &[String]| {
        let body = json!({ "taskQueueIds": ids });
        let call = Call::post(QUEUE, &["task-queues", "counts"], body);
        let call = call.to("count the tasks of queues");
        session.client.call(&call).await
    };
    counted(&queues, ask).await
}

async fn counted(
    queues: &[String],
    mut ask: impl AsyncFnMut(&[String]) -> Result<Value, Failure>,
) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for batch in queues.chunks(BATCH) {
        let reply = ask(batch).await?;
        let counts = reply["taskQueueCounts"].as_array().into_iter().flatten();
        let busy = counts.filter(|one| {
            let count = |key: &str| one[key].as_u64().unwrap_or(0);
            count("pendingTasks") + count("claimedTasks") > 0
        });
        found.extend(busy.filter_map(|one| Some(one["taskQueueId"].as_str()?.to_owned())));
    }
    Ok(found)
}

async fn of_group(group: &str, wanted: &Wanted, session: &Session) -> Result<Vec<Value>, Failure> {
    let call = Call::get(QUEUE, &["task-group", group, "list"])
        .to(format!("list the tasks of group {group}"))
        .list_command(name::TASK_LIST);
    // States are chosen here, so a limit of the call would count other tasks.
    let most = if wanted.states.is_empty() {
        limit(wanted.most)
    } else {
        None
    };
    let document = session.client.pages(&call, "tasks", most).await?;
    let tasks = document["tasks"].as_array().into_iter().flatten();
    let rows = tasks.filter_map(|item| {
        let status = &item["status"];
        let state = status["state"].as_str().unwrap_or_default();
        let is_wanted = wanted.states.is_empty() || wanted.has(state);
        is_wanted.then(|| row_of_group(item))
    });
    Ok(rows.take(wanted.most).collect())
}

fn row_of_group(item: &Value) -> Value {
    let status = &item["status"];
    let last = status["runs"].as_array().and_then(|runs| runs.last());
    let moment = last.and_then(|run| {
        let moments = ["resolved", "started", "scheduled"];
        moments.iter().find_map(|key| run.get(key))
    });
    let since = moment.unwrap_or(&item["task"]["created"]);
    let mut row = summary(status, &item["task"], &status["state"], since);
    row["taskQueueId"] = status["taskQueueId"].clone();
    row["workerId"] = last.map_or(Value::Null, |run| run["workerId"].clone());
    row
}

/// The row of a task, from each list.
fn summary(item: &Value, task: &Value, state: &Value, since: &Value) -> Value {
    json!({
        "taskId": item["taskId"],
        "state": state,
        "priority": task["priority"],
        "since": since,
        "created": task["created"],
        "workerId": item["workerId"],
        "name": task["metadata"]["name"],
    })
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn wanted(states: &[&str]) -> Wanted {
        Wanted {
            states: states.iter().map(|&state| state.to_owned()).collect(),
            most: usize::MAX,
        }
    }

    #[test]
    fn pending_and_running_tasks_are_the_usual_ones() {
        let usual = wanted(&[]);
        assert!(usual.has("pending") && usual.has("running") && !usual.has_ended_ones());
        let failed = wanted(&["failed"]);
        assert!(!failed.has("pending") && failed.has_ended_ones());
    }

    #[test]
    fn a_task_that_was_retried_is_listed_as_it_ended_last() {
        let run = |task: &str, outcome: &str, at: &str| json!({"taskId": task, "outcome": outcome, "resolved": at, "workerId": "w"});
        let document = json!({"taskRuns": [run("a", "completed", "3"), run("b", "failed", "2"),
            run("a", "exception", "1")]});
        let rows = ended_rows(&document, &wanted(&["exception", "failed"]));
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(
            (&rows[0]["taskId"], &rows[0]["since"]),
            (&json!("b"), &json!("2"))
        );
    }

    #[tokio::test]
    async fn queues_with_tasks_are_found_batch_by_batch() {
        for n_queues in sizes_around("fleetwright::commands::task::lists::BATCH", BATCH) {
            let queues: Vec<String> = (0..n_queues).map(|number| format!("a/q{number}")).collect();
            let mut asked = Vec::new();
            let ask = async |ids: &[String]| {
                asked.push(ids.len());
                let counts = ids.iter().enumerate().map(|(number, id)| {
                    let busy = usize::from(number % 2 == 0);
                    json!({"taskQueueId": id, "pendingTasks": busy, "claimedTasks": 0})
                });
                Ok(json!({"taskQueueCounts": counts.collect::<Vec<_>>()}))
            };
            let found = counted(&queues, ask).await.unwrap();
            assert_eq!(asked.len(), n_queues.div_ceil(BATCH));
            assert_eq!(found.len(), n_queues.div_ceil(2));
        }
    }
}
