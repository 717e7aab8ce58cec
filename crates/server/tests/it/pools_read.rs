//! Worker pools, providers and launch configs: shown, listed, counted.

use domain::worker::{StoredWorker, Worker, WorkerState};
use serde_json::{Value, json};

use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::samples::{DAY_MS, aws_pool, launch_config, static_pool, static_worker, worker};
use crate::world::World;

const NOT_THERE: &str = "Worker pool does not exist";

on_sqlite_first!(ping_answers_without_credentials, |world| {
    world.clock.advance_ms(1_500);
    let alive = json!({"alive": true, "uptime": 1.5});
    assert_eq!(world.get("/ping").anonymously().await.expect(200), alive);
});

on_sqlite_first!(
    providers_are_listed_in_the_order_of_the_configuration,
    |world| {
        let listed = world.get("/providers").await.expect(200);
        assert_snapshot!(listed, @r#"{"providers":[{"providerId":"static","providerType":"static"},{"providerId":"google","providerType":"fake"},{"providerId":"aws","providerType":"fake"},{"providerId":"azure","providerType":"fake"},{"problem":"the cloud is on holiday","providerId":"shaky","providerType":"shaky"},{"providerId":"pausing","providerType":"pausing"}]}"#);
    }
);

on_sqlite_first!(a_missing_pool_is_not_found, |world| {
    for path in ["", "/stats", "/launch-configs"] {
        let path = format!("/worker-pool/pp%2Fee{path}");
        world
            .get(&path)
            .await
            .refused(404, "ResourceNotFound", NOT_THERE);
    }
    world
        .get("/worker-pool/pp/ee")
        .await
        .refused(404, "ResourceNotFound", NOT_THERE);
});

/// Workers of every state, with capacities that can be distinguished in sums.
async fn populate(world: &World, pool: &str) {
    for (number, state) in WorkerState::ALL.into_iter().enumerate() {
        let worker = Worker::from_stored(StoredWorker {
            state,
            capacity: 10_u32.pow(number.try_into().unwrap()),
            ..worker(pool, "g", state.as_str()).into_stored()
        });
        world.insert(worker).await;
    }
}

on_both!(a_shown_pool_has_real_counts, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    populate(world, "pp/ee").await;
    let shown = world.get("/worker-pool/pp%2Fee").await.expect(200);
    assert_snapshot!(numbers(&shown), @"currentCapacity=111 requestedCapacity=1 requestedCount=1 runningCapacity=10 runningCount=1 stoppedCapacity=1000 stoppedCount=1 stoppingCapacity=100 stoppingCount=1");
});

/// The nine numbers of a pool, on a line.
fn numbers(counted: &Value) -> String {
    let members = counted.as_object().unwrap().iter();
    let numbers = members.filter(|(_, value)| value.is_number());
    let numbers = numbers.map(|(name, value)| format!("{name}={value}"));
    numbers.collect::<Vec<_>>().join(" ")
}

on_both!(
    pages_of_heavy_pools_end_early_and_leave_nothing_out,
    |world| {
        const N_POOLS: usize = 7;
        for number in 0..N_POOLS {
            let mut config = launch_config(Some("lc1"), "ami");
            config["workerConfig"] = json!({"text": "x".repeat(300_000)});
            let pool = format!("/worker-pool/pp%2Fp{number}");
            world.put(&pool, aws_pool(&[config])).await.expect(200);
        }
        let (mut seen, mut pages, mut token) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page = world.get(&format!("/worker-pools?limit=1000{token}")).await;
            let page = page.expect(200);
            assert!(page.to_string().len() < 1_100_000);
            let pools = page["workerPools"].as_array().unwrap();
            pages.push(pools.len());
            let ids = pools.iter().map(|pool| pool["workerPoolId"].clone());
            seen.extend(ids);
            let Some(next) = page["continuationToken"].as_str() else {
                break;
            };
            token = format!("&continuationToken={next}");
        }
        assert_eq!(pages, [3, 3, 1]);
        let all: Vec<Value> = (0..N_POOLS).map(|n| json!(format!("pp/p{n}"))).collect();
        assert_eq!(seen, all);
    }
);

