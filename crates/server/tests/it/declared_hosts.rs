//! Hosts that people declare live until somebody removes them, and learn when their configuration
//! changes.

use serde_json::{Value, json};
use testing::sizes_around;

use crate::ask::Who;
use crate::costs::{charge, report};
use crate::database::on_both;
use crate::samples::{DAY_MS, STATIC_SECRET, aws_pool, key, pool, static_pool, static_worker};
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
const WORKER: &str = "/workers/pp%2Fee/g/w";
const LIST: &str = "/launch-configs/pp%2Fee";
const MINUTE_MS: i64 = 60_000;
const YEAR_MS: i64 = 365 * DAY_MS;
/// Of housekeeping.
const BATCH: usize = 25;

impl World {
    async fn declare_host(&self) {
        self.put(POOL, static_pool()).await.expect(200);
        self.put(WORKER, static_worker()).await.expect(200);
    }

    async fn register_host(&self) -> Value {
        let proof = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
            "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
        let registered = self.post("/worker/register", proof).anonymously().await;
        registered.expect(200)
    }

    async fn host_expires_in_days(&self) -> i64 {
        let host = self.get(WORKER).await.expect(200);
        let expires = host["expires"].as_str().unwrap().parse().unwrap();
        self.now().millis_since(expires) / -DAY_MS
    }

    async fn price_of(&self, name: &str) -> Value {
        let path = format!("fleetwright:/explain/worker/pp%2Fee/{name}");
        self.get(&path).await.expect(200)["price"].clone()
    }

    async fn host_config(&self, who: &Who) -> Value {
        let path = format!("{WORKER}/launch-config");
        self.get(&path).by(who).await.expect(200)
    }
}

on_both!(a_declared_host_lives_for_years, |world| {
    world.declare_host().await;
    for _ in 0..2 * 52 {
        world.clock.advance_ms(7 * DAY_MS);
        world.keep_house().await;
        assert!((6..=71).contains(&world.host_expires_in_days().await));
    }
    world.register_host().await;
    // The events of its life: none, as nothing happened to it.
    let removed = world.delete(WORKER).await;
    removed.expect(200);
    world.clock.advance_ms(9 * DAY_MS);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 404);
});

on_both!(a_declared_host_outlives_an_outage_of_two_years, |world| {
    world.declare_host().await;
    let registered = world.register_host().await;
    world.clock.advance_ms(2 * YEAR_MS);
    // It may be back before the first housekeeping.
    let again = world.register_host().await;
    assert_ne!(again["secret"], registered["secret"]);
    world.keep_house().await;
    assert_eq!(world.host_expires_in_days().await, 8);
    // Its meter runs on.
    let (_, counts) = world.counted(world.keep_house()).await;
    assert_eq!(
        counts.rows("worker_keep_declared"),
        0,
        "moved once in a while only"
    );
    world.register_host().await;
});

on_both!(a_host_that_its_pool_has_left_expires, |world| {
    world.declare_host().await;
    world.post(POOL, aws_pool(&[])).await.expect(200);
    world.clock.advance_ms(YEAR_MS);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 404);
    // As one of a pool that was deleted.
    world.post(POOL, static_pool()).await.expect(200);
    let mut host = static_worker();
    host["expires"] = json!(world.now().plus_millis(DAY_MS).to_string());
    world.put(WORKER, host).await.expect(200);
    world.delete(POOL).await.expect(200);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 200);
    world.clock.advance_ms(2 * DAY_MS);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 404);
    // And one of a pool that has the provider beside another stays.
    let mut both = aws_pool(&[]);
    both["config"]["providers"] = json!(["aws", "static"]);
    world.keep_house().await;
    world.put(POOL, both).await.expect(200);
    let mut host = static_worker();
    host["expires"] = json!(world.now().plus_millis(DAY_MS).to_string());
    world.put(WORKER, host).await.expect(200);
    world.clock.advance_ms(YEAR_MS);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 200);
});

on_both!(many_declared_hosts_are_kept_in_batches, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    let mut known = 0;
    for size in sizes_around("server::background::housekeeping::BATCH", BATCH) {
        for number in known..size {
            let path = format!("/workers/pp%2Fee/g/w{number}");
            let expires = world.now().plus_millis(DAY_MS).to_string();
            let mut host = static_worker();
            host["expires"] = json!(expires);
            world.put(&path, host).await.expect(200);
        }
        known = known.max(size);
        world.clock.advance_ms(YEAR_MS);
        let done = world.keep_house().await;
        // A count of none is left out.
        let kept = done["workers_kept"].as_u64().unwrap_or(0);
        assert_eq!(kept, known as u64);
        assert_eq!(done["workers"], Value::Null);
    }
    let listed = world.get("/workers/pp%2Fee?limit=1").await.expect(200);
    assert_eq!(listed["workers"].as_array().unwrap().len(), 1);
});

