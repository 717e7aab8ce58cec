//! Gives up machines that have been starting for longer than machines of their offering need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::Version;
use domain::id::{LaunchConfigId, WorkerKey};
use domain::lifecycle;
use domain::market::{OfferingId, OfferingMemory, OfferingNews, Trouble, USUAL_TIMEOUT_MS};
use domain::time::{SECOND_MS, Timestamp};
use domain::worker::{Worker, WorkerState};
use store::{StoreError, Tx};

use super::SampledPool;
use crate::Engine;
use crate::change::Change;
use crate::fleet::worker_end::request_stop_with_news;

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
        let groups = pool.facts.inventory.workers.iter();
        let starting = groups.filter(|group| group.state == WorkerState::Requested);
        let starting: BTreeSet<_> = starting
            .filter_map(|group| group.launch_config_id.as_ref())
            .collect();
        if starting.is_empty() {
            continue;
        }
        let patience = patience(pool, memories);
        for config in starting {
            let Some(patience) = patience.get(config) else {
                continue;
            };
            let before = now.plus_millis(-patience.most_ms);
            if late.len() >= limit || gap.is_some_and(|gap| gap >= before) {
                continue;
            }
            let most = u32::try_from(limit - late.len()).unwrap_or(u32::MAX);
            let id = pool.facts.id();
            let workers = store::workers::list_requested(tx, id, config, before, most)?;
            late.extend(workers.iter().map(|one| LateMachine::of(one, patience)));
        }
    }
    Ok(late)
}

/// How long machines of an offering take to register, and how long they are waited for.
struct Patience {
    usual_ms: i64,
    most_ms: i64,
}

/// The patience with machines of each launch config that has bids: the longest of all its bids.
fn patience(
    pool: &SampledPool,
    memories: &BTreeMap<OfferingId, OfferingMemory>,
) -> BTreeMap<LaunchConfigId, Patience> {
    let facts = &pool.facts;
    let limit = lifecycle::registration_timeout(&facts.pool.definition.config);
    let limit = limit.map_or(USUAL_TIMEOUT_MS, |limit| limit as f64);
    let offers = facts.launch_configs.iter().zip(pool.bids.all.iter());
    let patience = offers.filter_map(|(config, bids)| {
        let bids = bids.as_ref().ok()?.iter();
        let each = bids.map(|bid| {
            let id = OfferingId::new(config.provider_id(&facts.pool), &bid.place);
            let memory = memories.get(&id).copied();
            let memory = memory.unwrap_or_else(|| OfferingMemory::new(&id));
            Patience {
                usual_ms: whole(memory.boot_ms(bid.ready_ms)),
                most_ms: whole(memory.give_up_after_ms(limit, bid.ready_ms)),
            }
        });
        let longest = each.max_by_key(|patience| patience.most_ms)?;
        Some((config.id.clone(), longest))
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
        let written = engine.change_alone("learn_give_up", now, move |change| {
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
