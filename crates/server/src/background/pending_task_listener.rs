//! Listens to an outside queue's broker and wakes a pool as soon as a task is pending.

use std::sync::Arc;

use async_trait::async_trait;
use backplane::{Binding, Broker, BrokerError, Listener};
use domain::id::PoolId;
use serde::Deserialize;
use serde_json::Value;

use super::backoff::Backoff;
use super::driver::{ActivationResult, BackgroundTask};
use crate::app::App;

const PENDING: &str = "exchange/taskcluster-queue/v1/task-pending";

/// Keeps one listener connected. A message only wakes the pool earlier; the demand itself is read
/// from the queue.
pub struct PendingTaskListener {
    app: Arc<App>,
    broker: Broker,
    listener: Option<Listener>,
    backoff: Backoff,
}

#[derive(Deserialize)]
struct Message {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    task_queue_id: String,
}

impl PendingTaskListener {
    pub fn new(app: Arc<App>, broker: Broker) -> Self {
        Self {
            app,
            broker,
            listener: None,
            backoff: Backoff::default(),
        }
    }

    async fn listen(&self) -> Result<Listener, BrokerError> {
        let (user, process) = (self.broker.user()?, &self.app.events.process);
        let queue = format!("queue/{user}/fleetwright-hints-{process}");
        let bindings = [Binding {
            exchange: PENDING.to_owned(),
            pattern: "primary.#".to_owned(),
        }];
        let app = Arc::clone(&self.app);
        Listener::start(&self.broker, &queue, &bindings, move |body| {
            if let Some(pool) = pool_of(body) {
                app.engine.wakeups.wake_pool(&pool);
            }
        })
        .await
    }
}

#[async_trait]
impl BackgroundTask for PendingTaskListener {
    fn name(&self) -> String {
        "hints".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let now = self.app.engine.clock.now();
        let listens = self.listener.as_ref().is_some_and(|it| !it.has_ended());
        if listens || self.backoff.must_wait(now) {
            return Ok(Value::Null);
        }
        self.listener = None;
        match self.listen().await {
            Ok(listener) => {
                self.listener = Some(listener);
                if let Some(since) = self.backoff.succeeded() {
                    tracing::info!(
                        "the queue's broker is reachable again, after a failure since {since}"
                    );
                }
            }
            Err(problem) => {
                if self.backoff.failed(now, &self.app.engine.random) {
                    tracing::warn!(error = %problem,
                        "cannot listen to the queue's broker, pending tasks are noticed later: \
                         {problem}");
                }
            }
        }
        Ok(Value::Null)
    }
}

/// The pool to wake; `None` for an invalid message.
fn pool_of(body: &[u8]) -> Option<PoolId> {
    let message: Message = serde_json::from_slice(body).ok()?;
    message.status.task_queue_id.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_wakes_the_pool_of_its_task_queue() {
        let body =
            br#"{"version": 1, "runId": 0, "status": {"taskQueueId": "a/b", "state": "pending"}}"#;
        assert_eq!(pool_of(body), Some("a/b".parse().unwrap()));
        for nonsense in ["", "[]", "{}", r#"{"status": {"taskQueueId": "no queue"}}"#] {
            assert_eq!(pool_of(nonsense.as_bytes()), None, "{nonsense}");
        }
    }
}