on_both!(a_host_is_led_to_the_launch_config_of_an_edit, |world| {
    world.declare_host().await;
    let declared = world.get(WORKER).await.expect(200);
    let registration = world.register_host().await;
    let who = Who::registered(&registration);
    let first = world.host_config(&who).await;
    assert_eq!(first["state"], "active");
    let id = first["launchConfigId"].as_str().unwrap();
    assert!(id.starts_with("lc-") && id.len() == 23, "{id}");
    assert_eq!(declared["launchConfigId"], id);
    // Other members of the pool are not its configuration.
    let mut renamed = static_pool();
    renamed["description"] = json!("another description");
    world.post(POOL, renamed).await.expect(200);
    assert_eq!(world.host_config(&who).await, first);
    let other = pool("static", json!({"workerConfig": {"a": 2}}));
    world.post(POOL, other.clone()).await.expect(200);
    let changed = world.host_config(&who).await;
    let next = changed["nextLaunchConfigId"].as_str().unwrap();
    assert_ne!(next, id);
    assert_eq!(
        changed,
        json!({"state": "archived", "launchConfigId": id, "nextLaunchConfigId": next,
            "reason": format!("the launch config {id} is archived; this worker gets {next} when \
                it registers again")})
    );
    // Its credentials are renewed, and it is not asked to stop.
    let renewal = json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w",
        "secret": registration["secret"]});
    let renewed = world.post("/worker/reregister", renewal).by(&who).await;
    let who = Who::registered(&renewed.expect(200));
    let asked = world
        .get(&format!("{WORKER}/should-terminate"))
        .by(&who)
        .await;
    assert_eq!(asked.expect(200)["terminate"], false);
    // As it was before: its host has the right one.
    world.post(POOL, static_pool()).await.expect(200);
    assert_eq!(world.host_config(&who).await, first);
    world.post(POOL, other).await.expect(200);
    // The row names what the host has, until it registers again.
    assert_eq!(world.get(WORKER).await.expect(200)["launchConfigId"], id);
    let registered = world.register_host().await;
    assert_eq!(registered["workerConfig"], json!({"a": 2}));
    assert_eq!(world.get(WORKER).await.expect(200)["launchConfigId"], next);
    let again = world.host_config(&Who::registered(&registered)).await;
    assert_eq!(
        (&again["state"], &again["launchConfigId"]),
        (&json!("active"), &json!(next))
    );
    // The archived one is deleted with its last host.
    world.keep_house().await;
    let of = |id: &str| format!("/launch-config/pp%2Fee/{id}");
    assert_eq!(world.get(&of(id)).await.status, 404);
    assert_eq!(world.get(&of(next)).await.status, 200);
});

on_both!(a_pool_in_the_old_form_is_read_as_it_was_written, |world| {
    let configs = [
        json!({}),
        json!({"workerConfig": {}}),
        json!({"workerConfig": {"a": 1}, "lifecycle": {"reregistrationTimeout": 60}}),
        json!({"workerConfig": {"a": 1}, "costPerHour": 0.5}),
    ];
    world.put(POOL, pool("static", json!({}))).await.expect(200);
    for config in configs {
        let written = world.post(POOL, pool("static", config.clone())).await;
        assert_eq!(written.expect(200)["config"], config);
        assert_eq!(world.get(POOL).await.expect(200)["config"], config);
        let listed = world.get(LIST).await.expect(200);
        let listed = listed["launchConfigs"].as_array().unwrap();
        let [only] = listed.as_slice() else {
            panic!("{listed:?}");
        };
        let content = config.get("workerConfig").cloned().unwrap_or(json!({}));
        assert_eq!(only["configuration"]["workerConfig"], content);
        assert_eq!(
            (&only["state"], &only["providerId"]),
            (&json!("active"), &json!("static"))
        );
    }
    // Its launch configs have events, as those of machines.
    let shown = world.get(&format!("{LIST}?includeArchived=true")).await;
    assert_eq!(
        shown.expect(200)["launchConfigs"].as_array().unwrap().len(),
        2
    );
});

