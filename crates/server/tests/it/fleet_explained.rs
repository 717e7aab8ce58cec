//! Explanations of a pool's workers: requested over the API, derived from stored decisions.

use cloud::LaunchOutcome;
use domain::id::PoolId;
use domain::launch::Cause;
use domain::time::Timestamp;
use engine::fleet;
use serde_json::{Value, json};
use store::plans::PlanRecord;

use crate::database::assert_snapshot;
use crate::fleet_world::{
    Fleet, IDLE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, plain_pool, pool,
};

impl Fleet {
    /// The decision that would be made now, as text.
    async fn present(&self) -> String {
        let explained = self.explain_pool(POOL).await;
        explained["now"]["text"].as_str().unwrap().to_owned()
    }

    /// Only its reasons.
    async fn reasons(&self) -> Vec<String> {
        let text = self.present().await;
        let because = text
            .lines()
            .filter_map(|line| line.strip_prefix("because "));
        because.map(str::to_owned).collect()
    }
}

/// The texts of a story, with the names of launches left out.
fn told(explained: &Value, launch: &str) -> String {
    let lines = explained["story"].as_array().unwrap().iter();
    let texts = lines.map(|line| line["text"].as_str().unwrap().replace(launch, "[launch]"));
    texts.collect::<Vec<_>>().join("\n")
}

fleet_test!(every_stored_plan_is_made_again_from_its_input, |fleet| {
    fleet.make_pool(POOL, plain_pool(40)).await;
    fleet.idle(POOL, 7).await;
    fleet.pass_ms(IDLE_MS + 1_000);
    fleet.round().await;
    fleet.tasks(POOL, 20).await;
    fleet.round().await;
    let pool: PoolId = POOL.parse().unwrap();
    let plans = fleet.plans(POOL).await;
    assert!(plans.len() > 2, "{plans:?}");
    for record in plans {
        let id = pool.clone();
        let again = fleet
            .read(move |tx| Ok(fleet::replay(tx, &id, record.number)))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(again.to_json().to_string(), record.plan.to_string());
    }
    let missing = fleet
        .read(move |tx| Ok(fleet::replay(tx, &pool, 1_000)))
        .await;
    assert_eq!(missing.unwrap(), None);
});

fleet_on_sqlite_first!(
    a_plan_with_a_damaged_or_without_an_input_is_not_made_again,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let pool: PoolId = POOL.parse().unwrap();
        for (number, input) in [(1, None), (2, Some(b"damaged".as_slice()))] {
            let record = PlanRecord {
                pool_id: pool.clone(),
                number,
                created: fleet.now(),
                plan: json!({}),
            };
            fleet
                .write(move |tx| store::plans::insert(tx, &record, input, i64::MAX))
                .await;
        }
        let id = pool.clone();
        let without = fleet.read(move |tx| Ok(fleet::replay(tx, &id, 1))).await;
        assert_eq!(without.unwrap(), None);
        let damaged = fleet.read(move |tx| Ok(fleet::replay(tx, &pool, 2))).await;
        assert_eq!(
            damaged.unwrap_err().to_string(),
            "the stored input of the plan cannot be read"
        );
    }
);