on_both!(pools_are_listed_by_their_ids, |world| {
    assert_eq!(
        world.get("/worker-pools").await.expect(200),
        json!({"workerPools": []})
    );
    for id in ["pp%2Fb", "pp%2Fa", "Zz%2Fa"] {
        let wanted = aws_pool(&[launch_config(Some("lc1"), id)]);
        world
            .put(&format!("/worker-pool/{id}"), wanted)
            .await
            .expect(200);
    }
    let listed = world.get("/worker-pools").await.expect(200);
    let pools = listed["workerPools"].as_array().unwrap();
    let summary: Vec<String> = pools
        .iter()
        .map(|pool| {
            let image = &pool["config"]["launchConfigs"][0]["launchConfig"]["ImageId"];
            format!("{} {image}", pool["workerPoolId"])
        })
        .collect();
    assert_snapshot!(summary.join("\n"), @r#"
    "Zz/a" "Zz%2Fa"
    "pp/a" "pp%2Fa"
    "pp/b" "pp%2Fb"
    "#);
    let shown = world.get("/worker-pool/pp%2Fa").await.expect(200);
    assert_eq!(pools[1], shown);
});

on_both!(the_statistics_of_all_pools_count_their_workers, |world| {
    for id in ["pp%2Fa", "pp%2Fb"] {
        world
            .put(&format!("/worker-pool/{id}"), static_pool())
            .await
            .expect(200);
    }
    populate(world, "pp/b").await;
    let listed = world.get("/worker-pools/stats").await.expect(200);
    let stats = listed["workerPoolsStats"].as_array().unwrap();
    let ids: Vec<&Value> = stats.iter().map(|stats| &stats["workerPoolId"]).collect();
    assert_eq!(ids, ["pp/a", "pp/b"]);
    assert_snapshot!(numbers(&stats[0]), @"currentCapacity=0 requestedCapacity=0 requestedCount=0 runningCapacity=0 runningCount=0 stoppedCapacity=0 stoppedCount=0 stoppingCapacity=0 stoppingCount=0");
    assert_snapshot!(numbers(&stats[1]), @"currentCapacity=111 requestedCapacity=1 requestedCount=1 runningCapacity=10 runningCount=1 stoppedCapacity=1000 stoppedCount=1 stoppingCapacity=100 stoppingCount=1");
});

on_sqlite_first!(one_running_worker_counts_once, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let running = Worker::from_stored(StoredWorker {
        state: WorkerState::Running,
        ..worker("pp/ee", "g", "w").into_stored()
    });
    world.insert(running).await;
    let listed = world.get("/worker-pools/stats").await.expect(200);
    let stats = &listed["workerPoolsStats"][0];
    assert_eq!(
        (&stats["runningCount"], &stats["runningCapacity"]),
        (&json!(1), &json!(1))
    );
});

on_both!(the_statistics_of_a_pool_are_by_launch_config, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let empty = world.get("/worker-pool/pp%2Fee/stats").await.expect(200);
    let rows = empty["launchConfigStats"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["launchConfigId"], "unknown");
    assert_snapshot!(numbers(&rows[0]), @"currentCapacity=0 requestedCapacity=0 requestedCount=0 runningCapacity=0 runningCount=0 stoppedCapacity=0 stoppedCount=0 stoppingCapacity=0 stoppingCount=0");

    for (id, config) in [
        ("w1", Some("zz")),
        ("w2", Some("zz")),
        ("w3", Some("aa")),
        ("w4", None),
    ] {
        let launch_config_id = config.map(|id| id.parse().unwrap());
        world
            .insert(Worker::from_stored(StoredWorker {
                launch_config_id,
                ..worker("pp/ee", "g", id).into_stored()
            }))
            .await;
    }
    let counted = world.get("/worker-pool/pp%2Fee/stats").await.expect(200);
    let rows = counted["launchConfigStats"].as_array().unwrap();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["launchConfigId"].as_str().unwrap(),
                row["requestedCount"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [("aa", Some(1)), ("unknown", Some(1)), ("zz", Some(2))]
    );
});

on_sqlite_first!(launch_configs_are_listed_as_they_were_written, |world| {
    let wanted = [
        launch_config(Some("b"), "ami-1"),
        launch_config(None, "ami-2"),
    ];
    world
        .put("/worker-pool/pp%2Fee", aws_pool(&wanted))
        .await
        .expect(200);
    world.clock.advance_ms(1_000);
    let kept = aws_pool(&wanted[1..]);
    world.post("/worker-pool/pp%2Fee", kept).await.expect(200);
    let active = world
        .get("/worker-pool/pp%2Fee/launch-configs")
        .await
        .expect(200);
    assert_snapshot!(format!("{active:#}"), @r#"
    {
      "workerPoolLaunchConfigs": [
        {
          "configuration": {
            "capacityPerInstance": 1,
            "launchConfig": {
              "ImageId": "ami-2"
            },
            "region": "us-west-2"
          },
          "created": "2026-09-21T14:13:20.000Z",
          "isArchived": false,
          "lastModified": "2026-09-21T14:13:21.000Z",
          "launchConfigId": "lc-b919afe72e152df1d931",
          "workerPoolId": "pp/ee"
        }
      ]
    }
    "#);
    let path = "/worker-pool/pp%2Fee/launch-configs?includeArchived=true";
    let all = world.get(path).await.expect(200);
    let all = all["workerPoolLaunchConfigs"].as_array().unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|config| {
            (
                config["launchConfigId"].as_str().unwrap(),
                config["isArchived"].as_bool(),
            )
        })
        .collect();
    assert_eq!(
        all,
        [("b", Some(true)), ("lc-b919afe72e152df1d931", Some(false))]
    );
    let path = "/worker-pool/pp%2Fee/launch-configs?includeArchived=false";
    assert_eq!(world.get(path).await.expect(200), active);
});

