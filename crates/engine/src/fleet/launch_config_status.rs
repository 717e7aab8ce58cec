//! Launch configs as they are now: state, weight, workers and recent launches (RFC 191).
//!
//! Pools are read in a few grouped queries, however many launch configs they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::counts::{Counts, StateCount};
use domain::error_report::ErrorReport;
use domain::facts::{Facts, LaunchRecord, MarketFacts, Rooms, decides_by_memory};
use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerGroup};
use domain::launch_config::LaunchConfig;
use domain::launch_config_state::{LaunchConfigState, pause_of, state_of};
use domain::launch_failures::{FailureCause, LaunchFailures, LaunchNumbers};
use domain::market::OfferingId;
use domain::overrides::Override;
use domain::plan::{Bids, OfferWeight, StrategyName, weights};
use domain::pool::Pool;
use domain::supply::Horizon;
use domain::time::Timestamp;
use store::host_numbers::HostNumbers;
use store::{Part, StoreError, Tx};

use super::bids::{PoolBids, group_of};
use super::facts::{
    HEALTH_WINDOW_MS, at_present_providers, group_by_pool, health_window, read_facts,
};
use super::market_facts::{offerings, read_memories};
use super::outside_facts::read_rooms;
use crate::Engine;

/// A launch config with its state and the numbers behind its weight.
#[derive(Clone, Debug)]
pub struct LaunchConfigStatus {
    pub config: Arc<LaunchConfig>,
    pub provider_id: ProviderId,
    /// The worker group of its machines, if it is known before a launch.
    pub region: Option<WorkerGroup>,
    /// Location and type for people, or empty: nothing is bid for archived launch configs.
    pub place: String,
    pub state: LaunchConfigState,
    pub pause: Option<Override>,
    pub strategy: Option<StrategyName>,
    /// `None`: it is archived or of declared hosts, or the config of its pool is invalid for
    /// planning.
    pub weight: Option<OfferWeight>,
    pub workers: Counts,
    /// Units that exist or may still appear.
    pub capacity: u64,
    pub numbers: LaunchNumbers,
    pub failures: Vec<LaunchFailures>,
    /// The newest error report about it.
    pub last_error: Option<ErrorReport>,
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchConfigError {
    #[error("Worker pool does not exist")]
    NoSuchPool,
    #[error("Launch config {id} does not exist in worker pool {pool_id}")]
    NotFound { pool_id: PoolId, id: LaunchConfigId },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Selects launch configs of a pool.
#[derive(Clone, Debug)]
pub struct LaunchConfigPage {
    pub include_archived: bool,
    pub after: Option<LaunchConfigId>,
    pub limit: u32,
    pub max_bytes: u64,
}

/// Selects active launch configs of all pools, ordered by pool and id.
#[derive(Clone, Debug)]
pub struct HealthPage {
    /// Launches since then are counted.
    pub since: Timestamp,
    /// The pool and the launch config after which the page begins.
    pub after: Option<(PoolId, String)>,
    pub limit: u32,
}

/// Sorts after the id of every launch config.
const AFTER_ALL: &str = "~";

/// One pool with what is known about the recent launches of its launch configs.
struct PoolReading {
    facts: Facts,
    bids: PoolBids,
    records: BTreeMap<LaunchConfigId, LaunchRecord>,
    failures: BTreeMap<LaunchConfigId, Vec<LaunchFailures>>,
    /// The numbers of launch configs of declared hosts.
    hosts: BTreeMap<LaunchConfigId, LaunchNumbers>,
    errors: BTreeMap<LaunchConfigId, ErrorReport>,
    rooms: Rooms,
}

/// Where since the numbers count by default: the weights count the launches of this period.
pub fn usual_since(now: Timestamp) -> Timestamp {
    now.plus_millis(-HEALTH_WINDOW_MS)
}

/// One launch config, archived or not.
pub async fn get_launch_config(
    engine: &Arc<Engine>,
    pool_id: PoolId,
    id: LaunchConfigId,
    now: Timestamp,
) -> Result<LaunchConfigStatus, LaunchConfigError> {
    let reader = Reader::new(engine, now, usual_since(now));
    let read = engine.store.scan("launch_config_status", move |tx| {
        let pool = store::pools::get(tx, &pool_id)?.ok_or(LaunchConfigError::NoSuchPool)?;
        let config = store::launch_configs::get(tx, &pool_id, &id)?;
        let config = config.ok_or(LaunchConfigError::NotFound { pool_id, id })?;
        Ok::<_, LaunchConfigError>((reader.read_one(tx, pool)?, vec![config]))
    });
    let (reading, configs) = read.await?;
    let mut statuses = reading.statuses(engine, configs);
    Ok(statuses.remove(0))
}

/// The launch configs of a pool, ordered by id.
pub async fn list_launch_configs(
    engine: &Arc<Engine>,
    pool_id: PoolId,
    page: LaunchConfigPage,
    now: Timestamp,
) -> Result<Part<LaunchConfigStatus>, LaunchConfigError> {
    let reader = Reader::new(engine, now, usual_since(now));
    let read = engine.store.scan("launch_config_statuses", move |tx| {
        let pool = store::pools::get(tx, &pool_id)?.ok_or(LaunchConfigError::NoSuchPool)?;
        let part = store::launch_configs::part(
            tx,
            &pool_id,
            page.include_archived,
            page.after.as_ref(),
            page.limit,
            page.max_bytes,
        )?;
        Ok::<_, LaunchConfigError>((reader.read_one(tx, pool)?, part))
    });
    let (reading, Part { items, is_cut }) = read.await?;
    Ok(Part {
        items: reading.statuses(engine, items),
        is_cut,
    })
}

/// The active launch configs of all pools, and after which the next page begins.
pub async fn list_launch_config_health(
    engine: &Arc<Engine>,
    page: HealthPage,
    now: Timestamp,
) -> Result<(Vec<LaunchConfigStatus>, Option<(PoolId, String)>), StoreError> {
    let reader = Reader::new(engine, now, page.since);
    let HealthPage { after, limit, .. } = page;
    let first = after.clone();
    let read = engine.store.scan("launch_config_health", move |tx| {
        let (pools, is_last) = read_pools(tx, first.as_ref(), limit)?;
        Ok::<_, StoreError>((reader.read(tx, pools)?, is_last))
    });
    let (readings, is_last) = read.await?;
    let mut next = None;
    let mut items: Vec<LaunchConfigStatus> = Vec::new();
    for reading in readings {
        let pool_id = reading.facts.pool.id.clone();
        for status in reading.active_statuses(engine) {
            let id = status.config.id.as_str();
            let is_before =
                |(pool, last): &(PoolId, String)| *pool == pool_id && id <= last.as_str();
            if after.as_ref().is_some_and(is_before) {
                continue;
            }
            if items.len() == limit as usize {
                let last = items.last().map(|last| &last.config);
                let next = last.map(|last| (last.pool_id.clone(), last.id.to_string()));
                return Ok((items, next));
            }
            items.push(status);
        }
        next = Some((pool_id, AFTER_ALL.to_owned()));
    }
    Ok((items, next.filter(|_| !is_last)))
}

/// The active launch configs of these pools, which are ordered by id.
pub(crate) fn read_active_statuses(
    tx: &mut Tx<'_>,
    engine: &Arc<Engine>,
    pools: Vec<Pool>,
    now: Timestamp,
) -> store::Result<Vec<LaunchConfigStatus>> {
    let reader = Reader::new(engine, now, usual_since(now));
    let readings = reader.read(tx, pools)?.into_iter();
    Ok(readings
        .flat_map(|reading| reading.active_statuses(engine))
        .collect())
}

/// The failures of the usual period, of all pools from the first to the last.
pub(crate) fn recent_failures(
    tx: &mut Tx<'_>,
    engine: &Engine,
    first: &PoolId,
    last: &PoolId,
    now: Timestamp,
) -> store::Result<Vec<LaunchFailures>> {
    let window = health_window(now, usual_since(now));
    let failures = store::launch_failures::between(tx, &window, first, last)?;
    Ok(known_failures(failures, engine.horizon(now).hears_workers))
}

/// Another deployment's queue does not tell who asked for work.
fn known_failures(mut failures: Vec<LaunchFailures>, hears_workers: bool) -> Vec<LaunchFailures> {
    failures.retain(|failure| hears_workers || failure.cause != FailureCause::NeverClaimed);
    failures
}

/// Pools with enough launch configs for a page, and whether these are the last pools.
fn read_pools(
    tx: &mut Tx<'_>,
    after: Option<&(PoolId, String)>,
    limit: u32,
) -> store::Result<(Vec<Pool>, bool)> {
    let mut pools = Vec::new();
    // The page before may have ended within this pool.
    if let Some((id, last)) = after
        && last != AFTER_ALL
    {
        pools.extend(store::pools::get(tx, id)?);
    }
    let listed = store::pools::list(tx, after.map(|(id, _)| id), limit)?;
    let is_all = listed.len() < limit as usize;
    pools.extend(listed);
    let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
        return Ok((pools, true));
    };
    let counts = store::launch_configs::count_between(tx, &first.id, &last.id)?;
    let counts: BTreeMap<PoolId, u64> = counts.into_iter().collect();
    let n_listed = pools.len();
    let mut n_configs = 0;
    let is_needed = |pool: &Pool| {
        let is_needed = n_configs <= u64::from(limit);
        n_configs += counts.get(&pool.id).copied().unwrap_or(0);
        is_needed
    };
    let pools: Vec<Pool> = pools.into_iter().take_while(is_needed).collect();
    let is_last = is_all && pools.len() == n_listed;
    Ok((pools, is_last))
}

/// Reads pools at one moment.
struct Reader {
    engine: Arc<Engine>,
    horizon: Horizon,
    since: Timestamp,
    /// The limits of all providers; providers without a limit are absent.
    max_machines: BTreeMap<ProviderId, u64>,
}

impl Reader {
    fn new(engine: &Arc<Engine>, now: Timestamp, since: Timestamp) -> Self {
        let limits = engine.providers.listed().filter_map(|(id, _)| {
            let machines = engine.providers.machines(id)?;
            Some((id.clone(), machines.max_machines()?))
        });
        Self {
            engine: Arc::clone(engine),
            horizon: engine.horizon(now),
            since,
            max_machines: limits.collect(),
        }
    }

