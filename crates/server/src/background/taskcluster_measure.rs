//! Measures under the names of Taskcluster's services, for dashboards and alerts made for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::counts::Counts;
use domain::demand::Demand;
use domain::estimate::TaskclusterEstimate;
use domain::id::{PoolId, ProviderId};
use domain::plan::Settings;
use domain::pool::Pool;
use domain::time::{MINUTE_MS, Timestamp};
use engine::taskcluster_records::{Record, Severity};
use serde_json::{Map, Value, json};
use store::StoreError;
use store::worker_counts::{Draining, PoolAndProvider};

use super::driver::{ActivationResult, BackgroundTask};
use super::gauges::{Gauges, Labels};
use super::measure::{MeasureLimits, number};
use crate::app::App;
use crate::telemetry::taskcluster::{
    ADJUSTED_PENDING_TASKS, CLAIMED_TASKS, DESIRED_CAPACITY, PENDING_TASKS, QUEUE_CLAIMED,
    QUEUE_IDLE, QUEUE_PENDING, QUEUE_QUARANTINED, QUEUE_RUNNING, QUEUE_WORKERS, SCAN_ERRORS,
    SCAN_SEEN, TERMINATING, TOTAL_IDLE_CAPACITY, of_queue,
};
use crate::telemetry::{EXISTING_CAPACITY, REQUESTED_CAPACITY, STOPPING_CAPACITY};

/// Errors of pools count for this long.
const ERRORS_MS: i64 = MINUTE_MS;

pub struct TaskclusterMeasure {
    app: Arc<App>,
    gauges: Gauges,
    /// The number and the capacity of workers by provider and pool.
    seen: BTreeMap<ProviderId, BTreeMap<PoolId, (u64, u64)>>,
}

/// The tasks of each queue that has any; `None`: another deployment has the queues.
type Demands = Option<BTreeMap<PoolId, Demand>>;

/// One page of pools.
#[derive(Default)]
struct Page {
    pools: Vec<Pool>,
    groups: Vec<(store::worker_counts::PoolProviderAndGroup, Counts)>,
    draining: Vec<Draining>,
}

#[async_trait]
impl BackgroundTask for TaskclusterMeasure {
    fn name(&self) -> String {
        "taskcluster-measure".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.with_limits(MeasureLimits::default()).await
    }
}

impl TaskclusterMeasure {
    pub fn new(app: Arc<App>) -> Self {
        let gauges = Gauges::default();
        let seen = BTreeMap::new();
        Self { app, gauges, seen }
    }

    fn record(&self, kind: &'static str, version: u8, severity: Severity, fields: Value) {
        let record = Record {
            kind,
            version,
            severity,
            fields,
        };
        if self.app.engine.taskcluster_records {
            record.write();
        }
    }

    pub async fn with_limits(&mut self, limits: MeasureLimits) -> ActivationResult {
        let demands = self.queues(limits).await?;
        self.pools(limits, &demands).await?;
        // The records need the same numbers, also where no metrics are asked for.
        if self.app.config.metrics.taskcluster_names {
            self.gauges.show();
        } else {
            self.gauges.forget();
        }
        for (provider, seen) in std::mem::take(&mut self.seen) {
            let total: u64 = seen.values().map(|counts| counts.0).sum();
            let seen: Map<String, Value> = seen
                .into_iter()
                .map(|(pool, (_, capacity))| (pool.to_string(), json!(capacity)))
                .collect();
            let fields = json!({
                "providerId": provider.as_str(),
                "seen": seen,
                "total": total,
            });
            self.record("scan-seen", 3, Severity::Notice, fields);
        }
        Ok(Value::Null)
    }

    async fn queues(&mut self, limits: MeasureLimits) -> Result<Demands, StoreError> {
        let engine = Arc::clone(&self.app.engine);
        if engine.demand_source.is_outside() {
            return Ok(None);
        }
        let (store, now) = (&engine.store, engine.clock.now());
        let totals = store.survey("measure_queue_workers", move |tx| {
            store::queue_workers::totals(tx, now)
        });
        for total in totals.await? {
            let labels = || of_queue(&total.queue);
            let gauges = &mut self.gauges;
            gauges.set(QUEUE_WORKERS, labels(), number(total.workers));
            gauges.set(QUEUE_RUNNING, labels(), number(total.running));
            gauges.set(QUEUE_IDLE, labels(), number(total.idle));
            gauges.set(QUEUE_QUARANTINED, labels(), number(total.quarantined));
        }
        let (mut demands, mut after) = (BTreeMap::new(), None::<PoolId>);
        for _ in 0..limits.pages {
            let start = after.clone();
            let page = store.survey("measure_queues", move |tx| {
                store::demand::all(tx, start.as_ref(), limits.page, now)
            });
            let page: Vec<(PoolId, Demand)> = page.await?;
            let is_full = page.len() == limits.page as usize;
            after = page.last().map(|(id, _)| id.clone());
            demands.extend(page);
            if !is_full {
                break;
            }
        }
        for (queue, demand) in &demands {
            set_queue(&mut self.gauges, queue, *demand);
        }
        Ok(Some(demands))
    }

