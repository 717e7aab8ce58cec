//! Errors: reported by workers, listed, counted.

use domain::error_report::ErrorReport;
use domain::time::{HOUR_MS, Timestamp};
use domain::worker::{StoredWorker, Worker};
use serde_json::{Value, json};

use crate::database::{Database, assert_snapshot, on_both, on_sqlite_first};
use crate::samples::{DAY_MS, pool, worker};
use crate::world::World;

const ERRORS: &str = "/worker-pool-errors/foobar%2Fbaz";

async fn with_pool(world: &World) {
    let wanted = pool("static", json!({}));
    world
        .put("/worker-pool/foobar%2Fbaz", wanted)
        .await
        .expect(200);
    world.events().await;
}

fn report() -> Value {
    json!({
        "kind": "worker-error",
        "title": "And Error about Something",
        "description": "WHO KNOWS",
        "extra": {"amISure": true, "workerGroup": "a lie"},
        "workerGroup": "wg",
        "workerId": "wi",
    })
}

on_sqlite_first!(a_reported_error_is_stored_and_published, |world| {
    with_pool(world).await;
    let answer = world.post(ERRORS, report()).await;
    let reported = answer.expect(200);
    assert_snapshot!(format!("{reported:#}"), @r#"
    {
      "description": "WHO KNOWS",
      "errorId": "NvLiozFSTpCRqKFi5lqFAw",
      "extra": {
        "amISure": true,
        "workerGroup": "wg",
        "workerId": "wi"
      },
      "kind": "worker-error",
      "reported": "2026-09-21T14:13:20.000Z",
      "title": "And Error about Something",
      "workerPoolId": "foobar/baz"
    }
    "#);
    assert_snapshot!(world.told().await, @r#"worker-pool-error primary.static.foobar.baz.wg.wi._._ {"errorId":"NvLiozFSTpCRqKFi5lqFAw","kind":"worker-error","providerId":"static","timestamp":"2026-09-21T14:13:20.000Z","title":"And Error about Something","workerGroup":"wg","workerId":"wi","workerPoolId":"foobar/baz"}"#);
    let listed = world.get(ERRORS).await.expect(200);
    assert_eq!(listed, json!({"workerPoolErrors": [reported]}));
});

on_sqlite_first!(
    an_error_of_a_worker_with_a_launch_config_names_it,
    |world| {
        with_pool(world).await;
        let launch_config_id = Some("lc-1".parse().unwrap());
        world
            .insert(Worker::from_stored(StoredWorker {
                launch_config_id,
                ..worker("foobar/baz", "wg", "wi").into_stored()
            }))
            .await;
        let reported = world.post(ERRORS, report()).await.expect(200);
        assert_eq!(reported["launchConfigId"], "lc-1");
        let [event] = world.events().await.try_into().unwrap();
        assert_eq!(event.routing_key, "primary.static.foobar.baz.wg.wi.lc-1._");
        assert_eq!(event.payload["launchConfigId"], "lc-1");
    }
);

on_both!(
    the_errors_of_a_worker_above_the_limit_are_counted_in_one,
    |world| {
        with_pool(world).await;
        let limit = 60_usize;
        let reported = async |id: &str| {
            let mut body = report();
            body["workerId"] = json!(id);
            world.post(ERRORS, body).await.expect(200)
        };
        let n_stored = async || {
            let mut numbers = Vec::new();
            let listed = world.get(ERRORS).await.expect(200);
            let listed = listed["workerPoolErrors"].as_array().unwrap().clone();
            for id in ["wi", "other"] {
                let of = listed.iter().filter(|it| it["extra"]["workerId"] == id);
                numbers.push(of.count());
            }
            numbers
        };
        for n_reports in 1..=10 * limit {
            let answer = reported("wi").await;
            let further = n_reports.saturating_sub(limit);
            let kind = if further > 0 {
                "further-errors"
            } else {
                "worker-error"
            };
            assert_eq!(answer["kind"], kind, "{n_reports}");
            if further > 0 {
                assert_eq!(
                    answer["extra"],
                    json!({"count": further, "workerGroup": "wg", "workerId": "wi"})
                );
            }
            if [1, limit - 1, limit, limit + 1, 10 * limit].contains(&n_reports) {
                let stored = n_reports.min(limit + 1);
                assert_eq!(n_stored().await, [stored, 0], "{n_reports}");
                assert_eq!(!world.events().await.is_empty(), n_reports <= limit + 1);
            }
        }
        // Others have their own number, and the next hour begins anew.
        assert_eq!(reported("other").await["kind"], "worker-error");
        world.clock.advance_ms(HOUR_MS);
        assert_eq!(reported("wi").await["kind"], "worker-error");
        assert_eq!(n_stored().await, [limit + 2, 1]);
    }
);

#[tokio::test]
async fn a_worker_that_may_report_nothing_has_all_errors_counted() {
    let change = |config: &mut server::config::Config| {
        config.worker_manager.max_error_reports_per_hour = 0;
    };
    let world = World::open(Database::sqlite(), change).await;
    with_pool(&world).await;
    for count in 1..=3 {
        let answer = world.post(ERRORS, report()).await.expect(200);
        assert_eq!(answer["extra"]["count"], count);
    }
    let listed = world.get(ERRORS).await.expect(200);
    assert_eq!(listed["workerPoolErrors"].as_array().unwrap().len(), 1);
}

on_sqlite_first!(a_large_report_is_kept_without_its_largest_value, |world| {
    with_pool(world).await;
    let mut body = report();
    body["extra"]["code"] = json!("disk-full");
    body["extra"]["dump"] = json!("x".repeat(1 << 20));
    let reported = world.post(ERRORS, body).await.expect(200);
    let text = "1 values, which do not fit into 65536 bytes";
    let expected = json!({"amISure": true, "code": "disk-full", "omitted": text,
        "workerGroup": "wg", "workerId": "wi"});
    assert_eq!(reported["extra"], expected);
    let listed = world.get(ERRORS).await.expect(200);
    assert_eq!(listed["workerPoolErrors"][0]["extra"], expected);
});

on_sqlite_first!(an_error_of_a_missing_pool_is_refused, |world| {
    let text = "Worker pool does not exist";
    world
        .post(ERRORS, report())
        .await
        .refused(404, "ResourceNotFound", text);
    // But its errors are an empty list.
    assert_eq!(
        world.get(ERRORS).await.expect(200),
        json!({"workerPoolErrors": []})
    );
});

on_sqlite_first!(an_error_needs_a_provider_in_service, |world| {
    with_pool(world).await;
    for (provider, status, code, text) in [
        ("nosuch", 400, "InputError", "Invalid Provider"),
        (
            "shaky",
            503,
            "ProviderSetupFailed",
            "Provider backend may be down or misconfigured",
        ),
    ] {
        let change = move |tx: &mut store::Tx<'_>| {
            let mut pool = store::pools::get(tx, &"foobar/baz".parse().unwrap())?.unwrap();
            pool.definition.provider_id = provider.parse().unwrap();
            store::pools::update(tx, &pool)
        };
        world.write(change).await;
        world
            .post(ERRORS, report())
            .await
            .refused(status, code, text);
    }
});

fn stored(number: u8, reported: Timestamp) -> ErrorReport {
    ErrorReport {
        pool_id: "foobar/baz".parse().unwrap(),
        error_id: error_id(number).parse().unwrap(),
        reported,
        kind: "creation-error".to_owned(),
        title: "Instance Creation Error".to_owned(),
        description: "no luck".to_owned(),
        extra: serde_json::Map::new(),
        launch_config_id: None,
    }
}

fn error_id(number: u8) -> String {
    format!("{}AAAAAAAQACAAAAAAAAAAA", char::from(b'A' + number))
}

async fn store(world: &World, report: ErrorReport) {
    world
        .write(move |tx| store::worker_errors::insert(tx, &report))
        .await;
}

fn ids(listed: &Value) -> Vec<&str> {
    let errors = listed["workerPoolErrors"].as_array().unwrap().iter();
    errors
        .map(|error| error["errorId"].as_str().unwrap())
        .collect()
}

on_both!(errors_are_listed_newest_first_and_filtered, |world| {
    for number in 0..4 {
        let launch_config_id = (number % 2 == 0).then(|| "lc-1".parse().unwrap());
        let reported = world.now().plus_seconds(number.into());
        store(
            world,
            ErrorReport {
                launch_config_id,
                ..stored(number, reported)
            },
        )
        .await;
    }
    let other = ErrorReport {
        pool_id: "foobar/other".parse().unwrap(),
        ..stored(9, world.now())
    };
    store(world, other).await;
    let expected = |numbers: &[u8]| numbers.iter().map(|n| error_id(*n)).collect::<Vec<_>>();
    for (query, numbers) in [
        (String::new(), &[3, 2, 1, 0][..]),
        (format!("?errorId={}", error_id(1)), &[1]),
        (format!("?errorId={}", error_id(9)), &[]),
        ("?errorId=no-such_id".to_owned(), &[]),
        ("?launchConfigId=lc-1".to_owned(), &[2, 0]),
        (format!("?launchConfigId=lc-1&errorId={}", error_id(1)), &[]),
    ] {
        let listed = world.get(&format!("{ERRORS}{query}")).await.expect(200);
        assert_eq!(ids(&listed), expected(numbers), "{query}");
    }
});

async fn populate(world: &World) {
    let now = world.now();
    let extra = |code: &str| json!({ "code": code }).as_object().unwrap().clone();
    let reports = [
        ErrorReport {
            extra: extra("Throttled"),
            ..stored(0, now)
        },
        ErrorReport {
            extra: extra("Throttled"),
            launch_config_id: Some("lc-1".parse().unwrap()),
            ..stored(1, now.plus_millis(-HOUR_MS))
        },
        ErrorReport {
            title: "Another".to_owned(),
            ..stored(2, now.plus_millis(-DAY_MS))
        },
        ErrorReport {
            pool_id: "foobar/other".parse().unwrap(),
            ..stored(3, now.plus_millis(-6 * DAY_MS))
        },
    ];
    for report in reports {
        store(world, report).await;
    }
}

on_both!(errors_of_all_pools_are_counted, |world| {
    populate(world).await;
    let mut stats = world.get("/worker-pool-errors/stats").await.expect(200);
    let totals = &stats["totals"];
    let hours = totals["hourly"].as_object().unwrap();
    assert_eq!(hours.len(), 24);
    let hours: Vec<_> = hours
        .iter()
        .filter(|(_, count)| **count != json!(0))
        .collect();
    assert_eq!(hours.len(), 2);
    assert_eq!(hours[0].0, "2026-09-21T13:00:00.000Z");
    stats["totals"]["hourly"] = json!("…");
    assert_snapshot!(format!("{stats:#}"), @r#"
    {
      "totals": {
        "code": {
          "Throttled": 2,
          "other": 2
        },
        "daily": {
          "2026-09-15T00:00:00.000Z": 1,
          "2026-09-16T00:00:00.000Z": 0,
          "2026-09-17T00:00:00.000Z": 0,
          "2026-09-18T00:00:00.000Z": 0,
          "2026-09-19T00:00:00.000Z": 0,
          "2026-09-20T00:00:00.000Z": 1,
          "2026-09-21T00:00:00.000Z": 2
        },
        "hourly": "…",
        "launchConfig": {},
        "title": {
          "Another": 1,
          "Instance Creation Error": 3
        },
        "total": 4,
        "workerPool": {
          "foobar/baz": 3,
          "foobar/other": 1
        }
      },
      "workerPoolId": ""
    }
    "#);
    assert_eq!(
        world
            .get("/worker-pool-errors/stats?workerPoolId=")
            .await
            .expect(200)["totals"]["daily"],
        stats["totals"]["daily"]
    );
});

on_both!(errors_of_one_pool_are_counted, |world| {
    populate(world).await;
    with_pool(world).await;
    let path = "/worker-pool-errors/stats?workerPoolId=foobar%2Fbaz";
    let stats = world.get(path).await.expect(200);
    assert_eq!(stats["workerPoolId"], "foobar/baz");
    let totals = &stats["totals"];
    assert_eq!(totals["total"], 3);
    assert_eq!(totals["workerPool"], json!({"foobar/baz": 3}));
    assert_eq!(totals["launchConfig"], json!({"lc-1": 1, "unknown": 2}));
    assert_eq!(totals["code"], json!({"Throttled": 2, "other": 1}));
    let path = "/worker-pool-errors/stats?workerPoolId=foobar%2Fnosuch";
    let text = "Worker pool does not exist";
    world.get(path).await.refused(404, "ResourceNotFound", text);
});
