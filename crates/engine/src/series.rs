//! Records series: once a minute, the levels of all pools, and what was counted since.
//!
//! Several processes may try. The one that first writes the minute writes all of it, in one
//! transaction. A minute in which no process could is missing, so readers see that it was not
//! recorded. Its counts are in the next point.

mod levels;

use std::collections::{BTreeMap, BTreeSet};

use domain::id::PoolId;
use domain::series::{FleetCounts, FleetLevels, Period, SeriesKey, SeriesStep, Values};
use domain::time::{MINUTE_MS, Timestamp};
use store::series::{Counted, Sample, SeriesName};
use store::series_points::SeriesPoints;
use store::{StoreError, Tx};

use self::levels::add;
pub(crate) use self::levels::{LevelRows, PoolFacts};
use crate::Engine;

/// Launches with an event this long before the last recorded minute are looked at again: their
/// transactions may have committed after it.
const LATE_MS: i64 = 5 * MINUTE_MS;

/// The result of one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The number of series with a point; `None`: the minute was recorded before.
    pub points: Option<u64>,
}

/// Records the present minute, unless it is recorded already.
pub async fn record(engine: &Engine) -> store::Result<Recorded> {
    record_at(engine, engine.clock.now()).await
}

/// The same, at a moment.
pub async fn record_at(engine: &Engine, now: Timestamp) -> store::Result<Recorded> {
    let minute = now.start_of(MINUTE_MS);
    let last = engine
        .store
        .read("series_look", store::series::last)
        .await?;
    // After the clock was set back, minutes that exist are not recorded again.
    if last == Some(minute) {
        return Ok(Recorded::default());
    }
    let pools = PoolFacts::read(engine, now).await?;
    if let Some(problem) = &pools.silence {
        tracing::warn!(error = %problem, "the series lack a minute, because the outside queue does \
            not say how much waits: {problem}");
        return Ok(Recorded::default());
    }
    let read = engine.store.survey("series_read", move |tx| {
        let facts = Sources::read(tx, now, last)?;
        Ok::<_, StoreError>(facts.sample(&pools))
    });
    let sample = read.await?;
    let n_points = sample.values.len() as u64;
    let written = engine.store.write("series_record", move |tx| {
        // Another process has counted since.
        let is_first = store::series::last(tx)? == last;
        Ok::<_, StoreError>(is_first && store::series::record(tx, minute, &sample)?)
    });
    let is_written = written.await?;
    Ok(Recorded {
        points: is_written.then_some(n_points),
    })
}

/// The rows from which the values are made.
struct Sources {
    levels: LevelRows,
    maxima: BTreeMap<String, i64>,
    counted: Counted,
}

impl Sources {
    fn read(tx: &mut Tx<'_>, now: Timestamp, last: Option<Timestamp>) -> store::Result<Self> {
        let since = last.unwrap_or(now).min(now).plus_millis(-LATE_MS);
        Ok(Self {
            levels: LevelRows::read(tx, now)?,
            maxima: store::series::maxima(tx)?,
            counted: Counted {
                launches: store::series::uncounted_launches(tx, since)?,
                costs: store::series::uncounted_costs(tx, now)?,
                waits: store::series::uncounted_waits(tx)?,
            },
        })
    }

    fn sample(self, pools: &PoolFacts) -> Sample {
        let mut values = BTreeMap::new();
        self.levels.add_to(&mut values, pools);
        self.add_tallies(&mut values, pools);
        let of_pools = values.iter().filter(|((_, config), _)| config.is_empty());
        let mut all = Values::default();
        for (_, of_pool) in of_pools {
            all.add(of_pool);
        }
        values.insert(SeriesName::default(), all);
        values.retain(|_, values| !values.is_zero());
        Sample {
            values,
            maxima: changed_maxima(&self.maxima, &pools.maxima),
            counted: self.counted,
        }
    }

