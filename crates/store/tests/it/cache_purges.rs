//! Requests to purge caches: the latest of each cache, until it expires, in pages.

use domain::time::Timestamp;
use store::Store;
use store::cache_purges::{self, CachePurge};

use crate::samples::{at, pool_id};
use crate::world::{on_both, read, write};

const EXPIRES: i64 = 1_000;

fn purge(pool: &str, name: &str, before: i64) -> CachePurge {
    CachePurge {
        pool_id: pool_id(pool),
        cache_name: name.to_owned(),
        before: at(before),
    }
}

async fn put(store: &Store, purges: Vec<CachePurge>) {
    write(store, move |tx| {
        purges
            .iter()
            .try_for_each(|purge| cache_purges::put(tx, purge, at(EXPIRES)))
    })
    .await;
}

async fn of_pool(store: &Store, pool: &str, now: i64, since: i64, limit: u32) -> Vec<CachePurge> {
    let pool = pool_id(pool);
    read(store, move |tx| {
        cache_purges::list_of_pool(tx, &pool, at(now), at(since), limit)
    })
    .await
}

on_both!(a_cache_has_one_request_with_the_latest_moment, |database| {
    let store = database.migrated().await;
    put(&store, vec![purge("a/b", "größer", 5)]).await;
    put(&store, vec![purge("a/b", "größer", 9)]).await;
    put(&store, vec![purge("a/b", "größer", 7)]).await;
    let found = of_pool(&store, "a/b", 10, 0, 10).await;
    assert_eq!(found, [purge("a/b", "größer", 9)]);
});

on_both!(
    requests_are_listed_by_pool_and_time_until_they_expire,
    |database| {
        let store = database.migrated().await;
        let (old, new) = (purge("a/b", "old", 5), purge("a/b", "new", 6));
        put(&store, vec![old.clone(), new.clone(), purge("a/c", "x", 6)]).await;
        let both = [new.clone(), old];
        assert_eq!(of_pool(&store, "a/b", 10, 0, 10).await, both);
        assert_eq!(of_pool(&store, "a/b", 10, 5, 10).await, both);
        assert_eq!(of_pool(&store, "a/b", 10, 6, 10).await, [new]);
        assert_eq!(of_pool(&store, "a/b", 10, 7, 10).await, []);
        assert_eq!(of_pool(&store, "a/b", EXPIRES, 0, 10).await, []);
        let others = |now| {
            read(&store, move |tx| {
                cache_purges::count_others(tx, &pool_id("a/b"), "new", at(now))
            })
        };
        assert_eq!(others(10).await, 1);
        assert_eq!(others(EXPIRES).await, 0);
    }
);

on_both!(pages_and_batches_have_the_size_of_their_limit, |database| {
    let store = database.migrated().await;
    let limit: u32 = 3;
    let mut n_stored = 0;
    for wanted in [0, 1, limit - 1, limit, limit + 1, 10 * limit] {
        let more = (n_stored..wanted).map(|number| purge("a/b", &format!("c{number:02}"), 5));
        put(&store, more.collect()).await;
        n_stored = wanted;
        let first = of_pool(&store, "a/b", 10, 0, limit).await;
        assert_eq!(first.len(), wanted.min(limit) as usize);
        let all = all_pages(&store, at(10), limit).await;
        assert_eq!(all.len(), wanted as usize);
        assert!(all.is_sorted_by(|one, next| one.cache_name < next.cache_name));
    }
    let mut left = n_stored;
    while left > 0 {
        let deleted = write(&store, move |tx| {
            cache_purges::delete_expired(tx, at(EXPIRES), limit)
        });
        let deleted = deleted.await;
        assert_eq!(deleted, u64::from(left.min(limit)));
        left -= left.min(limit);
    }
});

async fn all_pages(store: &Store, now: Timestamp, limit: u32) -> Vec<CachePurge> {
    let mut all: Vec<CachePurge> = Vec::new();
    loop {
        let after = all.last().cloned();
        let page = read(store, move |tx| {
            let after = after
                .as_ref()
                .map(|last| (&last.pool_id, last.cache_name.as_str()));
            cache_purges::list(tx, after, now, limit)
        });
        let page = page.await;
        let is_last = page.len() < limit as usize;
        all.extend(page);
        if is_last {
            return all;
        }
    }
}
