//! Counts new errors by cause, for each channel from its own position.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::Version;
use domain::error_cause::cause_in_pool;
use domain::error_report::ErrorReport;
use domain::id::PoolId;
use domain::time::{HOUR_MS, Timestamp};
use store::notice_causes::NoticeCause;
use store::{StoreError, Tx};

use super::Channel;
use crate::config::Notify;

/// Stands for all further causes of a pool, beyond the limit.
pub(super) const MIXED: &str = "mixed";
pub const BATCH: u32 = 500;
pub const MAX_CAUSES: u64 = 50;

/// Limits of counting.
#[derive(Clone, Copy, Debug)]
pub struct CollectLimits {
    /// Maximum number of errors that one transaction counts.
    pub errors: u32,
    /// Maximum number of causes per pool that are kept apart; further ones count as one cause.
    pub causes: u64,
}

/// The delays before a notice.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub gather_ms: i64,
    pub repeat_ms: i64,
    pub max_per_hour: u32,
}

impl From<&Notify> for Pace {
    fn from(config: &Notify) -> Self {
        Self {
            gather_ms: i64::from(config.gather_seconds) * 1_000,
            repeat_ms: i64::from(config.repeat_hours) * HOUR_MS,
            max_per_hour: config.max_per_hour,
        }
    }
}

/// Counts the next errors and returns their number.
pub fn collect(
    tx: &mut Tx<'_>,
    channel: &Arc<dyn Channel>,
    pace: Pace,
    limits: CollectLimits,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let name = channel.id();
    let Some(reader) = store::event_readers::get(tx, name)? else {
        store::event_readers::open(tx, name)?;
        return Ok(0);
    };
    let head = store::events::head(tx)?;
    let errors = store::notice_causes::list_errors_after(tx, reader.position, head, limits.errors)?;
    let Some((last, _)) = errors.last() else {
        return Ok(0);
    };
    let (last, n_errors) = (*last, errors.len());
    let mut by_pool: BTreeMap<PoolId, BTreeMap<String, Vec<ErrorReport>>> = BTreeMap::new();
    for report in errors.into_iter().filter_map(|(_, report)| report) {
        let of_pool = by_pool.entry(report.pool_id.clone()).or_default();
        of_pool
            .entry(cause_in_pool(&report))
            .or_default()
            .push(report);
    }
    let counting = Counting {
        channel: name,
        pace,
        max_causes: limits.causes,
        now,
    };
    for (pool_id, by_cause) in by_pool {
        let pool = store::pools::get(tx, &pool_id)?;
        if pool.and_then(|pool| channel.recipient(&pool)).is_none() {
            continue;
        }
        for (cause, reports) in by_cause {
            counting.count(tx, &pool_id, cause, &reports)?;
        }
    }
    if store::event_readers::advance(tx, name, reader.fence, last)? {
        Ok(n_errors)
    } else {
        Err(tx.lost_race())
    }
}

/// The context of the errors that are counted together.
struct Counting<'a> {
    channel: &'a str,
    pace: Pace,
    max_causes: u64,
    now: Timestamp,
}

impl Counting<'_> {
    /// Adds errors of one cause to its counts.
    fn count(
        &self,
        tx: &mut Tx<'_>,
        pool_id: &PoolId,
        mut cause: String,
        reports: &[ErrorReport],
    ) -> Result<(), StoreError> {
        let channel = self.channel;
        let mut known = store::notice_causes::get(tx, channel, pool_id, &cause)?;
        if known.is_none() && store::notice_causes::count(tx, channel, pool_id)? >= self.max_causes
        {
            cause = MIXED.to_owned();
            known = store::notice_causes::get(tx, channel, pool_id, &cause)?;
        }
        let times = || reports.iter().map(|report| report.reported);
        let (Some(first), Some(last), Some(latest)) =
            (times().min(), times().max(), reports.last())
        else {
            return Ok(());
        };
        let is_new = known.is_none();
        let mut known = known.unwrap_or_else(|| NoticeCause {
            channel: channel.to_owned(),
            pool_id: pool_id.clone(),
            cause,
            error_id: latest.error_id.clone(),
            first_reported: first,
            last_reported: last,
            n_waiting: 0,
            first_waiting: None,
            n_notified: 0,
            last_notified: None,
            due: None,
            version: Version::FIRST,
        });
        known.error_id = latest.error_id.clone();
        known.last_reported = known.last_reported.max(last);
        known.n_waiting += reports.len() as u64;
        known.first_waiting = known.first_waiting.or(Some(first));
        known.due = known.due.or_else(|| {
            let gathered = self.now.plus_millis(self.pace.gather_ms);
            let notified = known.last_notified;
            let again = notified.map(|notified| notified.plus_millis(self.pace.repeat_ms));
            again.max(Some(gathered))
        });
        if is_new {
            store::notice_causes::insert(tx, &known)
        } else {
            store::notice_causes::update(tx, &known)
        }
    }
}