    async fn pools(&mut self, limits: MeasureLimits, demands: &Demands) -> Result<(), StoreError> {
        let engine = Arc::clone(&self.app.engine);
        let since = engine.clock.now().plus_millis(-ERRORS_MS);
        let errors = read_errors(&self.app, since).await?;
        let mut after: Option<PoolId> = None;
        for _ in 0..limits.pages {
            let start = after.clone();
            let page = engine.store.survey("measure_taskcluster_pools", move |tx| {
                let pools = store::pools::list(tx, start.as_ref(), limits.page)?;
                let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
                    return Ok::<_, StoreError>(Page::default());
                };
                let (first, last) = (first.id.clone(), last.id.clone());
                Ok(Page {
                    pools,
                    groups: store::worker_counts::by_group_between(tx, &first, &last)?,
                    draining: store::worker_counts::draining_between(tx, &first, &last)?,
                })
            });
            let page: Page = page.await?;
            let of_pools = self.show_groups(&page);
            for pool in &page.pools {
                let n_errors = errors.get(&pool.id).copied().unwrap_or_default();
                self.show_pool(pool, &of_pools, demands.as_ref(), n_errors);
            }
            for draining in &page.draining {
                let place = (draining.pool.clone(), draining.provider.clone());
                let mut labels = of_place(&place);
                let reason = match draining.is_archived {
                    true => "launch_config_archived",
                    false => "over_capacity",
                };
                labels.push(("reason", reason.to_owned()));
                self.gauges.add(TERMINATING, labels, number(draining.count));
            }
            let is_full = page.pools.len() == limits.page as usize;
            after = page.pools.into_iter().next_back().map(|pool| pool.id);
            if !is_full {
                break;
            }
        }
        Ok(())
    }

    /// Shows capacities by worker group, and returns their sums.
    fn show_groups(&mut self, page: &Page) -> BTreeMap<PoolAndProvider, Counts> {
        let mut sums = BTreeMap::<PoolAndProvider, Counts>::new();
        for ((pool, provider, group), counts) in &page.groups {
            let place = (pool.clone(), provider.clone());
            let mut labels = of_place(&place);
            labels.push(("workerGroup", group.to_string()));
            let requested = counts.requested.capacity;
            let values = [
                (EXISTING_CAPACITY, requested + counts.running.capacity),
                (REQUESTED_CAPACITY, requested),
                (STOPPING_CAPACITY, counts.stopping.capacity),
            ];
            for (name, value) in values {
                self.gauges.set(name, labels.clone(), number(value));
            }
            let sum = sums.entry(place).or_default();
            for (sum, counts) in [
                (&mut sum.requested, counts.requested),
                (&mut sum.running, counts.running),
                (&mut sum.stopping, counts.stopping),
            ] {
                sum.count += counts.count;
                sum.capacity += counts.capacity;
            }
        }
        sums
    }

    fn show_pool(
        &mut self,
        pool: &Pool,
        sums: &BTreeMap<PoolAndProvider, Counts>,
        demands: Option<&BTreeMap<PoolId, Demand>>,
        n_errors: u64,
    ) {
        let mut all = Counts::default();
        for provider in pool.provider_ids().chain(&pool.previous_provider_ids) {
            let place = (pool.id.clone(), provider.clone());
            let counts = sums.get(&place).copied().unwrap_or_default();
            let n_seen = counts.requested.count + counts.running.count + counts.stopping.count;
            self.gauges.set(SCAN_SEEN, of_place(&place), number(n_seen));
            let capacity =
                counts.requested.capacity + counts.running.capacity + counts.stopping.capacity;
            let seen = self.seen.entry(provider.clone()).or_default();
            seen.insert(pool.id.clone(), (n_seen, capacity));
            all.requested.capacity += counts.requested.capacity;
            all.running.capacity += counts.running.capacity;
            all.stopping.capacity += counts.stopping.capacity;
        }
        let place = (pool.id.clone(), pool.definition.provider_id.clone());
        let gauges = &mut self.gauges;
        gauges.set(SCAN_ERRORS, of_place(&place), number(n_errors));
        let Some(demands) = demands else { return };
        let demand = demands.get(&pool.id).copied().unwrap_or_default();
        set_queue(gauges, &pool.id, demand);
        gauges.set(PENDING_TASKS, of_place(&place), number(demand.pending));
        gauges.set(CLAIMED_TASKS, of_place(&place), number(demand.claimed));
        let defaults = self.app.engine.strategies;
        let Ok(settings) = Settings::parse_with(&pool.definition.config, defaults) else {
            return;
        };
        let estimate = TaskclusterEstimate::of(&settings, &all, demand);
        let (idle, adjusted) = (estimate.idle, estimate.adjusted_pending);
        gauges.set(TOTAL_IDLE_CAPACITY, of_place(&place), number(idle));
        gauges.set(ADJUSTED_PENDING_TASKS, of_place(&place), number(adjusted));
        gauges.set(DESIRED_CAPACITY, of_place(&place), estimate.desired);
        let fields = json!({
            "workerPoolId": pool.id.as_str(),
            "pendingTasks": demand.pending,
            "minCapacity": settings.min_capacity,
            "maxCapacity": settings.max_capacity,
            "scalingRatio": settings.scaling_ratio,
            "totalIdleCapacity": idle,
            "adjustedPendingTasks": adjusted,
            "existingCapacity": estimate.existing,
            "desiredCapacity": estimate.desired,
            "requestedCapacity": all.requested.capacity,
            "stoppingCapacity": all.stopping.capacity,
        });
        self.record("simple-estimate", 4, Severity::Info, fields);
    }
}

async fn read_errors(app: &App, since: Timestamp) -> Result<BTreeMap<PoolId, u64>, StoreError> {
    let read = app.engine.store.survey("measure_errors", move |tx| {
        store::error_stats::recent(tx, since)
    });
    Ok(read.await?.into_iter().collect())
}

fn of_place((pool, provider): &PoolAndProvider) -> Labels {
    vec![
        ("workerPoolId", pool.to_string()),
        ("providerId", provider.to_string()),
    ]
}

fn set_queue(gauges: &mut Gauges, queue: &PoolId, demand: Demand) {
    gauges.set(QUEUE_PENDING, of_queue(queue), number(demand.pending));
    gauges.set(QUEUE_CLAIMED, of_queue(queue), number(demand.claimed));
}
