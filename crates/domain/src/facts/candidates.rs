//! Running workers whose advice may change.

use std::collections::{BTreeMap, HashSet};

use super::Facts;
use crate::id::{LaunchConfigId, OfferingId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use crate::lifecycle::DEFAULT_IDLE_HOLD_MS;
use crate::plan::Candidate;
use crate::supply::{Presence, Signs};
use crate::time::Timestamp;
use crate::worker::Advice;

/// A plan reads at most this many running workers, because other writes wait while it reads them.
/// Later plans read the others of a larger pool.
pub const MAX_CANDIDATES: u32 = 500;
/// How long plans read the same part of a large pool. As long as plans there advise workers, the
/// next one follows after this time.
pub const TURN_MS: i64 = 1_000;

/// The data of a running worker that planning needs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningWorker {
    pub key: WorkerKey,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    /// The offering of its launch, if a strategy of the pool learned.
    pub offering: Option<OfferingId>,
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
/// a plan and the plan that is written read the same workers in any process. The parts follow each
/// other in no order, since plans at regular times would else always read the same ones.
pub fn first_candidate(now: Timestamp, n_running: u64, limit: u32) -> u64 {
    let mix = 0x9E37_79B9_7F4A_7C15_u64;
    let limit = u64::from(limit.max(1));
    let n_parts = n_running.div_ceil(limit).max(1);
    let turn = u64::try_from(now.as_millis().div_euclid(TURN_MS)).unwrap_or(0);
    (turn.wrapping_mul(mix) >> 32) % n_parts * limit
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
            launch_config_id: worker.launch_config_id,
            offering: worker.offering,
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
    use std::collections::BTreeSet;

    use testing::sizes_around;

    use super::*;

    /// The parts that plans read which are made this many turns after each other.
    fn parts(n_running: u64, every: i64, count: u64) -> BTreeSet<u64> {
        let at = |number: u64| {
            let turn = i64::try_from(number).unwrap() * every;
            Timestamp::from_millis(turn * TURN_MS + turn % TURN_MS)
        };
        let first = |number| first_candidate(at(number), n_running, MAX_CANDIDATES);
        (0..count).map(first).collect()
    }

    #[test]
    fn every_worker_of_a_large_pool_has_its_turn() {
        let limit = u64::from(MAX_CANDIDATES);
        let sizes = sizes_around(
            "domain::facts::candidates::MAX_CANDIDATES",
            MAX_CANDIDATES as usize,
        );
        for n_running in sizes {
            let n_running = n_running as u64;
            let n_parts = n_running.div_ceil(limit).max(1);
            let all: BTreeSet<u64> = (0..n_parts).map(|part| part * limit).collect();
            // Also of a pool that is planned at regular times.
            for every in [1, 2, 5, 10, 60, 600] {
                assert_eq!(parts(n_running, every, 20 * n_parts), all, "{n_running}");
            }
        }
        assert_eq!(first_candidate(Timestamp::from_millis(-1), 5, 0), 0);
    }
}
