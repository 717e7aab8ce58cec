//! Learns from news of offerings and from samples of pools.
//!
//! Adds news to the memory of offerings, samples the pools whose strategy learns, and gives up
//! machines that take too long to start.
//!
//! Several processes may do this at once. Each row of news is added and deleted in one transaction,
//! so none is lost or counted twice. Pools are sampled in rounds; the process that first writes the
//! time of a round takes the samples.

mod give_up;
mod news;
mod samples;

use std::sync::Arc;

use domain::demand::Demand;
use domain::facts::Facts;
use domain::market::{MAX_UNOBSERVED_MS, ObservedTime};
use domain::recording::RecordedGap;
use domain::time::{SECOND_MS, Timestamp};

use super::bids::PoolBids;
use crate::Engine;

/// A round begins this long after the last one at the earliest, in any process.
const LEAST_INTERVAL_MS: i64 = 15 * SECOND_MS;

/// A pool that is being sampled, with its bids.
struct SampledPool {
    facts: Facts,
    bids: PoolBids,
    /// All its waiting and running tasks.
    demand: Demand,
    /// Its strategy decides by memory; otherwise only its shadow learns.
    decides_by_memory: bool,
}

/// Limits on one activation; the next one continues.
#[derive(Clone, Copy, Debug)]
pub struct LearnLimits {
    /// Rows of news in a transaction, of offerings or of pools that are sampled together.
    pub news: u32,
    /// Transactions that add news.
    pub batches: usize,
    /// Pools that are listed together.
    pub pools: u32,
    /// Of these, pools that are sampled together.
    pub samples: usize,
    /// Task queues whose demand is read together.
    pub queues: u32,
    /// Offerings that are checked for surviving machines.
    pub survivors: u32,
    /// Machines that are given up in a round.
    pub give_ups: usize,
    /// Of these, machines that are asked to stop in one transaction.
    pub stops: usize,
}

impl Default for LearnLimits {
    fn default() -> Self {
        Self {
            news: 1_000,
            batches: 50,
            pools: 500,
            samples: 16,
            queues: 10_000,
            survivors: 200,
            give_ups: 200,
            stops: 50,
        }
    }
}

/// The results of an activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnResult {
    /// Rows of news that are in memory now.
    pub news: u64,
    /// Rows of news that could not be read.
    pub dropped: u64,
    /// Pools that were sampled.
    pub pools: u64,
    /// Machines that were given up.
    pub given_up: u64,
}

/// `scan_ms`: the time from one scan of all machines to the next.
pub async fn learn(
    engine: &Arc<Engine>,
    limits: &LearnLimits,
    scan_ms: i64,
) -> store::Result<LearnResult> {
    let now = engine.clock.now();
    let mut done = LearnResult::default();
    news::add_all(engine, limits, now, &mut done).await?;
    let Some(time) = begin_round(engine, now).await? else {
        return Ok(done);
    };
    news::note_survivors(engine, limits, now, scan_ms).await?;
    samples::take(engine, limits, time, &mut done).await?;
    Ok(done)
}

/// `None`: another process has begun a round a short while ago.
async fn begin_round(engine: &Engine, now: Timestamp) -> store::Result<Option<ObservedTime>> {
    let written = engine.store.write("learn_begin", move |tx| {
        let last = store::pool_memories::time(tx)?;
        let time = match last {
            Some(last) => last.advance(now, LEAST_INTERVAL_MS),
            None => Some(ObservedTime::new(now)),
        };
        if let Some(time) = &time {
            store::pool_memories::write_time(tx, time)?;
            let gap =
                last.and_then(|last| RecordedGap::between(last.clock, now, MAX_UNOBSERVED_MS));
            if let Some(gap) = gap {
                store::recorded_gaps::insert(tx, &gap)?;
            }
        }
        Ok(time)
    });
    written.await
}