    fn read_one(&self, tx: &mut Tx<'_>, pool: Pool) -> store::Result<PoolReading> {
        let mut readings = self.read(tx, vec![pool])?;
        Ok(readings.remove(0))
    }

    /// Readings in the order of the pools.
    fn read(&self, tx: &mut Tx<'_>, pools: Vec<Pool>) -> store::Result<Vec<PoolReading>> {
        let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
            return Ok(Vec::new());
        };
        let (first, last) = (first.id.clone(), last.id.clone());
        let has_provider = |id: &ProviderId| pools.iter().any(|pool| pool.has_provider(id));
        let mut limits = self.max_machines.clone();
        limits.retain(|id, _| has_provider(id));
        let rooms = read_rooms(tx, &limits)?;
        let now = self.horizon.now;
        let window = health_window(now, self.since);
        let failures = store::launch_failures::between(tx, &window, &first, &last)?;
        let failures = known_failures(failures, self.horizon.hears_workers);
        let mut failures = group_by_pool(failures, |failure| failure.pool_id.clone());
        let hosts = store::host_numbers::between(tx, &window, &first, &last)?;
        let mut hosts = group_by_pool(hosts, |numbers| numbers.pool_id.clone());
        let mut errors = group_by_pool(
            store::worker_errors::newest_between(tx, &first, &last, self.since)?,
            |report| report.pool_id.clone(),
        );
        // The weights always count the usual period.
        let is_usual = self.since == usual_since(now);
        let records = if is_usual {
            Vec::new()
        } else {
            store::launch_health::between(tx, &window, &first, &last)?
        };
        let mut records = group_by_pool(records, |results| results.pool_id.clone());
        let facts = read_facts(
            tx,
            pools,
            &BTreeMap::new(),
            &self.horizon,
            self.engine.strategies,
        )?;
        let readings = self.add_memories(tx, facts)?.into_iter();
        let readings = readings.map(|(facts, bids)| {
            let id = facts.id().clone();
            let records = if is_usual {
                facts.records.clone()
            } else {
                at_present_providers(&facts, records.remove(&id).unwrap_or_default())
            };
            PoolReading {
                records,
                failures: by_launch_config(failures.remove(&id).unwrap_or_default()),
                hosts: numbers_of_hosts(hosts.remove(&id).unwrap_or_default()),
                errors: newest_errors(errors.remove(&id).unwrap_or_default()),
                rooms: rooms.clone(),
                facts,
                bids,
            }
        });
        Ok(readings.collect())
    }

