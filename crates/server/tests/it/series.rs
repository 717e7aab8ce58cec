//! Series: what was recorded is what happened, each minute once, and a gap is visible.

use std::sync::Arc;

use domain::launch::Cause;
use domain::time::{DAY_MS, HOUR_MS};
use engine::series::SeriesLimits;
use serde_json::{Value, json};
use server::app::App;
use server::background::Series;
use server::background::driver::BackgroundTask;
use testing::sizes_around;

use crate::costs::{charge, report};
use crate::database::on_both;
use crate::fleet_two_processes::second;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_test, machine, plain_pool, pool};
use crate::queue_samples::task_id;
use crate::world::World;

/// The number of points that were written.
pub(crate) async fn record(app: &Arc<App>) -> u64 {
    let done = Series::new(Arc::clone(&app.engine)).activate().await;
    done.unwrap()["points"].as_u64().unwrap_or(0)
}

/// The next minute, recorded.
async fn next_minute(fleet: &Fleet) {
    fleet.pass_ms(MINUTE_MS);
    record(&fleet.app).await;
}

async fn points(world: &World, path: &str) -> Vec<Value> {
    let reply = world.get(&format!("fleetwright:/series{path}")).await;
    let reply = reply.expect(200);
    let points = reply["points"].as_array().unwrap().clone();
    assert!(points.len() <= 1_500);
    points
}

async fn last(world: &World, path: &str) -> Value {
    points(world, path).await.pop().unwrap()
}

fn levels(point: &Value) -> Vec<i64> {
    let names = ["waiting", "requested", "booting", "idle", "busy", "leaving"];
    let level = |name: &&str| point[*name].as_i64().unwrap();
    names.iter().map(level).collect()
}

fn sum(points: &[Value], name: &str) -> i64 {
    points.iter().filter_map(|point| point[name].as_i64()).sum()
}

fn priced(name: &str, price: f64) -> Value {
    let mut machine = machine(name);
    machine["price"] = json!(price);
    machine
}

const OF_POOL: &str = "/pool/pp%2Fee";

fleet_test!(a_point_shows_each_state_of_a_worker, |fleet| {
    let machines = [priced("a", 6.0)];
    fleet.make_pool(POOL, pool("one", 0, 3, &machines)).await;
    fleet.tasks(POOL, 2).await;
    next_minute(fleet).await;
    assert_eq!(levels(&last(fleet, OF_POOL).await), [2, 0, 0, 0, 0, 0]);
    fleet.round().await;
    next_minute(fleet).await;
    let booting = last(fleet, OF_POOL).await;
    assert_eq!(levels(&booting), [2, 0, 2, 0, 0, 0]);
    assert_eq!(booting["launched"], 2);
    assert_eq!(booting["maximum"], 3);
    let mut workers = Vec::new();
    for key in fleet.workers_in(POOL, "requested").await {
        workers.push(fleet.register(&key).await);
    }
    let claim = fleet.claim_with(&workers[0]).await;
    next_minute(fleet).await;
    assert_eq!(levels(&last(fleet, OF_POOL).await), [1, 0, 0, 1, 1, 0]);
    fleet.complete(&claim).await;
    fleet.remove(&workers[1].key).await;
    next_minute(fleet).await;
    let leaving = last(fleet, OF_POOL).await;
    assert_eq!(levels(&leaving), [1, 0, 0, 1, 0, 1]);
    // The launch config has the same machines, and no tasks wait for it.
    let of_config = last(fleet, "/launch-config/pp%2Fee/a").await;
    assert_eq!(levels(&of_config), [0, 0, 0, 1, 0, 1]);
    assert_eq!(of_config["cost"], leaving["cost"]);
    assert_eq!(of_config["maximum"], Value::Null);
    let all = last(fleet, "").await;
    assert_eq!(levels(&all), levels(&leaving));
    assert_eq!(all["cost"], leaving["cost"]);
});