fleet_on_sqlite_first!(a_pool_explains_its_present_and_earlier_decisions, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 2).await;
    assert_snapshot!(fleet.present().await, @r"
    the pool wants 2 more units, 2 in all
    launch 2 x a (1 unit each)
    because 2 more units are needed: 2 tasks wait; maximum 4
    because fake (a): 2 machines
    ");
    fleet.round().await;
    assert_snapshot!(fleet.present().await, @r"
    the pool wants no more units: 2 in all are enough
    because no more units are needed: 2 tasks wait; 2 units start; maximum 4
    because fake (a): 2 machines made in the last hour, none registered yet
    ");
    let explained = fleet.explain_pool(POOL).await;
    let plan = &explained["plans"][0];
    assert_eq!(plan["number"], 1);
    assert_snapshot!(plan["text"].as_str().unwrap(), @r"
    the pool wants 2 more units, 2 in all
    launch 2 x a (1 unit each)
    because 2 more units are needed: 2 tasks wait; maximum 4
    because fake (a): 2 machines
    ");
    let mut launch = explained["launches"][0].clone();
    launch["launch"] = json!("[launch]");
    assert_snapshot!(launch, @r#"{"cause":null,"created":"2026-09-21T14:13:20.000Z","launch":"[launch]","launchConfigId":"a","machines":2,"made":2,"plan":1,"price":null,"problem":null,"providerId":"one","state":"accepted"}"#);
});

fleet_on_sqlite_first!(a_pool_says_why_nothing_happens, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    assert_snapshot!(fleet.reasons().await.join("\n"), @"no more units are needed: 0 tasks wait; maximum 1");
    // The maximum is reached.
    fleet.tasks(POOL, 2).await;
    fleet.round().await;
    assert_snapshot!(fleet.reasons().await.join("\n"), @r"
    no more units are needed: 2 tasks wait; 1 unit starts; maximum 1
    fake (a): 1 machine made in the last hour, none registered yet
    ");
});

fleet_on_sqlite_first!(
    a_pool_says_which_launch_configs_cannot_be_used_and_why,
    |fleet| {
        let mut off = machine("off");
        off["workerManager"]["initialWeight"] = json!(0);
        let configs = [off, machine("sold-out"), machine("refused")];
        fleet.make_pool(POOL, pool("one", 0, 4, &configs)).await;
        fleet.one.fake.set_stock("sold-out", 0);
        fleet
            .one
            .fake
            .next_launches([LaunchOutcome::Refused(Cause::Capacity)]);
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_snapshot!(fleet.reasons().await.join("\n"), @r"
    1 more unit is needed: 1 task waits; maximum 4
    fake (off): skipped, its initialWeight is 0
    fake (sold-out): skipped, no machine is available now
    fake (refused): skipped, 1 of 1 launches failed in the last hour, last launch was refused (capacity), tried again at 14:13:30Z
    still missing 1 unit: no launch config can give more now
    ");
        let explained = fleet.explain_pool(POOL).await;
        assert_eq!(explained["launches"][0]["cause"], "capacity");
    }
);

fleet_on_sqlite_first!(a_pool_says_that_its_provider_launches_nothing, |fleet| {
    fleet
        .make_pool(POOL, pool("null-provider", 0, 4, &[machine("a")]))
        .await;
    fleet.tasks(POOL, 1).await;
    assert_snapshot!(fleet.present().await, @r"
    the pool wants 1 more unit, 1 in all
    because 1 more unit is needed: 1 task waits; maximum 4
    because a: skipped, a provider of kind null launches nothing
    because still missing 1 unit: no launch config can give more now
    ");
});

fleet_on_sqlite_first!(a_worker_explains_its_launch_its_work_and_its_end, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    fleet.pass_ms(1_000);
    let [worker] = fleet.register_all(POOL).await.try_into().ok().unwrap();
    fleet.pass_ms(1_000);
    let claim = fleet.claim_with(&worker).await;
    fleet.pass_ms(1_000);
    fleet.complete(&claim).await;
    fleet.pass_ms(IDLE_MS);
    fleet.round().await;
    fleet.pass_ms(1_000);
    fleet.leave(&worker).await;
    fleet.scan().await;
    let explained = fleet.explain_worker(&worker.key).await;
    let launch = explained["launch"]["launch"].as_str().unwrap();
    assert_snapshot!(told(&explained, launch), @r"
    plan 1: 1 more unit is needed: 1 task waits; maximum 4
    plan 1: fake (a): 1 machine
    launch [launch] asked one for 1 machine by a
    requested: one has it
    registered and got credentials
    asked the queue for work for the first time
    ended a task; 1 remembered
    asked to stop: over capacity
    ended: it stopped by itself after the advice: over capacity
    now it is stopped
    ");
    assert_eq!(explained["state"], "stopped");
    assert_eq!(explained["plan"]["number"], 1);
});

fleet_on_sqlite_first!(an_ended_worker_names_the_rule, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let [key] = fleet
        .workers_in(POOL, "requested")
        .await
        .try_into()
        .unwrap();
    fleet.listen_ms(crate::fleet_world::REGISTRATION_MS + 1);
    fleet.scan().await;
    let explained = fleet.explain_worker(&key).await;
    let launch = explained["launch"]["launch"].as_str().unwrap();
    assert_snapshot!(told(&explained, launch), @r"
    plan 1: 1 more unit is needed: 1 task waits; maximum 4
    plan 1: fake (a): 1 machine
    launch [launch] asked one for 1 machine by a
    requested: one has it
    ended: never registered within 900s
    now it is stopping
    ");
});

fleet_test!(a_preview_writes_nothing_and_matches_the_decision, |fleet| {
    // One launch config only, so that randomness does not change the decision.
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 3).await;
    fleet.news().await;
    let foreseen = fleet.explain_pool(POOL).await["now"]["plan"].take();
    for _ in 0..3 {
        fleet.explain_pool(POOL).await;
    }
    assert_eq!(fleet.plans(POOL).await, []);
    assert_eq!(fleet.launches(POOL).await, []);
    assert_eq!(fleet.news().await, Vec::<String>::new());
    assert_eq!(fleet.machines(), []);

    fleet.round().await;
    let plan = fleet.plans(POOL).await.remove(0);
    assert_eq!(plan.plan, foreseen);
    assert_eq!((plan.number, fleet.machines().len()), (1, 3));
});

fleet_on_sqlite_first!(a_preview_shows_the_advice_and_sends_none, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let [worker] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
    fleet.pass_ms(IDLE_MS);
    let foreseen = fleet.present().await;
    let line = format!("ask {} to stop: over capacity", worker.key);
    assert!(foreseen.contains(&line), "{foreseen}");
    assert_eq!(fleet.advice(&worker).await, "stay: none");
    fleet.round().await;
    assert_eq!(fleet.advice(&worker).await, "go: over capacity");
});

fleet_on_sqlite_first!(decisions_up_to_a_moment_are_explained, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let first = fleet.now();
    fleet.pass_ms(IDLE_MS);
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let explained = async |query: String| {
        let path = format!("fleetwright:/explain/pool/pp%2Fee{query}");
        let reply = fleet.get(&path).await.expect(200);
        let numbers = |name: &str, member: &str| -> Vec<i64> {
            let all = reply[name].as_array().unwrap().iter();
            all.map(|it| it[member].as_i64().unwrap()).collect()
        };
        (numbers("plans", "number"), numbers("launches", "plan"))
    };
    assert_eq!(explained(String::new()).await, (vec![2, 1], vec![2, 1]));
    let at = |moment: Timestamp| format!("?at={moment}");
    assert_eq!(explained(at(first)).await, (vec![1], vec![1]));
    let before = first.plus_millis(-IDLE_MS);
    assert_eq!(explained(at(before)).await, (vec![], vec![]));
    let wrong = fleet.get("fleetwright:/explain/pool/pp%2Fee?at=2026");
    assert_eq!(wrong.await.status, 400);
});

fleet_on_sqlite_first!(an_explanation_needs_a_scope, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let path = "fleetwright:/explain/pool/pp%2Fee";
    let curious = fleet
        .client("curious", &["fleetwright:explain:pp/other"])
        .await;
    let refused = fleet.get(path).by(&curious).await;
    refused.refused_with(403, "InsufficientScopes", "fleetwright:explain:pp/ee");
    let owner = fleet.client("owner", &["fleetwright:explain:pp/*"]).await;
    fleet.get(path).by(&owner).await.expect(200);
    let missing = fleet.get("fleetwright:/explain/pool/pp%2Fnone").await;
    missing.refused(404, "ResourceNotFound", "Worker pool does not exist");
});