    /// Adds the bids, and what strategies have learned about the offerings: for all pools at once.
    fn add_memories(
        &self,
        tx: &mut Tx<'_>,
        facts: Vec<Facts>,
    ) -> store::Result<Vec<(Facts, PoolBids)>> {
        let with_bids = facts.into_iter().map(|facts| {
            let bids = PoolBids::read(&self.engine, &facts, None);
            (facts, bids)
        });
        let mut readings: Vec<_> = with_bids.collect();
        let learning = readings
            .iter()
            .filter(|(facts, _)| decides_by_memory(&facts.pool, self.engine.strategies));
        let wanted = learning.flat_map(|(facts, bids)| offerings(facts, &bids.all).into_values());
        let wanted: BTreeSet<OfferingId> = wanted.flatten().collect();
        if wanted.is_empty() {
            return Ok(readings);
        }
        let memories = read_memories(tx, &wanted)?;
        for (facts, bids) in &mut readings {
            if !decides_by_memory(&facts.pool, self.engine.strategies) {
                continue;
            }
            let own = offerings(facts, &bids.all).into_values().flatten();
            let known = own.filter_map(|id| Some((id.clone(), *memories.get(&id)?)));
            facts.memory = Some(MarketFacts {
                offerings: known.collect(),
                ..MarketFacts::default()
            });
        }
        Ok(readings)
    }
}