fleet_test!(sums_equal_the_accounts_at_each_step, |fleet| {
    fleet.one.fake.keep_bill();
    let machines = [priced("a", 6.0), priced("b", 0.77)];
    fleet.make_pool(POOL, pool("one", 0, 9, &machines)).await;
    record(&fleet.app).await;
    fleet.tasks(POOL, 5).await;
    for _ in 0..70 {
        fleet.round().await;
        for key in fleet.workers_in(POOL, "requested").await {
            let worker = fleet.register(&key).await;
            fleet.claim_with(&worker).await;
        }
        fleet.pass_ms(MINUTE_MS);
        charge(fleet).await;
        record(&fleet.app).await;
    }
    let expected = report(fleet, "").await["total"]["costMicros"].clone();
    assert!(expected.as_i64().unwrap() > 0);
    let of_minutes = points(fleet, OF_POOL).await;
    for step in ["minute", "hour", "day"] {
        for path in [OF_POOL, ""] {
            let points = points(fleet, &format!("{path}?step={step}")).await;
            for name in ["cost", "launched", "refused", "failed", "waited"] {
                assert_eq!(sum(&points, name), sum(&of_minutes, name), "{step} {name}");
            }
            assert_eq!(expected, sum(&points, "cost"), "{step}");
            assert_eq!(sum(&points, "launched"), 5);
            assert_eq!(sum(&points, "minutes"), 71);
        }
    }
    // Levels: the mean and the highest of the minutes.
    let days = points(fleet, &format!("{OF_POOL}?step=day")).await;
    let busy: i64 = of_minutes
        .iter()
        .filter_map(|point| point["busy"].as_i64())
        .sum();
    let (minutes, mean): (f64, f64) = days.iter().fold((0.0, 0.0), |(minutes, sum), day| {
        let of_day = day["minutes"].as_f64().unwrap_or(0.0);
        let mean = day["busy"].as_f64().unwrap_or(0.0);
        (minutes + of_day, sum + mean * of_day)
    });
    assert!(
        (mean - busy as f64).abs() < 0.001 * minutes,
        "{mean} {busy}"
    );
    let highest = days
        .iter()
        .filter_map(|day| day["highest"]["busy"].as_i64())
        .max();
    let most = of_minutes
        .iter()
        .filter_map(|point| point["busy"].as_i64())
        .max();
    assert_eq!(highest, most);
});

fleet_test!(waits_and_failures_are_counted_once, |fleet| {
    fleet.make_pool(POOL, plain_pool(2)).await;
    record(&fleet.app).await;
    fleet.one.fake.refuse_launches_of("a", Cause::Capacity);
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    next_minute(fleet).await;
    assert_eq!(last(fleet, OF_POOL).await["refused"], 1);
    next_minute(fleet).await;
    assert_eq!(last(fleet, OF_POOL).await["refused"], 0);
    assert_eq!(last(fleet, "/launch-config/pp%2Fee/a").await["refused"], 0);
});

fleet_test!(a_gap_is_visible_and_loses_no_count, |fleet| {
    let machines = [priced("a", 6.0)];
    fleet.make_pool(POOL, pool("one", 0, 1, &machines)).await;
    record(&fleet.app).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    next_minute(fleet).await;
    // Nothing records for ten minutes.
    fleet.pass_ms(10 * MINUTE_MS);
    let during = points(fleet, OF_POOL).await;
    let missing = during.iter().filter(|point| point["recorded"] == false);
    assert!(missing.count() >= 1_430, "the day before, and this gap");
    record(&fleet.app).await;
    let after = points(fleet, OF_POOL).await;
    let since = after.iter().position(|point| point["recorded"] == true);
    let known: Vec<bool> = after[since.unwrap()..]
        .iter()
        .map(|point| point["recorded"] == true)
        .collect();
    let mut expected = vec![true, true];
    expected.extend([false; 9]);
    expected.push(true);
    assert_eq!(known, expected);
    assert_eq!(after.last().unwrap()["cost"], 1_000_000);
    assert_eq!(sum(&after, "cost"), 1_100_000);
    assert_eq!(
        after[after.len() - 2],
        json!({
            "time": after[after.len() - 2]["time"], "recorded": false,
        })
    );
    let hours = points(fleet, &format!("{OF_POOL}?step=hour")).await;
    assert_eq!(sum(&hours, "minutes"), 3);
});

