//! Listens to an outside queue's broker, to look at a pool as soon as a task waits for it.

use std::sync::Arc;

use async_trait::async_trait;
use backplane::{Binding, Broker, BrokerError, Listener};
use domain::id::PoolId;
use rand::RngExt;
use serde::Deserialize;
use serde_json::Value;

use super::backoff::Backoff;
use super::driver::Task;
use crate::app::App;

const PENDING: &str = "exchange/taskcluster-queue/v1/task-pending";

/// Keeps one listener alive. What it hears only makes us look sooner: the demand itself is read.
pub struct Hints {
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

impl Hints {
    pub fn new(app: Arc<App>, broker: Broker) -> Self {
        Self {
            app,
            broker,
            listener: None,
            backoff: Backoff::default(),
        }
    }

    async fn listen(&self) -> Result<Listener, BrokerError> {
        let queue = format!(
            "queue/{}/fleetwright-hints-{}",
            self.broker.user()?,
            self.app.events.process
        );
        let bindings = [Binding {
            exchange: PENDING.to_owned(),
            pattern: "primary.#".to_owned(),
        }];
        let app = Arc::clone(&self.app);
        Listener::start(&self.broker, &queue, &bindings, move |body| {
            if let Some(pool) = pool_of(body) {
                app.engine.wake.pool(&pool);
            }
        })
        .await
    }
}

#[async_trait]
impl Task for Hints {
    const NAME: &'static str = "hints";

    async fn activate(&mut self) -> Result<Value, String> {
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
                        "the queue's broker is back; it could not be heard since {since}"
                    );
                }
            }
            Err(problem) => {
                let chance = self.app.engine.random.with(|random| random.random());
                if self.backoff.failed(now, chance) {
                    tracing::warn!(error = %problem,
                        "tasks are noticed later, because the queue's broker cannot be heard: {problem}");
                }
            }
        }
        Ok(Value::Null)
    }
}

/// The pool to look at; what makes no sense is a hint at nothing.
fn pool_of(body: &[u8]) -> Option<PoolId> {
    let message: Message = serde_json::from_slice(body).ok()?;
    message.status.task_queue_id.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_hints_at_its_task_queue() {
        let body =
            br#"{"version": 1, "runId": 0, "status": {"taskQueueId": "a/b", "state": "pending"}}"#;
        assert_eq!(pool_of(body), Some("a/b".parse().unwrap()));
        for nonsense in ["", "[]", "{}", r#"{"status": {"taskQueueId": "no queue"}}"#] {
            assert_eq!(pool_of(nonsense.as_bytes()), None, "{nonsense}");
        }
    }
}