on_both!(
    a_long_list_of_pools_has_the_launch_configs_of_each,
    |world| {
        for number in 0..120 {
            let wanted = aws_pool(&[launch_config(Some("a"), &format!("ami-{number}"))]);
            let path = format!("/worker-pool/pp%2Fp{number}");
            world.put(&path, wanted).await.expect(200);
        }
        let listed = world.get("/worker-pools").await.expect(200);
        let pools = listed["workerPools"].as_array().unwrap();
        assert_eq!(pools.len(), 120);
        for pool in pools {
            let id = pool["workerPoolId"].as_str().unwrap();
            let image = &pool["config"]["launchConfigs"][0]["launchConfig"]["ImageId"];
            assert_eq!(image, &id.replace("pp/p", "ami-"));
        }
    }
);

const EE: &str = "/worker-pool/pp%2Fee";

/// Whether the database is asked for the pool that is shown.
async fn is_read(world: &World) -> bool {
    let show = async { world.get(EE).await.expect(200) };
    let (_, counts) = world.counted(show).await;
    counts.transactions("pool_show") > 0
}

on_both!(
    a_pool_is_shown_from_memory_until_a_second_has_passed,
    |world| {
        world.put(EE, static_pool()).await.expect(200);
        assert!(is_read(world).await);
        for passed_ms in [0, 1, 998] {
            world.clock.advance_ms(passed_ms);
            assert!(!is_read(world).await, "{passed_ms}");
        }
        world.clock.advance_ms(1);
        assert!(is_read(world).await);
        // Changes of another pool do not matter.
        let other = world.put("/worker-pool/pp%2Fother", static_pool());
        other.await.expect(200);
        world.insert(worker("pp/other", "g", "w")).await;
        assert!(!is_read(world).await);
    }
);

on_sqlite_first!(a_pool_that_is_not_there_is_not_kept, |world| {
    world
        .get(EE)
        .await
        .refused(404, "ResourceNotFound", NOT_THERE);
    world.put(EE, static_pool()).await.expect(200);
    world.get(EE).await.expect(200);
    world.delete(EE).await.expect(200);
    let shown = world.get(EE).await.expect(200);
    assert_eq!(shown["providerId"], "null-provider");
});

on_both!(every_change_of_a_pool_is_shown_at_once, |world| {
    let configs = [launch_config(Some("lc1"), "ami-1")];
    world.put(EE, aws_pool(&configs)).await.expect(200);
    let mut shown = vec![world.get(EE).await.expect(200)];
    let show = async || world.get(EE).await.expect(200);
    let configs = [launch_config(Some("lc2"), "ami-2")];
    world.post(EE, aws_pool(&configs)).await.expect(200);
    shown.push(show().await);
    // A new edit that only archives a launch config.
    world.post(EE, aws_pool(&[])).await.expect(200);
    shown.push(show().await);
    world.post(EE, static_pool()).await.expect(200);
    shown.push(show().await);
    let path = "/workers/pp%2Fee/g/w1";
    world.put(path, static_worker()).await.expect(200);
    shown.push(show().await);
    world.delete(path).await.expect(200);
    shown.push(show().await);
    world.clock.advance_ms(300 * DAY_MS);
    world.keep_house().await;
    shown.push(show().await);
    for (number, (before, after)) in shown.iter().zip(shown.iter().skip(1)).enumerate() {
        assert_ne!(before, after, "change {number}");
    }
});

on_both!(
    launch_configs_are_listed_from_memory_until_the_pool_changes,
    |world| {
        let configs = [
            launch_config(Some("lc1"), "ami-1"),
            launch_config(Some("lc2"), "ami-2"),
        ];
        world.put(EE, aws_pool(&configs)).await.expect(200);
        let list = async |query: &str| {
            let path = format!("{EE}/launch-configs{query}");
            let show = async { world.get(&path).await.expect(200) };
            let (shown, counts) = world.counted(show).await;
            let is_read = counts.transactions("launch_config_list") > 0;
            let listed = &shown["workerPoolLaunchConfigs"];
            (listed.as_array().unwrap().len(), is_read)
        };
        let queries = [("", 2), ("?limit=1", 1), ("?includeArchived=true", 2)];
        for is_first in [true, false] {
            for (query, count) in queries {
                assert_eq!(list(query).await, (count, is_first), "{query}");
            }
        }
        world.post(EE, aws_pool(&configs[..1])).await.expect(200);
        assert_eq!(list("").await, (1, true));
        assert_eq!(list("?includeArchived=true").await, (2, true));
        assert_eq!(list("").await, (1, false));
        world.clock.advance_ms(1_000);
        assert_eq!(list("").await, (1, true));
        let first = world.get(&format!("{EE}/launch-configs?limit=1&includeArchived=true"));
        let token = first.await.expect(200)["continuationToken"].clone();
        let next = format!(
            "?limit=1&includeArchived=true&continuationToken={}",
            token.as_str().unwrap()
        );
        for _ in 0..2 {
            assert_eq!(list(&next).await, (1, true), "only first pages are kept");
        }
        world.delete(EE).await.expect(200);
        assert_eq!(list("").await, (0, true));
    }
);