fleet_test!(a_minute_is_recorded_once_whoever_tries, |fleet| {
    fleet.make_pool(POOL, plain_pool(2)).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let other = match fleet.app.engine.store.engine() {
        store::Engine::Postgres => Some(second(fleet).await),
        store::Engine::Sqlite => None,
    };
    let other = other.as_ref().unwrap_or(&fleet.app);
    let mut n_written = 0;
    for _ in 0..5 {
        fleet.pass_ms(MINUTE_MS);
        let (ours, theirs) = tokio::join!(record(&fleet.app), record(other));
        assert!(ours == 0 || theirs == 0, "{ours} {theirs}");
        n_written += u64::from(ours + theirs > 0);
        assert_eq!(record(&fleet.app).await, 0);
    }
    assert_eq!(n_written, 5);
    let points = points(fleet, OF_POOL).await;
    assert_eq!(sum(&points, "launched"), 1);
    assert_eq!(sum(&points, "minutes"), 5);
});

fleet_test!(quiet_pools_cost_nothing, |fleet| {
    for number in 0..20 {
        fleet
            .make_pool(&format!("pp/quiet-{number}"), plain_pool(2))
            .await;
    }
    record(&fleet.app).await;
    let before = fleet.app.engine.store.count_rows().await.unwrap();
    assert_eq!(before["points"], 0);
    assert_eq!(before["series_maxima"], 21);
    let (_, counts) = fleet.counted(next_minute(fleet)).await;
    assert_eq!(counts.statements("series_add_points"), 0);
    assert_eq!(counts.statements("series_add_maxima"), 0);
    let after = fleet.app.engine.store.count_rows().await.unwrap();
    assert_eq!(after["points"], 0);
    // A pool at zero was recorded as such.
    let quiet = last(fleet, "/pool/pp%2Fquiet-3").await;
    assert_eq!(levels(&quiet), [0; 6]);
    assert_eq!(quiet["maximum"], 2);
    assert_eq!(last(fleet, "").await["maximum"], 40);
});

fleet_test!(a_pool_that_is_made_again_goes_on_with_its_series, |fleet| {
    fleet.make_pool(POOL, plain_pool(2)).await;
    fleet.tasks(POOL, 1).await;
    next_minute(fleet).await;
    fleet.delete_pool(POOL).await;
    fleet.keep_house().await;
    next_minute(fleet).await;
    let without = last(fleet, OF_POOL).await;
    assert_eq!(
        (&without["waiting"], &without["maximum"]),
        (&json!(0), &json!(0))
    );
    fleet.make_pool(POOL, plain_pool(7)).await;
    next_minute(fleet).await;
    let again = points(fleet, OF_POOL).await;
    let shown: Vec<_> = again[again.len() - 3..]
        .iter()
        .map(|point| (point["waiting"].as_i64(), point["maximum"].as_i64()))
        .collect();
    let expected = [(1, 2), (0, 0), (1, 7)];
    assert_eq!(
        shown,
        expected.map(|(waiting, max)| (Some(waiting), Some(max)))
    );
});

on_both!(old_points_are_deleted_in_batches, |world| {
    let limits = SeriesLimits {
        rows: 4,
        batches: 3,
    };
    let mut sizes = sizes_around("server::background::series::ROWS", 4);
    sizes.extend(sizes_around("server::background::series::BATCHES", 3 * 4));
    for count in sizes {
        fill_old(world, count);
        loop {
            let forget = engine::series::forget(&world.app.engine, limits);
            let (n_deleted, counts) = world.counted(forget).await;
            let n_deleted = n_deleted.unwrap();
            // Three batches of each step.
            assert!(counts.statements("series_forget_times") <= 9);
            assert!(n_deleted <= 9 * 4);
            if n_deleted == 0 {
                break;
            }
        }
        let rows = world.app.engine.store.count_rows().await.unwrap();
        // The first point of each step is still kept.
        assert_eq!((rows["points"], rows["series_times"]), (3, 3), "{count}");
    }
});

/// For each step a point that is kept, and this many before it.
fn fill_old(world: &World, count: usize) {
    world
        .database
        .raw("DELETE FROM points; DELETE FROM series_times");
    let now = world.now().as_millis();
    for (span, kept_ms) in [
        (MINUTE_MS, 25 * HOUR_MS),
        (HOUR_MS, 90 * DAY_MS),
        (DAY_MS, 3 * 366 * DAY_MS),
    ] {
        let last = (now - kept_ms) / span * span;
        for number in 0..=count {
            let since = last - i64::try_from(number).unwrap() * span;
            world.database.raw(&format!(
                "INSERT INTO series_times VALUES ({span}, {since}, 1); \
                 INSERT INTO points VALUES ({span}, {since}, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, \
                 1, 0, 0, 0, 0, 0)"
            ));
        }
    }
}

