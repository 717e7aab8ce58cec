//! The result of an edit of a pool, shown before it is applied.

use serde_json::{Value, json};

use crate::configurations::{OPT, made, refused, zones};
use crate::database::{on_both, on_sqlite_first};
use crate::samples::{aws_pool, launch_config, pool, static_pool};

const POOL: &str = "/worker-pool/pp%2Fee";
const PLAN: &str = "/plan-worker-pool/pp%2Fee";

on_sqlite_first!(a_plan_of_a_pool_shows_the_update_and_makes_none, |world| {
    let first = aws_pool(&[launch_config(None, "ami-1"), launch_config(None, "ami-2")]);
    let plan = world.post(PLAN, first.clone()).await.expect(200);
    let n = |plan: &Value, what: &str| plan["launchConfigs"][what].as_array().unwrap().len();
    assert_eq!(
        (&plan["exists"], &plan["changes"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(n(&plan, "created"), 2);
    world.get(POOL).await.expect(404);

    world.put(POOL, first.clone()).await.expect(200);
    let plan = world.post(PLAN, first).await.expect(200);
    assert_eq!(
        (&plan["exists"], &plan["changes"]),
        (&json!(true), &json!(false))
    );
    let second = aws_pool(&[launch_config(None, "ami-2"), launch_config(None, "ami-3")]);
    let plan = world.post(PLAN, second).await.expect(200);
    assert_eq!(plan["changes"], true);
    assert_eq!(
        (n(&plan, "created"), n(&plan, "kept"), n(&plan, "archived")),
        (1, 1, 1)
    );
    let mut other = static_pool();
    other["description"] = json!("other");
    let plan = world.post(PLAN, other).await.expect(200);
    assert_eq!((n(&plan, "archived"), &plan["changes"]), (2, &json!(true)));
});

on_sqlite_first!(a_plan_of_a_pool_is_refused_like_an_update, |world| {
    let text = refused(world.post(PLAN, pool("nosuch", json!({}))), 400).await;
    assert_eq!(text, "Invalid Provider");
    let mut bad = aws_pool(&[launch_config(None, "ami-1")]);
    bad["config"]["maxCapacity"] = json!("many");
    let text = refused(world.post(PLAN, bad), 400).await;
    assert!(text.contains("maxCapacity"), "{text}");
});

on_both!(
    a_plan_lists_the_images_that_have_to_be_created_first,
    |world| {
        let using = |images: &[&str]| {
            let configs = images.iter().map(|image| {
                let mut config = launch_config(None, "x");
                config["launchConfig"]["ImageId"] = json!({ "$image": image });
                config
            });
            aws_pool(&configs.collect::<Vec<_>>())
        };
        let wanted = using(&["later", "linux"]);
        let plan = world.post(PLAN, wanted.clone()).await.expect(200);
        assert_eq!(plan["missingImages"], json!(["later", "linux"]));
        assert_eq!(
            plan["launchConfigs"]["created"].as_array().unwrap().len(),
            2
        );
        // Nothing but a plan may name them.
        let text = refused(world.put(POOL, wanted), 400).await;
        assert!(text.contains("Image later does not exist"), "{text}");

        let image = json!({"description": "", "build": {"command": ["make"]}, "formats": ["raw"],
        "uploads": [{"providerId": "aws", "region": "us-east-1"}]});
        let created = world.put("fleetwright:/image/linux", image);
        created.await.expect(200);
        let plan = world.post(PLAN, using(&["linux"])).await.expect(200);
        assert_eq!(plan["missingImages"], json!([]));
        let then = plan["launchConfigs"]["created"].clone();
        world.put(POOL, using(&["linux"])).await.expect(200);
        let plan = world.post(PLAN, using(&["linux"])).await.expect(200);
        assert_eq!(plan["launchConfigs"]["kept"], then);
    }
);

on_sqlite_first!(a_plan_of_a_pool_reports_obstacles, zones, |world| {
    made(world).await;
    let plan = OPT.replace("/worker-pool/", "/plan-worker-pool/");
    let plan = world.post(&plan, static_pool()).await.expect(200);
    let conflict = plan["conflicts"][0].as_str().unwrap();
    assert!(
        conflict.contains("is made of the worker configuration build"),
        "{conflict}"
    );
    let with = |ami: &str| aws_pool(&[launch_config(Some("mine"), ami)]);
    world.put(POOL, with("ami-1")).await.expect(200);
    let plan = world.post(PLAN, with("ami-2")).await.expect(200);
    let conflict = plan["conflicts"][0].as_str().unwrap();
    assert!(conflict.contains("`mine` already exists"), "{conflict}");
});
