//! `getLaunchConfigs`, `getLaunchConfig` and `launchConfigHealth`: states, numbers, pages, limits.

use std::future::IntoFuture;

use cloud::LaunchOutcome;
use contract::Schemas;
use domain::launch::Cause;
use domain::time::Timestamp;
use serde_json::{Value, json};
use testing::sizes_around;

use crate::database::assert_snapshot;
use crate::fleet_learned::learning_pool;
use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, pool,
};

const LIST: &str = "/launch-configs/pp%2Fee";

/// A list is as its schema says.
fn check(list: &Value) {
    let schema = "worker-manager/v1/launch-config-list.json";
    Schemas::new().check(schema, list).unwrap();
}

fn ids(list: &Value) -> Vec<String> {
    let items = list["launchConfigs"].as_array().unwrap().iter();
    let id = |item: &Value| {
        let word = |name: &str| item[name].as_str().unwrap().to_owned();
        format!("{} {}", word("workerPoolId"), word("launchConfigId"))
    };
    items.map(id).collect()
}

impl Fleet {
    async fn config_states(&self) -> Vec<String> {
        let list = self.get(&format!("{LIST}?includeArchived=true")).await;
        let list = list.expect(200);
        check(&list);
        let items = list["launchConfigs"].as_array().unwrap().iter();
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |item: &Value| {
            let (id, state) = (word(&item["launchConfigId"]), word(&item["state"]));
            let owner = word(&item["pause"]["overrideId"]);
            format!("{id} {state} {owner}")
        };
        items.map(line).collect()
    }

    async fn override_for(&self, id: &str, minutes: i64, mut what: Value) {
        what["pause"] = json!(true);
        what["reason"] = json!("prices are up");
        what["until"] = json!(self.now().plus_millis(minutes * MINUTE_MS).to_string());
        self.put(&format!("/override/{id}"), what).await.expect(200);
    }

    async fn pages(&self, path: &str, limit: usize) -> Vec<Vec<String>> {
        let mut pages = Vec::new();
        let mut token = String::new();
        loop {
            let path = format!("{path}?limit={limit}{token}");
            let page = self.get(&path).await.expect(200);
            check(&page);
            pages.push(ids(&page));
            let Some(next) = page["continuationToken"].as_str() else {
                return pages;
            };
            token = format!("&continuationToken={next}");
        }
    }
}

