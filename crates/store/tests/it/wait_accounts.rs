//! Accounts of waits: reports of very many pools.

use domain::time::HOUR_MS;
use domain::waits::{AccountKey, Accounts, Grouping, WaitCause};
use store::wait_accounts;

use crate::samples::{at, pool_id};
use crate::world::{on_both, read, write};

/// As many sums as one page of an answer has.
const PAGE: usize = 100_000;

/// The accounts of pools of an hour, from one number up to another.
fn accounts(from: usize, to: usize) -> Accounts {
    let key = |number: usize| AccountKey {
        span_ms: HOUR_MS,
        since: at(0),
        pool_id: pool_id(&format!("p/w{number:06}")),
        owner: "o".to_owned(),
        cause: WaitCause::Booting,
    };
    (from..to).map(|number| (key(number), (1, 2))).collect()
}

on_both!(a_report_may_have_more_sums_than_a_page, |database| {
    let store = database.migrated().await;
    let mut existing = 0;
    for count in [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE] {
        write(&store, move |tx| {
            wait_accounts::add(tx, &accounts(existing, count))
        })
        .await;
        existing = count;
        let time = (HOUR_MS, at(0), at(HOUR_MS));
        let sums = read(&store, move |tx| {
            wait_accounts::sums(tx, Grouping::Pool, time, None)
        })
        .await;
        assert_eq!(sums.len(), count);
        assert!(sums.windows(2).all(|pair| pair[0].key < pair[1].key));
        assert_eq!(
            sums.iter().map(|sum| sum.millis).sum::<i64>(),
            2 * count as i64
        );
    }
});
