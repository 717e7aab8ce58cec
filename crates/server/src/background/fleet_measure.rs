//! Shows the state of each pool as metrics: tasks, capacity, costs, and the problems of the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::demand::Demand;
use domain::id::PoolId;
use domain::time::Timestamp;
use engine::measures::seconds;
use engine::status::PoolStatus;
use serde_json::Value;
use store::StoreError;

use super::driver::{ActivationResult, BackgroundTask};
use super::gauges::{Gauges, Labels};
use super::measure::{MeasureLimits, number};
use crate::app::App;
use crate::fleet_status::{LastStatus, Sources};
use crate::telemetry::{
    CAPACITY, CAPACITY_MAXIMUM, COST_PER_HOUR, COST_TODAY, OLDEST_PENDING, POOL_ERRORS, PROBLEMS,
    TASKS, WAITING,
};

/// Costs are counted in millionths of the currency.
const MILLIONTHS: f64 = 1_000_000.0;

pub struct FleetMeasure {
    app: Arc<App>,
    gauges: Gauges,
    /// Apart from that of the API, which people ask for after a change.
    status: Arc<LastStatus>,
}

/// The tasks of our queues.
struct Queues {
    demands: BTreeMap<PoolId, Demand>,
    oldest: BTreeMap<PoolId, Timestamp>,
}

#[async_trait]
impl BackgroundTask for FleetMeasure {
    fn name(&self) -> String {
        "fleet-measure".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.with_limits(MeasureLimits::default()).await
    }
}

impl FleetMeasure {
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            gauges: Gauges::default(),
            status: Arc::default(),
        }
    }

    pub async fn with_limits(&mut self, limits: MeasureLimits) -> ActivationResult {
        let engine = Arc::clone(&self.app.engine);
        let now = engine.clock.now();
        let from = Sources {
            engine,
            images: self.app.tree.images(),
        };
        let status = self.status.read(from, now, 0).await?;
        let queues = self.queues(limits, now).await?;
        let most = limits.pages.saturating_mul(limits.page as usize);
        for pool in status.pools.iter().take(most) {
            self.set_pool(pool);
            // The queue of another deployment says only how much waits.
            if queues.is_none() {
                self.set_tasks(&pool.id, "pending", signed(pool.levels.waiting));
            }
        }
        if let Some(queues) = queues {
            self.set_queues(&queues, now);
        }
        for problem in &status.problems {
            let kind = ("kind", problem.kind.as_str().to_owned());
            let severity = ("severity", problem.severity.as_str().to_owned());
            self.gauges.add(PROBLEMS, vec![kind, severity], 1.0);
        }
        self.gauges.show();
        Ok(Value::Null)
    }

    /// `None`: another deployment has the queues.
    async fn queues(
        &self,
        limits: MeasureLimits,
        now: Timestamp,
    ) -> Result<Option<Queues>, StoreError> {
        let engine = &self.app.engine;
        if engine.demand_source.is_outside() {
            return Ok(None);
        }
        let read = engine.store.survey("measure_fleet", move |tx| {
            Ok::<_, StoreError>(Queues {
                demands: pages(limits, |after| {
                    store::demand::all(tx, after, limits.page, now)
                })?,
                oldest: pages(limits, |after| {
                    store::demand::oldest_pending(tx, after, limits.page, now)
                })?,
            })
        });
        Ok(Some(read.await?))
    }

    fn set_queues(&mut self, queues: &Queues, now: Timestamp) {
        for (id, demand) in &queues.demands {
            self.set_tasks(id, "pending", number(demand.pending));
            self.set_tasks(id, "running", number(demand.claimed));
        }
        for (id, since) in &queues.oldest {
            let age = seconds(now.millis_since(*since).max(0));
            self.gauges.set(OLDEST_PENDING, of_pool(id), age);
        }
    }

    fn set_tasks(&mut self, id: &PoolId, state: &str, count: f64) {
        self.gauges.set(TASKS, with(id, "state", state), count);
    }

    fn set_pool(&mut self, pool: &PoolStatus) {
        let (id, levels) = (&pool.id, pool.levels);
        for (state, units) in [
            ("requested", levels.requested),
            ("booting", levels.booting),
            ("idle", levels.idle),
            ("busy", levels.busy),
            ("leaving", levels.leaving),
        ] {
            let labels = with(id, "state", state);
            self.gauges.set(CAPACITY, labels, signed(units));
        }
        for (name, value) in [
            (CAPACITY_MAXIMUM, signed(pool.maximum)),
            (COST_PER_HOUR, signed(pool.cost_per_hour) / MILLIONTHS),
            (COST_TODAY, signed(pool.cost_today) / MILLIONTHS),
            (POOL_ERRORS, number(pool.n_errors)),
        ] {
            self.gauges.set(name, of_pool(id), value);
        }
        if let Some(wait) = pool.wait {
            let labels = with(id, "cause", wait.cause.as_str());
            self.gauges.set(WAITING, labels, signed(levels.waiting));
        }
    }
}

/// Reads page after page, each behind the last pool of the one before.
fn pages<T>(
    limits: MeasureLimits,
    mut read: impl FnMut(Option<&PoolId>) -> Result<Vec<(PoolId, T)>, StoreError>,
) -> Result<BTreeMap<PoolId, T>, StoreError> {
    let (mut all, mut after) = (BTreeMap::new(), None::<PoolId>);
    for _ in 0..limits.pages {
        let page = read(after.as_ref())?;
        let is_full = page.len() == limits.page as usize;
        after = page.last().map(|(id, _)| id.clone());
        all.extend(page);
        if !is_full {
            break;
        }
    }
    Ok(all)
}

fn of_pool(id: &PoolId) -> Labels {
    vec![("workerPoolId", id.to_string())]
}

fn with(id: &PoolId, name: &'static str, value: &str) -> Labels {
    let mut labels = of_pool(id);
    labels.push((name, value.to_owned()));
    labels
}

/// Metrics need no more digits than a double.
#[expect(clippy::cast_precision_loss, reason = "as above")]
fn signed(number: i64) -> f64 {
    number as f64
}