on_both!(maxima_are_thinned_and_names_without_points_go, |world| {
    let now = world.now().as_millis();
    let hour = (now - 30 * HOUR_MS) / HOUR_MS * HOUR_MS;
    world.database.raw(
        "INSERT INTO series (worker_pool_id, launch_config_id, maximum) VALUES \
         ('p/used', '', 5), ('p/pointed', '', 0), ('p/unused', '', 0)",
    );
    for minute in 0..60 {
        let since = hour + minute * MINUTE_MS;
        world.database.raw(&format!(
            "INSERT INTO series_maxima SELECT series, {since}, {minute} FROM series \
             WHERE worker_pool_id IN ('p/used', 'p/unused')"
        ));
    }
    let day = now / DAY_MS * DAY_MS;
    world.database.raw(&format!(
        "INSERT INTO points SELECT {DAY_MS}, {day}, series, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, \
         0, 0, 0, 0, 0 FROM series WHERE worker_pool_id = 'p/pointed'"
    ));
    let limits = SeriesLimits {
        rows: 7,
        batches: 50,
    };
    for _ in 0..2 {
        let forget = engine::series::forget(&world.app.engine, limits).await;
        forget.unwrap();
        let rows = world.app.engine.store.count_rows().await.unwrap();
        assert_eq!((rows["series_maxima"], rows["series"]), (1, 2));
    }
});

fleet_test!(spark_lines_show_peaks_and_gaps, |fleet| {
    let other = "pp/other";
    fleet.make_pool(POOL, plain_pool(2)).await;
    fleet.make_pool(other, plain_pool(2)).await;
    fleet.tasks(POOL, 3).await;
    record(&fleet.app).await;
    fleet.round().await;
    next_minute(fleet).await;
    fleet.pass_ms(5 * MINUTE_MS);
    record(&fleet.app).await;
    let from = fleet.now().plus_millis(-9 * MINUTE_MS).to_string();
    let path = format!("fleetwright:/series/pools?points=10&from={from}");
    let (reply, counts) = fleet.counted(async { fleet.get(&path).await }).await;
    let reply = reply.expect(200);
    assert_eq!(counts.statements("series_parts"), 1);
    assert_eq!(reply["partMs"], MINUTE_MS);
    let lines = reply["pools"].as_array().unwrap();
    let null = Value::Null;
    let expected = [
        json!(3),
        json!(3),
        null.clone(),
        null.clone(),
        null.clone(),
        null,
        json!(3),
    ];
    let shown = lines[0]["waiting"].as_array().unwrap();
    assert_eq!(lines[0]["workerPoolId"], "pp/ee");
    assert_eq!(shown[shown.len() - 7..], expected);
    let capacity = lines[0]["capacity"].as_array().unwrap();
    assert_eq!(capacity.last(), Some(&json!(2)));
    assert_eq!(
        lines[1]["waiting"].as_array().unwrap().last(),
        Some(&json!(0))
    );
    // A page at a time.
    let first = fleet.get(&format!("{path}&limit=1")).await.expect(200);
    assert_eq!(first["pools"].as_array().unwrap().len(), 1);
    let token = first["continuationToken"].as_str().unwrap();
    let next = fleet
        .get(&format!("{path}&limit=1&continuationToken={token}"))
        .await;
    assert_eq!(next.expect(200)["pools"][0]["workerPoolId"], other);
});

fleet_test!(waits_count_for_pools_and_not_for_other_queues, |fleet| {
    fleet.make_pool(POOL, plain_pool(2)).await;
    record(&fleet.app).await;
    let tasks = [fleet.tasks("pp/stray", 1).await, fleet.tasks(POOL, 1).await];
    fleet.pass_ms(5 * MINUTE_MS);
    for task in tasks {
        let path = format!("queue:/task/{}/cancel", task_id(task));
        fleet.post(&path, json!({})).await.expect(200);
    }
    charge(fleet).await;
    next_minute(fleet).await;
    for path in ["", OF_POOL] {
        assert_eq!(sum(&points(fleet, path).await, "waited"), 5 * MINUTE_MS);
    }
});

