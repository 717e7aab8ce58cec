//! Rows that are deleted once nothing needs them: turns, causes of waits, and accounts.

use domain::time::{DAY_MS, HOUR_MS};
use domain::waits::{AccountKey, Accounts, WaitCause};
use serde_json::json;
use store::plans::PlanRecord;
use store::{Store, StoreError, Tx, cost_accounts, plans, pool_waits, pools, turns, wait_accounts};

use crate::samples::{at, pool, pool_id};
use crate::world::{on_both, read, write};

/// The counts of these tables.
async fn rows<const N: usize>(store: &Store, tables: [&str; N]) -> [u64; N] {
    let rows = store.count_rows().await.unwrap();
    tables.map(|table| rows[table])
}

fn delete_turns(tx: &mut Tx<'_>, limit: u32) -> Result<u64, StoreError> {
    let found = turns::list_orphans(tx, limit)?;
    turns::delete_orphans(tx, &found)
}

on_both!(
    the_turns_of_a_pool_are_kept_while_it_exists_or_has_plans,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for name in ["existing/a", "planned/a", "past/a", "past/b"] {
                turns::take(tx, &format!("pool:{name}"))?;
                turns::take(tx, &format!("shadow:{name}"))?;
            }
            // Not of a pool.
            turns::take(tx, "provider:past/a")?;
            pools::insert(tx, &pool("existing/a", "one"))?;
            let plan = PlanRecord {
                pool_id: pool_id("planned/a"),
                number: 1,
                created: at(1),
                plan: json!({}),
            };
            plans::insert(tx, &plan, None, 9)
        })
        .await;
        assert_eq!(rows(&store, ["turns"]).await, [9]);
        // They were looked for before, and may be needed again.
        let needed = ["pool:existing/a", "pool:planned/a", "provider:past/a"];
        let needed = needed.map(str::to_owned);
        let deleting = write(&store, move |tx| turns::delete_orphans(tx, &needed));
        assert_eq!(deleting.await, 0);
        for (deleted, left) in [(1, 8), (1, 7), (1, 6), (1, 5), (1, 4), (0, 4)] {
            let deleting = write(&store, |tx| delete_turns(tx, 1));
            assert_eq!(deleting.await, deleted);
            assert_eq!(rows(&store, ["turns"]).await, [left]);
        }
        let numbers = write(&store, |tx| {
            Ok([
                turns::take(tx, "pool:existing/a")?,
                turns::take(tx, "shadow:existing/a")?,
                turns::take(tx, "pool:planned/a")?,
                turns::take(tx, "provider:past/a")?,
                turns::take(tx, "pool:past/a")?,
            ])
        });
        assert_eq!(numbers.await, [2, 2, 2, 2, 1]);
        write(&store, |tx| plans::delete_before(tx, at(2), 9)).await;
        assert_eq!(write(&store, |tx| delete_turns(tx, 9)).await, 2);
    }
);

on_both!(
    causes_of_waits_are_kept_while_the_pool_exists_and_a_while_later,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            pools::insert(tx, &pool("existing/a", "one"))?;
            for id in ["existing/a", "past/a", "past/b"] {
                for (cause, since) in [(WaitCause::Booting, 1), (WaitCause::UnknownQueue, 5)] {
                    pool_waits::note(tx, &[(pool_id(id), cause)], at(since))?;
                }
            }
            Ok(())
        })
        .await;
        let tables = ["pool_waits", "wait_boundaries"];
        for (before, limit, deleted, left) in [
            (5, 9, 0, [3, 6]),
            (6, 1, 1, [2, 5]),
            (6, 1, 1, [1, 4]),
            (6, 9, 2, [1, 2]),
            (6, 9, 0, [1, 2]),
        ] {
            let forgotten = write(&store, move |tx| {
                pool_waits::forget_orphans(tx, at(before), limit)
            });
            assert_eq!(forgotten.await, deleted);
            assert_eq!(rows(&store, tables).await, left);
        }
        let kept = read(&store, |tx| pool_waits::get(tx, &pool_id("existing/a"))).await;
        assert_eq!(kept.unwrap().cause, WaitCause::UnknownQueue);
    }
);

