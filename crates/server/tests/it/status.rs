//! "Is all well?": each kind of problem is found, the worst first, and none where all is well.

use std::sync::Arc;

use domain::launch::Cause;
use serde_json::{Value, json};
use server::background::Learner;
use server::background::driver::BackgroundTask;

use crate::authorization::{Case, case};
use crate::costs::charge;
use crate::database::on_both;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_test, machine, plain_pool, pool};
use crate::samples::{static_pool, static_worker};
use crate::world::World;

/// A second later, so that the status is read again.
async fn status(fleet: &Fleet) -> Value {
    fleet.pass_ms(1_000);
    read(fleet).await
}

async fn read(world: &World) -> Value {
    let reply = world.get("fleetwright:/status").await.expect(200);
    let problems = reply["problems"].as_array().unwrap();
    for severity in ["ill", "warned"] {
        let of_severity = problems.iter().filter(|it| it["severity"] == severity);
        assert_eq!(reply[severity], of_severity.count(), "{reply}");
    }
    assert_eq!(reply["isWell"], reply["ill"] == 0);
    reply
}

/// Without the provider of the test world that does not work.
fn kinds(status: &Value) -> Vec<&str> {
    let problems = status["problems"].as_array().unwrap().iter();
    let problems = problems.filter(|it| it["providerId"] != "shaky");
    problems.map(|it| it["kind"].as_str().unwrap()).collect()
}

fn problem<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let problems = status["problems"].as_array().unwrap();
    let found = problems.iter().find(|it| it["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {status}"))
}

async fn pools(world: &World, query: &str) -> Value {
    let path = format!("fleetwright:/status/pools{query}");
    world.get(&path).await.expect(200)
}

fn ids(reply: &Value) -> Vec<&str> {
    let pools = reply["pools"].as_array().unwrap().iter();
    pools
        .map(|it| it["workerPoolId"].as_str().unwrap())
        .collect()
}

fleet_test!(a_fleet_at_work_is_well, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let busy = fleet.busy(POOL, 2).await;
    assert_eq!(busy.len(), 2);
    let status = status(fleet).await;
    assert_eq!(kinds(&status), Vec::<&str>::new(), "{status}");
    assert_eq!(status["totals"]["busy"], 2);
    assert_eq!(status["pools"]["all"], 1);
    assert_eq!(status["pools"]["quiet"], 0);
    let pools = pools(fleet, "").await;
    assert_eq!(pools["matching"], 1);
    let shown = &pools["pools"][0];
    assert_eq!((&shown["busy"], &shown["maximum"]), (&json!(2), &json!(4)));
    assert_eq!(shown["trouble"], json!([]));
    assert_eq!(shown["wait"], Value::Null);
});

fleet_test!(the_cost_of_a_deleted_pool_counts, |fleet| {
    fleet.one.fake.keep_bill();
    let mut machine = machine("a");
    machine["price"] = json!(6.0);
    fleet.make_pool(POOL, pool("one", 0, 2, &[machine])).await;
    fleet.busy(POOL, 2).await;
    fleet.pass_ms(MINUTE_MS);
    charge(fleet).await;
    let before = status(fleet).await["totals"].clone();
    assert!(before["costToday"].as_i64().unwrap() > 0, "{before}");
    assert_eq!(before["costPerHour"], 12_000_000);
    let gone = fleet.write(|tx| store::pools::delete(tx, &POOL.parse().unwrap()));
    gone.await;
    let after = status(fleet).await;
    assert_eq!(after["pools"]["all"], 0);
    assert_eq!(after["totals"]["costPerHour"], before["costPerHour"]);
    // A second later.
    assert!(after["totals"]["costToday"].as_i64() > before["costToday"].as_i64());
});

