//! Shadows of pools: what they would have done is stored and compared, and nothing else happens.

use domain::id::PoolId;
use domain::plan::{Input, Plan};
use engine::fleet;
use serde_json::{Value, json};
use store::shadow_plans::{self, ShadowRecord};
use testing::sizes_around;

use crate::fleet_learned::in_region;
use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, plain_pool, pool,
};
use crate::world::World;

const PATH: &str = "fleetwright:/explain/shadow/pp%2Fee";
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Rows that are kept of each pool.
const KEPT: usize = 100;

/// A pool of the first cloud, with prices, this strategy, and this shadow.
fn watched(strategy: &str, shadow: &str, ratio: f64) -> Value {
    let mut definition = pool("one", 0, 100, &[in_region("east"), in_region("west")]);
    definition["config"]["strategy"] = json!(strategy);
    definition["config"]["scalingRatio"] = json!(ratio);
    definition["config"]["shadowStrategy"] = json!(shadow);
    definition
}

impl Fleet {
    /// Newest first.
    async fn shadow_rows(&self) -> Vec<ShadowRecord> {
        let id: PoolId = POOL.parse().unwrap();
        self.read(move |tx| shadow_plans::list(tx, &id, 1_000))
            .await
    }
}

async fn explained(world: &World) -> Value {
    world.get(PATH).await.expect(200)
}

fleet_test!(
    a_shadow_that_would_act_is_stored_once_and_does_nothing,
    |fleet| {
        fleet
            .make_pool(POOL, watched("weighted", "aws-provisioner", 0.0))
            .await;
        fleet.tasks(POOL, 3).await;
        for round in 0..20 {
            let (_, counts) = fleet.counted(fleet.round()).await;
            let is_first = round == 0;
            assert_eq!(counts.statements("shadow_plan_insert"), u64::from(is_first));
            assert_eq!(counts.transactions("shadow_note"), u64::from(is_first));
            assert_eq!(counts.transactions("shadow_last"), 1, "{round}");
            fleet.pass_ms(10_000);
        }
        assert_eq!(fleet.shadow_rows().await.len(), 1);
        assert!(fleet.machines().is_empty() && fleet.plans(POOL).await.is_empty());
        assert!(fleet.launches(POOL).await.is_empty());

        // A changed opinion is stored; an opinion that stays is stored once an hour.
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.round().await;
        assert_eq!(fleet.shadow_rows().await.len(), 2);
        fleet.pass_ms(HOUR_MS);
        fleet.round().await;
        fleet.round().await;
        let rows = fleet.shadow_rows().await;
        assert_eq!(rows.len(), 3);

        // The stored input makes both plans again.
        let (id, number) = (rows[0].pool_id.clone(), rows[0].number);
        let input = fleet.read(move |tx| shadow_plans::input(tx, &id, number));
        let input = Input::unpack(&input.await.unwrap()).unwrap();
        assert_eq!(Some(input.replay().to_json()), rows[0].plan);

        let shown = explained(fleet).await;
        assert_eq!(shown["strategy"]["name"], "weighted");
        assert_eq!(shown["shadow"]["name"], "aws-provisioner");
        assert_eq!(shown["now"]["shadow"]["units"], 4);
        let newest = &shown["decisions"][0];
        assert_eq!(newest["plan"], Value::Null);
        assert_eq!(newest["agreement"], "different");
        assert_eq!(newest["live"]["units"], 0);
        assert_eq!(newest["shadow"]["pricePerHour"], 2.0);
        let difference = newest["differences"][0].as_str().unwrap();
        assert!(
            difference.starts_with("weighted launches 0 units, aws-provisioner 4; "),
            "{difference}"
        );
        assert_eq!(shown["sums"]["decisions"], 3);
        assert_eq!(shown["sums"]["different"], 3);
        assert_eq!(shown["sums"]["shadow"]["units"], 3 + 4 + 4);
    }
);

fleet_test!(a_pool_without_a_shadow_costs_no_statement, |fleet| {
    fleet.make_pool(POOL, plain_pool(10)).await;
    fleet.tasks(POOL, 2).await;
    let (_, counts) = fleet.counted(fleet.round()).await;
    assert_eq!(counts.statements("plan_insert"), 1);
    for name in [
        "shadow_plan_list",
        "shadow_plan_insert",
        "shadow_plan_forget",
    ] {
        assert_eq!(counts.statements(name), 0, "{name}");
    }
    let alone = counts.all_statements();
    let shown = explained(fleet).await;
    assert_eq!(shown["shadow"], Value::Null);
    assert_eq!(shown["now"], Value::Null);
    assert_eq!(shown["sums"], Value::Null);
    // A shadow costs three: a number, the row, and the rows that are forgotten.
    fleet
        .make_pool("pp/other", {
            let mut definition = plain_pool(10);
            definition["config"]["shadowStrategy"] = json!("aws-provisioner");
            definition
        })
        .await;
    fleet.tasks("pp/other", 2).await;
    let (_, counts) = fleet.counted(fleet.provision()).await;
    assert_eq!(counts.statements("shadow_plan_insert"), 1);
    assert_eq!(counts.statements("shadow_plan_list"), 0);
    assert!(alone > 0);
});