on_both!(
    an_account_of_waits_is_kept_as_long_as_one_of_its_times,
    |database| {
        let store = database.migrated().await;
        let charge = |pool: &str, span_ms: i64, since: i64| {
            let key = AccountKey {
                span_ms,
                since: at(since),
                pool_id: pool_id(pool),
                owner: "o".to_owned(),
                cause: WaitCause::Booting,
            };
            (key, (1, 2))
        };
        let charges = [
            charge("a/old", DAY_MS, 0),
            charge("a/both", DAY_MS, 0),
            charge("a/both", DAY_MS, DAY_MS),
            charge("a/hour", HOUR_MS, 0),
        ];
        let charges = Accounts::from(charges);
        write(&store, move |tx| wait_accounts::add(tx, &charges)).await;
        let tables = ["wait_accounts", "waits"];
        assert_eq!(
            write(&store, |tx| wait_accounts::delete_unused(tx, 9)).await,
            0
        );
        let deleted = write(&store, |tx| {
            let n_times = wait_accounts::delete_before(tx, DAY_MS, at(DAY_MS), 9)?;
            Ok((n_times, wait_accounts::delete_unused(tx, 9)?))
        });
        assert_eq!(deleted.await, (2, 1));
        assert_eq!(rows(&store, tables).await, [2, 2]);
    }
);

on_both!(
    an_account_of_costs_is_kept_while_it_has_costs_or_machines_may_start,
    |database| {
        let store = database.migrated().await;
        let mut sql = String::new();
        // By number: with costs, with a meter, of a launch config, of a pool, and of nothing.
        for (pool, config) in [
            ("past/a", "a"),
            ("past/b", "b"),
            ("existing/a", "a"),
            ("existing/a", ""),
            ("past/a", ""),
            ("existing/a", "b"),
            ("past/c", "c"),
        ] {
            sql += &format!(
                "INSERT INTO cost_accounts (worker_pool_id, launch_config_id, provider_id, owner, \
                 currency) VALUES ('{pool}', '{config}', 'one', 'o', 'USD');"
            );
        }
        for (began, hours) in [(0, 24), (DAY_MS, 24), (2 * DAY_MS, 1)] {
            sql += &format!(
                "INSERT INTO costs VALUES \
                 ({began}, {hours}, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);"
            );
        }
        sql += "INSERT INTO meters (worker_pool_id, worker_group, worker_id, account, started, \
                charged, due, kind) VALUES ('past/b', 'g', 'w', 2, 0, 0, 0, 'idle'); \
                INSERT INTO launch_configs VALUES ('existing/a', 'a', 0, 0, '{}', NULL, \
                0, 0, 0, 1)";
        database.raw(&sql);
        write(&store, |tx| pools::insert(tx, &pool("existing/a", "one"))).await;
        let tables = ["cost_accounts", "costs"];
        for (limit, left) in [(2, [5, 3]), (2, [4, 3]), (2, [4, 3])] {
            write(&store, move |tx| cost_accounts::delete_unused(tx, limit)).await;
            assert_eq!(rows(&store, tables).await, left);
        }
        for (before, limit, deleted, left) in [
            (0, 9, 0, [4, 3]),
            (2 * DAY_MS, 1, 1, [4, 2]),
            (2 * DAY_MS, 9, 1, [4, 1]),
            (2 * DAY_MS + 1, 9, 1, [3, 0]),
        ] {
            let deleting = write(&store, move |tx| {
                let n_costs = cost_accounts::delete_before(tx, at(before), limit)?;
                cost_accounts::delete_unused(tx, 9)?;
                Ok(n_costs)
            });
            assert_eq!(deleting.await, deleted);
            assert_eq!(rows(&store, tables).await, left);
        }
    }
);