on_both!(hosts_name_one_of_several_launch_configs, |world| {
    let listed = |second: u64| {
        let configs = json!([
            {"workerConfig": {"a": 1}},
            {"workerConfig": {"b": second}, "workerManager": {"launchConfigId": format!("b{second}"),
                "costPerHour": 0.5}},
        ]);
        pool(
            "static",
            json!({"launchConfigs": configs, "costPerHour": 0.25}),
        )
    };
    world.put(POOL, listed(1)).await.expect(200);
    let shown = world.get(POOL).await.expect(200);
    let shown = shown["config"]["launchConfigs"].as_array().unwrap().clone();
    assert_eq!(
        shown[1],
        json!({"workerConfig": {"b": 1},
            "workerManager": {"launchConfigId": "b1", "costPerHour": 0.5}})
    );
    let first = shown[0]["workerManager"]["launchConfigId"].clone();
    // A client may send back what it has read.
    let mut again = listed(1);
    again["config"]["launchConfigs"] = json!(shown);
    let again = world.post(POOL, again).await.expect(200);
    assert_eq!(again["config"]["launchConfigs"], json!(shown));
    // The first is the default.
    let made = world.put(WORKER, static_worker()).await.expect(200);
    assert_eq!(made["launchConfigId"], first);
    let mut named = static_worker();
    named["launchConfigId"] = json!("b1");
    let other = "/workers/pp%2Fee/g/other";
    let made = world.put(other, named.clone()).await.expect(200);
    assert_eq!(made["launchConfigId"], "b1");
    world.put(other, named.clone()).await.expect(200);
    named["launchConfigId"] = json!("nosuch");
    world.put("/workers/pp%2Fee/g/w3", named).await.refused(
        400,
        "InputError",
        "pp/ee has no active launch config nosuch",
    );
    assert_eq!(world.price_of("g/w").await, json!(0.25));
    assert_eq!(world.price_of("g/other").await, json!(0.5));
    // A host can be given the other one, and learns it.
    let who = Who::registered(&world.register_host().await);
    let mut moved = static_worker();
    moved["launchConfigId"] = json!("b1");
    world.post(WORKER, moved).await.expect(200);
    let asked = world.host_config(&who).await;
    assert_eq!(
        (
            &asked["state"],
            &asked["launchConfigId"],
            &asked["nextLaunchConfigId"]
        ),
        (&json!("archived"), &first, &json!("b1"))
    );
    assert_eq!(world.register_host().await["workerConfig"], json!({"b": 1}));
    assert_eq!(world.price_of("g/w").await, json!(0.5));
    // The successor of an archived one stands at its place of the list.
    world.post(POOL, listed(2)).await.expect(200);
    assert_eq!(world.register_host().await["workerConfig"], json!({"b": 2}));
});

on_both!(a_config_of_hosts_is_checked, |world| {
    for (config, part) in [
        (
            json!({"workerConfig": {}, "launchConfigs": [{"workerConfig": {}}]}),
            "must be absent beside launchConfigs",
        ),
        (json!({"launchConfigs": []}), "launchConfigs"),
        (json!({"costPerHour": 2e6}), "above $1000000"),
        (
            json!({"launchConfigs": [{"workerManager": {"costPerHour": 3e6}}]}),
            "above $1000000",
        ),
        (
            json!({"launchConfigs": [{"workerManager": {"maxCapacity": 3}}]}),
            "maxCapacity",
        ),
    ] {
        let answer = world.put(POOL, pool("static", config)).await;
        answer.refused_with(400, "InputValidationError", part);
    }
});

on_both!(hosts_are_counted_by_launch_config, |world| {
    world.declare_host().await;
    let second = "/workers/pp%2Fee/g/other";
    world.put(second, static_worker()).await.expect(200);
    let numbers = async || -> Value {
        let health = world.get("/launch-config-health").await.expect(200);
        let items = health["launchConfigs"].as_array().unwrap();
        let [only] = items.as_slice() else {
            panic!("{items:?}");
        };
        json!([
            only["launches"]["attempts"],
            only["launches"]["registered"],
            only["launches"]["neverRegistered"],
            only["workers"]["running"],
        ])
    };
    assert_eq!(numbers().await, json!([2, 0, 0, 2]));
    world.register_host().await;
    assert_eq!(numbers().await, json!([2, 1, 0, 2]));
    // The other one has not come in time.
    world.clock.advance_ms(31 * MINUTE_MS);
    assert_eq!(numbers().await, json!([2, 1, 1, 2]));
    // Only the last hour counts.
    world.clock.advance_ms(60 * MINUTE_MS);
    assert_eq!(numbers().await, json!([0, 0, 0, 2]));
});

on_both!(the_cost_of_a_host_is_that_of_its_launch_config, |world| {
    let config = |content: u64, price: f64| {
        pool(
            "static",
            json!({"workerConfig": {"a": content}, "costPerHour": price}),
        )
    };
    world.put(POOL, config(1, 1.0)).await.expect(200);
    world.put(WORKER, static_worker()).await.expect(200);
    world.register_host().await;
    let first = world.get(WORKER).await.expect(200)["launchConfigId"].clone();
    let (host, now) = (key("pp/ee", "g", "w"), world.now());
    world
        .write(move |tx| store::workers::note_first_claim(tx, &host, now))
        .await;
    world.clock.advance_ms(60 * MINUTE_MS);
    charge(world).await;
    world.post(POOL, config(2, 4.0)).await.expect(200);
    // The agreed price holds until the host has the new launch config.
    assert_eq!(world.price_of("g/w").await, json!(1.0));
    world.register_host().await;
    assert_eq!(world.price_of("g/w").await, json!(4.0));
    let second = world.get(WORKER).await.expect(200)["launchConfigId"].clone();
    world.clock.advance_ms(30 * MINUTE_MS);
    charge(world).await;
    let report = report(world, "?by=launch-config").await;
    let lines = report["lines"].as_array().unwrap();
    let cost = |id: &Value| {
        let line = lines.iter().find(|line| line["launchConfigId"] == *id);
        line.map(|line| line["costMicros"].clone())
    };
    // The last minute before the registration was not charged yet, so it has the new price.
    let costs = (cost(&first), cost(&second));
    assert_eq!(costs, (Some(json!(983_333)), Some(json!(2_066_667))));
});
