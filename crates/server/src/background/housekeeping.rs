//! Deletes expired rows.
//!
//! Expired workers and clients, old errors, events, audit entries and versions, providers that
//! pools no longer use, deleted pools, what is left of them, and unused launch configs.

use std::sync::Arc;

use async_trait::async_trait;
use domain::audit::{AuditEntry, EntityType};
use domain::event::{AccessChange, EventBody};
use domain::id::{ClientId, PoolId, ProviderId};
use domain::judge::{EXPIRY_MARGIN_MS, EXTENDED_LIFE_MS};
use domain::pool::Pool;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use domain::waits::WaitCause;
use engine::change::Change;
use engine::fleet::{WAIT_READER, settle_old_launches};
use engine::measures::Stopwatch;
use serde_json::Value;
use store::events::Expired;
use store::{Store, StoreError, Tx};
use store::{
    cache_purges, launch_configs, launches, offering_memories, offering_news, overrides, plans,
};
use store::{pool_news, queue_workers, shadow_plans, worker_errors, workers};

use super::batches::Batches;
use super::deletions::{DeletionPace, DeletionTally, Deletions};
use super::driver::{ActivationResult, BackgroundTask};
use super::forget_recorded::forget_recorded;
use super::forget_replaced::forget_replaced;
use super::outcomes::{READER as OUTCOME_READER, forget as forget_outcomes, forget_run_counts};
use super::publish::READER as BROKER_READER;
use crate::app::App;

/// Maximum number of rows that one statement deletes, so that other transactions do not wait long:
/// on SQLite, it takes about a millisecond, and a launch may wait for it several times.
const BATCH: u32 = 25;
/// Maximum number of batches of one kind per activation; the next one continues.
const MAX_BATCHES: usize = 4_000;
/// Memory of an offering without news for this long is of no use.
const MEMORIES_KEPT_DAYS: u32 = 30;
/// News that were not added to a memory for this long are deleted.
const NEWS_KEPT_DAYS: u32 = 1;
/// How long ended overrides are shown.
const OVERRIDES_KEPT_DAYS: u32 = 30;

pub struct Housekeeping {
    app: Arc<App>,
    pace: DeletionPace,
}

#[async_trait]
impl BackgroundTask for Housekeeping {
    fn name(&self) -> String {
        "housekeeping".to_owned()
    }

    fn drops_at_stop(&self) -> bool {
        true
    }

    async fn activate(&mut self) -> ActivationResult {
        if self.app.engine.is_settling() {
            return Ok(Value::Null);
        }
        let watch = Stopwatch::start();
        let batches = Batches::new(BATCH, MAX_BATCHES);
        let deleted = self.delete(self.pace.deletions(batches)).await;
        self.pace.note(&watch);
        deleted
    }
}

