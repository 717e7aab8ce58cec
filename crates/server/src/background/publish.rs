//! Numbers events in the stream, and publishes them to the listeners here.

mod broker;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use domain::id::{PoolId, ProviderId};
use serde_json::Value;
use store::StoreError;
use store::outbox::OutboxRow;

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask};
use crate::app::App;
use crate::config::Role;

pub use broker::{BrokerPublisher, READER, leave_readers};

const BATCH: u32 = 500;
const MAX_BATCHES: usize = 50;

/// Every process runs this task, since each has listeners of its own. It also publishes events that
/// another process positioned. Only the process that positions an event logs it, so each event is
/// logged once.
pub struct EventPublisher(pub Arc<App>);

#[async_trait]
impl BackgroundTask for EventPublisher {
    fn name(&self) -> String {
        "publish".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.in_batches(Batches::new(BATCH, MAX_BATCHES)).await
    }
}

impl EventPublisher {
    /// An activation with other limits.
    pub async fn in_batches(&self, batches: Batches) -> ActivationResult {
        for _ in 0..batches.most {
            if self.batch(batches.size).await? {
                break;
            }
        }
        Ok(Value::Null)
    }

    /// Returns whether the stream's end was reached.
    async fn batch(&self, size: u32) -> Result<bool, StoreError> {
        let app = &self.0;
        let head = app.events.head();
        let read = app.engine.store.read("event_look", move |tx| {
            let placed = store::events::list_after(tx, head, size)?;
            Ok::<_, StoreError>((placed, store::events::is_waiting(tx)?))
        });
        let (placed, is_waiting) = read.await?;
        self.publish_here(&placed.items);
        if !is_waiting {
            return Ok(!placed.may_have_more(size));
        }
        let placing = app.engine.store.write_shared("event_place", move |tx| {
            store::events::assign_positions(tx, size)
        });
        let placed = match placing.await {
            // Another process is assigning positions; its events can be read then.
            Err(StoreError::TooManyConflicts { .. }) => return Ok(false),
            placed => placed?,
        };
        placed.items.iter().for_each(log);
        // Events that other processes positioned meanwhile come first: the next batch reads all of
        // them.
        let first = placed.items.first().map(|row| row.position);
        let follows = first == Some(app.events.head() + 1);
        if follows {
            self.publish_here(&placed.items);
        }
        Ok(follows && !placed.may_have_more(size))
    }

    /// Wakes the tasks of this process that depend on these events, whichever process announced
    /// them.
    fn publish_here(&self, placed: &[OutboxRow]) {
        let engine = &self.0.engine;
        self.0.events.publish(placed);
        engine.queue.dispatcher.wake_for_events(engine, placed);
        engine.launch_answers.wake_for_events(placed);
        wake_planner(&self.0, placed);
        wake_endings(&self.0, placed);
    }
}

/// Events that may change how many workers a pool needs.
const CHANGES_NEED: [&str; 11] = [
    "task-pending",
    "worker-running",
    "worker-removed",
    "worker-stopped",
    "worker-pool-created",
    "worker-pool-updated",
    "launch-config-created",
    "launch-config-updated",
    "launch-config-archived",
    "launch-config-paused",
    "launch-config-resumed",
];
/// Events after which machines must be ended.
const CHANGES_ENDINGS: &str = "worker-removed";

fn wake_planner(app: &App, placed: &[OutboxRow]) {
    if !app.config.roles.include(Role::Provisioner) {
        return;
    }
    let is_concerned = |row: &&OutboxRow| CHANGES_NEED.contains(&exchange(row));
    let concerned = placed.iter().filter(is_concerned);
    let pools: BTreeSet<&PoolId> = concerned.filter_map(|row| row.pool_id.as_ref()).collect();
    for pool in pools {
        app.engine.wakeups.wake_pool(pool);
    }
}

fn wake_endings(app: &App, placed: &[OutboxRow]) {
    if !app.config.roles.include(Role::Scanner) {
        return;
    }
    let removed = placed.iter().filter(|row| exchange(row) == CHANGES_ENDINGS);
    let ids = removed.filter_map(|row| row.payload.get("providerId")?.as_str()?.parse().ok());
    let providers: BTreeSet<ProviderId> = ids.collect();
    for provider in providers {
        if app.engine.providers.get(&provider).is_ok() {
            app.engine.wakeups.ending(&provider).notify_one();
        }
    }
}

/// The last part of its topic.
fn exchange(row: &OutboxRow) -> &str {
    row.topic.rsplit('/').next().unwrap_or(&row.topic)
}

fn log(row: &OutboxRow) {
    let (name, pool) = (exchange(row), row.pool_id.as_ref());
    let about = pool.map_or_else(String::new, |pool| format!(" in {pool}"));
    // Large, and many for each task: too much for the usual log. Background tasks log summaries at
    // `info`.
    tracing::debug!(event.id = %row.event_id, event.topic = %row.topic, event.key = %row.routing_key,
        event.payload = %row.payload, "{name}{about}");
}
