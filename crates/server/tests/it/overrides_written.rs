//! Overrides: set, shown and removed.

use domain::Version;
use domain::overrides::{Effect, Override, Target};
use serde_json::{Value, json};
use testing::sizes_around;

use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::fleet_world::{fleet_on_sqlite_first, machine, pool};
use crate::queue_samples::HOUR_MS;
use crate::samples::static_pool;
use crate::world::World;

const PATH: &str = "/override/freeze";

fn pause(target: &str, name: &str) -> Value {
    json!({target: name, "pause": true, "reason": "prices are up", "until": "2026-09-22T00:00:00Z"})
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

async fn with_pool(world: &World) {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    world.events().await;
}

on_sqlite_first!(an_override_is_set_shown_listed_and_removed, |world| {
    with_pool(world).await;
    let set = world.put(PATH, pause("workerPoolId", "pp/ee")).await;
    assert_snapshot!(set.text, @r#"
    {
      "created": "2026-09-21T14:13:20.000Z",
      "inForce": true,
      "overrideId": "freeze",
      "owner": "static/root",
      "pause": true,
      "reason": "prices are up",
      "until": "2026-09-22T00:00:00.000Z",
      "workerPoolId": "pp/ee"
    }
    "#);
    let set = set.expect(200);
    assert_eq!(world.get(PATH).await.expect(200), set);
    let limits = json!({"workerPoolId": "pp/ee", "minCapacity": 1, "maxCapacity": 2, "reason": "r",
        "until": "2026-09-22T00:00:00Z"});
    let limits = world.put("/override/more", limits).await.expect(200);
    assert_eq!(
        (&limits["minCapacity"], &limits["pause"]),
        (&json!(1), &json!(false))
    );
    let list = world.get("/overrides?limit=1").await.expect(200);
    assert_eq!(list["overrides"], json!([set]));
    let token = list["continuationToken"].as_str().unwrap();
    let rest = world
        .get(&format!("/overrides?continuationToken={token}"))
        .await
        .expect(200);
    assert_eq!(rest, json!({"overrides": [limits]}));
    world.delete(PATH).await.expect(200);
    world.get(PATH).await.expect(404);
    world.delete(PATH).await.expect(404);
    let history = world.get("auth:/audit/override/freeze").await.expect(200);
    let actions = history["auditHistory"].as_array().unwrap().iter();
    let actions: Vec<_> = actions
        .map(|line| line["actionType"].as_str().unwrap())
        .collect();
    assert_eq!(actions.len(), 2);
    assert!(
        actions.contains(&"set") && actions.contains(&"removed"),
        "{actions:?}"
    );
});

on_both!(
    the_same_again_changes_nothing_and_another_text_changes_it,
    |world| {
        with_pool(world).await;
        let first = world
            .put(PATH, pause("providerId", "static"))
            .await
            .expect(200);
        world.clock.advance_ms(5_000);
        let again = world
            .put(PATH, pause("providerId", "static"))
            .await
            .expect(200);
        assert_eq!(again, first);
        let who = world
            .client(
                "ops/bob",
                &[
                    "worker-manager:manage-override:*",
                    "worker-manager:provider:*",
                ],
            )
            .await;
        let other = with(pause("providerId", "static"), "reason", json!("other"));
        let changed = world.put(PATH, other).by(&who).await.expect(200);
        assert_eq!(
            (&changed["owner"], &changed["reason"]),
            (&json!("ops/bob"), &json!("other"))
        );
        assert_eq!(changed["created"], first["created"]);
        let elsewhere = world
            .put(PATH, pause("workerPoolId", "pp/ee"))
            .await
            .expect(409);
        let said = elsewhere["message"].as_str().unwrap();
        assert!(
            said.starts_with("Override freeze has another target: remove it first"),
            "{said}"
        );
    }
);

on_sqlite_first!(invalid_overrides_are_refused_with_advice, |world| {
    with_pool(world).await;
    let good = || pause("workerPoolId", "pp/ee");
    for (body, status, part) in [
        (
            with(good(), "providerId", json!("static")),
            400,
            "has one target",
        ),
        (
            json!({"pause": true, "reason": "r", "until": "2026-09-22T00:00:00Z"}),
            400,
            "has one target",
        ),
        (with(good(), "maxCapacity", json!(1)), 400, "does one thing"),
        (with(good(), "pause", json!(false)), 400, "does one thing"),
        (
            with(good(), "until", json!("2026-09-21T14:13:20Z")),
            400,
            "must be after now",
        ),
        (
            with(good(), "until", json!("2026-12-21T00:00:00Z")),
            400,
            "within 90 days",
        ),
        (with(good(), "until", json!("tomorrow")), 400, "date-time"),
        (with(good(), "reason", json!(" ")), 400, "has a reason"),
        (with(good(), "reason", json!("")), 400, "reason"),
        (
            with(good(), "launchConfigId", json!("none")),
            404,
            "Launch config none does not exist",
        ),
        (
            pause("workerPoolId", "pp/none"),
            404,
            "Worker pool does not exist",
        ),
        (
            pause("providerId", "none"),
            404,
            "Provider none does not exist",
        ),
        (
            json!({"region": "r", "maxCapacity": 1, "reason": "r", "until": "2026-09-22T00:00:00Z"}),
            400,
            "only a worker pool has limits",
        ),
    ] {
        let answer = world.put(PATH, body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
        assert!(answer.text.contains(part), "{body}: {}", answer.text);
    }
    world.put("/override/a%2Fb", good()).await.expect(400);
    assert_eq!(
        world.get("/overrides").await.expect(200),
        json!({"overrides": []})
    );
    assert_eq!(world.told().await, "");
});

fleet_on_sqlite_first!(
    a_launch_config_is_paused_and_resumed_as_rfc_191_has_it,
    |fleet| {
        let definition = pool("one", 0, 3, &[machine("lc")]);
        fleet
            .put("/worker-pool/pp%2Fee", definition)
            .await
            .expect(200);
        let path = |verb: &str| format!("/launch-config/pp%2Fee/lc/{verb}");
        let body = json!({"reason": "broken image", "until": "2026-09-22T00:00:00Z"});
        let paused = fleet.post(&path("pause"), body.clone()).await.expect(200);
        assert_eq!(paused["overrideId"], "pause.pp.ee.lc");
        assert_eq!(
            (&paused["workerPoolId"], &paused["launchConfigId"]),
            (&json!("pp/ee"), &json!("lc"))
        );
        assert_eq!(
            fleet.get("/override/pause.pp.ee.lc").await.expect(200),
            paused
        );
        fleet
            .ask(http::Method::POST, &path("resume"))
            .await
            .expect(200);
        let twice = fleet
            .ask(http::Method::POST, &path("resume"))
            .await
            .expect(404);
        assert!(
            twice["message"]
                .as_str()
                .unwrap()
                .contains("was not paused by pauseLaunchConfig")
        );
        fleet
            .post("/launch-config/pp%2Fee/none/pause", body)
            .await
            .expect(404);
    }
);

on_both!(those_that_have_ended_are_listed_when_asked_for, |world| {
    with_pool(world).await;
    world
        .put(PATH, pause("workerPoolId", "pp/ee"))
        .await
        .expect(200);
    world.clock.advance_ms(11 * 60 * 60 * 1_000);
    assert_eq!(
        world.get("/overrides").await.expect(200),
        json!({"overrides": []})
    );
    assert_eq!(world.get(PATH).await.expect(200)["inForce"], false);
    let all = world.get("/overrides?includeEnded=true").await.expect(200);
    assert_eq!(all["overrides"].as_array().unwrap().len(), 1);
});

on_both!(the_number_of_overrides_in_force_is_bounded, |world| {
    const LIMIT: usize = 1_000;
    with_pool(world).await;
    let sizes = sizes_around("engine::overrides::MAX_IN_FORCE", LIMIT);
    // To write ten times as many takes seconds, and they differ in nothing from one too many.
    for count in sizes.into_iter().filter(|count| *count <= LIMIT + 1) {
        let (now, until) = (world.now(), world.now().plus_millis(HOUR_MS));
        world
            .write(move |tx| {
                (0..count).try_for_each(|number| {
                    let given = Override {
                        id: format!("of-{count}-{number}").parse().unwrap(),
                        target: Target::Pool("pp/ee".parse().unwrap()),
                        effect: Effect::Pause,
                        reason: "prices are up".to_owned(),
                        owner: "team/ann".parse().unwrap(),
                        created: now,
                        until,
                        ended: None,
                        version: Version::FIRST,
                    };
                    store::overrides::insert(tx, &given).map(drop)
                })
            })
            .await;
        let body = |reason: &str| {
            let body = pause("workerPoolId", "pp/ee");
            let body = with(body, "reason", json!(reason));
            with(body, "until", json!(until.to_string()))
        };
        for number in count..count + 3 {
            let path = format!("/override/of-{count}-{number}");
            let answer = world.put(&path, body("more")).await;
            if number < LIMIT {
                answer.expect(200);
            } else {
                let text =
                    "1000 overrides are in force: remove some, or pause a provider or region";
                answer.refused(409, "RequestConflict", text);
            }
        }
        // Existing ones can be changed.
        let path = format!("/override/of-{count}-0");
        let changed = world.put(&path, body("otherwise")).await.expect(200);
        assert_eq!(changed["reason"], "otherwise");
        // Ended ones do not count.
        world.clock.advance_ms(HOUR_MS);
    }
});

on_both!(
    a_configuration_and_a_worker_type_are_paused_and_other_pools_are_not,
    |config| { crate::configurations::zones(config) },
    |world| {
        crate::configurations::made(world).await;
        let until = world.now().plus_seconds(600).to_string();
        let pause = |target: &str, name: &str| json!({target: name, "pause": true, "reason": "r", "until": until});
        let texts = |pool: &'static str| async move {
            let path = format!("fleetwright:/explain/pool/{pool}");
            world.get(&path).await.expect(200)["now"]["text"].to_string()
        };
        let (opt, dbg) = ("worker-manager%2Fbuild-opt", "worker-manager%2Fbuild-dbg");
        let whole = pause("workerConfigurationId", "build");
        let given = world.put("/override/freeze", whole).await.expect(200);
        assert_eq!(given["workerConfigurationId"], "build");
        for pool in [opt, dbg] {
            let text = texts(pool).await;
            assert!(
                text.contains("the worker configuration build is paused until"),
                "{text}"
            );
        }
        world.delete("/override/freeze").await.expect(200);
        let one = pause("workerType", "build-opt");
        let given = world.put("/override/freeze", one).await.expect(200);
        assert_eq!(given["workerPoolId"], "worker-manager/build-opt");
        assert!(texts(opt).await.contains("the pool is paused until"));
        assert!(!texts(dbg).await.contains("paused"));
        let missing = pause("workerConfigurationId", "nosuch");
        let refused = world.put("/override/other", missing).await;
        refused.refused(
            404,
            "ResourceNotFound",
            "Worker configuration nosuch does not exist",
        );
    }
);
