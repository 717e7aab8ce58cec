//! Counts the rows of the store for the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::counts::Counts;
use domain::id::PoolId;
use domain::time::Timestamp;
use engine::measures::seconds;
use metrics::gauge;
use serde_json::Value;
use store::worker_counts::PoolAndProvider;
use store::{StoreError, Tx};

use super::driver::{ActivationResult, BackgroundTask};
use super::publish::READER as BROKER_READER;
use crate::app::App;
use crate::telemetry::{
    BROKER_LAG, BROKER_WAITING, EVENT_LISTENERS, EXISTING_CAPACITY, OUTBOX_DEPTH, POOLS,
    PROVIDER_UP, REQUESTED_CAPACITY, STOPPING_CAPACITY, WORKERS,
};

const PAGE: u32 = 500;
const MAX_PAGES: usize = 20;

/// The number of pools with metrics of their own. Totals count all pools.
#[derive(Clone, Copy, Debug)]
pub struct MeasureLimits {
    /// Pools that are read at a time.
    pub page: u32,
    pub pages: usize,
}

impl Default for MeasureLimits {
    fn default() -> Self {
        Self {
            page: PAGE,
            pages: MAX_PAGES,
        }
    }
}

pub struct Measure(pub Arc<App>);

#[async_trait]
impl BackgroundTask for Measure {
    fn name(&self) -> String {
        "measure".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.with_limits(MeasureLimits::default()).await
    }
}

impl Measure {
    pub async fn with_limits(&self, limits: MeasureLimits) -> ActivationResult {
        self.0.telemetry.tidy();
        self.totals().await?;
        // With the worker group, they have another measure.
        if !self.0.config.metrics.taskcluster_names {
            self.by_pool(limits).await?;
        }
        Ok(Value::Null)
    }

    async fn totals(&self) -> Result<(), StoreError> {
        let read = self.0.engine.store.survey("measure_totals", |tx| {
            let workers = store::worker_counts::by_state(tx)?;
            Ok::<_, StoreError>((
                workers,
                store::pools::count_by_provider(tx)?,
                store::outbox::depth(tx)?,
                Lag::of(tx)?,
            ))
        });
        let (mut workers, pools, depth, lag) = read.await?;
        for state in domain::worker::WorkerState::ALL {
            let count = workers.of(state).count;
            gauge!(WORKERS, "state" => state.as_str()).set(number(count));
        }
        for (provider, count) in pools {
            gauge!(POOLS, "providerId" => provider.to_string()).set(number(count));
        }
        for (provider, in_service) in self.0.engine.providers.all() {
            let up = u64::from(in_service.is_ok());
            gauge!(PROVIDER_UP, "providerId" => provider.to_string()).set(number(up));
        }
        gauge!(OUTBOX_DEPTH).set(number(depth));
        gauge!(EVENT_LISTENERS).set(number(self.0.events.n_listeners() as u64));
        if let Some(lag) = lag {
            lag.show(self.0.engine.clock.now());
        }
        Ok(())
    }

    async fn by_pool(&self, limits: MeasureLimits) -> Result<(), StoreError> {
        let mut after: Option<PoolId> = None;
        for _ in 0..limits.pages {
            let start = after.clone();
            let read = self.0.engine.store.survey("measure_pools", move |tx| {
                let pools = store::pools::list(tx, start.as_ref(), limits.page)?;
                let counts = match (pools.first(), pools.last()) {
                    (Some(first), Some(last)) => {
                        store::worker_counts::by_provider_between(tx, &first.id, &last.id)?
                    }
                    _ => Vec::new(),
                };
                Ok::<_, StoreError>((pools, counts))
            });
            let (pools, by_pool) = read.await?;
            let mut shown = BTreeMap::new();
            for pool in &pools {
                for provider in pool.provider_ids().chain(&pool.previous_provider_ids) {
                    shown.insert((pool.id.clone(), provider.clone()), Counts::default());
                }
            }
            shown.extend(by_pool);
            for (place, counts) in &shown {
                show(place, counts);
            }
            let full = pools.len() == limits.page as usize;
            after = pools.into_iter().next_back().map(|pool| pool.id);
            if !full {
                break;
            }
        }
        Ok(())
    }
}

/// The lag of the broker; `None` if no process has a broker.
struct Lag {
    n_waiting: u64,
    oldest: Option<Timestamp>,
}

impl Lag {
    fn of(tx: &mut Tx<'_>) -> Result<Option<Self>, StoreError> {
        let Some(reader) = store::event_readers::get(tx, BROKER_READER)? else {
            return Ok(None);
        };
        let n_waiting = store::events::head(tx)?.saturating_sub(reader.position);
        let oldest = store::events::time_after(tx, reader.position)?;
        Ok(Some(Self {
            n_waiting: u64::try_from(n_waiting).unwrap_or(0),
            oldest: oldest.map(|(_, created)| created),
        }))
    }

    fn show(&self, now: Timestamp) {
        gauge!(BROKER_WAITING).set(number(self.n_waiting));
        let age = self.oldest.map_or(0, |oldest| now.millis_since(oldest));
        gauge!(BROKER_LAG).set(seconds(age.max(0)));
    }
}

fn show((pool, provider): &PoolAndProvider, counts: &Counts) {
    let labels = [
        ("workerPoolId", pool.to_string()),
        ("providerId", provider.to_string()),
    ];
    let existing = counts.requested.capacity + counts.running.capacity;
    gauge!(EXISTING_CAPACITY, &labels).set(number(existing));
    gauge!(REQUESTED_CAPACITY, &labels).set(number(counts.requested.capacity));
    gauge!(STOPPING_CAPACITY, &labels).set(number(counts.stopping.capacity));
}

pub(super) fn number(count: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a metric needs no more digits than a double"
    )]
    let number = count as f64;
    number
}
