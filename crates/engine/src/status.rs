//! "Is all well?": the state of all pools, and what is wrong now.
//!
//! Everything is taken from what other parts store anyway, in a number of statements that does not
//! depend on the number of pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::budgets::SpentBy;
use domain::id::{PoolId, ProviderId};
use domain::image::ImageRollout;
use domain::launch::Cause;
use domain::launch_failures::LaunchFailures;
use domain::market::MAX_UNOBSERVED_MS;
use domain::overrides::{Effect, Override, Target};
use domain::relay::Relay;
use domain::series::{FleetLevels, Values};
use domain::status::{
    ErrorRate, FailingLaunchConfig, FleetProblem, LatePart, ProblemKind, ProblemSubject,
    QuarantinedWorkers, Severity, of_budget, of_canary, of_error_rate, of_launch_config,
    of_override, of_part, of_pause, of_provider, of_provider_refusals, of_quarantine, of_relay,
    of_unknown_queue, of_wait,
};
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use domain::waits::Boundary;
use store::Tx;
use store::series::SeriesName;

use crate::Engine;
use crate::fleet::{LaunchConfigStatus, read_active_statuses, recent_failures};
use crate::series::{LevelRows, PoolFacts};

/// Pools with failed launches of which each launch config is examined: those with the most failed
/// machines.
const MAX_EXAMINED: usize = 100;
/// An event should be published, and a minute recorded, this soon.
const LATE_MS: i64 = 3 * MINUTE_MS;

/// The state of a pool now.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolStatus {
    pub id: PoolId,
    pub levels: FleetLevels,
    pub maximum: i64,
    /// Why its tasks wait; `None`: none waits, or nothing was decided yet.
    pub wait: Option<Boundary>,
    /// The errors of the last hour.
    pub n_errors: u64,
    /// Since the day began (UTC), in millionths of the currency.
    pub cost_today: i64,
    /// The price of its machines for an hour.
    pub cost_per_hour: i64,
    /// Its problems, each kind once, the worst first.
    pub trouble: Vec<(Severity, ProblemKind)>,
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub struct FleetStatus {
    pub now: Timestamp,
    /// Ordered by id.
    pub pools: Vec<PoolStatus>,
    /// In no order.
    pub problems: Vec<FleetProblem>,
    /// The cost today, and for an hour, of machines whose pool was deleted.
    pub cost_of_deleted: (i64, i64),
}

impl FleetStatus {
    /// The sums of all pools, and the costs of those that were deleted as well.
    pub fn totals(&self) -> (FleetLevels, i64, i64) {
        let mut sum = Values::default();
        let (mut today, mut hourly) = self.cost_of_deleted;
        for pool in &self.pools {
            let levels = pool.levels;
            sum.add(&Values {
                levels,
                ..Values::default()
            });
            today = today.saturating_add(pool.cost_today);
            hourly = hourly.saturating_add(pool.cost_per_hour);
        }
        (sum.levels, today, hourly)
    }
}

/// Reads the state of all pools, and finds the problems that the store and the providers know.
pub async fn read(engine: &Arc<Engine>, now: Timestamp) -> store::Result<FleetStatus> {
    let pools = PoolFacts::read(engine, now).await?;
    let ids: Vec<PoolId> = pools.maxima.keys().cloned().collect();
    let owned = Arc::clone(engine);
    let read = engine
        .store
        .survey("status_read", move |tx| Facts::read(tx, &owned, &ids, now));
    let facts = read.await?;
    let mut problems = facts.problems(engine, &pools, now);
    let mut values: BTreeMap<SeriesName, Values> = BTreeMap::new();
    facts.levels.add_to(&mut values, &pools);
    let waits: BTreeMap<&PoolId, &Boundary> =
        facts.waits.iter().map(|(id, wait)| (id, wait)).collect();
    let mut statuses: Vec<PoolStatus> = Vec::with_capacity(pools.maxima.len());
    let (errors, mut costs) = (facts.errors_by_pool(), facts.costs_by_pool());
    for (id, maximum) in &pools.maxima {
        let of_pool = values.get(&(id.to_string(), String::new()));
        let levels = of_pool.map(|values| values.levels).unwrap_or_default();
        let wait = waits.get(id).copied().filter(|_| levels.waiting > 0);
        let n_waiting = u64::try_from(levels.waiting).unwrap_or(0);
        problems.extend(wait.and_then(|wait| of_wait(id, n_waiting, wait.cause, Some(wait.at))));
        let (cost_today, cost_per_hour) = costs.remove(id).unwrap_or_default();
        statuses.push(PoolStatus {
            id: id.clone(),
            levels,
            maximum: *maximum,
            wait: wait.copied(),
            n_errors: errors.get(id).copied().unwrap_or(0),
            cost_today,
            cost_per_hour,
            trouble: Vec::new(),
        });
    }
    mark_trouble(&mut statuses, &problems);
    let rest = costs.into_values();
    let cost_of_deleted = rest.fold((0_i64, 0_i64), |sum, (today, hourly)| {
        (sum.0.saturating_add(today), sum.1.saturating_add(hourly))
    });
    Ok(FleetStatus {
        now,
        pools: statuses,
        problems,
        cost_of_deleted,
    })
}

