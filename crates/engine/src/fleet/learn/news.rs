//! Adds news to the memory of offerings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::id::ProviderId;
use domain::market::{OfferingId, OfferingNews, SURVIVAL_MS, Trouble};
use domain::time::Timestamp;
use store::Tx;
use store::offering_memories::OfferingRecord;
use store::offering_news::NewsRow;

use super::{LearnLimits, LearnResult};
use crate::Engine;

/// More machines of one offering that survive at the same time show nothing further.
const MAX_SURVIVORS: u64 = 10;

/// Adds all news, the oldest first.
pub(super) async fn add_all(
    engine: &Arc<Engine>,
    limits: &LearnLimits,
    now: Timestamp,
    done: &mut LearnResult,
) -> store::Result<()> {
    let size = limits.news;
    for _ in 0..limits.batches {
        let look = engine
            .store
            .read("learn_look", |tx| store::offering_news::oldest(tx, 1));
        if look.await?.is_empty() {
            return Ok(());
        }
        let added = engine
            .store
            .write("learn_news", move |tx| add(tx, size, now));
        let (n_added, n_dropped) = added.await?;
        done.news += n_added;
        done.dropped += n_dropped;
        if n_dropped > 0 {
            tracing::warn!(
                news.n_dropped = n_dropped,
                "{n_dropped} news of offerings were dropped: another version of the program wrote \
                 them"
            );
        }
        if n_added + n_dropped < u64::from(size) {
            return Ok(());
        }
    }
    Ok(())
}

/// Adds the oldest rows to the memory of their offerings and deletes them. Returns how many were
/// added, and how many could not be read.
fn add(tx: &mut Tx<'_>, limit: u32, now: Timestamp) -> store::Result<(u64, u64)> {
    let rows = store::offering_news::oldest(tx, limit)?;
    let named: BTreeSet<&OfferingId> = rows.iter().map(|row| &row.offering).collect();
    let named: Vec<OfferingId> = named.into_iter().cloned().collect();
    let known = store::offering_memories::of(tx, &named)?.into_iter();
    let mut records: BTreeMap<OfferingId, OfferingRecord> = known
        .map(|record| (record.offering.clone(), record))
        .collect();
    let mut n_dropped = 0;
    for row in &rows {
        let NewsRow {
            offering, observed, ..
        } = row;
        let record = records.entry(offering.clone()).or_insert_with(|| {
            OfferingRecord::new(offering.clone(), row.provider_id.clone(), *observed)
        });
        let Some(news) = row.news else {
            n_dropped += 1;
            continue;
        };
        let mut memory = record.memory();
        memory.observe(news, *observed);
        if matches!(
            news,
            OfferingNews::Failed {
                trouble: Trouble::Vanished
            } | OfferingNews::FailedLate { .. }
        ) {
            // Only launches after the failure show that the offering works again.
            record.survivors_until = record.survivors_until.max(*observed);
        }
        record.memory = Some(memory);
        record.last_modified = now;
    }
    for record in records.values() {
        store::offering_memories::write(tx, record)?;
    }
    store::offering_news::delete(tx, &rows)?;
    Ok((rows.len() as u64 - n_dropped, n_dropped))
}

/// Where accepted launches have failed later, notes the machines that exist for long enough. Each
/// launch is considered once: when two scans could have found that its machines are missing.
pub(super) async fn note_survivors(
    engine: &Arc<Engine>,
    limits: &LearnLimits,
    now: Timestamp,
    scan_ms: i64,
) -> store::Result<()> {
    let until = now.plus_millis(-SURVIVAL_MS - 2 * scan_ms);
    let size = limits.survivors;
    let mut after: Option<OfferingId> = None;
    loop {
        let start = after.take();
        let list = engine.store.read("learn_survival_list", move |tx| {
            store::offering_memories::list_awaiting_survival(tx, start.as_ref(), size)
        });
        let page = list.await?;
        let is_full = page.len() == size as usize;
        let last = page.last().map(|record| record.offering.clone());
        let due = |record: &OfferingRecord| {
            record.survivors_until < until || record.survivors_until > now
        };
        let due: Vec<OfferingId> = page
            .into_iter()
            .filter(due)
            .map(|record| record.offering)
            .collect();
        if !due.is_empty() {
            let written = engine.store.write("learn_survival", move |tx| {
                count_survivors(tx, &due, until, now)
            });
            written.await?;
        }
        if !is_full {
            return Ok(());
        }
        after = last;
    }
}

fn count_survivors(
    tx: &mut Tx<'_>,
    offerings: &[OfferingId],
    until: Timestamp,
    now: Timestamp,
) -> store::Result<()> {
    for mut record in store::offering_memories::of(tx, offerings)? {
        let after = record.survivors_until;
        // After the clock was set back, nothing is counted a second time.
        if after < until {
            let found = store::launches::survivors(tx, &record.offering, after, until)?;
            for _ in 0..found.min(MAX_SURVIVORS) {
                let (offering, id) = (&record.offering, &record.provider_id);
                store::offering_news::insert(tx, offering, id, OfferingNews::Survived, now)?;
            }
        }
        if after < until || after > now {
            record.survivors_until = until;
            store::offering_memories::write(tx, &record)?;
        }
    }
    Ok(())
}

/// Hours of workers, by offering.
#[derive(Default)]
pub(super) struct WorkerHours(BTreeMap<OfferingId, (ProviderId, f64)>);

impl WorkerHours {
    pub(super) fn add(&mut self, offering: &OfferingId, provider_id: &ProviderId, hours: f64) {
        let entry = self.0.entry(offering.clone());
        let (_, sum) = entry.or_insert_with(|| (provider_id.clone(), 0.0));
        *sum += hours;
    }

    /// Notes them as news.
    pub(super) fn note(self, tx: &mut Tx<'_>, now: Timestamp) -> store::Result<()> {
        for (offering, (provider_id, hours)) in self.0 {
            if hours > 0.0 {
                let news = OfferingNews::Ran { hours };
                store::offering_news::insert(tx, &offering, &provider_id, news, now)?;
            }
        }
        Ok(())
    }
}
