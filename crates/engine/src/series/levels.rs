//! The levels of all pools now: waiting tasks, capacity by state, and maxima.

use std::collections::BTreeMap;

use domain::demand::Demand;
use domain::facts::Facts;
use domain::id::PoolId;
use domain::pool::Pool;
use domain::series::{FleetCounts, FleetLevels, Values, split_running};
use domain::time::Timestamp;
use domain::worker::WorkerState;
use store::series::{SeriesName, WorkerGroup};
use store::{StoreError, Tx};

use crate::Engine;
use crate::demand::{DemandSource, Demands};
use crate::fleet::OverridesInForce;

/// Task queues and pools that are read together.
const PAGE: u32 = 500;

/// The waiting tasks and the maximum of each pool.
#[derive(Default)]
pub(crate) struct PoolFacts {
    /// The tasks of pools that exist.
    pub(crate) demands: Demands,
    /// The tasks that wait in queues without a pool.
    pub(crate) unknown: Demands,
    /// Of each pool, with overrides and budgets.
    pub(crate) maxima: BTreeMap<PoolId, i64>,
    is_outside: bool,
    /// Why an outside queue did not say how much waits. Unknown tasks are not zero tasks.
    pub(crate) silence: Option<String>,
}

impl PoolFacts {
    pub(crate) async fn read(engine: &Engine, now: Timestamp) -> store::Result<Self> {
        let own = DemandSource::read_own(engine, "series_demand", PAGE).await?;
        let mut known = Self {
            maxima: read_maxima(engine, now).await?,
            is_outside: own.is_none(),
            ..Self::default()
        };
        match own {
            Some(own) => {
                let is_pool = |id: &PoolId, _: &mut Demand| known.maxima.contains_key(id);
                let mut unknown = own;
                known.demands = unknown.extract_if(.., is_pool).collect();
                known.unknown = unknown;
            }
            None => known.read_outside_demand(engine).await,
        }
        Ok(known)
    }

    /// Asks an outside queue.
    async fn read_outside_demand(&mut self, engine: &Engine) {
        let ids: Vec<PoolId> = self.maxima.keys().cloned().collect();
        for ids in ids.chunks(PAGE as usize) {
            match engine.demand_source.read(ids).await {
                Ok(demands) => self.demands.extend(demands),
                Err(problem) => {
                    self.silence = Some(problem.to_string());
                    return;
                }
            }
        }
    }
}

/// The maximum of each pool, with overrides and budgets.
async fn read_maxima(engine: &Engine, now: Timestamp) -> store::Result<BTreeMap<PoolId, i64>> {
    let mut all = BTreeMap::new();
    let mut after: Option<PoolId> = None;
    loop {
        let (start, horizon, defaults) = (after, engine.horizon(now), engine.strategies);
        let read = engine.store.survey("series_pools", move |tx| {
            let pools = store::pools::list(tx, start.as_ref(), PAGE)?;
            let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
                return Ok((Vec::new(), None));
            };
            let overrides = OverridesInForce::read(tx, now, &first.id, &last.id)?;
            let budgets = store::budgets::list_all(tx)?;
            let next = (pools.len() == PAGE as usize).then(|| last.id.clone());
            let maximum = |pool: Pool| {
                let id = pool.id.clone();
                let mut facts = Facts::new(pool, Demand::default(), horizon, defaults);
                facts.overrides = overrides.of_pool(&facts.pool);
                let own = budgets.iter();
                let own = own.filter(|budget| budget.scope.concerns(&facts.pool));
                facts.budgets = own.cloned().collect();
                (id, number(facts.maximum().unwrap_or(0)))
            };
            let maxima: Vec<(PoolId, i64)> = pools.into_iter().map(maximum).collect();
            Ok::<_, StoreError>((maxima, next))
        });
        let (maxima, next) = read.await?;
        all.extend(maxima);
        after = next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// The rows from which levels are made.
pub(crate) struct LevelRows {
    workers: Vec<WorkerGroup>,
    tasks: BTreeMap<(SeriesName, bool), i64>,
    requested: Vec<(SeriesName, i64)>,
}

impl LevelRows {
    pub(crate) fn read(tx: &mut Tx<'_>, now: Timestamp) -> store::Result<Self> {
        let tasks = store::series::tasks(tx, now)?.into_iter();
        Ok(Self {
            workers: store::series::workers(tx)?,
            tasks: tasks
                .map(|(name, is_draining, count)| ((name, is_draining), count))
                .collect(),
            requested: store::series::requested(tx)?,
        })
    }

    /// Adds the levels of launch configs and of their pools.
    pub(crate) fn add_to(&self, values: &mut BTreeMap<SeriesName, Values>, pools: &PoolFacts) {
        let mut running: BTreeMap<(SeriesName, bool), i64> = BTreeMap::new();
        for group in &self.workers {
            let capacity = group.capacity;
            let levels = match group.state {
                WorkerState::Requested => FleetLevels {
                    booting: capacity,
                    ..FleetLevels::default()
                },
                WorkerState::Stopping => FleetLevels {
                    leaving: capacity,
                    ..FleetLevels::default()
                },
                WorkerState::Running => {
                    let key = (group.name.clone(), group.is_draining);
                    *running.entry(key).or_default() += capacity;
                    continue;
                }
                WorkerState::Stopped => continue,
            };
            add(values, &group.name, levels, FleetCounts::default());
        }
        for ((name, is_draining), capacity) in running {
            let key = (name, is_draining);
            let tasks = self.tasks.get(&key).copied().unwrap_or(0);
            let (busy, others) = split_running(capacity, tasks);
            let (idle, leaving) = if is_draining {
                (0, others)
            } else {
                (others, 0)
            };
            let levels = FleetLevels {
                idle,
                busy,
                leaving,
                ..FleetLevels::default()
            };
            add(values, &key.0, levels, FleetCounts::default());
        }
        for (name, requested) in &self.requested {
            let requested = *requested;
            let levels = FleetLevels {
                requested,
                ..FleetLevels::default()
            };
            add(values, name, levels, FleetCounts::default());
        }
        for (id, demand) in &pools.demands {
            let of_pool = values.entry((id.to_string(), String::new())).or_default();
            of_pool.levels.waiting = number(demand.pending);
            if pools.is_outside {
                // Another deployment's queue counts claimed tasks by pool only.
                let levels = &mut of_pool.levels;
                let running = levels.idle + levels.busy;
                (levels.busy, levels.idle) = split_running(running, number(demand.claimed));
            }
        }
    }
}

/// Adds to a series, and to that of its pool.
pub(super) fn add(
    values: &mut BTreeMap<SeriesName, Values>,
    name: &SeriesName,
    levels: FleetLevels,
    tallies: FleetCounts,
) {
    let added = Values { levels, tallies };
    if added.is_zero() {
        return;
    }
    let (pool, config) = name;
    values.entry(name.clone()).or_default().add(&added);
    if !config.is_empty() {
        let of_pool = values.entry((pool.clone(), String::new())).or_default();
        of_pool.add(&added);
    }
}

pub(super) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