fleet_test!(refused_launches_are_named_with_their_cause, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.one.fake.refuse_launches_of("a", Cause::Capacity);
    fleet.tasks(POOL, 3).await;
    fleet.round().await;
    fleet.pass_ms(1_000);
    fleet.round().await;
    let status = status(fleet).await;
    let wait = problem(&status, "tasks-wait");
    assert_eq!(
        (&wait["severity"], &wait["waiting"]),
        (&json!("ill"), &json!(3))
    );
    assert_eq!(wait["workerPoolId"], POOL);
    let reason = wait["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        "3 tasks wait in pp/ee: every launch config is refused"
    );
    assert!(wait["since"].is_string());
    let shut = problem(&status, "launch-config-shut-off");
    assert_eq!(
        (&shut["severity"], &shut["launchConfigId"]),
        (&json!("ill"), &json!("a"))
    );
    assert!(
        shut["next"]
            .as_str()
            .unwrap()
            .starts_with("it is tried again"),
        "{shut}"
    );
    let action = shut["action"].as_str().unwrap();
    assert_eq!(action, "fleetwright explain launch-config pp/ee a");
    let list = pools(fleet, "").await;
    let shown = &list["pools"][0];
    assert_eq!(shown["wait"]["cause"], "refused");
    assert_eq!(
        shown["trouble"][0],
        json!({"kind": "tasks-wait", "severity": "ill"})
    );
    assert_eq!(status["pools"]["ill"], 1);
    // A launch that works ends all of it.
    fleet.one.fake.behave();
    fleet.pass_ms(2 * MINUTE_MS);
    fleet.round().await;
    fleet.pass_ms(1_000);
    fleet.round().await;
    let after = self::status(fleet).await;
    assert!(!kinds(&after).contains(&"tasks-wait"), "{after}");
});

fleet_test!(a_provider_that_refuses_is_named_once, |fleet| {
    fleet.one.fake.refuse_launches_of("a", Cause::Throttled);
    fleet.three.fake.refuse_launches_of("a", Cause::Credentials);
    for provider in ["one", "three"] {
        let id = format!("pp/of-{provider}");
        fleet
            .make_pool(&id, pool(provider, 0, 2, &[machine("a")]))
            .await;
        fleet.tasks(&id, 1).await;
    }
    fleet.round().await;
    let status = status(fleet).await;
    let throttled = problem(&status, "provider-throttled");
    assert_eq!(
        (&throttled["severity"], &throttled["providerId"]),
        (&json!("warned"), &json!("one"))
    );
    let refuses = problem(&status, "provider-refuses");
    assert_eq!(refuses["severity"], "ill");
    assert!(refuses["reason"].as_str().unwrap().contains("credentials"));
});

fleet_test!(limits_and_pauses_are_warnings, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    fleet.busy(POOL, 1).await;
    fleet.tasks(POOL, 2).await;
    fleet.round().await;
    let full = status(fleet).await;
    let wait = problem(&full, "tasks-wait");
    assert_eq!(wait["severity"], "warned", "{full}");
    assert!(
        wait["reason"]
            .as_str()
            .unwrap()
            .ends_with("the pool is at its maximum")
    );
    assert_eq!(full["ill"], 1, "the provider that does not work");
    let until = fleet.now().plus_millis(30 * MINUTE_MS).to_string();
    let pause = json!({"workerPoolId": POOL, "pause": true, "reason": "prices", "until": until});
    fleet.put("/override/freeze", pause).await.expect(200);
    let paused = status(fleet).await;
    let found = problem(&paused, "launch-config-paused");
    assert_eq!(
        (&found["severity"], &found["workerPoolId"]),
        (&json!("warned"), &json!(POOL))
    );
    let ends = problem(&paused, "override-ends");
    assert_eq!(ends["overrideId"], "freeze");
    let trouble = pools(fleet, "").await["pools"][0]["trouble"].clone();
    assert_eq!(trouble.as_array().unwrap().len(), 2, "{trouble}");
});

