//! Errors of all pools, grouped by their cause.

use std::collections::BTreeSet;

use access::slugid;
use domain::error_report::ErrorReport;
use domain::time::HOUR_MS;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use testing::sizes_around;

use crate::database::on_both;
use crate::world::World;

const CAUSES: &str = "fleetwright:/error-causes";

/// An error of a pool so many hours ago.
fn error(world: &World, number: u64, pool: &str, hours: i64, description: &str) -> ErrorReport {
    let mut random = StdRng::seed_from_u64(number);
    let extra = json!({"code": "capacity", "workerId": format!("i-{number}")});
    ErrorReport {
        pool_id: pool.parse().unwrap(),
        error_id: slugid::v4(&mut random).parse().unwrap(),
        reported: world.now().plus_millis(-hours * HOUR_MS),
        kind: "creation-error".to_owned(),
        title: "Instance Creation Error".to_owned(),
        description: description.to_owned(),
        extra: extra.as_object().unwrap().clone(),
        launch_config_id: Some(format!("lc-{}", number % 2).parse().unwrap()),
    }
}

async fn insert(world: &World, errors: Vec<ErrorReport>) {
    world
        .write(move |tx| {
            for error in &errors {
                assert!(store::worker_errors::insert(tx, error)?);
            }
            Ok(())
        })
        .await;
}

async fn populate(world: &World) {
    let errors = vec![
        error(world, 1, "a/b", 5, "no capacity for i-1"),
        error(world, 2, "a/c", 3, "no capacity for i-2"),
        error(world, 3, "a/b", 3, "no capacity for i-3"),
        error(world, 4, "a/b", 1, "the disk of i-4 is full"),
        error(world, 5, "a/c", 30, "no capacity for i-5"),
    ];
    insert(world, errors).await;
}

/// The description of each cause's example, and its number of errors.
fn causes(listed: &Value) -> Vec<String> {
    let rows = listed["causes"].as_array().unwrap().iter();
    let rows = rows.map(|row| {
        let text = row["example"]["description"].as_str().unwrap();
        format!("{} {text}", row["errors"])
    });
    rows.collect()
}

on_both!(errors_of_all_pools_are_grouped_by_their_cause, |world| {
    populate(world).await;
    for (query, expected) in [
        (
            "",
            vec!["1 the disk of i-4 is full", "3 no capacity for i-"],
        ),
        (
            "?order=most",
            vec!["3 no capacity for i-", "1 the disk of i-4 is full"],
        ),
        ("?workerPoolId=a%2Fc", vec!["1 no capacity for i-2"]),
        ("?workerPoolId=a%2Fnosuch", vec![]),
    ] {
        let listed = world.get(&format!("{CAUSES}{query}")).await.expect(200);
        let found = causes(&listed);
        assert_eq!(found.len(), expected.len(), "{query}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{query}: {found}");
        }
    }
    let since = world.now().plus_millis(-40 * HOUR_MS);
    let all = world
        .get(&format!("{CAUSES}?since={since}"))
        .await
        .expect(200);
    assert_eq!(all["causes"][1]["errors"], 4);
});

on_both!(a_cause_has_its_trend_its_places_and_an_example, |world| {
    populate(world).await;
    let listed = world.get(CAUSES).await.expect(200);
    let mut cause = listed["causes"][1].clone();
    // Of two errors at one time, either is the newest.
    let example = cause["example"].take();
    let number = example["extra"]["workerId"].as_str().unwrap();
    assert_eq!(example["description"], format!("no capacity for {number}"));
    assert_eq!(cause["trend"].as_array().unwrap().len(), 24);
    let mut trend = [0; 24];
    (trend[18], trend[20]) = (1, 2);
    assert_eq!(cause["trend"], json!(trend));
    assert_eq!(cause["trendSince"], "2026-09-20T15:00:00.000Z");
    for (field, expected) in [
        ("title", json!("Instance Creation Error")),
        ("kind", json!("creation-error")),
        ("code", json!("capacity")),
        ("errors", json!(3)),
        ("first", json!("2026-09-21T09:13:20.000Z")),
        ("last", json!("2026-09-21T11:13:20.000Z")),
        ("nWorkerPools", json!(2)),
        ("nLaunchConfigs", json!(2)),
        (
            "workerPools",
            json!([{"workerPoolId": "a/b", "errors": 2}, {"workerPoolId": "a/c", "errors": 1}]),
        ),
        (
            "launchConfigs",
            json!([
                {"workerPoolId": "a/b", "launchConfigId": "lc-1", "errors": 2},
                {"workerPoolId": "a/c", "launchConfigId": "lc-0", "errors": 1},
            ]),
        ),
    ] {
        assert_eq!(cause[field], expected, "{field}");
    }
});