/// Notes the problems of each pool.
fn mark_trouble(pools: &mut [PoolStatus], problems: &[FleetProblem]) {
    for problem in problems {
        let Some(id) = problem.subject.pool() else {
            continue;
        };
        let Ok(place) = pools.binary_search_by(|pool| pool.id.cmp(id)) else {
            continue;
        };
        let (trouble, found) = (&mut pools[place].trouble, (problem.severity, problem.kind));
        if !trouble.contains(&found) {
            trouble.push(found);
        }
    }
    for pool in pools {
        pool.trouble.sort_unstable();
    }
}

/// The rows about all pools.
struct Facts {
    levels: LevelRows,
    waits: Vec<(PoolId, Boundary)>,
    errors: Vec<(PoolId, u64)>,
    rates: Vec<ErrorRate>,
    costs: Vec<SpentBy>,
    /// The launch configs of pools with failures.
    examined: Vec<LaunchConfigStatus>,
    overrides: Vec<Override>,
    budgets: Vec<domain::budgets::MoneyBudget>,
    relays: Vec<Relay>,
    quarantined: Vec<QuarantinedWorkers>,
    /// Images with a canary.
    canaries: Vec<ImageRollout>,
    /// When a planner last worked, a minute was last recorded, and an event began to wait.
    planned: Option<Timestamp>,
    recorded: Option<Timestamp>,
    unpublished: Option<Timestamp>,
}

impl Facts {
    fn read(
        tx: &mut Tx<'_>,
        engine: &Arc<Engine>,
        ids: &[PoolId],
        now: Timestamp,
    ) -> store::Result<Self> {
        let failures = match (ids.first(), ids.last()) {
            (Some(first), Some(last)) => recent_failures(tx, engine, first, last, now)?,
            _ => Vec::new(),
        };
        let pools = store::pools::of(tx, &most_failing(&failures, MAX_EXAMINED))?;
        let canaries = store::image_rollouts::list_with_canary(tx, None, all_rows())?;
        Ok(Self {
            levels: LevelRows::read(tx, now)?,
            waits: store::pool_waits::all(tx)?,
            errors: store::error_stats::recent(tx, now.plus_millis(-HOUR_MS))?,
            rates: store::error_stats::rates(tx, now)?,
            costs: store::budgets::spent_by(tx, now.start_of(DAY_MS), now)?,
            examined: read_active_statuses(tx, engine, pools, now)?,
            overrides: store::overrides::list_in_force(tx, now)?,
            budgets: store::budgets::list_all(tx)?,
            relays: store::relays::list(tx, None, all_rows())?,
            canaries: store::image_rollouts::of(tx, &canaries)?,
            quarantined: store::queue_workers::count_quarantined(tx, now)?,
            planned: store::pool_memories::time(tx)?.map(|time| time.clock),
            recorded: store::series::last(tx)?,
            unpublished: store::outbox::oldest_waiting(tx)?,
        })
    }

    fn errors_by_pool(&self) -> BTreeMap<PoolId, u64> {
        self.errors.iter().cloned().collect()
    }

    /// The cost of each pool today, and for an hour.
    fn costs_by_pool(&self) -> BTreeMap<PoolId, (i64, i64)> {
        let mut costs: BTreeMap<PoolId, (i64, i64)> = BTreeMap::new();
        for row in &self.costs {
            let (today, hourly) = costs.entry(row.pool_id.clone()).or_default();
            *today = today.saturating_add(row.micros);
            *hourly = hourly.saturating_add(row.hourly);
        }
        costs
    }

    /// All problems but the waits of pools.
    fn problems(&self, engine: &Engine, pools: &PoolFacts, now: Timestamp) -> Vec<FleetProblem> {
        let mut problems = self.of_parts(now);
        if let Some(problem) = &pools.silence {
            problems.push(of_part(LatePart::Queue, None, problem));
        }
        let unknown = pools.unknown.iter();
        let unknown = unknown.filter(|(_, demand)| demand.pending > 0);
        problems.extend(unknown.map(|(id, demand)| of_unknown_queue(id, demand.pending)));
        for (id, in_service) in engine.providers.all() {
            if in_service.is_err() {
                let error = engine.providers.setup_error(id).unwrap_or_default();
                problems.push(of_provider(id, &error));
            }
        }
        problems.extend(self.of_refusing_providers());
        problems.extend(self.of_launch_configs(pools));
        let pauses = self.overrides.iter();
        let pauses = pauses.filter(|given| matches!(given.effect, Effect::Pause));
        problems.extend(pauses.map(|pause| of_pause(pause, target_of(pause))));
        let overrides = self.overrides.iter();
        problems.extend(overrides.filter_map(|given| of_override(given, now)));
        problems.extend(self.budgets.iter().filter_map(|it| of_budget(it, now)));
        problems.extend(self.relays.iter().filter_map(|it| of_relay(it, now)));
        problems.extend(self.quarantined.iter().map(of_quarantine));
        problems.extend(self.canaries.iter().filter_map(of_canary));
        problems.extend(self.rates.iter().filter_map(of_error_rate));
        problems
    }