    fn add_tallies(&self, values: &mut BTreeMap<SeriesName, Values>, pools: &PoolFacts) {
        let ids: BTreeSet<&str> = pools.maxima.keys().map(PoolId::as_str).collect();
        let none = FleetLevels::default();
        for launch in &self.counted.launches {
            let tallies = FleetCounts {
                launched: launch.made - launch.counted_made,
                refused: launch.refused - launch.counted_refused,
                failed: launch.never_registered - launch.counted_never_registered,
                ..FleetCounts::default()
            };
            add(values, &launch.name, none, tallies);
        }
        for account in &self.counted.costs {
            let tallies = FleetCounts {
                cost: account.total - account.counted,
                ..FleetCounts::default()
            };
            add(values, &account.name, none, tallies);
        }
        // Tasks of a queue without a pool are in no series.
        let waits = self.counted.waits.iter();
        for account in waits.filter(|account| ids.contains(account.pool.as_str())) {
            let tallies = FleetCounts {
                waited: account.total - account.counted,
                ..FleetCounts::default()
            };
            let name = (account.pool.clone(), String::new());
            add(values, &name, none, tallies);
        }
    }
}

/// The pools whose maximum is not the one that was recorded last, and the sum of all if it changed.
fn changed_maxima(
    known: &BTreeMap<String, i64>,
    present: &BTreeMap<PoolId, i64>,
) -> Vec<(String, i64)> {
    let mut present: BTreeMap<&str, i64> = present
        .iter()
        .map(|(id, max)| (id.as_str(), *max))
        .collect();
    let all = present
        .values()
        .fold(0, |sum: i64, max| sum.saturating_add(*max));
    present.insert("", all);
    let ids: BTreeSet<&str> = known
        .keys()
        .map(String::as_str)
        .chain(present.keys().copied())
        .collect();
    let maxima = ids
        .into_iter()
        .map(|id| (id, present.get(id).copied().unwrap_or(0)));
    let changed = maxima.filter(|(id, max)| known.get(*id).copied().unwrap_or(0) != *max);
    changed.map(|(id, max)| (id.to_owned(), max)).collect()
}

/// Limits of what one activation deletes.
#[derive(Clone, Copy, Debug)]
pub struct SeriesLimits {
    /// Rows in a transaction.
    pub rows: u32,
    /// Transactions of each kind.
    pub batches: usize,
}

/// Deletes old points, and names of series without points. Returns the number of rows.
pub async fn forget(engine: &Engine, limits: SeriesLimits) -> store::Result<u64> {
    let now = engine.clock.now();
    let mut total = 0;
    for step in SeriesStep::ALL {
        for _ in 0..limits.batches {
            let deleted = engine.store.write("series_forget", move |tx| {
                store::series::forget(tx, step, now, limits.rows)
            });
            let deleted = deleted.await?;
            total += deleted;
            if deleted == 0 {
                break;
            }
        }
    }
    for _ in 0..limits.batches {
        let thinned = engine.store.write("series_thin", move |tx| {
            store::series::thin_maxima(tx, now, limits.rows)
        });
        let thinned = thinned.await?;
        total += thinned;
        if thinned < u64::from(limits.rows) {
            break;
        }
    }
    for _ in 0..limits.batches {
        // The writer does not wait for this look.
        let look = engine.store.survey("series_look_unused", move |tx| {
            store::series::list_unused(tx, limits.rows)
        });
        let unused = look.await?;
        if unused.is_empty() {
            break;
        }
        let is_last = unused.len() < limits.rows as usize;
        let deleted = engine.store.write("series_delete", move |tx| {
            store::series::delete_unused(tx, &unused)
        });
        total += deleted.await?;
        if is_last {
            break;
        }
    }
    Ok(total)
}

/// The points of a series, and the last minute that was recorded. `None`: the pool or launch config
/// does not exist, and has no point.
pub fn read(
    tx: &mut Tx<'_>,
    key: &SeriesKey,
    period: &Period,
) -> store::Result<(Option<SeriesPoints>, Option<Timestamp>)> {
    let points = store::series_points::read(tx, key, period)?;
    let is_empty = points
        .points
        .iter()
        .all(|(_, point)| point.values.is_zero());
    let exists = match key {
        _ if !is_empty => true,
        SeriesKey::All => true,
        SeriesKey::Pool(id) => store::pools::get(tx, id)?.is_some(),
        SeriesKey::LaunchConfig(id, config) => {
            store::launch_configs::get(tx, id, config)?.is_some()
        }
    };
    let last = store::series::last(tx)?;
    Ok((exists.then_some(points), last))
}
