//! Task queues with their numbers of pending and running tasks.

use std::collections::HashMap;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Limit, Session};
use crate::client::{Call, QUEUE};
use crate::failure::Failure;
use crate::output::Column;

/// Maximum number of queues to count in one call.
const BATCH: usize = 1_000;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List task queues with their numbers of pending and running tasks
    ///
    /// Lists queues that recently had tasks or workers. A task queue has the id of its pool.
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
        let ask = async |ids| {
            let body = json!({ "taskQueueIds": ids });
            let call = Call::post(QUEUE, &["task-queues", "counts"], body);
            let call = call.to("count the tasks of queues");
            session.client.call(&call).await
        };
        count(queues, ask).await?;
    }
    session.rows(&document, "taskQueues", LIST);
    Ok(())
}

/// Adds the counts to the queues; `ask` reads the counts of a batch of queue ids.
async fn count(
    queues: &mut [Value],
    mut ask: impl AsyncFnMut(Vec<Value>) -> Result<Value, Failure>,
) -> Result<(), Failure> {
    for batch in queues.chunks_mut(BATCH) {
        let ids = batch.iter().map(|queue| queue["taskQueueId"].clone());
        let reply = ask(ids.collect()).await?;
        let counts = reply["taskQueueCounts"].as_array().into_iter().flatten();
        let by_id = counts.map(|one| (one["taskQueueId"].as_str(), one));
        let by_id: HashMap<_, _> = by_id.collect();
        for queue in batch {
            let found = by_id.get(&queue["taskQueueId"].as_str()).copied();
            for key in ["pendingTasks", "claimedTasks"] {
                queue[key] = found.map_or(Value::Null, |one| one[key].clone());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[tokio::test]
    async fn queues_are_counted_batch_by_batch_and_none_is_left_out() {
        for n_queues in sizes_around("fleetwright::commands::queue::BATCH", BATCH) {
            let queue = |number: usize| json!({"taskQueueId": format!("a/q{number}")});
            let mut queues: Vec<Value> = (0..n_queues).map(queue).collect();
            let mut asked = Vec::new();
            // In another order than they were asked for, and the very last one is not known.
            let ask = async |ids: Vec<Value>| {
                asked.push(ids.len());
                let known = ids.iter().rev().filter(|id| **id != "a/q9999");
                let counts = known.map(|id| {
                    let number: usize = id.as_str().unwrap()[3..].parse().unwrap();
                    json!({"taskQueueId": id, "pendingTasks": number, "claimedTasks": 2 * number})
                });
                Ok(json!({"taskQueueCounts": counts.collect::<Vec<_>>()}))
            };
            count(&mut queues, ask).await.unwrap();
            assert_eq!(asked.len(), n_queues.div_ceil(BATCH));
            assert_eq!(asked.iter().sum::<usize>(), n_queues);
            assert!(asked.iter().all(|n_ids| (1..=BATCH).contains(n_ids)));
            for (number, queue) in queues.iter().enumerate() {
                let count = |count: usize| match number {
                    9_999 => Value::Null,
                    _ => json!(count),
                };
                assert_eq!(queue["pendingTasks"], count(number));
                assert_eq!(queue["claimedTasks"], count(2 * number));
            }
        }
    }
}
