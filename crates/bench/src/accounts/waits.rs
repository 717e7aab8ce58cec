//! A year of waits: in each pool, day and hour, tasks waited for every cause.

use anyhow::Context as _;
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use domain::waits::{AccountKey, Accounts, Grouping, WaitCause};
use serde_json::{Map, Value};
use store::{Store, StoreError, wait_accounts};

use super::{Arguments, REPORTED_DAYS, owner, pool_id};
use crate::output;

/// As long as the server keeps the accounts of hours.
const HOURS_KEPT_DAYS: i64 = 8;
/// Runs of each cause, in each pool and period.
const RUNS: u64 = 200;
const MILLIS: i64 = 60_000;

pub(super) async fn measure(
    store: &Store,
    arguments: &Arguments,
    now: Timestamp,
) -> anyhow::Result<Map<String, Value>> {
    let before = arguments.bytes();
    output::note("a year of waits");
    let today = now.start_of(DAY_MS);
    for day in 0..arguments.days {
        fill(store, arguments, DAY_MS, today.plus_millis(-day * DAY_MS)).await?;
    }
    let n_hours = now.millis_since(today.plus_millis(-HOURS_KEPT_DAYS * DAY_MS)) / HOUR_MS;
    for hour in 0..=n_hours {
        let since = now.start_of(HOUR_MS).plus_millis(-hour * HOUR_MS);
        fill(store, arguments, HOUR_MS, since).await?;
    }
    let mut figures = Map::new();
    figures.insert("fileBytesWithoutWaits".to_owned(), before.into());
    figures.insert("fileBytes".to_owned(), arguments.bytes().into());
    store.gather_statistics().await?;
    output::note("reports of waits");
    let period = (DAY_MS, today.plus_millis(-REPORTED_DAYS * DAY_MS), now);
    for by in Grouping::ALL {
        let read = || async {
            let read = store.read("bench_report", move |tx| {
                wait_accounts::sums(tx, by, period, None)
            });
            read.await.map(drop)
        };
        figures.insert(format!("{by} ms"), arguments.median_ms(read).await?);
    }
    Ok(figures)
}

async fn fill(
    store: &Store,
    arguments: &Arguments,
    span_ms: i64,
    since: Timestamp,
) -> anyhow::Result<()> {
    let pools = arguments.pools;
    let written = store.write("bench_waits", move |tx| {
        let mut accounts = Accounts::new();
        for number in 0..pools {
            for cause in WaitCause::ALL {
                let key = AccountKey {
                    span_ms,
                    since,
                    pool_id: pool_id(number),
                    owner: owner(number),
                    cause,
                };
                accounts.insert(key, (RUNS, MILLIS));
            }
        }
        wait_accounts::add(tx, &accounts)
    });
    let written: Result<(), StoreError> = written.await;
    written.context("cannot fill the accounts of waits")
}