fleet_test!(facts_of_other_parts_are_named, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    let (worker, _) = fleet.busy(POOL, 1).await.remove(0);
    fleet.quarantine(&worker.key, 60 * MINUTE_MS).await;
    fleet.tasks("no/pool", 2).await;
    let body = json!({"workerPools": "*", "per": "day", "limit": 0.0});
    fleet.put("/budget/none", body).await.expect(200);
    let now = fleet.now().as_millis();
    fleet.database.raw(&format!(
        "INSERT INTO relays (relay_id, first_seen, last_seen, interval_seconds, announcement) \
         VALUES ('mdc1', {now}, {}, 30, '{{}}'); \
         INSERT INTO worker_errors (worker_pool_id, error_id, reported, kind, title, description, \
         extra, code, cause) \
         VALUES ('pp/ee', 'e1', {}, 'k', 'Disk is full', '', '{{}}', 'disk', 'c1')",
        now - 10 * MINUTE_MS,
        now - MINUTE_MS,
    ));
    let status = status(fleet).await;
    for (kind, key, id) in [
        ("provider-out-of-service", "providerId", "shaky"),
        ("workers-quarantined", "workerPoolId", POOL),
        ("unknown-queue", "workerPoolId", "no/pool"),
        ("budget-spent", "budgetId", "none"),
        ("relay-silent", "relayId", "mdc1"),
        ("errors-new", "workerPoolId", POOL),
    ] {
        assert_eq!(problem(&status, kind)[key], id, "{kind}");
    }
    assert_eq!(
        problem(&status, "errors-new")["words"],
        "Disk is full (disk)"
    );
    // The worst first.
    let severities = status["problems"].as_array().unwrap().iter();
    let severities: Vec<_> = severities
        .map(|it| it["severity"].as_str().unwrap())
        .collect();
    assert!(severities.is_sorted(), "{severities:?}");
    assert_eq!(pools(fleet, "").await["pools"][0]["errors"], 1);
});

fleet_test!(duties_that_no_process_fulfils_are_late, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    crate::series::record(&fleet.app).await;
    let mut learner = Learner::new(Arc::clone(&fleet.app.engine), MINUTE_MS);
    learner.activate().await.unwrap();
    fleet.events().await;
    let before = status(fleet).await;
    assert_eq!(kinds(&before), Vec::<&str>::new());
    fleet.change_pool(POOL, plain_pool(2)).await;
    fleet.pass_ms(4 * MINUTE_MS);
    let after = status(fleet).await;
    assert_eq!(
        kinds(&after),
        ["planner-late", "events-late", "series-late"],
        "{after}"
    );
    let since = problem(&after, "planner-late")["since"].as_str().unwrap();
    assert!(since < after["asOf"].as_str().unwrap());
});

fleet_test!(parts_need_their_scopes, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    fleet.one.fake.refuse_launches_of("a", Cause::Capacity);
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let body = json!({"workerPools": "other/*", "per": "day", "limit": 0.0});
    fleet.put("/budget/none", body).await.expect(200);
    let all = status(fleet).await;
    assert_eq!(all["missingScopes"], json!([]));
    assert!(problem(&all, "launch-config-shut-off")["words"].is_string());
    assert!(all["totals"]["costToday"].is_i64());
    let who = fleet.client("watcher", &["fleetwright:read-status"]).await;
    let path = "fleetwright:/status";
    let seen = fleet.get(path).by(&who).await.expect(200);
    assert_eq!(
        seen["missingScopes"],
        json!(["fleetwright:read-cost:all", "worker-manager:list-budgets"])
    );
    assert!(!kinds(&seen).contains(&"budget-spent"));
    assert_eq!(
        problem(&seen, "launch-config-shut-off")["words"],
        Value::Null
    );
    assert_eq!(seen["totals"]["costToday"], Value::Null);
    let path = "fleetwright:/status/pools";
    let listed = fleet.get(path).by(&who).await.expect(200);
    assert_eq!(listed["pools"][0]["costToday"], Value::Null);
    let scopes = [
        "fleetwright:read-status",
        "fleetwright:read-cost:pool:pp/ee",
    ];
    let who = fleet.client("owner", &scopes).await;
    let listed = fleet.get(path).by(&who).await.expect(200);
    assert_eq!(listed["pools"][0]["costToday"], 0);
});