on_both!(only_pools_whose_errors_the_caller_may_list_count, |world| {
    populate(world).await;
    let may = |pool: &str| {
        let list = format!("worker-manager:list-worker-pool-errors:{pool}");
        let scopes = ["fleetwright:list-error-causes", &list];
        world.root().temporary(None, &scopes, world.now())
    };
    let count = async |pool: &str, query: &str| {
        let path = format!("{CAUSES}{query}");
        let listed = world.get(&path).by(&may(pool)).await.expect(200);
        causes(&listed)
    };
    assert_eq!(count("a/c", "").await, ["1 no capacity for i-2"]);
    assert_eq!(count("a/b", "").await.len(), 2);
    assert_eq!(count("a/c", "?workerPoolId=a%2Fb").await.len(), 0);
    assert_eq!(count("nosuch/b", "").await.len(), 0);
});

on_both!(causes_come_in_pages_in_each_order, |world| {
    for count in sizes_around(
        "server::api::fleetwright::lists::error_causes::MAX_CAUSES",
        100,
    ) {
        let mut random = StdRng::seed_from_u64(count as u64);
        let word = |mut number: usize| {
            let mut word = String::new();
            for _ in 0..4 {
                word.push(char::from(b'a' + u8::try_from(number % 26).unwrap()));
                number /= 26;
            }
            word
        };
        let errors = (0..count).map(|number| ErrorReport {
            error_id: slugid::v4(&mut random).parse().unwrap(),
            ..error(world, 0, "p/q", 1, &format!("{} is broken", word(number)))
        });
        let errors: Vec<ErrorReport> = errors.collect();
        let keys: Vec<_> = errors.iter().map(|it| it.error_id.clone()).collect();
        insert(world, errors).await;
        for order in ["newest", "most"] {
            let (mut seen, mut n_pages, mut token) = (BTreeSet::new(), 0, String::new());
            loop {
                let path = format!("{CAUSES}?order={order}{token}");
                let page = world.get(&path).await.expect(200);
                let more = causes(&page);
                assert!(more.len() <= 100);
                seen.extend(more);
                n_pages += 1;
                let Some(next) = page["continuationToken"].as_str() else {
                    break;
                };
                token = format!("&continuationToken={next}");
            }
            assert_eq!(seen.len(), count, "{order}");
            assert_eq!(n_pages, count.div_ceil(100).max(1), "{order}");
        }
        let later = world.now();
        let deleted = u64::try_from(keys.len()).unwrap();
        let delete =
            world.write(move |tx| store::worker_errors::delete_older_than(tx, later, 9_999));
        assert_eq!(delete.await, deleted);
    }
});

on_both!(errors_that_come_between_two_pages_move_no_cause, |world| {
    populate(world).await;
    for order in ["newest", "most"] {
        let path = format!("{CAUSES}?order={order}&limit=1");
        let first = world.get(&path).await.expect(200);
        let expected = match order {
            "newest" => ["1 the disk of i-4 is full", "3 no capacity for i-2"],
            _ => ["3 no capacity for i-2", "1 the disk of i-4 is full"],
        };
        assert_eq!(causes(&first), expected[..1]);
        // Each of both causes gets one.
        for (number, text) in [(6, "no capacity for i-6"), (7, "the disk of i-7 is full")] {
            let later = ErrorReport {
                reported: world.now().plus_millis(1),
                ..error(world, number, "a/b", 0, text)
            };
            insert(world, vec![later]).await;
        }
        let token = first["continuationToken"].as_str().unwrap();
        let next = format!("{path}&continuationToken={token}");
        let second = world.get(&next).await.expect(200);
        assert_eq!(causes(&second), expected[1..], "{order}");
        let until = world.now();
        let delete = world.write(move |tx| {
            let all = store::worker_errors::delete_older_than(tx, until.plus_millis(2), 99);
            all.map(drop)
        });
        delete.await;
        populate(world).await;
    }
});

on_both!(the_places_of_a_cause_are_named_up_to_a_limit, |world| {
    for count in sizes_around("store::history::error_causes::NAMED", 10) {
        let pools = (0..count as u64).map(|number| {
            let pool = format!("p/q{number}");
            error(
                world,
                1_000 * count as u64 + number,
                &pool,
                0,
                "no capacity",
            )
        });
        insert(world, pools.collect()).await;
        let listed = world.get(CAUSES).await.expect(200);
        let cause = &listed["causes"][0];
        if count > 0 {
            assert_eq!(cause["nWorkerPools"], count);
            assert_eq!(
                cause["workerPools"].as_array().unwrap().len(),
                count.min(10)
            );
            assert_eq!(
                cause["launchConfigs"].as_array().unwrap().len(),
                count.min(10)
            );
        }
        world.clock.advance_ms(1);
        let later = world.now();
        let delete =
            world.write(move |tx| store::worker_errors::delete_older_than(tx, later, 9_999));
        assert_eq!(delete.await, count as u64);
    }
});
