//! Running workers one by one: those that might be told to go, or told so no longer.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::{LaunchConfigId, ProviderId, WorkerGroup, WorkerId};
use domain::lifecycle::DEFAULT_IDLE_HOLD_MS;
use domain::plan::Candidate;
use domain::supply::{Presence, Signs};
use domain::time::{MINUTE_MS, Timestamp};
use store::running_workers::RunningWorker;
use store::{StoreError, Tx};

use super::facts::Facts;

/// Of a pool with more running workers than this, some are looked at, and others later.
pub(super) const MAX_CANDIDATES: u32 = 20_000;
/// For so long it is the turn of the same ones.
const TURN_MS: i64 = MINUTE_MS;

/// How to find out how many tasks a worker has now.
#[derive(Clone)]
pub(super) enum Busy {
    /// Our own queue knows.
    AskStore,
    /// An outside queue said so; the others have none.
    Known(BTreeMap<(WorkerGroup, WorkerId), u64>),
    /// An outside queue could not be asked, so anybody might have some.
    Anybody,
}

/// Only workers of these providers: those of others were declared by people, who end them, too.
pub(super) fn read(
    tx: &mut Tx<'_>,
    facts: &Facts,
    busy: &Busy,
    launching: &[ProviderId],
) -> Result<Vec<Candidate>, StoreError> {
    read_some(tx, facts, busy, launching, MAX_CANDIDATES)
}

fn read_some(
    tx: &mut Tx<'_>,
    facts: &Facts,
    busy: &Busy,
    launching: &[ProviderId],
    limit: u32,
) -> Result<Vec<Candidate>, StoreError> {
    let skip = turn(facts.now, facts.n_running(), u64::from(limit));
    let running = store::running_workers::list(tx, &facts.pool.id, facts.now, skip, limit)?;
    let configs = facts.launch_configs.iter();
    let active: BTreeSet<&LaunchConfigId> = configs.map(|config| &config.id).collect();
    let running = running.into_iter();
    let ours = running.filter(|worker| launching.contains(&worker.provider_id));
    let candidates = ours.map(|worker| {
        let claimed = match busy {
            Busy::AskStore => worker.claimed,
            Busy::Known(busy) => {
                let name = (worker.key.group.clone(), worker.key.id.clone());
                busy.get(&name).copied().unwrap_or(0)
            }
            Busy::Anybody => worker.claimed.max(1),
        };
        candidate(facts, worker, claimed, &active)
    });
    Ok(candidates.collect())
}

/// How many workers to skip: whose turn it is depends on the time alone, so that a plan and the one that is written
/// look at the same ones, in any process.
fn turn(now: Timestamp, n_running: u64, limit: u64) -> u64 {
    let n_turns = n_running.div_ceil(limit.max(1)).max(1);
    let turn = now.as_millis().div_euclid(TURN_MS);
    let turn = u64::try_from(turn).unwrap_or(0) % n_turns;
    turn * limit
}

fn candidate(
    facts: &Facts,
    worker: RunningWorker,
    claimed: u64,
    active: &BTreeSet<&LaunchConfigId>,
) -> Candidate {
    let signs = Signs {
        registered: worker.registered.unwrap_or(worker.created),
        last_asked: worker.last_asked,
        last_task_ended: worker.last_task_ended,
        has_task: claimed > 0,
    };
    let config = worker.launch_config_id.as_ref();
    let idle_since = worker.last_task_ended.max(worker.registered);
    Candidate {
        capacity: worker.capacity,
        created: worker.created,
        archived: config.is_some_and(|id| !active.contains(id)),
        deprovisioned: !facts.pool.has_provider(&worker.provider_id),
        claimed,
        silent: worker.quarantined_since.is_none()
            && facts.horizon.presence(&signs) == Presence::Silent,
        idle_since: idle_since.unwrap_or(worker.created),
        idle_hold_ms: worker.idle_hold_ms.unwrap_or(DEFAULT_IDLE_HOLD_MS),
        quarantined_since: worker.quarantined_since,
        advice: worker.advice,
        key: worker.key,
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    /// How many are skipped in each of so many turns.
    fn turns(n_running: u64, limit: u64, count: i64) -> Vec<u64> {
        let at = |turn| Timestamp::from_millis(turn * TURN_MS + turn);
        (0..count)
            .map(|number| turn(at(number), n_running, limit))
            .collect()
    }

    #[test]
    fn every_worker_of_a_large_pool_has_its_turn() {
        const LIMIT: u64 = MAX_CANDIDATES as u64;
        let sizes = sizes_around(
            "engine::fleet::candidates::MAX_CANDIDATES",
            MAX_CANDIDATES as usize,
        );
        for n_running in sizes {
            let n_running = n_running as u64;
            let n_turns = n_running.div_ceil(LIMIT).max(1);
            let count = i64::try_from(n_turns).unwrap();
            let expected: Vec<u64> = (0..n_turns).map(|turn| turn * LIMIT).collect();
            assert_eq!(turns(n_running, LIMIT, count), expected);
            // Then it begins again.
            assert_eq!(turns(n_running, LIMIT, count + 1)[expected.len()], 0);
        }
        assert_eq!(turns(5, 0, 2), [0, 0]);
    }
}
