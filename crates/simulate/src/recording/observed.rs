//! Observations of each offering: boots, prices, interruptions, refusals.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::launch::Cause;
use domain::time::MINUTE_MS;

use super::Recording;
use super::entry::{LaunchConfigEntry, LaunchEntry, WorkerEntry};
use crate::offering::{BootTime, Period};
use crate::units::{to_hours, to_seconds};

/// No boot is shorter, in seconds.
const LEAST_BOOT: f64 = 0.001;

/// A provider and a place, or a launch config if the provider named no place.
pub(super) type OfferingKey = (ProviderId, String);

/// Observations of the machines of an offering, or of a provider.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// In seconds.
    boots: Vec<f64>,
    n_failed: u32,
    n_interrupted: u32,
    running_hours: f64,
    /// The agreed prices, by the time of the launch in milliseconds since the start.
    pub(super) prices: Vec<(i64, f64)>,
    /// The times at which a launch was refused for lack of machines.
    refused_ms: Vec<i64>,
    accepted_ms: Vec<i64>,
    /// The times at which a quota was used up.
    quota_ms: Vec<i64>,
    /// When machines were made, and when they ended.
    made_ms: Vec<i64>,
    ended_ms: Vec<i64>,
}

/// The observations of a recording.
pub(super) struct Observations {
    keys: BTreeMap<(PoolId, LaunchConfigId), OfferingKey>,
    offerings: BTreeMap<OfferingKey, Observed>,
    providers: BTreeMap<ProviderId, Observed>,
    all: Observed,
}

/// The key of the offering of a launch config.
pub(super) fn key_of(config: &LaunchConfigEntry) -> OfferingKey {
    let place = config.place.clone().filter(|place| !place.is_empty());
    let place = place.unwrap_or_else(|| config.launch_config_id.to_string());
    (config.provider_id.clone(), place)
}

impl Observations {
    pub(super) fn of(recording: &Recording) -> Self {
        let mut observations = Self {
            keys: BTreeMap::new(),
            offerings: BTreeMap::new(),
            providers: BTreeMap::new(),
            all: Observed::default(),
        };
        for pool in &recording.pools {
            for config in &pool.launch_configs {
                let id = (pool.worker_pool_id.clone(), config.launch_config_id.clone());
                observations.keys.insert(id, key_of(config));
            }
        }
        for worker in &recording.workers {
            observations.add_worker(recording, worker);
        }
        for launch in &recording.launches {
            observations.add_launch(recording, launch);
        }
        observations
    }

    pub(super) fn key(&self, pool_id: &PoolId, id: &LaunchConfigId) -> Option<&OfferingKey> {
        self.keys.get(&(pool_id.clone(), id.clone()))
    }

    pub(super) fn offering(&self, key: &OfferingKey) -> Option<&Observed> {
        self.offerings.get(key)
    }

    pub(super) fn provider(&self, id: &ProviderId) -> Option<&Observed> {
        self.providers.get(id)
    }

    pub(super) fn all(&self) -> &Observed {
        &self.all
    }

    /// That of an offering, of its provider, and of all.
    fn each(
        &mut self,
        pool_id: &PoolId,
        id: Option<&LaunchConfigId>,
        provider_id: &ProviderId,
    ) -> impl Iterator<Item = &mut Observed> {
        let key = id.and_then(|id| self.keys.get(&(pool_id.clone(), id.clone())));
        let offering = key.map(|key| self.offerings.entry(key.clone()).or_default());
        let provider = self.providers.entry(provider_id.clone()).or_default();
        offering.into_iter().chain([provider, &mut self.all])
    }

    fn add_worker(&mut self, recording: &Recording, worker: &WorkerEntry) {
        let header = &recording.header;
        let since_start = |at: domain::time::Timestamp| at.millis_since(header.since);
        let id = worker.launch_config_id.as_ref();
        for observed in self.each(&worker.worker_pool_id, id, &worker.provider_id) {
            let made_ms = since_start(worker.created);
            observed.made_ms.push(made_ms);
            observed.ended_ms.extend(worker.stopped.map(since_start));
            observed
                .prices
                .extend(worker.price.map(|price| (made_ms, price)));
            observed.n_interrupted += u32::from(worker.interrupted);
            let end = worker.stopping.or(worker.stopped);
            match worker.registered {
                Some(registered) => {
                    let boot = to_seconds(registered.millis_since(worker.created));
                    observed.boots.push(boot.max(LEAST_BOOT));
                    let end = end.unwrap_or(header.until).min(header.until);
                    let ran_ms = end.millis_since(registered.max(header.since));
                    observed.running_hours += to_hours(ran_ms.max(0));
                }
                None => observed.n_failed += u32::from(end.is_some()),
            }
        }
    }