impl Housekeeping {
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            pace: DeletionPace::default(),
        }
    }

    /// An activation with other limits, which apply to each kind of row, and hardly a pause.
    pub async fn in_batches(&self, batches: Batches) -> ActivationResult {
        self.delete(Deletions::hasty(batches)).await
    }

    /// Each kind by itself.
    async fn delete(&self, deletions: Deletions) -> ActivationResult {
        let now = self.app.engine.clock.now();
        let mut tally = DeletionTally::default();
        self.forget_workers_and_pools(now, deletions, &mut tally)
            .await;
        self.forget_history(now, deletions, &mut tally).await;
        self.forget_decisions(now, deletions, &mut tally).await;
        forget_recorded(&self.app, now, deletions, &mut tally).await;
        forget_replaced(&self.app, now, deletions, &mut tally).await;
        tally.result()
    }

    async fn forget_workers_and_pools(
        &self,
        now: Timestamp,
        deletions: Deletions,
        tally: &mut DeletionTally,
    ) {
        let (app, store) = (&self.app, &self.app.engine.store);
        let forget = |name, delete| deletions.delete(store, name, now, delete);
        let used = self.note_uses(now).await;
        tally.add("client_uses", used.map(|()| 0));
        let kept = forget("worker_keep", |tx, now, size| {
            let until = now.plus_millis(EXTENDED_LIFE_MS);
            workers::keep_declared(tx, until, now.plus_millis(EXPIRY_MARGIN_MS), size)
        });
        tally.add("workers_kept", kept.await);
        tally.add(
            "workers",
            forget("worker_expire", workers::delete_expired).await,
        );
        let seen = forget("queue_worker_expire", queue_workers::delete_expired);
        tally.add("queue_workers", seen.await);
        let settled = settle_old_launches(&app.engine).await;
        tally.add("launches_settled", settled);
        let left = self.leave_providers(deletions.size()).await;
        tally.add("providers_left", left);
        tally.add("pools", forget("pool_expire", expire_pools).await);
        let configs = delete_launch_configs(store, deletions).await;
        tally.add("launch_configs", configs);
        let documentation = forget("documentation_expire", |tx, _, size| {
            store::documentation::delete_orphans(tx, size)
        });
        tally.add("documentation", documentation.await);
        let purges = forget("cache_purge_expire", cache_purges::delete_expired);
        tally.add("cache_purges", purges.await);
        tally.add("clients", self.expire_clients(now, deletions).await);
    }

    /// Errors, events, the audit log and outcomes.
    async fn forget_history(
        &self,
        now: Timestamp,
        deletions: Deletions,
        tally: &mut DeletionTally,
    ) {
        let (app, store) = (&self.app, &self.app.engine.store);
        let settings = &app.config.worker_manager;
        let days_ago = |days: u32| now.plus_millis(-i64::from(days) * DAY_MS);
        let forget = |name, before, delete| deletions.delete(store, name, before, delete);
        let old = days_ago(settings.error_retention_days);
        let errors = forget("error_expire", old, worker_errors::delete_older_than);
        tally.add("errors", errors.await);
        tally.add("events", self.expire_events(now, deletions).await);
        let old = days_ago(settings.audit_retention_days);
        let audit = forget("audit_expire", old, store::audit::delete_before);
        tally.add("audit", audit.await);
        tally.add("outcomes", forget_outcomes(app, now, deletions).await);
        let counts = forget_run_counts(app, now, deletions).await;
        tally.add("run_counts", counts);
    }

    /// Launches, plans, overrides, and what the market remembers.
    async fn forget_decisions(
        &self,
        now: Timestamp,
        deletions: Deletions,
        tally: &mut DeletionTally,
    ) {
        let store = &self.app.engine.store;
        let days_ago = |days: u32| now.plus_millis(-i64::from(days) * DAY_MS);
        let forget = |name, before, delete| deletions.delete(store, name, before, delete);
        let old = days_ago(self.app.config.fleet.history_days);
        let launches = forget("launch_expire", old, launches::delete_before);
        tally.add("launches", launches.await);
        tally.add(
            "plans",
            forget("plan_expire", old, plans::delete_before).await,
        );
        let shadows = forget("shadow_plan_expire", old, shadow_plans::delete_before);
        tally.add("plans", shadows.await);
        let old = days_ago(OVERRIDES_KEPT_DAYS);
        let ended = forget("override_expire", old, overrides::delete_ended_before);
        tally.add("overrides", ended.await);
        let old = days_ago(MEMORIES_KEPT_DAYS);
        let memories = forget(
            "offering_memory_expire",
            old,
            offering_memories::delete_before,
        );
        tally.add("memories", memories.await);
        let old = days_ago(NEWS_KEPT_DAYS);
        let news = forget("offering_news_expire", old, offering_news::delete_before);
        tally.add("news", news.await);
        let orphans = forget("pool_news_expire", now, |tx, _, size| {
            pool_news::delete_orphans(tx, size)
        });
        tally.add("news", orphans.await);
    }

    /// Old events that no reader still needs.
    async fn expire_events(&self, now: Timestamp, deletions: Deletions) -> Result<u64, StoreError> {
        let app = &self.app;
        let hours = app.config.worker_manager.event_retention_hours;
        let old_events = now.plus_millis(-i64::from(hours) * HOUR_MS);
        let has_broker = app.events.broker.is_some();
        let has_queue = !app.engine.demand_source.is_outside();
        let expire = |after: i64| {
            app.engine.store.write("outbox_expire", move |tx| {
                let by_broker = needed_by(tx, BROKER_READER, has_broker, old_events)?;
                let by_outcomes = needed_by(tx, OUTCOME_READER, has_queue, old_events)?;
                let by_waits = needed_by(tx, WAIT_READER, has_queue, old_events)?;
                let expired = Expired {
                    before: old_events,
                    ahead: now.plus_millis(MINUTE_MS),
                    up_to: by_broker.min(by_outcomes).min(by_waits),
                    after,
                };
                store::events::delete_expired(tx, expired, deletions.size())
            })
        };
        deletions.delete_from(0, expire).await
    }

    async fn expire_clients(
        &self,
        now: Timestamp,
        deletions: Deletions,
    ) -> Result<u64, StoreError> {
        let (size, actor) = (deletions.size(), self.app.engine.issuer.client_id.clone());
        let expire = move |change: &mut Change<'_, '_>| {
            let expired = store::clients::delete_expired(change.tx, now, size)?;
            let n_expired = expired.len() as u64;
            for client_id in &expired {
                let entry = expiry(client_id, &actor, now);
                store::audit::insert(change.tx, &entry)?;
            }
            let events = expired.into_iter().map(|client_id| EventBody::Client {
                change: AccessChange::Deleted,
                client_id,
            });
            change.announce(events)?;
            Ok::<_, StoreError>(n_expired)
        };
        let expired = deletions.repeat(|| {
            self.app
                .engine
                .change_alone("client_expire", now, expire.clone())
        });
        let n_expired = expired.await?;
        if n_expired > 0 {
            self.app.authenticator.forget();
        }
        Ok(n_expired)
    }

    /// Removes former providers from a pool once none of its workers belongs to them.
    async fn leave_providers(&self, size: u32) -> Result<u64, StoreError> {
        let mut after: Option<PoolId> = None;
        let mut total = 0;
        // Pools that cannot be changed stay in the list, so all pages are read. Each page begins
        // after the last pool of the one before, so this ends.
        loop {
            let start = after.take();
            let page = self.app.engine.store.write("provider_leave", move |tx| {
                let leaving = store::pools::list_leaving(tx, start.as_ref(), size)?;
                let n_left = leaving.iter().map(|pool| leave(tx, pool));
                let n_left = n_left.sum::<Result<u64, StoreError>>()?;
                let full = leaving.len() == size as usize;
                let last = leaving.into_iter().next_back().map(|pool| pool.id);
                Ok::<_, StoreError>((n_left, last.filter(|_| full)))
            });
            let (n_left, last) = page.await?;
            total += n_left;
            if last.is_none() {
                return Ok(total);
            }
            after = last;
        }
    }

    /// Stores when clients were last used, to the precision of this task's period.
    async fn note_uses(&self, now: Timestamp) -> Result<(), StoreError> {
        let used = self.app.authenticator.take_used();
        let used: Vec<ClientId> = used.iter().filter_map(|id| id.parse().ok()).collect();
        if used.is_empty() {
            return Ok(());
        }
        let touch = move |tx: &mut Tx<'_>| store::clients::touch(tx, &used, now);
        self.app.engine.store.write("client_touch", touch).await
    }
}