fn by_launch_config(
    failures: Vec<LaunchFailures>,
) -> BTreeMap<LaunchConfigId, Vec<LaunchFailures>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for failure in failures {
        let own = all.entry(failure.launch_config_id.clone()).or_default();
        own.push(failure);
    }
    all
}

fn numbers_of_hosts(hosts: Vec<HostNumbers>) -> BTreeMap<LaunchConfigId, LaunchNumbers> {
    let by_config = hosts
        .into_iter()
        .map(|hosts| (hosts.launch_config_id, hosts.numbers));
    by_config.collect()
}

fn newest_errors(reports: Vec<ErrorReport>) -> BTreeMap<LaunchConfigId, ErrorReport> {
    let named = reports
        .into_iter()
        .filter_map(|report| Some((report.launch_config_id.clone()?, report)));
    named.collect()
}

impl PoolReading {
    /// The active launch configs, ordered by id.
    fn active_statuses(self, engine: &Engine) -> Vec<LaunchConfigStatus> {
        let configs = self.facts.launch_configs.iter();
        let mut configs: Vec<LaunchConfig> = configs.map(|config| (**config).clone()).collect();
        configs.sort_by(|one, other| one.id.cmp(&other.id));
        self.statuses(engine, configs)
    }

    fn statuses(mut self, engine: &Engine, configs: Vec<LaunchConfig>) -> Vec<LaunchConfigStatus> {
        let facts = &self.facts;
        let strategies = facts.strategies();
        let snapshot = facts
            .snapshot(&self.bids.usable, &self.rooms, Vec::new())
            .ok();
        let weights = snapshot.as_ref().map(weights).unwrap_or_default();
        // As in the snapshot: nothing is launched from the launch configs of hosts.
        let launching = facts.launch_configs.iter();
        let launching = launching.filter(|config| !config.is_for_hosts());
        let ids = launching.map(|config| config.id.clone());
        let mut weights: BTreeMap<LaunchConfigId, OfferWeight> = ids.zip(weights).collect();
        let mut places = self.places();
        let live = facts.inventory.live();
        let mut workers = worker_counts(facts);
        let statuses = configs.into_iter().map(|config| {
            let (id, pool) = (config.id.clone(), &facts.pool);
            let region = group_of(engine, pool, &config);
            let now = facts.horizon.now;
            let pause = pause_of(&facts.overrides, now, pool, &config, region.as_ref());
            let failures = self.failures.remove(&id).unwrap_or_default();
            LaunchConfigStatus {
                provider_id: config.provider_id(pool).clone(),
                place: places.remove(&id).unwrap_or_default(),
                state: state_of(&config, pause),
                pause: pause.filter(|_| !config.archived).cloned(),
                strategy: strategies.map(|strategies| strategies.strategy),
                weight: weights.remove(&id),
                workers: workers.remove(&id).unwrap_or_default(),
                capacity: live.get(&id).copied().unwrap_or(0),
                numbers: match config.is_for_hosts() {
                    true => self.hosts.remove(&id).unwrap_or_default(),
                    false => LaunchNumbers::of(self.records.get(&id), &failures),
                },
                last_error: self.errors.remove(&id),
                failures,
                region,
                config: Arc::new(config),
            }
        });
        statuses.collect()
    }

    /// The places in the bids. Providers do not bid for archived launch configs.
    fn places(&self) -> BTreeMap<LaunchConfigId, String> {
        let bids = self.facts.launch_configs.iter().zip(self.bids.all.iter());
        let place = |(config, bids): (&Arc<LaunchConfig>, &Bids)| {
            let bids = bids.as_ref().ok()?.iter();
            let places: Vec<&str> = bids.map(|bid| bid.place.as_str()).collect();
            Some((config.id.clone(), places.join(", ")))
        };
        bids.filter_map(place).collect()
    }
}

/// The workers that are not stopped, by launch config.
fn worker_counts(facts: &Facts) -> BTreeMap<LaunchConfigId, Counts> {
    let mut all: BTreeMap<_, Counts> = BTreeMap::new();
    for group in &facts.inventory.workers {
        let Some(id) = &group.launch_config_id else {
            continue;
        };
        let counts = all.entry(id.clone()).or_default().of(group.state);
        *counts = StateCount {
            count: counts.count + group.count,
            capacity: counts.capacity + group.capacity,
        };
    }
    all
}
