//! Writes the next notice: chooses its recipient and its causes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::Version;
use domain::id::PoolId;
use domain::pool::Pool;
use domain::time::{HOUR_MS, Timestamp};
use store::notice_causes::NoticeCause;
use store::notices::Notice;
use store::{StoreError, Tx};

use super::Channel;
use super::collect::Pace;
use super::content::{Content, Described, Further};

pub const MAX_DUE: u32 = 500;
/// Maximum number of causes that a notice describes; further ones are counted.
const MAX_DESCRIBED: usize = 10;
/// With more pools than this, the pools share a notice; otherwise each pool gets its own, which is
/// easier to sort.
const MAX_SEPARATE_POOLS: usize = 3;

/// Writes the next notice, and marks its causes as reported. Its lease ends at `until`. Examines at
/// most `limit` causes. `None`: no notice is due.
pub fn compose(
    tx: &mut Tx<'_>,
    channel: &Arc<dyn Channel>,
    id: &str,
    pace: Pace,
    limit: u32,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<Notice>, StoreError> {
    let due = store::notice_causes::list_due(tx, channel.id(), now, limit)?;
    let pools = pools_of(tx, &due)?;
    let mut by_recipient: BTreeMap<String, Vec<NoticeCause>> = BTreeMap::new();
    for cause in due {
        let pool = pools.get(&cause.pool_id);
        match pool.and_then(|pool| channel.recipient(pool)) {
            Some(recipient) => by_recipient.entry(recipient).or_default().push(cause),
            // The pool was deleted, or its notices were switched off.
            None => store::notice_causes::delete(tx, &cause)?,
        }
    }
    for (recipient, causes) in by_recipient {
        let left = match budget(tx, channel.id(), &recipient, pace, now)? {
            Budget::Left(left) => left,
            Budget::NoneBefore(moment) => {
                postpone(tx, causes, moment)?;
                continue;
            }
        };
        let chosen = choose(causes, left);
        let Some(content) = describe(tx, &chosen, &pools)? else {
            continue;
        };
        let notice = Notice {
            id: id.to_owned(),
            channel: channel.id().to_owned(),
            recipient,
            content: serde_json::to_value(&content).expect("content is plain data"),
            created: now,
            due: until,
            refusals: 0,
            version: Version::FIRST,
        };
        for cause in chosen {
            store::notice_causes::update(tx, &mark_reported(cause, now))?;
        }
        return if store::notices::insert(tx, &notice)? {
            Ok(Some(notice))
        } else {
            Err(tx.lost_race())
        };
    }
    Ok(None)
}

/// Whether a notice may be sent now.
#[derive(Debug, PartialEq, Eq)]
enum Budget {
    /// Yes, and this many in the current hour, including this one.
    Left(u32),
    /// Not before this time.
    NoneBefore(Timestamp),
}

fn budget(
    tx: &mut Tx<'_>,
    channel: &str,
    recipient: &str,
    pace: Pace,
    now: Timestamp,
) -> Result<Budget, StoreError> {
    if let Some(due) = store::notices::waiting(tx, channel, recipient)? {
        return Ok(Budget::NoneBefore(due.max(now.plus_millis(1))));
    }
    let an_hour_ago = now.plus_millis(-HOUR_MS);
    let limit = pace.max_per_hour;
    let recent = store::notices::recent(tx, channel, recipient, an_hour_ago, limit)?;
    let n_recent = u32::try_from(recent.len()).unwrap_or(limit);
    Ok(match recent.last() {
        Some(oldest) if n_recent >= limit => Budget::NoneBefore(oldest.plus_millis(HOUR_MS)),
        Some(_) | None => Budget::Left(limit - n_recent),
    })
}

fn postpone(
    tx: &mut Tx<'_>,
    causes: Vec<NoticeCause>,
    moment: Timestamp,
) -> Result<(), StoreError> {
    for cause in causes {
        let due = Some(moment);
        store::notice_causes::update(tx, &NoticeCause { due, ..cause })?;
    }
    Ok(())
}

/// The causes of one pool, if the pools are few; otherwise, and in the last notice of the hour, all
/// of them.
fn choose(causes: Vec<NoticeCause>, notices_left: u32) -> Vec<NoticeCause> {
    let pools: BTreeSet<&PoolId> = causes.iter().map(|cause| &cause.pool_id).collect();
    let first = causes.first().map(|cause| cause.pool_id.clone());
    let mut chosen = causes.clone();
    if pools.len() <= MAX_SEPARATE_POOLS && notices_left > 1 {
        chosen.retain(|cause| Some(&cause.pool_id) == first.as_ref());
    }
    chosen.sort_by_key(|cause| std::cmp::Reverse(cause.n_waiting));
    chosen
}

/// `None` if all errors of the causes have expired.
fn describe(
    tx: &mut Tx<'_>,
    causes: &[NoticeCause],
    pools: &BTreeMap<PoolId, Pool>,
) -> Result<Option<Content>, StoreError> {
    let (mut described, mut further) = (Vec::new(), Further::default());
    for cause in causes {
        if let Some(pool) = pools.get(&cause.pool_id)
            && described.len() < MAX_DESCRIBED
            && let Some(report) = store::worker_errors::get(tx, &cause.pool_id, &cause.error_id)?
        {
            described.push(Described::new(cause, pool, &report));
        } else {
            further.errors += cause.n_waiting;
            further.causes += 1;
        }
    }
    if described.is_empty() {
        // Errors are kept for days and reported within hours: these have waited for too long.
        for cause in causes {
            store::notice_causes::delete(tx, cause)?;
        }
        return Ok(None);
    }
    Ok(Some(Content {
        causes: described,
        further,
    }))
}

fn mark_reported(cause: NoticeCause, now: Timestamp) -> NoticeCause {
    NoticeCause {
        n_notified: cause.n_notified + cause.n_waiting,
        n_waiting: 0,
        first_waiting: None,
        last_notified: Some(now),
        due: None,
        ..cause
    }
}

fn pools_of(tx: &mut Tx<'_>, causes: &[NoticeCause]) -> Result<BTreeMap<PoolId, Pool>, StoreError> {
    let ids: BTreeSet<&PoolId> = causes.iter().map(|cause| &cause.pool_id).collect();
    let mut pools = BTreeMap::new();
    for id in ids {
        if let Some(pool) = store::pools::get(tx, id)? {
            pools.insert(id.clone(), pool);
        }
    }
    Ok(pools)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(pool: &str, n_waiting: u64) -> NoticeCause {
        let moment = Timestamp::from_millis(0);
        NoticeCause {
            channel: "email".to_owned(),
            pool_id: pool.parse().unwrap(),
            cause: format!("{n_waiting}"),
            error_id: "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap(),
            first_reported: moment,
            last_reported: moment,
            n_waiting,
            first_waiting: Some(moment),
            n_notified: 3,
            last_notified: None,
            due: Some(moment),
            version: Version::FIRST,
        }
    }

    fn chosen(pools: &[&str], notices_left: u32) -> Vec<String> {
        let causes = pools
            .iter()
            .zip(1..)
            .map(|(pool, n)| cause(pool, n))
            .collect();
        let chosen = choose(causes, notices_left);
        chosen
            .iter()
            .map(|cause| format!("{} {}", cause.pool_id, cause.n_waiting))
            .collect()
    }

    #[test]
    fn few_pools_get_a_notice_each_that_begins_with_the_most_frequent_cause() {
        assert_eq!(chosen(&["a/b", "a/c", "a/b"], 20), ["a/b 3", "a/b 1"]);
    }

    #[test]
    fn many_pools_share_one() {
        let all = ["a/e 4", "a/d 3", "a/c 2", "a/b 1"];
        assert_eq!(chosen(&["a/b", "a/c", "a/d", "a/e"], 20), all);
    }

    #[test]
    fn the_last_notice_of_the_hour_reports_all_causes() {
        assert_eq!(chosen(&["a/b", "a/c"], 1), ["a/c 2", "a/b 1"]);
    }

    #[test]
    fn a_reported_cause_is_counted_and_not_due() {
        let now = Timestamp::from_millis(7);
        let told = mark_reported(cause("a/b", 2), now);
        assert_eq!(
            (told.n_waiting, told.n_notified, told.last_notified),
            (0, 5, Some(now))
        );
        assert_eq!((told.due, told.first_waiting), (None, None));
    }
}