fleet_on_sqlite_first!(a_plan_is_stored_with_that_of_its_shadow, |fleet| {
    fleet
        .make_pool(POOL, watched("aws-provisioner", "weighted", 0.0))
        .await;
    fleet.tasks(POOL, 3).await;
    fleet.round().await;
    let plan = fleet.plans(POOL).await.remove(0);
    let stored = Plan::from_json(&plan.plan).unwrap();
    let of_shadow = stored.shadow.as_ref().unwrap().plan.as_ref().unwrap();
    assert!(of_shadow.awards.is_empty());
    assert_eq!(fleet.machines().len(), 3);
    let id: PoolId = POOL.parse().unwrap();
    let number = plan.number;
    let again = fleet.read(move |tx| Ok(fleet::replay(tx, &id, number).unwrap().unwrap()));
    assert_eq!(again.await.to_json(), plan.plan);
    let rows = fleet.shadow_rows().await;
    assert_eq!((rows.len(), rows[0].plan_number), (1, Some(number)));
    assert_eq!(rows[0].plan, None);
    let shown = explained(fleet).await;
    assert_eq!(shown["decisions"][0]["plan"], number);
    assert_eq!(shown["decisions"][0]["live"]["units"], 3);
    assert_eq!(shown["decisions"][0]["shadow"]["units"], 0);
    // The end of a plan is no news.
    fleet.round().await;
    assert_eq!(fleet.shadow_rows().await.len(), 1);
});

fleet_test!(of_the_decisions_with_a_shadow_the_last_are_kept, |fleet| {
    fleet
        .make_pool(POOL, watched("weighted", "aws-provisioner", 0.0))
        .await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let template = fleet.shadow_rows().await.remove(0);
    for count in sizes_around("engine::fleet::shadow_plans::KEPT_SHADOW_PLANS", KEPT) {
        let first = template.clone();
        fleet
            .write(move |tx| {
                for _ in 0..count {
                    let number = store::turns::take(tx, &format!("shadow:{POOL}"))?;
                    let record = ShadowRecord {
                        number,
                        ..first.clone()
                    };
                    shadow_plans::insert(tx, &record, None, i64::MAX)?;
                }
                Ok(())
            })
            .await;
        let before = fleet.shadow_rows().await.len();
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(
            fleet.shadow_rows().await.len(),
            (before + 1).min(KEPT),
            "{count}"
        );
    }
    let shown = explained(fleet).await;
    assert_eq!(shown["decisions"].as_array().unwrap().len(), 20);
    assert_eq!(shown["sums"]["decisions"], KEPT);
});

fleet_on_sqlite_first!(
    a_shadow_that_learns_does_so_from_the_real_launches_and_apart,
    |fleet| {
        let mut definition = watched("weighted", "balanced", 1.0);
        fleet.make_pool(POOL, definition.clone()).await;
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        fleet.pass_ms(40_000);
        fleet.register_all(POOL).await;
        fleet.learn().await;
        let (own, of_production) = offerings(fleet).await;
        assert!(own > 0, "the shadow learned nothing");
        assert_eq!(of_production, 0);
        let shown = explained(fleet).await;
        let learned = shown["now"]["learnedText"].as_str().unwrap();
        assert!(learned.contains("ready after about 40 s"), "{learned}");
        // The plans of the pool do not see it.
        let text = fleet.explain_text(POOL).await;
        assert!(!text.contains("ready after about"), "{text}");

        // Machines that take long are given up by no shadow.
        fleet.tasks(POOL, 3).await;
        fleet.round().await;
        fleet.pass_ms(10 * MINUTE_MS);
        let done = fleet.learn().await;
        assert_eq!(done["given_up"].as_u64().unwrap_or(0), 0, "{done}");

        // Without a shadow, the memory of the pool is deleted.
        definition["config"]["shadowStrategy"] = json!("none");
        fleet.change_pool(POOL, definition).await;
        fleet.pass_ms(MINUTE_MS);
        fleet.learn().await;
        let id: PoolId = POOL.parse().unwrap();
        let memories =
            fleet.read(move |tx| store::pool_memories::of(tx, std::slice::from_ref(&id)));
        assert!(memories.await.is_empty());
    }
);

/// How many offerings shadows remember, and how many pools that decide by memory.
async fn offerings(fleet: &Fleet) -> (usize, usize) {
    use crate::fleet_learned::offering;
    let names = [offering("east"), offering("west")];
    let of_shadows: Vec<_> = names.iter().map(|name| name.for_shadows()).collect();
    let own = fleet.read(move |tx| store::offering_memories::of(tx, &of_shadows));
    let own = own.await.len();
    let production = fleet.read(move |tx| store::offering_memories::of(tx, &names));
    (own, production.await.len())
}
