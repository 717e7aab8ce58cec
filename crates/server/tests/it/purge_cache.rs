//! Purge requests: made by people, listed by workers, deleted after a day.

use domain::time::DAY_MS;
use engine::cache_purges::MAX_CACHES;
use serde_json::{Value, json};
use store::cache_purges::CachePurge;
use testing::sizes_around;

use crate::ask::Answer;
use crate::authorization::{Case, case, case_with};
use crate::database::{on_both, on_sqlite_first};
use crate::world::World;

const POOL: &str = "purge-cache:/purge-cache/pp%2Fee";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case_with(
            "purgeCache",
            POOL,
            json!({"cacheName": "c"}),
            &["purge-cache:pp/ee:c"],
        ),
        case(
            "allPurgeRequests",
            "purge-cache:/purge-cache/list",
            &["purge-cache:all-purge-requests"],
        ),
        case(
            "purgeRequests",
            POOL,
            &["purge-cache:purge-requests::pp/ee"],
        ),
    ]
}

async fn purge(world: &World, pool: &str, name: &str) -> Answer {
    let path = format!("purge-cache:/purge-cache/{pool}");
    world.post(&path, json!({"cacheName": name})).await
}

async fn requests(world: &World, path: &str) -> Vec<(String, String)> {
    let reply = world.get(path).await.expect(200);
    let requests = reply["requests"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    requests
        .map(|request| (text(&request["cacheName"]), text(&request["before"])))
        .collect()
}

fn pair(name: &str, before: &str) -> (String, String) {
    (name.to_owned(), before.to_owned())
}

on_sqlite_first!(
    a_worker_hears_of_the_caches_that_were_purged_since_it_asked_last,
    |world| {
        let (first, second) = ("2026-09-21T14:13:20.000Z", "2026-09-21T14:13:21.000Z");
        purge(world, "pp%2Fee", "a").await.expect(204);
        purge(world, "pp/ee", "b").await.expect(204);
        purge(world, "pp%2Fother", "x").await.expect(204);
        world.clock.advance_ms(1_000);
        purge(world, "pp%2Fee", "b").await.expect(204);
        assert_eq!(
            requests(world, POOL).await,
            [pair("a", first), pair("b", second)]
        );
        // A request of the very moment is among them.
        for (since, names) in [
            ("", 2),
            (first, 2),
            (second, 1),
            ("2026-09-21T14:13:20.500Z", 1),
            ("2026-09-21T16:13:21%2B02:00", 1),
            ("2026-09-21T14:13:22Z", 0),
        ] {
            let path = format!("{POOL}?since={since}");
            assert_eq!(requests(world, &path).await.len(), names, "{since}");
        }
        let refused = world.get(&format!("{POOL}?since=yesterday")).await;
        refused.refused_with(400, "InvalidRequestArguments", "since");
        let all = world.get("purge-cache:/purge-cache/list").await.expect(200);
        assert_eq!(all["requests"].as_array().unwrap().len(), 3);
        assert_eq!(
            all["requests"][2],
            json!({"provisionerId": "pp", "workerType": "other", "cacheName": "x", "before": first})
        );
    }
);

on_both!(a_request_is_forgotten_after_a_day, |world| {
    purge(world, "pp%2Fee", "a").await.expect(204);
    world.clock.advance_ms(DAY_MS - 1);
    assert_eq!(requests(world, POOL).await.len(), 1);
    assert_eq!(world.keep_house().await["cache_purges"], Value::Null);
    world.clock.advance_ms(1);
    assert_eq!(requests(world, POOL).await, []);
    assert_eq!(world.keep_house().await["cache_purges"], 1);
});

on_both!(the_requests_of_all_pools_come_in_pages, |world| {
    let limit = 2;
    let mut n_made = 0;
    for wanted in [0, 1, limit - 1, limit, limit + 1, 10 * limit] {
        for number in n_made..wanted {
            let name = format!("c{number:02}");
            purge(world, "pp%2Fee", &name).await.expect(204);
        }
        n_made = wanted;
        let (mut seen, mut token) = (0, String::new());
        loop {
            let path = format!("purge-cache:/purge-cache/list?limit={limit}{token}");
            let page = world.get(&path).await.expect(200);
            let count = page["requests"].as_array().unwrap().len();
            assert!(count <= limit);
            seen += count;
            match page["continuationToken"].as_str() {
                Some(next) => token = format!("&continuationToken={next}"),
                None => break,
            }
        }
        assert_eq!(seen, wanted);
    }
});

on_both!(
    a_pool_has_a_limited_number_of_requests_and_each_can_be_repeated,
    |world| {
        let limit = MAX_CACHES as usize;
        for count in sizes_around("engine::cache_purges::MAX_CACHES", limit) {
            let before = world.now();
            let n_stored = count.min(limit).saturating_sub(1);
            world
                .write(move |tx| {
                    (0..n_stored).try_for_each(|number| {
                        let purge = CachePurge {
                            pool_id: format!("pp/of-{count}").parse().unwrap(),
                            cache_name: format!("c{number:05}"),
                            before,
                        };
                        store::cache_purges::put(tx, &purge, before.plus_millis(DAY_MS))
                    })
                })
                .await;
            let pool = format!("pp%2Fof-{count}");
            // Of those beyond the limit, two are as good as all.
            for number in (n_stored..count).take(3) {
                let answer = purge(world, &pool, &format!("c{number:05}")).await;
                if number < limit {
                    answer.expect(204);
                } else {
                    let text =
                        format!("1000 caches of worker pool pp/of-{count} have a purge request");
                    answer.refused_with(409, "RequestConflict", &text);
                }
            }
            if count > 0 {
                purge(world, &pool, "c00000").await.expect(204);
            }
            let path = format!("purge-cache:/purge-cache/{pool}");
            assert_eq!(requests(world, &path).await.len(), count.min(limit));
        }
        purge(world, "pp%2Fother", "c").await.expect(204);
    }
);

on_sqlite_first!(a_cache_name_that_cannot_be_one_is_refused, |world| {
    for name in ["", &"x".repeat(1_025)] {
        let refused = purge(world, "pp%2Fee", name).await;
        refused.refused_with(400, "InputError", "cacheName must have 1 to 1024 bytes");
    }
    purge(world, "pp%2Fee", &"x".repeat(1_024))
        .await
        .expect(204);
    let refused = world.post(POOL, json!({"cacheName": "a", "more": 1})).await;
    refused.refused_with(400, "InputValidationError", "more");
});
