//! What there is: for a page of pools at a time, in a handful of grouped queries.

use std::collections::BTreeMap;

use domain::demand::Demand;
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::launch_config::LaunchConfig;
use domain::overrides::Override;
use domain::plan::{
    BadSettings, Bid, Candidate, Capacity, Health, Offer, START_UP_MS, Settings, Snapshot, Source,
};
use domain::pool::Pool;
use domain::time::{HOUR_MS, SECOND_MS, Timestamp};
use domain::worker::WorkerState;
use store::{AwaitedLaunches, LaunchRecord, StoreError, Supply, Tx};

/// Health looks back so far.
const HEALTH_WINDOW_MS: i64 = HOUR_MS;

/// For how long nothing is asked of a launch config after it was turned away for the first time.
const FIRST_PAUSE_MS: i64 = 10 * SECOND_MS;
/// Each further time doubles that, up to 320 s.
const MAX_DOUBLINGS: u64 = 5;

/// What is true of one pool now.
#[derive(Clone, Debug)]
pub struct Facts {
    pub pool: Pool,
    /// The active ones, in their author's order.
    pub launch_configs: Vec<LaunchConfig>,
    pub demand: Demand,
    pub now: Timestamp,
    /// Those in force that concern the pool.
    pub overrides: Vec<Override>,
    supply: Vec<Supply>,
    quarantined: Vec<Supply>,
    /// Launches without an answer.
    awaited: Vec<AwaitedLaunches>,
    overdue: Vec<Supply>,
    records: Vec<(LaunchConfigId, LaunchRecord)>,
}

/// Facts about pools that follow each other in the order of their ids.
pub fn page_of_facts(
    tx: &mut Tx<'_>,
    pools: Vec<Pool>,
    demand: &BTreeMap<PoolId, Demand>,
    now: Timestamp,
) -> Result<Vec<Facts>, StoreError> {
    let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
        return Ok(Vec::new());
    };
    let (first, last) = (first.id.clone(), last.id.clone());
    let since = now.plus_millis(-HEALTH_WINDOW_MS);
    let mut configs = grouped(
        store::launch_config_active_between(tx, &first, &last)?,
        |config| config.pool_id.clone(),
    );
    let mut supply = grouped(store::worker_supply_between(tx, &first, &last)?, |supply| {
        supply.pool_id.clone()
    });
    let mut quarantined = grouped(
        store::worker_supply_quarantined_between(tx, now, &first, &last)?,
        |supply| supply.pool_id.clone(),
    );
    let old = now.plus_millis(-START_UP_MS);
    let mut awaited = grouped(
        store::launch_pending_between(tx, old, &first, &last)?,
        |launches| launches.pool_id.clone(),
    );
    let mut overdue = grouped(
        store::worker_supply_overdue_between(tx, old, &first, &last)?,
        |supply| supply.pool_id.clone(),
    );
    let mut records = grouped(
        store::launch_health_between(tx, since, &first, &last)?,
        |(pool, _, _)| pool.clone(),
    );
    let overrides = store::override_list_in_force(tx, now)?;
    let facts = pools.into_iter().map(|pool| {
        let id = &pool.id;
        let own = overrides.iter().filter(|given| given.concerns(&pool));
        Facts {
            overrides: own.cloned().collect(),
            launch_configs: configs.remove(id).unwrap_or_default(),
            demand: demand.get(id).copied().unwrap_or_default(),
            now,
            supply: supply.remove(id).unwrap_or_default(),
            quarantined: quarantined.remove(id).unwrap_or_default(),
            awaited: awaited.remove(id).unwrap_or_default(),
            overdue: overdue.remove(id).unwrap_or_default(),
            records: of_pool(records.remove(id)),
            pool,
        }
    });
    Ok(facts.collect())
}

fn grouped<T>(rows: Vec<T>, pool: impl Fn(&T) -> PoolId) -> BTreeMap<PoolId, Vec<T>> {
    let mut groups: BTreeMap<PoolId, Vec<T>> = BTreeMap::new();
    for row in rows {
        groups.entry(pool(&row)).or_default().push(row);
    }
    groups
}

fn of_pool<T>(rows: Option<Vec<(PoolId, LaunchConfigId, T)>>) -> Vec<(LaunchConfigId, T)> {
    let rows = rows.unwrap_or_default().into_iter();
    rows.map(|(_, config, fact)| (config, fact)).collect()
}

impl Facts {
    /// Nothing is there, nothing is wanted, nothing waits: the usual pool at night.
    pub fn nothing_to_think_about(&self) -> bool {
        let min_capacity = self.pool.definition.config.get("minCapacity");
        let none_wanted = min_capacity
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
            == 0;
        none_wanted
            && !self.overrides.iter().any(Override::wants_capacity)
            && self.demand.pending == 0
            && self.supply.is_empty()
            && self.awaited.is_empty()
    }

    /// Workers that no active launch config of the pool stands behind, or whose provider the pool has left, must
    /// be looked at one by one.
    pub fn has_strangers(&self) -> bool {
        let active =
            |id: &LaunchConfigId| self.launch_configs.iter().any(|config| config.id == *id);
        let archived = |group: &Supply| {
            group.state == WorkerState::Running
                && group
                    .launch_config_id
                    .as_ref()
                    .is_some_and(|id| !active(id))
        };
        !self.pool.previous_provider_ids.is_empty() || self.supply.iter().any(archived)
    }