    /// Duties that no process fulfils.
    fn of_parts(&self, now: Timestamp) -> Vec<FleetProblem> {
        let late = |at: Option<Timestamp>, patience_ms: i64| {
            at.filter(|at| now.millis_since(*at) > patience_ms)
        };
        let parts = [
            (LatePart::Planner, late(self.planned, MAX_UNOBSERVED_MS)),
            (LatePart::Series, late(self.recorded, LATE_MS)),
            (LatePart::Events, late(self.unpublished, LATE_MS)),
        ];
        let parts = parts.into_iter();
        let late = parts.filter_map(|(part, since)| since.map(|since| (part, since)));
        late.map(|(part, since)| of_part(part, Some(since), ""))
            .collect()
    }

    fn of_launch_configs(&self, pools: &PoolFacts) -> Vec<FleetProblem> {
        let problems = self.examined.iter().filter_map(|status| {
            let pool = &status.config.pool_id;
            let most = status
                .failures
                .iter()
                .max_by_key(|failure| failure.machines)?;
            let since = status.failures.iter().filter_map(|failure| failure.since);
            let demand = pools.demands.get(pool);
            of_launch_config(&FailingLaunchConfig {
                pool,
                id: &status.config.id,
                usability: status.weight.as_ref()?.usability,
                cause: most.cause.as_str(),
                machines: status.failures.iter().map(|failure| failure.machines).sum(),
                words: &most.example,
                since: since.min(),
                n_waiting: demand.map_or(0, |demand| demand.pending),
            })
        });
        problems.collect()
    }

    /// Refusals for which no launch config is to blame, by provider and cause.
    fn of_refusing_providers(&self) -> Vec<FleetProblem> {
        let mut refused: BTreeMap<(&ProviderId, Cause), (u64, Timestamp)> = BTreeMap::new();
        for status in &self.examined {
            for failure in &status.failures {
                // Something was accepted since.
                let (Some(cause), Some(since)) = (failure.cause.refusal(), failure.since) else {
                    continue;
                };
                let known = refused
                    .entry((&status.provider_id, cause))
                    .or_insert((0, since));
                *known = (known.0 + failure.machines, known.1.min(since));
            }
        }
        let refused = refused.into_iter();
        let problems = refused.filter_map(|((provider, cause), (machines, since))| {
            of_provider_refusals(provider, cause, machines, since)
        });
        problems.collect()
    }
}

/// The pools with the most failed machines.
fn most_failing(failures: &[LaunchFailures], most: usize) -> Vec<&PoolId> {
    let mut by_pool: BTreeMap<&PoolId, u64> = BTreeMap::new();
    for failure in failures {
        *by_pool.entry(&failure.pool_id).or_default() += failure.machines;
    }
    let mut pools: Vec<(&PoolId, u64)> = by_pool.into_iter().collect();
    pools.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
    pools.into_iter().take(most).map(|(id, _)| id).collect()
}

/// The most rows that one answer has.
fn all_rows() -> u32 {
    u32::try_from(store::MAX_ROWS).unwrap_or(u32::MAX)
}

fn target_of(pause: &Override) -> ProblemSubject {
    match &pause.target {
        Target::Pool(id) => ProblemSubject::Pool(id.clone()),
        Target::LaunchConfig(pool, id) => ProblemSubject::LaunchConfig(pool.clone(), id.clone()),
        Target::Provider(id) => ProblemSubject::Provider(id.clone()),
        Target::Configuration(_) | Target::Region(_) => ProblemSubject::Override(pause.id.clone()),
    }
}

#[cfg(test)]
mod tests {
    use domain::launch_failures::FailureCause;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn the_pools_with_the_most_failed_machines_are_examined() {
        let at = Timestamp::from_millis(0);
        for count in sizes_around("engine::status::MAX_EXAMINED", MAX_EXAMINED) {
            let failure = |number: usize| LaunchFailures {
                pool_id: format!("p/w{number:05}").parse().unwrap(),
                launch_config_id: "lc".parse().unwrap(),
                cause: FailureCause::Capacity,
                machines: number as u64,
                first: at,
                last: at,
                since: None,
                example: String::new(),
            };
            let failures: Vec<LaunchFailures> = (0..count).map(failure).collect();
            let pools = most_failing(&failures, MAX_EXAMINED);
            assert_eq!(pools.len(), count.min(MAX_EXAMINED));
            let most = failures.last().map(|failure| &failure.pool_id);
            assert_eq!(pools.first().copied(), most);
        }
    }
}
