//! The accounts of waiting time: sums by pool, owner, time or cause.

use std::collections::BTreeMap;

use domain::id::PoolId;
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use domain::waits::{AccountSum, Grouping, WaitCause};
use serde_json::{Value, json};
use store::StoreError;

use crate::api::{call::Call, error::ApiError, reply::Reply};

/// The time that is summed if the request names none.
const USUAL_MS: i64 = 30 * DAY_MS;
/// Sums of a shorter time are read from the accounts of hours.
const HOURLY_MS: i64 = 3 * DAY_MS;

/// Rows of a report; the others are summed up.
const MAX_LINES: usize = 1_000;

/// The sums of one key.
#[derive(Default)]
struct Row {
    millis: i64,
    causes: BTreeMap<WaitCause, (u64, i64)>,
}

pub(super) async fn read(call: Call) -> Result<Reply, ApiError> {
    let grouping = call.query("by").unwrap_or("cause");
    let grouping: Grouping = grouping.parse().map_err(|_| unknown("by", grouping))?;
    let (span_ms, since, until) = period(&call, grouping)?;
    let asked: Option<PoolId> = call.query_id("workerPoolId")?;
    let top = call.query("top").map(str::parse::<usize>).transpose();
    let top = top.map_err(|_| unknown("top", call.query("top").unwrap_or_default()))?;
    let scopes = call.scopes();
    let time = (span_ms, since, until);
    let may_read = move |id: &str| scopes.satisfies(&format!("fleetwright:explain:{id}"));
    let read = call.scan("wait_report", move |tx| {
        let is_missing = match &asked {
            Some(id) => may_read(id.as_str()) && store::pools::get(tx, id)?.is_none(),
            None => false,
        };
        let missing = asked.clone().filter(|_| is_missing);
        let pools = match asked.clone() {
            Some(id) => Some(vec![id]),
            None if may_read("*") => None,
            None => Some(store::wait_accounts::pools(tx, time)?),
        };
        let pools = pools.map(|mut pools| {
            pools.retain(|id| may_read(id.as_str()));
            pools
        });
        let sums = store::wait_accounts::sums(tx, grouping, time, pools.as_deref())?;
        Ok::<_, StoreError>((sums, missing))
    });
    let (sums, missing) = read.await?;
    // A misspelt name would look like no wait. Tasks may wait in a queue without a pool.
    if let Some(id) = missing.filter(|_| sums.is_empty()) {
        return Err(ApiError::not_found(format!(
            "Pool {id} does not exist, and no task waited in a queue of this name since {since}"
        )));
    }
    Reply::json(&report(grouping, time, sums, top))
}

fn unknown(name: &str, value: &str) -> ApiError {
    ApiError::input(format!(
        "`{name}` cannot be {value:?}: see the values in the description of the API"
    ))
}

/// The length of the accounts that are read, and the time from the start of the first one to the
/// end of the last one.
fn period(call: &Call, grouping: Grouping) -> Result<(i64, Timestamp, Timestamp), ApiError> {
    let moment = |name: &str, usual: Timestamp| match call.query(name) {
        None => Ok(usual),
        Some(text) => text.parse::<Timestamp>().map_err(|_| unknown(name, text)),
    };
    let until = moment("until", call.now)?;
    let since = moment("since", until.plus_millis(-USUAL_MS))?;
    let span_ms = match grouping {
        Grouping::Hour => HOUR_MS,
        Grouping::Day => DAY_MS,
        Grouping::Pool | Grouping::Queue | Grouping::Owner | Grouping::Cause
            if until.millis_since(since) <= HOURLY_MS =>
        {
            HOUR_MS
        }
        Grouping::Pool | Grouping::Queue | Grouping::Owner | Grouping::Cause => DAY_MS,
    };
    let end = until.plus_millis(span_ms - 1).start_of(span_ms);
    Ok((span_ms, since.start_of(span_ms), end))
}

fn report(
    grouping: Grouping,
    (span_ms, since, until): (i64, Timestamp, Timestamp),
    sums: Vec<AccountSum>,
    top: Option<usize>,
) -> Value {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut all = Row::default();
    for sum in sums {
        let key = match grouping {
            Grouping::Cause => sum.cause.as_str().to_owned(),
            Grouping::Pool | Grouping::Queue | Grouping::Owner | Grouping::Day | Grouping::Hour => {
                sum.key.clone()
            }
        };
        rows.entry(key).or_default().add(&sum);
        all.add(&sum);
    }
    let mut rows: Vec<(String, Row)> = rows.into_iter().collect();
    match grouping {
        // In the order of time.
        Grouping::Day | Grouping::Hour => {}
        Grouping::Pool | Grouping::Queue | Grouping::Owner | Grouping::Cause => {
            rows.sort_by(|(one, left), (other, right)| {
                right.millis.cmp(&left.millis).then_with(|| one.cmp(other))
            });
        }
    }
    let n_rows = rows.len();
    let shown = top.unwrap_or(MAX_LINES).min(MAX_LINES).min(n_rows);
    let others: i64 = rows[shown..].iter().map(|(_, row)| row.millis).sum();
    json!({
        "by": grouping.as_str(),
        "since": since.to_string(),
        "until": until.to_string(),
        "spanMs": span_ms,
        "totalMs": all.millis,
        "causes": all.json(),
        "rows": rows[..shown].iter().map(|(key, row)| json!({
            "key": key, "ms": row.millis, "causes": row.json(),
        })).collect::<Vec<_>>(),
        "others": {"rows": n_rows - shown, "ms": others},
    })
}

impl Row {
    fn add(&mut self, sum: &AccountSum) {
        self.millis += sum.millis;
        let of_cause = self.causes.entry(sum.cause).or_default();
        *of_cause = (of_cause.0 + sum.runs, of_cause.1 + sum.millis);
    }

    /// The largest first.
    fn json(&self) -> Vec<Value> {
        let mut causes: Vec<_> = self.causes.iter().collect();
        causes.sort_by_key(|(cause, (_, millis))| (-*millis, **cause));
        let causes = causes.into_iter().map(|(cause, (runs, millis))| {
            json!({"cause": cause.as_str(), "label": cause.label(), "runs": runs, "ms": millis})
        });
        causes.collect()
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn rows_beyond_the_limit_are_summed_up() {
        let limit = MAX_LINES;
        for count in sizes_around("server::api::fleetwright::waits::MAX_LINES", limit) {
            let sum = |number: usize| AccountSum {
                key: format!("p/{number:06}"),
                cause: WaitCause::Booting,
                runs: 1,
                millis: 7,
            };
            let time = (DAY_MS, Timestamp::from_millis(0), Timestamp::from_millis(1));
            let sums = (0..count).map(sum).collect();
            let report = report(Grouping::Pool, time, sums, Some(1_000_000));
            let shown = report["rows"].as_array().map_or(0, Vec::len);
            assert_eq!(shown, count.min(MAX_LINES));
            let others = &report["others"];
            assert_eq!(others["rows"], count - shown);
            assert_eq!(others["ms"], 7 * (count - shown));
            assert_eq!(report["totalMs"], 7 * count);
        }
    }
}