/// The audit entry of a client that was deleted because it had expired.
fn expiry(client_id: &ClientId, deleted_by: &str, now: Timestamp) -> AuditEntry {
    AuditEntry {
        entity_type: EntityType::Client,
        entity_id: client_id.to_string(),
        action: "expired".to_owned(),
        client_id: deleted_by.to_owned(),
        created: now,
        source_ip: None,
        request_id: None,
        detail: Value::Null,
    }
}

/// The position after which events are still needed by a reader: ours or another process's.
fn needed_by(
    tx: &mut Tx<'_>,
    reader: &str,
    is_ours: bool,
    dead: Timestamp,
) -> Result<i64, StoreError> {
    let reader = store::event_readers::get(tx, reader)?;
    let alive = reader.filter(|reader| is_ours || reader.held_until > dead);
    Ok(alive.map_or(i64::MAX, |reader| reader.position))
}

fn leave(tx: &mut Tx<'_>, pool: &Pool) -> Result<u64, StoreError> {
    let live = workers::live_providers(tx, &pool.id)?;
    let to_come = launches::pending_providers(tx, &pool.id)?;
    let mut staying = pool.clone();
    let stays = |id: &ProviderId| live.contains(id) || to_come.contains(id);
    staying.previous_provider_ids.retain(stays);
    let n_left = pool.previous_provider_ids.len() - staying.previous_provider_ids.len();
    if n_left > 0 {
        store::pools::update(tx, &staying)?;
    }
    Ok(n_left as u64)
}

/// Deletes a pool that was marked for deletion once no provider has workers in it. Its launch
/// configs are archived and are deleted once no worker's row names them.
fn expire_pools(tx: &mut Tx<'_>, now: Timestamp, size: u32) -> Result<u64, StoreError> {
    let expired = store::pools::list_expirable(tx, size)?;
    for pool in &expired {
        for config in launch_configs::active_between(tx, &pool.id, &pool.id)? {
            launch_configs::archive(tx, &config, now)?;
        }
        store::pools::delete(tx, &pool.id)?;
    }
    let ended = expired.iter();
    let ended: Vec<_> = ended
        .map(|pool| (pool.id.clone(), WaitCause::UnknownQueue))
        .collect();
    store::pool_waits::note(tx, &ended, now)?;
    Ok(expired.len() as u64)
}

async fn delete_launch_configs(store: &Store, deletions: Deletions) -> Result<u64, StoreError> {
    let names = ["launch_config_look", "launch_config_expire"];
    let (list, delete) = (
        launch_configs::list_expirable,
        launch_configs::delete_expirable,
    );
    deletions.delete_found(store, names, list, delete).await
}
