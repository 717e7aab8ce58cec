//! Gives up machines that have been starting for longer than machines of their offering need.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::Version;
use domain::id::{LaunchConfigId, WorkerKey};
use domain::lifecycle;
use domain::market::{OfferingId, OfferingMemory, OfferingNews, Trouble};
use domain::time::{MINUTE_MS, SECOND_MS, Timestamp};
use domain::worker::{Worker, WorkerState};
use store::{StoreError, Tx};

use super::SampledPool;
use crate::Engine;
use crate::change::Change;
use crate::fleet::worker_end::request_stop_with_news;

/// Machines of pools without a limit of their own have this long to register at most.
const USUAL_LIMIT_MS: i64 = 30 * MINUTE_MS;

/// A requested worker to give up.
#[derive(Clone)]
pub(super) struct LateMachine {
    key: WorkerKey,
    version: Version,
    reason: String,
}

/// The machines of these pools that are late now, at most `limit`. The time before the clock was
/// last set does not count.
pub(super) fn late_machines(
    tx: &mut Tx<'_>,
    pools: &[SampledPool],
    memories: &BTreeMap<OfferingId, OfferingMemory>,
    (now, gap): (Timestamp, Option<Timestamp>),
    limit: usize,
) -> store::Result<Vec<LateMachine>> {
    let mut late = Vec::new();
    for pool in pools {
        let mut groups = pool.facts.inventory.workers.iter();
        if !groups.any(|group| group.state == WorkerState::Requested) {
            continue;
        }
        let patience = patience(pool, memories);
        let least_ms = patience.values().map(|patience| patience.most_ms).min();
        let Some(least_ms) = least_ms.filter(|_| late.len() < limit) else {
            continue;
        };
        let (id, before) = (pool.facts.id(), now.plus_millis(-least_ms));
        let most = u32::try_from(limit - late.len()).unwrap_or(u32::MAX);
        for worker in store::workers::list_requested(tx, id, before, most)? {
            let config = worker.launch_config_id.as_ref();
            let Some(patience) = config.and_then(|config| patience.get(config)) else {
                continue;
            };
            let since = gap.map_or(worker.created, |gap| gap.max(worker.created));
            if now.millis_since(since) > patience.most_ms {
                late.push(LateMachine::of(&worker, patience));
            }
        }
    }
    Ok(late)
}

/// How long machines of an offering take to register, and how long they are waited for.
struct Patience {
    usual_ms: i64,
    most_ms: i64,
}

/// The patience with machines of each launch config that has a bid.
fn patience(
    pool: &SampledPool,
    memories: &BTreeMap<OfferingId, OfferingMemory>,
) -> BTreeMap<LaunchConfigId, Patience> {
    let facts = &pool.facts;
    let limit = lifecycle::registration_timeout(&facts.pool.definition.config);
    let limit = limit.unwrap_or(USUAL_LIMIT_MS) as f64;
    let offers = facts.launch_configs.iter().zip(&pool.bids);
    let patience = offers.filter_map(|(config, bid)| {
        let bid = bid.as_ref().ok()?;
        let id = OfferingId::new(config.provider_id(&facts.pool), &bid.place);
        let memory = memories.get(&id).copied();
        let memory = memory.unwrap_or_else(|| OfferingMemory::new(&id));
        let patience = Patience {
            usual_ms: whole(memory.boot_ms(bid.ready_ms)),
            most_ms: whole(memory.give_up_after_ms(limit, bid.ready_ms)),
        };
        Some((config.id.clone(), patience))
    });
    patience.collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is too large becomes the largest number"
)]
fn whole(millis: f64) -> i64 {
    millis as i64
}

impl LateMachine {
    fn of(worker: &Worker, patience: &Patience) -> Self {
        let (most, usual) = (patience.most_ms / SECOND_MS, patience.usual_ms / SECOND_MS);
        Self {
            key: worker.key.clone(),
            version: worker.version,
            reason: format!(
                "did not register within {most} s; machines of this offering take {usual} s"
            ),
        }
    }
}

/// Asks them to stop, `size` of them in each transaction. Returns how many were.
pub(super) async fn give_up(
    engine: &Arc<Engine>,
    late: Vec<LateMachine>,
    size: usize,
    now: Timestamp,
) -> store::Result<u64> {
    let mut n_given_up = 0;
    for some in late.chunks(size.max(1)) {
        let some = some.to_vec();
        let written = engine.change("learn_give_up", now, move |change| {
            let mut n_stopped = 0;
            for machine in &some {
                n_stopped += u64::from(stop(change, machine)?);
            }
            Ok::<_, StoreError>(n_stopped)
        });
        n_given_up += written.await?;
    }
    Ok(n_given_up)
}

fn stop(change: &mut Change<'_, '_>, machine: &LateMachine) -> store::Result<bool> {
    let Some(mut worker) = store::workers::get(change.tx, &machine.key)? else {
        return Ok(false);
    };
    // It may have registered meanwhile.
    if worker.version != machine.version {
        return Ok(false);
    }
    let failed = OfferingNews::Failed {
        trouble: Trouble::Registration,
    };
    request_stop_with_news(change, &mut worker, &machine.reason, Some(failed))
}