    fn add_launch(&mut self, recording: &Recording, launch: &LaunchEntry) {
        let at_ms = launch.created.millis_since(recording.header.since);
        let id = Some(&launch.launch_config_id);
        for observed in self.each(&launch.worker_pool_id, id, &launch.provider_id) {
            match launch.cause {
                _ if launch.made > 0 => observed.accepted_ms.push(at_ms),
                Some(Cause::Quota) => observed.quota_ms.push(at_ms),
                Some(
                    Cause::Capacity
                    | Cause::Configuration
                    | Cause::Throttled
                    | Cause::Credentials
                    | Cause::Unavailable
                    | Cause::Lost,
                ) => observed.refused_ms.push(at_ms),
                None => {}
            }
        }
    }
}

impl Observed {
    /// `None`: no machine has registered.
    pub(super) fn boot(&self) -> Option<BootTime> {
        let n = self.boots.len();
        if n == 0 {
            return None;
        }
        let mean_seconds = self.boots.iter().sum::<f64>() / n as f64;
        let logarithms = self.boots.iter().map(|boot| boot.ln());
        let mean = logarithms.clone().sum::<f64>() / n as f64;
        let squares: f64 = logarithms.map(|one| (one - mean).powi(2)).sum();
        Some(BootTime {
            mean_seconds,
            sigma: (squares / n as f64).sqrt(),
        })
    }

    /// In the order of their lengths.
    pub(super) fn boots(&self) -> Arc<[f64]> {
        let mut boots = self.boots.clone();
        boots.sort_by(f64::total_cmp);
        boots.into()
    }

    pub(super) fn mean_price(&self) -> Option<f64> {
        let n = self.prices.len();
        let sum: f64 = self.prices.iter().map(|(_, price)| price).sum();
        (n > 0).then(|| sum / n as f64)
    }

    pub(super) fn failing_boots(&self) -> f64 {
        let n = self.boots.len() as f64 + f64::from(self.n_failed);
        f64::from(self.n_failed) / n.max(1.0)
    }

    pub(super) fn interruptions_per_hour(&self) -> f64 {
        if self.running_hours > 0.0 {
            f64::from(self.n_interrupted) / self.running_hours
        } else {
            0.0
        }
    }

    /// From a first refusal to the last one in a row, and a minute more unless a launch was
    /// accepted before.
    pub(super) fn outages(&self) -> Vec<Period> {
        let mut refused: Vec<i64> = self.refused_ms.clone();
        refused.sort_unstable();
        let mut accepted: Vec<i64> = self.accepted_ms.clone();
        accepted.sort_unstable();
        let mut outages: Vec<Period> = Vec::new();
        for at_ms in refused {
            let next = accepted.partition_point(|accepted_ms| *accepted_ms <= at_ms);
            let next_ms = accepted.get(next).copied().unwrap_or(i64::MAX);
            let to_ms = at_ms.saturating_add(MINUTE_MS).min(next_ms);
            let is_same = |last: &&mut Period| {
                let n_until = |ms: i64| accepted.partition_point(|accepted_ms| *accepted_ms <= ms);
                n_until(last.from_ms) == n_until(at_ms)
            };
            match outages.last_mut().filter(is_same) {
                Some(last) => last.to_ms = last.to_ms.max(to_ms),
                None => outages.push(Period {
                    from_ms: at_ms,
                    to_ms,
                }),
            }
        }
        outages
    }

    /// The most machines that there were when a quota was used up. `None`: none was.
    pub(super) fn quota(&self) -> Option<u64> {
        let sorted = |times: &[i64]| {
            let mut sorted = times.to_vec();
            sorted.sort_unstable();
            sorted
        };
        let (made, ended) = (sorted(&self.made_ms), sorted(&self.ended_ms));
        let n_live = |at_ms: &i64| {
            let n_until = |times: &[i64]| times.partition_point(|ms| ms <= at_ms);
            n_until(&made).saturating_sub(n_until(&ended)) as u64
        };
        self.quota_ms.iter().map(n_live).max()
    }
}