on_both!(a_time_with_too_many_points_is_refused, |world| {
    let until = world.now();
    for count in sizes_around("domain::series::MAX_POINTS", 1_500) {
        let count = i64::try_from(count).unwrap();
        let until = until.as_millis() / MINUTE_MS * MINUTE_MS;
        let until = domain::time::Timestamp::from_millis(until);
        let from = until.plus_millis(-count * MINUTE_MS);
        let path = format!("fleetwright:/series?step=minute&from={from}&until={until}");
        let expected = if (1..=1_500).contains(&count) {
            200
        } else {
            400
        };
        world.get(&path).await.expect(expected);
    }
    for bad in [
        "?from=yesterday",
        "?until=1",
        "?step=second",
        "?from=2030-01-01T00:00:00Z",
        "?from=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
        "/pools?points=0",
        "/pools?points=201",
        "/pools?points=x",
    ] {
        world
            .get(&format!("fleetwright:/series{bad}"))
            .await
            .expect(400);
    }
    for missing in ["/pool/no%2Fsuch", "/launch-config/no%2Fsuch/a"] {
        let reply = world
            .get(&format!("fleetwright:/series{missing}"))
            .await
            .expect(404);
        assert!(reply["message"].as_str().unwrap().contains("no/such"));
    }
});

/// Pools without a launch config, made at once.
fn make_pools(world: &World, from: usize, to: usize) {
    if from == to {
        return;
    }
    let rows = (from..to).map(|number| {
        format!(
            "('many/pool-{number:06}', 'static', '[]', '', '{{\"maxCapacity\":2}}', '', 0, 0, 0, 1)"
        )
    });
    let rows: Vec<String> = rows.collect();
    world.database.raw(&format!(
        "INSERT INTO worker_pools (worker_pool_id, provider_id, previous_provider_ids, \
         description, config, owner, email_on_error, created, last_modified, version) VALUES {}",
        rows.join(", ")
    ));
}

on_both!(any_number_of_pools_is_recorded, |world| {
    let mut existing = 0;
    let mut sizes = sizes_around("engine::series::levels::PAGE", 500);
    sizes.extend(sizes_around("store::history::series::CHUNK", 1_000));
    sizes.sort_unstable();
    for count in sizes.into_iter().filter(|count| *count <= 5_000) {
        if count <= existing {
            continue;
        }
        make_pools(world, existing, count);
        existing = count;
        world.clock.advance_ms(MINUTE_MS);
        record(&world.app).await;
        let rows = world.app.engine.store.count_rows().await.unwrap();
        assert_eq!(rows["series"], count as u64 + 1);
        assert_eq!(last(world, "").await["maximum"], 2 * count);
    }
});

on_both!(a_reply_has_a_number_of_short_series_and_of_parts, |world| {
    let mut existing = 0;
    let limit = 200_usize;
    for count in sizes_around("server::api::fleetwright::series::MAX_POOLS", limit) {
        make_pools(world, existing, count);
        existing = count;
        let reply = world.get("fleetwright:/series/pools").await.expect(200);
        assert_eq!(reply["pools"].as_array().unwrap().len(), count.min(limit));
        assert_eq!(reply["continuationToken"].is_string(), count > limit);
    }
    for count in sizes_around("server::api::fleetwright::series::MAX_PARTS", limit) {
        let path = format!("fleetwright:/series/pools?limit=1&points={count}");
        let expected = if (1..=limit).contains(&count) {
            200
        } else {
            400
        };
        let reply = world.get(&path).await.expect(expected);
        if expected == 200 {
            let n_parts = reply["recorded"].as_array().unwrap().len();
            assert!(n_parts <= count + 1, "{n_parts} of {count}");
        }
    }
});

on_both!(short_series_of_named_pools_are_limited, |world| {
    for size in sizes_around("server::api::fleetwright::series::MAX_NAMED", 100) {
        let mut names: Vec<String> = (0..size).map(|number| format!("p/a{number}")).collect();
        names.sort();
        if names.is_empty() {
            continue;
        }
        let path = format!("fleetwright:/series/pools?pools={}", names.join(","));
        let answer = world.get(&path).await;
        if size > 100 {
            let text = format!("`pools` names {size} pools, and at most 100 are allowed");
            answer.refused(400, "InputError", &text);
            continue;
        }
        let pools = answer.expect(200)["pools"].as_array().unwrap().clone();
        let found = pools
            .iter()
            .map(|pool| pool["workerPoolId"].as_str().unwrap());
        assert_eq!(found.collect::<Vec<_>>(), names);
    }
});
