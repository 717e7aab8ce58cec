//! Task queues: how much waits and how much runs.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Limit, Session};
use crate::client::{Call, QUEUE};
use crate::failure::Failure;
use crate::output::Column;

/// Queues that are counted in one call.
const BATCH: usize = 1_000;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List task queues, with how many tasks wait and run in each
    ///
    /// Those that had tasks or workers lately. A task queue has the name of its worker pool.
    List {
        #[command(flatten)]
        limit: Limit,
    },
}

const LIST: &[Column] = &[
    Column::text("TASK QUEUE", "taskQueueId"),
    Column::number("PENDING", "pendingTasks"),
    Column::number("RUNNING", "claimedTasks"),
    Column::age("LAST ACTIVE", "lastDateActive"),
    Column::prose("DESCRIPTION", "description"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    let Verb::List { limit } = verb;
    let call = Call::get(QUEUE, &["task-queues"]).to("list task queues");
    let mut document = session
        .client
        .pages(&call, "taskQueues", limit.limit)
        .await?;
    if let Some(queues) = document["taskQueues"].as_array_mut() {
        for batch in queues.chunks_mut(BATCH) {
            count(batch, session).await?;
        }
    }
    session.rows(&document, "taskQueues", LIST);
    Ok(())
}

/// Adds the counts to these queues.
async fn count(queues: &mut [Value], session: &Session) -> Result<(), Failure> {
    let ids: Vec<Value> = queues
        .iter()
        .map(|queue| queue["taskQueueId"].clone())
        .collect();
    let body = json!({ "taskQueueIds": ids });
    let call = Call::post(QUEUE, &["task-queues", "counts"], body).to("count the tasks of queues");
    let reply = session.client.call(&call).await?;
    let counts = reply["taskQueueCounts"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    for queue in queues {
        let found = counts
            .iter()
            .find(|one| one["taskQueueId"] == queue["taskQueueId"]);
        for key in ["pendingTasks", "claimedTasks"] {
            queue[key] = found.map_or(Value::Null, |one| one[key].clone());
        }
    }
    Ok(())
}
