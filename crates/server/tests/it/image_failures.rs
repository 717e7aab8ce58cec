//! Images and pools that fail, beside others that do not.

use std::sync::Arc;

use serde_json::{Value, json};
use server::background::ImageRollouts;
use server::background::driver::BackgroundTask;
use testing::sizes_around;

use crate::database::Database;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, pool};
use crate::image_samples::{definition, referring};
use crate::images_at_work::without_builder;
use crate::open_tree::OpenTree;

/// A pool on the same image, before the other one in each list.
const FIRST_POOL: &str = "pp/aa";
/// As in the background task: after so many failures, the other images wait.
const MAX_FAILURES: usize = 10;

macro_rules! tests {
    ($($name:ident)*) => {$(
        mod $name {
            async fn run(database: crate::database::Database) {
                super::in_world(database, async |fleet, tree| super::$name(fleet, tree).await).await;
            }

            crate::database::on_databases!(both, tokio::test);
        }
    )*};
}

tests! {
    an_image_that_fails_hinders_no_other_and_is_tried_again
    a_pool_that_fails_hinders_no_other_and_is_tried_again
    many_images_that_fail_leave_the_others_to_the_next_activation
}

async fn in_world(database: Database, body: impl AsyncFnOnce(&Fleet, &OpenTree)) {
    let fleet = Fleet::open_with(database, without_builder).await;
    let tree = OpenTree::of(&fleet.app).await;
    body(&fleet, &tree).await;
    tree.close().await;
}

async fn define(fleet: &Fleet, tree: &OpenTree, names: &[&str]) {
    for name in names {
        let mut body = definition(&json!({"share": 1}));
        body["imageId"] = json!(name);
        let put = fleet.put(&format!("fleetwright:/image/{name}"), body);
        put.await.expect(200);
    }
    for name in names {
        tree.mirror(&fleet.app, name).await;
    }
}

fn referring_to(name: &str) -> Value {
    let mut config = referring();
    config["image"] = json!({"$image": name});
    config
}

async fn images_of(fleet: &Fleet, id: &str) -> Vec<Value> {
    let path = format!("/worker-pool/{}", id.replace('/', "%2F"));
    let pool = fleet.get(&path).await.expect(200);
    let configs = pool["config"]["launchConfigs"].as_array().unwrap();
    configs
        .iter()
        .map(|config| config["image"].clone())
        .collect()
}

async fn an_image_that_fails_hinders_no_other_and_is_tried_again(fleet: &Fleet, tree: &OpenTree) {
    define(fleet, tree, &["a", "b"]).await;
    fleet
        .make_pool(POOL, pool("one", 0, 10, &[referring_to("b")]))
        .await;
    for name in ["a", "b"] {
        tree.write_uploaded(name, 1, "one", &format!("disk-{name}-1"))
            .await;
    }
    fleet.database.raw(
        "INSERT INTO image_rollouts (image_id, standing, selection, selected, uploads, \
         last_modified, version) VALUES ('a', '{', '{}', 0, '[]', 0, 1)",
    );
    let mut task = ImageRollouts::new(Arc::clone(&fleet.app));
    let failed = task.activate().await.unwrap_err().to_string();
    assert!(failed.contains("image_rollouts"), "{failed}");
    assert_eq!(images_of(fleet, POOL).await, ["disk-b-1"]);
    // It waits for a moment, which is no failure.
    task.activate().await.unwrap();
    fleet.pass_ms(MINUTE_MS);
    task.activate().await.unwrap_err();
    fleet
        .database
        .raw("DELETE FROM image_rollouts WHERE image_id = 'a'");
    fleet.pass_ms(MINUTE_MS);
    task.activate().await.unwrap();
    let image = "a".parse().unwrap();
    let read = fleet.read(move |tx| store::image_rollouts::get(tx, &image));
    let promoted = read.await.and_then(|rollout| rollout.standing.promoted);
    assert_eq!(promoted.map(|build| build.0), Some(1));
}

async fn a_pool_that_fails_hinders_no_other_and_is_tried_again(fleet: &Fleet, tree: &OpenTree) {
    define(fleet, tree, &["b"]).await;
    for id in [FIRST_POOL, POOL] {
        fleet
            .make_pool(id, pool("one", 0, 10, &[referring_to("b")]))
            .await;
    }
    let mut task = ImageRollouts::new(Arc::clone(&fleet.app));
    tree.write_uploaded("b", 1, "one", "disk-1").await;
    task.activate().await.unwrap();
    assert_eq!(images_of(fleet, FIRST_POOL).await, ["disk-1"]);
    let replace = |from: &str, to: &str| {
        fleet.database.raw(&format!(
            "UPDATE launch_configs SET configuration = REPLACE(configuration, '{from}', '{to}') \
             WHERE worker_pool_id = '{FIRST_POOL}'"
        ));
    };
    replace("{", "<");
    tree.write_uploaded("b", 2, "one", "disk-2").await;
    let failed = task.activate().await.unwrap_err().to_string();
    assert!(
        failed.starts_with(&format!("new images cannot be used in {FIRST_POOL}: ")),
        "{failed}"
    );
    assert_eq!(images_of(fleet, POOL).await, ["disk-2"]);
    // It waits for a moment, which is no failure.
    let (again, counts) = fleet.counted(task.activate()).await;
    assert_eq!(again.unwrap(), Value::Null);
    assert_eq!(counts.transactions("image_user_pool"), 0);
    replace("<", "{");
    fleet.pass_ms(MINUTE_MS);
    task.activate().await.unwrap();
    assert_eq!(images_of(fleet, FIRST_POOL).await, ["disk-2"]);
}

async fn many_images_that_fail_leave_the_others_to_the_next_activation(
    fleet: &Fleet,
    tree: &OpenTree,
) {
    for size in sizes_around(
        "server::background::image_rollouts::MAX_FAILURES",
        MAX_FAILURES,
    ) {
        let failing: Vec<String> = (0..size).map(|it| format!("f-{size}-{it:03}")).collect();
        let good = format!("g-{size}");
        let names = failing.iter().chain([&good]).map(String::as_str);
        define(fleet, tree, &names.collect::<Vec<_>>()).await;
        tree.write_uploaded(&good, 1, "one", "disk-1").await;
        for name in &failing {
            fleet.database.raw(&format!(
                "INSERT INTO image_rollouts (image_id, standing, selection, selected, \
                 uploads, last_modified, version) \
                 VALUES ('{name}', '{{', '{{}}', 0, '[]', 0, 1)"
            ));
        }
        let mut task = ImageRollouts::new(Arc::clone(&fleet.app));
        for n_before in (0..=size).step_by(MAX_FAILURES) {
            let is_last = size - n_before < MAX_FAILURES;
            let done = task.activate().await;
            assert_eq!(
                done.is_ok(),
                n_before == size,
                "{size} {n_before}: {done:?}"
            );
            let image = good.parse().unwrap();
            let read = fleet.read(move |tx| store::image_rollouts::get(tx, &image));
            assert_eq!(read.await.is_some(), is_last, "{size} {n_before}");
        }
        fleet.database.raw("DELETE FROM image_rollouts");
        for name in failing.iter().chain([&good]) {
            let path = format!("fleetwright:/image/{name}");
            fleet.delete(&path).await.expect(200);
        }
        tree.mirror_all(&fleet.app).await;
    }
}