fleet_test!(pools_are_ordered_over_all_pages, |fleet| {
    for (name, tasks) in [("alpha", 0), ("beta", 3), ("gamma", 1), ("delta", 2)] {
        let id = format!("pp/{name}");
        fleet.make_pool(&id, plain_pool(4)).await;
        fleet.tasks(&id, tasks).await;
    }
    fleet.pass_ms(1_000);
    let name = pools(fleet, "?order=name").await;
    assert_eq!(ids(&name), ["pp/alpha", "pp/beta", "pp/delta", "pp/gamma"]);
    let mut query = "?order=waiting&limit=1".to_owned();
    let mut listed = Vec::new();
    for _ in 0..9 {
        let page = pools(fleet, &query).await;
        listed.extend(ids(&page).into_iter().map(str::to_owned));
        assert_eq!(page["matching"], 4);
        let Some(token) = page["continuationToken"].as_str() else {
            break;
        };
        query = format!("?order=waiting&limit=1&continuationToken={token}");
    }
    assert_eq!(listed, ["pp/beta", "pp/delta", "pp/gamma", "pp/alpha"]);
    let found = pools(fleet, "?search=LTA").await;
    assert_eq!(ids(&found), ["pp/delta"]);
    assert_eq!(pools(fleet, "?search=nothing").await["matching"], 0);
    for bad in ["?order=age", "?continuationToken=x", "?search="] {
        let path = format!("fleetwright:/status/pools{bad}");
        fleet.get(&path).await.expect(400);
    }
});

on_both!(who_accepts_an_older_status_does_not_wait, |world| {
    let first = read(world).await["asOf"].clone();
    let path = "fleetwright:/status?maxAge=10";
    let known = async |world: &World| world.get(path).await.expect(200)["asOf"].clone();
    world.clock.advance_ms(5_000);
    assert_eq!(known(world).await, first);
    // Meanwhile a newer one is read.
    while known(world).await == first {
        tokio::task::yield_now().await;
    }
    assert_eq!(known(world).await, world.now().to_string());
    world.clock.advance_ms(10_000);
    assert_eq!(known(world).await, world.now().to_string());
    world.clock.advance_ms(1_000);
    assert_eq!(read(world).await["asOf"], world.now().to_string());
    world.get("fleetwright:/status?maxAge=61").await.expect(400);
});

on_both!(many_pools_cost_no_further_statements, |world| {
    let mut statements = Vec::new();
    let mut n_pools = 0;
    for count in [1, 30] {
        while n_pools < count {
            let path = format!("/worker-pool/pp%2Fpool-{n_pools}");
            world.put(&path, static_pool()).await.expect(200);
            let path = format!("/workers/pp%2Fpool-{n_pools}/g/w");
            world.put(&path, static_worker()).await.expect(200);
            n_pools += 1;
        }
        world.clock.advance_ms(1_000);
        let (reply, counts) = world.counted(read(world)).await;
        assert_eq!(reply["pools"]["all"], count);
        assert_eq!(reply["totals"]["idle"], count);
        statements.push(counts.all_statements());
        // Another caller in the same second costs nothing.
        let (_, counts) = world.counted(pools(world, "")).await;
        assert_eq!(counts.statements("series_count_workers"), 0);
    }
    assert_eq!(statements[0], statements[1]);
});

/// The scopes of these endpoints.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(
            "status",
            "fleetwright:/status",
            &["fleetwright:read-status"],
        ),
        case(
            "statusOfPools",
            "fleetwright:/status/pools",
            &["fleetwright:read-status"],
        ),
        case(
            "series",
            "fleetwright:/series",
            &["fleetwright:read-series:all"],
        ),
        case(
            "seriesOfPools",
            "fleetwright:/series/pools",
            &["fleetwright:read-series:all"],
        ),
        case(
            "seriesOfPool",
            "fleetwright:/series/pool/pp%2Fee",
            &["fleetwright:read-series:pool:pp/ee"],
        ),
        case(
            "seriesOfLaunchConfig",
            "fleetwright:/series/launch-config/pp%2Fee/lc",
            &["fleetwright:read-series:pool:pp/ee"],
        ),
    ]
}
