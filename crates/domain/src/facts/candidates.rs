//! Running workers whose advice may change.

use std::collections::{BTreeMap, HashSet};

use super::Facts;
use crate::id::{LaunchConfigId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use crate::lifecycle::DEFAULT_IDLE_HOLD_MS;
use crate::plan::Candidate;
use crate::supply::{Presence, Signs};
use crate::time::{MINUTE_MS, Timestamp};
use crate::worker::Advice;

/// A plan reads at most this many running workers. Later plans read the others of a larger pool.
pub const MAX_CANDIDATES: u32 = 20_000;
/// How long plans read the same part of a large pool.
const TURN_MS: i64 = MINUTE_MS;

/// The data of a running worker that planning needs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningWorker {
    pub key: WorkerKey,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub capacity: u32,
    pub created: Timestamp,
    pub registered: Option<Timestamp>,
    pub idle_hold_ms: Option<i64>,
    /// Dollars per hour, as agreed at its launch.
    pub price: Option<f64>,
    /// The advice that it was last given.
    pub advice: Option<Advice>,
    pub last_asked: Option<Timestamp>,
    pub last_task_ended: Option<Timestamp>,
    /// Start of the current quarantine.
    pub quarantined_since: Option<Timestamp>,
    /// How many tasks it has claimed.
    pub claimed: u64,
}

/// The source of the number of tasks of a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimSource {
    /// Our own queue, so [`RunningWorker::claimed`] has it.
    Store,
    /// An external queue, which listed the workers that have tasks.
    Listed(BTreeMap<(WorkerGroup, WorkerId), u64>),
    /// An external queue that could not be asked: any worker may have tasks.
    Unknown,
}

/// How many workers a plan skips, in the order of their keys. It depends on the time alone, so that
/// a plan and the plan that is written read the same workers in any process.
pub fn first_candidate(now: Timestamp, n_running: u64, limit: u32) -> u64 {
    let limit = u64::from(limit.max(1));
    let n_turns = n_running.div_ceil(limit).max(1);
    let turn = now.as_millis().div_euclid(TURN_MS);
    u64::try_from(turn).unwrap_or(0) % n_turns * limit
}

impl Facts {
    /// The workers whose advice may change: those of providers that launch machines. Workers of
    /// other providers were declared by people, who also stop them.
    pub fn candidates(
        &self,
        running: Vec<RunningWorker>,
        claims: &ClaimSource,
        machine_providers: &[ProviderId],
    ) -> Vec<Candidate> {
        let configs = self.launch_configs.iter();
        let active: HashSet<&LaunchConfigId> = configs.map(|config| &config.id).collect();
        let candidate = |worker: RunningWorker| {
            let claimed = match claims {
                ClaimSource::Store => worker.claimed,
                ClaimSource::Listed(listed) => {
                    let name = (worker.key.group.clone(), worker.key.id.clone());
                    listed.get(&name).copied().unwrap_or(0)
                }
                ClaimSource::Unknown => worker.claimed.max(1),
            };
            let config = worker.launch_config_id.as_ref();
            let archived = config.is_some_and(|id| !active.contains(id));
            self.candidate(worker, claimed, archived)
        };
        let running = running.into_iter();
        let ours = running.filter(|worker| machine_providers.contains(&worker.provider_id));
        ours.map(candidate).collect()
    }

    fn candidate(&self, worker: RunningWorker, claimed: u64, archived: bool) -> Candidate {
        let signs = Signs {
            registered: worker.registered.unwrap_or(worker.created),
            last_asked: worker.last_asked,
            last_task_ended: worker.last_task_ended,
            has_task: claimed > 0,
        };
        let idle_since = worker.last_task_ended.max(worker.registered);
        Candidate {
            capacity: worker.capacity,
            created: worker.created,
            archived,
            deprovisioned: !self.pool.has_provider(&worker.provider_id),
            claimed,
            silent: worker.quarantined_since.is_none()
                && self.horizon.presence(&signs) == Presence::Silent,
            idle_since: idle_since.unwrap_or(worker.created),
            idle_hold_ms: worker.idle_hold_ms.unwrap_or(DEFAULT_IDLE_HOLD_MS),
            quarantined_since: worker.quarantined_since,
            advice: worker.advice,
            price: worker.price,
            key: worker.key,
        }
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    /// How many workers are skipped in each of these periods.
    fn turns(n_running: u64, limit: u32, count: i64) -> Vec<u64> {
        let at = |turn| Timestamp::from_millis(turn * TURN_MS + turn);
        (0..count)
            .map(|number| first_candidate(at(number), n_running, limit))
            .collect()
    }

    #[test]
    fn every_worker_of_a_large_pool_has_its_turn() {
        let sizes = sizes_around(
            "domain::facts::candidates::MAX_CANDIDATES",
            MAX_CANDIDATES as usize,
        );
        for n_running in sizes {
            let n_running = n_running as u64;
            let limit = u64::from(MAX_CANDIDATES);
            let n_turns = n_running.div_ceil(limit).max(1);
            let count = i64::try_from(n_turns).unwrap();
            let expected: Vec<u64> = (0..n_turns).map(|turn| turn * limit).collect();
            assert_eq!(turns(n_running, MAX_CANDIDATES, count), expected);
            // Then it starts again.
            assert_eq!(
                turns(n_running, MAX_CANDIDATES, count + 1)[expected.len()],
                0
            );
        }
        assert_eq!(turns(5, 0, 2), [0, 1]);
    }
}