/// The reply of `getLaunchConfig`.
#[expect(
    clippy::too_many_lines,
    reason = "the reply has a line for each member"
)]
fn assert_shown(text: &str) {
    assert_snapshot!(text, @r#"
    {
      "availability": {
        "nextPauseSeconds": 20,
        "nextTry": "2026-09-21T14:13:31.000Z",
        "reason": "2 of 4 launches failed in the last hour, last launch was refused (capacity), tried again at 14:13:31Z",
        "since": "2026-09-21T14:13:21.000Z",
        "status": "shut-off"
      },
      "configuration": {
        "region": "us-east-1",
        "workerConfig": {
          "fleetwright": {
            "idleTimeoutSeconds": 60
          },
          "name": "a"
        },
        "workerManager": {
          "capacityPerInstance": 1,
          "initialWeight": 0.5,
          "launchConfigId": "a"
        }
      },
      "created": "2026-09-21T14:13:20.000Z",
      "failures": [
        {
          "cause": "capacity",
          "example": "capacity: the script says so",
          "first": "2026-09-21T14:13:21.000Z",
          "last": "2026-09-21T14:13:21.000Z",
          "machines": 2
        }
      ],
      "lastError": {
        "description": "capacity: the script says so",
        "errorId": "XDf8RuAIRd-enZevTVHrng",
        "extra": {
          "code": "capacity",
          "launch": "VWEd3y5FQ-eYIGMWwhlI8w",
          "machines": 2
        },
        "kind": "creation-error",
        "launchConfigId": "a",
        "reported": "2026-09-21T14:13:21.000Z",
        "title": "Instance Creation Error",
        "workerPoolId": "pp/ee"
      },
      "lastModified": "2026-09-21T14:13:20.000Z",
      "launchConfigId": "a",
      "launches": {
        "attempts": 4,
        "claimed": 2,
        "made": 2,
        "neverClaimed": 0,
        "neverRegistered": 0,
        "refused": {
          "capacity": 2
        },
        "registered": 2,
        "since": "2026-09-21T13:13:21.000Z",
        "until": "2026-09-21T14:13:21.000Z"
      },
      "place": "us-east-1",
      "providerId": "one",
      "region": "us-east-1",
      "state": "active",
      "strategy": "weighted",
      "weight": {
        "balance": 1.0,
        "chance": 0.0,
        "health": 0.5,
        "initial": 0.5,
        "weight": 0.25
      },
      "workerPoolId": "pp/ee",
      "workers": {
        "capacity": 2,
        "requested": 0,
        "running": 2,
        "stopping": 0
      }
    }
    "#);
}

fleet_on_sqlite_first!(a_launch_config_is_shown_with_all_its_numbers, |fleet| {
    let mut east = machine("a");
    east["region"] = json!("us-east-1");
    east["workerManager"]["initialWeight"] = json!(0.5);
    fleet.make_pool(POOL, pool("one", 0, 9, &[east])).await;
    fleet.busy(POOL, 2).await;
    fleet
        .one
        .fake
        .decide_with(|_| LaunchOutcome::Refused(Cause::Capacity));
    fleet.pass_ms(1_000);
    fleet.tasks(POOL, 2).await;
    fleet.round().await;
    let shown = fleet.get("/launch-config/pp%2Fee/a").await;
    assert_shown(&shown.text);
    let mut shown = shown.expect(200);
    let schema = "worker-manager/v1/launch-config-full.json";
    Schemas::new().check(schema, &shown).unwrap();
    assert_eq!(
        fleet.get(LIST).await.expect(200)["launchConfigs"],
        json!([shown])
    );
    // The list over all pools has it without its configuration.
    shown.as_object_mut().unwrap().remove("configuration");
    let health = fleet.get("/launch-config-health").await.expect(200);
    assert_eq!(health["launchConfigs"], json!([shown]));
});

fleet_on_sqlite_first!(
    a_launch_config_is_active_paused_or_archived_whatever_the_target_of_the_pause,
    |fleet| {
        let mut east = machine("b");
        east["region"] = json!("us-east-1");
        let all = [machine("a"), east, machine("c")];
        fleet.make_pool(POOL, pool("one", 0, 9, &all)).await;
        fleet.change_pool(POOL, pool("one", 0, 9, &all[..2])).await;
        let of = |a: &str, b: &str| {
            [
                format!("a {a}"),
                format!("b {b}"),
                "c archived -".to_owned(),
            ]
        };
        assert_eq!(fleet.config_states().await, of("active -", "active -"));
        let east = json!({"region": "us-east-1"});
        fleet.override_for("of-region", 5, east).await;
        assert_eq!(
            fleet.config_states().await,
            of("active -", "paused of-region")
        );
        let one = json!({"providerId": "one"});
        fleet.override_for("of-provider", 9, one).await;
        let both = of("paused of-provider", "paused of-provider");
        assert_eq!(fleet.config_states().await, both);
        let config = json!({"workerPoolId": POOL, "launchConfigId": "a"});
        fleet.override_for("of-config", 10, config).await;
        let both = of("paused of-config", "paused of-provider");
        assert_eq!(fleet.config_states().await, both);
        let shown = fleet.get("/launch-config/pp%2Fee/a").await.expect(200);
        assert_eq!(
            shown["pause"],
            json!({"overrideId": "of-config", "owner": "static/root", "reason": "prices are up",
                "until": "2026-09-21T14:23:20.000Z"})
        );
        assert_eq!(shown["availability"]["status"], "unusable");
        // They end by themselves, whether their end was recorded or not.
        fleet.pass_ms(9 * MINUTE_MS);
        assert_eq!(
            fleet.config_states().await,
            of("paused of-config", "active -")
        );
        fleet.pass_ms(MINUTE_MS);
        assert_eq!(fleet.config_states().await, of("active -", "active -"));
        let archived = fleet.get("/launch-config/pp%2Fee/c").await.expect(200);
        for name in ["weight", "availability", "pause"] {
            assert_eq!(archived.get(name), None, "{name}");
        }
        assert_eq!(
            fleet.get(LIST).await.expect(200)["launchConfigs"][1]["state"],
            "active"
        );
    }
);

fleet_on_sqlite_first!(what_does_not_exist_or_makes_no_sense_is_refused, |fleet| {
    fleet
        .make_pool(POOL, pool("one", 0, 9, &[machine("a")]))
        .await;
    let refused = async |path: &str, status: u16, code: &str, text: &str| {
        fleet.get(path).await.refused(status, code, text);
    };
    let missing = "ResourceNotFound";
    refused(
        "/launch-configs/pp%2Fnone",
        404,
        missing,
        "Worker pool does not exist",
    )
    .await;
    refused(
        "/launch-config/pp%2Fnone/a",
        404,
        missing,
        "Worker pool does not exist",
    )
    .await;
    let text = "Launch config none does not exist in worker pool pp/ee";
    refused("/launch-config/pp%2Fee/none", 404, missing, text).await;
    let input = "InputError";
    let token = "Invalid continuation token";
    for path in [LIST, "/launch-config-health"] {
        refused(&format!("{path}?continuationToken=x"), 400, input, token).await;
    }
    for (path, part) in [
        (
            "/launch-configs/pp%2Fee?includeArchived=maybe",
            "includeArchived",
        ),
        ("/launch-configs/pp%2Fee?limit=-1", "limit"),
        ("/launch-config/pp%2Fee/not%20an%20id", "launchConfigId"),
        ("/launch-configs/pp", "workerPoolId"),
        ("/launch-config-health?since=an%20hour", "since"),
        ("/launch-config-health?since=2026", "since: "),
        (
            "/launch-config-health?since=2026-09-20T14:12:19.999Z",
            "since: launches are counted",
        ),
        (
            "/launch-config-health?since=2026-09-21T14:13:20.001Z",
            "since: launches are counted",
        ),
        ("/launch-config-health?by=region", "by is not supported"),
    ] {
        let answer = fleet.get(path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
        assert!(answer.text.contains(part), "{path}: {}", answer.text);
    }
    // A minute more than a day: the caller has computed a day ago a short while ago.
    for since in ["2026-09-20T14:12:20.000Z", "2026-09-21T14:13:20.000Z"] {
        let path = format!("/launch-config-health?since={since}");
        let list = fleet.get(&path).await.expect(200);
        assert_eq!(list["launchConfigs"][0]["launches"]["since"], since);
    }
});

fleet_on_sqlite_first!(texts_of_errors_are_for_those_who_may_list_errors, |fleet| {
    fleet
        .make_pool(POOL, pool("one", 0, 9, &[machine("a")]))
        .await;
    fleet
        .one
        .fake
        .decide_with(|_| LaunchOutcome::Refused(Cause::Quota));
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let reader = fleet
        .client(
            "reader",
            &[
                "worker-manager:get-worker-pool:*",
                "worker-manager:list-worker-pools",
            ],
        )
        .await;
    let errors = fleet
        .client(
            "errors",
            &[
                "worker-manager:get-worker-pool:*",
                "worker-manager:list-worker-pools",
                "worker-manager:list-worker-pool-errors:pp/ee",
            ],
        )
        .await;
    for path in [LIST, "/launch-config-health"] {
        let of = async |who| {
            let list = fleet.get(path).by(who).await.expect(200);
            let item = &list["launchConfigs"][0];
            let example = item["failures"][0]["example"].as_str().unwrap().to_owned();
            (example, item["lastError"].is_object())
        };
        let (example, has_error) = of(&reader).await;
        assert_eq!(
            (example.as_str(), has_error),
            ("the provider gave no reason", false)
        );
        let (example, has_error) = of(&errors).await;
        assert!(example.contains("quota"), "{example}");
        assert!(has_error);
    }
});

fleet_test!(lists_of_any_length_come_in_pages, |fleet| {
    const LIMIT: usize = 3;
    for count in sizes_around("server::api::paging::MAX_PAGE", LIMIT) {
        let names: Vec<String> = (0..count).map(|number| format!("m{number:02}")).collect();
        let machines: Vec<Value> = names.iter().map(|name| machine(name)).collect();
        if count == 0 {
            fleet.make_pool(POOL, pool("one", 0, 9, &machines)).await;
        } else {
            fleet.change_pool(POOL, pool("one", 0, 9, &machines)).await;
        }
        let expected: Vec<String> = names.iter().map(|name| format!("{POOL} {name}")).collect();
        for path in [LIST, "/launch-config-health"] {
            let pages = fleet.pages(path, LIMIT).await;
            assert!(
                pages.iter().all(|page| page.len() <= LIMIT),
                "{path}: {pages:?}"
            );
            assert_eq!(pages.concat(), expected, "{path}");
            assert_eq!(
                pages.len(),
                count.div_ceil(LIMIT).max(1),
                "{path} of {count}"
            );
        }
        let health = fleet.get("/launch-config-health?limit=0").await.expect(200);
        assert_eq!(ids(&health), expected, "0 is no limit");
    }
});

fleet_test!(pages_of_the_health_go_over_the_ends_of_pools, |fleet| {
    let machines = ["a", "b", "c"].map(machine);
    let mut expected = Vec::new();
    for (pool_id, count) in [("pp/a", 3), ("pp/b", 0), ("pp/c", 1), ("pp/d", 2)] {
        fleet
            .make_pool(pool_id, pool("one", 0, 9, &machines[..count]))
            .await;
        expected.extend(
            ["a", "b", "c"][..count]
                .iter()
                .map(|id| format!("{pool_id} {id}")),
        );
    }
    for limit in 1..=7 {
        let pages = fleet.pages("/launch-config-health", limit).await;
        assert_eq!(pages.concat(), expected, "{limit}");
        assert!(pages.iter().all(|page| page.len() <= limit), "{pages:?}");
    }
    // A pool that was deleted between two pages hides no other.
    let page = fleet.get("/launch-config-health?limit=2").await.expect(200);
    let token = page["continuationToken"].as_str().unwrap();
    fleet.delete_pool("pp/a").await;
    let path = format!("/launch-config-health?continuationToken={token}");
    let rest = fleet.get(&path).await.expect(200);
    assert_eq!(ids(&rest), expected[3..]);
});

fleet_test!(
    the_number_of_statements_does_not_depend_on_the_number_of_launch_configs,
    |fleet| {
        let mut seen = Vec::new();
        for count in [1, 2, 50] {
            let name = |number| machine(&format!("m{number:02}"));
            let machines: Vec<Value> = (0..count).map(name).collect();
            for pool_id in ["pp/a", "pp/b"] {
                let definition = pool("two", 0, 100, &machines);
                let path = format!("/worker-pool/{}", pool_id.replace('/', "%2F"));
                match count {
                    1 => fleet.put(&path, definition).await.expect(200),
                    _ => fleet.post(&path, definition).await.expect(200),
                };
                fleet.tasks(pool_id, 2).await;
            }
            fleet.round().await;
            let one = fleet
                .counted(fleet.get("/launch-config/pp%2Fa/m00").into_future())
                .await;
            let list = fleet
                .counted(fleet.get("/launch-configs/pp%2Fa").into_future())
                .await;
            let all = fleet
                .counted(fleet.get("/launch-config-health").into_future())
                .await;
            let since = "/launch-config-health?since=2026-09-21T13:00:00Z";
            let longer = fleet.counted(fleet.get(since).into_future()).await;
            let n_items = ids(&all.0.expect(200)).len();
            assert_eq!(n_items, 2 * count);
            let statements = [one.1, list.1, all.1, longer.1].map(|counts| counts.all_statements());
            seen.push(statements);
        }
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[1], seen[2]);
        assert!(seen[0].iter().all(|count| *count <= 20), "{seen:?}");
    }
);

fleet_on_sqlite_first!(
    a_launch_config_of_a_pool_that_learns_says_when_its_breaker_lets_it_be_tried,
    |fleet| {
        fleet
            .make_pool(POOL, learning_pool(100, &["east", "west"]))
            .await;
        fleet.one.fake.refuse_launches_of("east", Cause::Quota);
        let shown = async || fleet.get("/launch-config/pp%2Fee/east").await.expect(200);
        assert_eq!(
            shown().await["availability"],
            json!({"status": "usable"}),
            "nothing is known"
        );
        fleet.tasks(POOL, 20).await;
        fleet.round().await;
        let now = fleet.now();
        let off = shown().await;
        assert_eq!(off["availability"]["status"], "shut-off");
        assert_eq!(off["availability"]["nextPauseSeconds"], 120);
        assert_eq!(off["strategy"], "balanced");
        assert_eq!(
            off["weight"]["chance"],
            json!(0.0),
            "no launch goes there before the next try"
        );
        let next: Timestamp = off["availability"]["nextTry"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        let pause = next.millis_since(now);
        assert!((48_000..=72_000).contains(&pause), "{pause}");
        let list = fleet.get(LIST).await.expect(200);
        check(&list);
        assert_eq!(list["launchConfigs"][0], off);
        let health = fleet.get("/launch-config-health").await.expect(200);
        let listed = &health["launchConfigs"][0]["availability"];
        assert_eq!(listed, &off["availability"]);
        fleet.pass_ms(pause);
        assert_eq!(shown().await["availability"]["status"], "due");
        fleet.one.fake.behave();
        fleet.tasks(POOL, 5).await;
        fleet.round().await;
        assert!(shown().await["workers"]["requested"].as_u64() >= Some(1));
    }
);

fleet_test!(
    the_number_of_statements_is_the_same_for_any_number_of_pools_that_learn,
    |fleet| {
        let mut seen = Vec::new();
        for count in [1, 2, 20] {
            let names: Vec<String> = (0..count).map(|number| format!("r{number:02}")).collect();
            let regions: Vec<&str> = names.iter().map(String::as_str).collect();
            for pool_id in ["pp/a", "pp/b"] {
                let path = format!("/worker-pool/{}", pool_id.replace('/', "%2F"));
                let definition = learning_pool(100, &regions);
                match count {
                    1 => fleet.put(&path, definition).await.expect(200),
                    _ => fleet.post(&path, definition).await.expect(200),
                };
                fleet.tasks(pool_id, 2).await;
            }
            fleet.round().await;
            let list = fleet.counted(fleet.get("/launch-configs/pp%2Fa").into_future());
            let list = list.await.1.all_statements();
            let all = fleet.counted(fleet.get("/launch-config-health").into_future());
            seen.push((list, all.await.1.all_statements()));
        }
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[1], seen[2]);
    }
);

fleet_test!(
    errors_of_workers_lower_the_weight_once_for_each_worker,
    |fleet| {
        let configs = [machine("a"), machine("b")];
        fleet.make_pool(POOL, pool("one", 0, 9, &configs)).await;
        let busy = fleet.busy(POOL, 4).await;
        let report = async |number: usize| {
            let key = &busy[number].0.key;
            let body = json!({"kind": "worker-error", "title": "t", "description": "d",
                "extra": {}, "workerGroup": key.group.as_str(), "workerId": key.id.as_str()});
            let path = "/worker-pool-errors/pp%2Fee";
            fleet.post(path, body).await.expect(200)["launchConfigId"].clone()
        };
        let health = async |config: &Value| {
            let path = format!("/launch-config/pp%2Fee/{}", config.as_str().unwrap());
            let shown = fleet.get(&path).await.expect(200);
            let reason = shown["availability"]["reason"].clone();
            (shown["weight"]["health"].as_f64().unwrap(), reason)
        };
        let config = report(0).await;
        let once = health(&config).await;
        assert!((0.5..1.0).contains(&once.0), "{once:?}");
        assert_eq!(once.1, "1 worker reported errors in the last hour");
        // The same worker again changes nothing.
        for _ in 0..3 {
            report(0).await;
        }
        assert_eq!(health(&config).await, once);
        for number in 1..4 {
            report(number).await;
        }
        let all = health(&config).await;
        assert!(all.0 > 0.0, "{all:?}");
        fleet.pass_ms(61 * MINUTE_MS);
        assert_eq!(health(&config).await.1, Value::Null);
    }
);