    pub fn capacity(&self) -> Capacity {
        let mut capacity = Capacity::default();
        for group in &self.supply {
            let place = match (group.state, group.draining) {
                (WorkerState::Running, false) => &mut capacity.running,
                (WorkerState::Running, true) => &mut capacity.draining,
                (WorkerState::Requested, _) => &mut capacity.requested,
                (WorkerState::Stopping, _) => &mut capacity.stopping,
                (WorkerState::Stopped, _) => continue,
            };
            *place += group.capacity;
        }
        for group in &self.quarantined {
            let place = match group.draining {
                true => &mut capacity.draining,
                false => &mut capacity.running,
            };
            *place = place.saturating_sub(group.capacity);
            capacity.quarantined += group.capacity;
        }
        let overdue: u64 = self.overdue.iter().map(|group| group.capacity).sum();
        capacity.requested = capacity.requested.saturating_sub(overdue);
        capacity.overdue = overdue;
        for launches in &self.awaited {
            let place = match self.is_promising(launches) {
                true => &mut capacity.intended,
                false => &mut capacity.overdue,
            };
            *place += launches.capacity;
        }
        capacity
    }

    /// Nobody counts on machines that should be there by now, or on those of a provider that the pool has left: they
    /// take room until it is known what became of them, and work goes elsewhere.
    fn is_promising(&self, launches: &AwaitedLaunches) -> bool {
        !launches.is_old && self.pool.has_provider(&launches.provider_id)
    }

    /// What the planner sees.
    pub fn snapshot(
        &self,
        bids: &[Result<Bid, String>],
        rooms: &BTreeMap<ProviderId, u64>,
        workers: Vec<Candidate>,
    ) -> Result<Snapshot, BadSettings> {
        let offers = self.launch_configs.iter().zip(bids).map(|(config, bid)| {
            let live = self.live(&config.id);
            let provider_id = config.provider_id(&self.pool);
            let Some(record) = of_config(&self.records, &config.id) else {
                return Offer::of(config, provider_id, live, Health::default(), bid.clone());
            };
            let bid = match turned_away_until(record, self.now) {
                Some(until) => Err(format!(
                    "the provider turned {} of its launches away; asked again at {until}",
                    record.turned_away
                )),
                None => bid.clone(),
            };
            Offer::of(config, provider_id, live, record.health, bid).tried(record.tries)
        });
        let mut settings = Settings::parse(&self.pool.definition.config)?;
        let lines = self.overrides.iter().flat_map(|given| {
            let mut lines = given.limit(&mut settings);
            if given.is_pause() {
                lines.push(given.headline());
            }
            lines
        });
        let overrides = lines.collect();
        let sources = self.pool.provider_ids().map(|id| Source {
            provider_id: id.clone(),
            room: rooms.get(id).copied(),
        });
        Ok(Snapshot {
            now: self.now,
            pool_id: self.pool.id.clone(),
            sources: sources.collect(),
            settings,
            demand: self.demand,
            capacity: self.capacity(),
            offers: offers.collect(),
            overrides,
            workers,
        })
    }

    /// The units of a launch config that are there or may still come.
    fn live(&self, id: &LaunchConfigId) -> u64 {
        let own = |group: &&Supply| group.launch_config_id.as_ref() == Some(id);
        let there: u64 = self
            .supply
            .iter()
            .filter(own)
            .map(|group| group.capacity)
            .sum();
        let awaited = self.awaited.iter();
        let awaited = awaited.filter(|launches| launches.launch_config_id == *id);
        there + awaited.map(|launches| launches.capacity).sum::<u64>()
    }
}

fn of_config<'a, T>(facts: &'a [(LaunchConfigId, T)], id: &LaunchConfigId) -> Option<&'a T> {
    let found = facts.iter().find(|(known, _)| known == id);
    found.map(|(_, fact)| fact)
}

/// Of a launch config that its provider turns away (a quota, too many calls, no credentials, broken) nothing is asked
/// for a while, longer each time, until one is accepted.
fn turned_away_until(record: &LaunchRecord, now: Timestamp) -> Option<Timestamp> {
    let last = record.last_turned_away?;
    if record
        .last_accepted
        .is_some_and(|accepted| accepted >= last)
    {
        return None;
    }
    let doublings = record.turned_away.saturating_sub(1).min(MAX_DOUBLINGS);
    let until = last.plus_millis(FIRST_PAUSE_MS << doublings);
    (until > now).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(turned_away: u64, last: i64, accepted: Option<i64>) -> LaunchRecord {
        LaunchRecord {
            health: Health::default(),
            tries: domain::plan::Tries::default(),
            turned_away,
            last_turned_away: Some(Timestamp::from_millis(last)),
            last_accepted: accepted.map(Timestamp::from_millis),
            claimed: 0,
        }
    }

    #[test]
    fn what_is_turned_away_is_left_alone_longer_each_time() {
        let until = |record: &LaunchRecord| {
            turned_away_until(record, Timestamp::from_millis(0)).map(Timestamp::as_millis)
        };
        assert_eq!(until(&record(1, 1_000, None)), Some(11_000));
        assert_eq!(until(&record(3, 1_000, None)), Some(41_000));
        assert_eq!(until(&record(1_000, 1_000, None)), Some(321_000));
        assert_eq!(until(&record(3, 1_000, Some(1_000))), None);
        let later = Timestamp::from_millis(11_000);
        assert_eq!(turned_away_until(&record(1, 1_000, None), later), None);
    }
}
