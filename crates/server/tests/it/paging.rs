//! Pages: with a limit of one, every list visits each item exactly once, also during concurrent
//! changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::error_report::ErrorReport;
use domain::queue_worker::QueueWorker;
use domain::worker::{StoredWorker, Worker};
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::start::start_with;
use testing::sizes_around;

use crate::ask::Ask;
use crate::database::{Database, on_both, on_sqlite_first};
use crate::samples::{aws_pool, key, launch_config, static_pool, worker};
use crate::world::World;

/// All pages of a list, one item each; the key is absent, not null, on the last.
async fn pages(world: &World, path: &str, list: &str) -> Vec<Value> {
    let separator = if path.contains('?') { '&' } else { '?' };
    let first = format!("{path}{separator}limit=1");
    let (mut next, mut visited) = (first.clone(), Vec::new());
    loop {
        let page = world.get(&next).await.expect(200);
        let items = page[list].as_array().unwrap();
        assert!(items.len() <= 1, "{path}");
        visited.extend(items.iter().cloned());
        match page.get("continuationToken") {
            None => return visited,
            Some(token) => {
                let token = token.as_str().unwrap();
                next = format!("{first}&continuationToken={token}");
            }
        }
        assert!(visited.len() < 100, "{path} does not end");
    }
}

async fn populate(world: &World) {
    let configs: Vec<Value> = ["x", "y", "z"]
        .map(|id| launch_config(Some(id), id))
        .to_vec();
    world
        .put("/worker-pool/pp%2Fa", aws_pool(&configs))
        .await
        .expect(200);
    for id in ["b", "c"] {
        world
            .put(&format!("/worker-pool/pp%2F{id}"), static_pool())
            .await
            .expect(200);
    }
    for (group, id) in [("g", "1"), ("g", "2"), ("h", "1"), ("h", "2")] {
        // All of them made in the same millisecond.
        world.insert(worker("pp/a", group, id)).await;
        let seen = QueueWorker {
            key: key("pp/a", group, id),
            first_claim: world.now(),
            last_date_active: None,
            last_task_ended: None,
            expires: world.now().plus_millis(1_000),
            recent_tasks: Vec::new(),
            quarantine_until: None,
            quarantine_details: Vec::new(),
        };
        world
            .write(move |tx| store::queue_workers::upsert(tx, &seen))
            .await;
    }
    for letter in ['A', 'B', 'C'] {
        let report = ErrorReport {
            pool_id: "pp/a".parse().unwrap(),
            error_id: format!("{letter}AAAAAAAQACAAAAAAAAAAA").parse().unwrap(),
            reported: world.now(),
            kind: "k".to_owned(),
            title: "t".to_owned(),
            description: "d".to_owned(),
            extra: serde_json::Map::new(),
            launch_config_id: None,
        };
        world
            .write(move |tx| store::worker_errors::insert(tx, &report))
            .await;
    }
    for id in ["c1", "c2", "c3"] {
        world.client(id, &[]).await;
        let role = json!({"description": "", "scopes": []});
        world
            .put(&format!("auth:/roles/{id}"), role)
            .await
            .expect(200);
    }
}

on_both!(a_limit_of_one_visits_everything_exactly_once, |world| {
    populate(world).await;
    for (path, list, count) in [
        ("/providers", "providers", 6),
        ("/worker-pools", "workerPools", 3),
        ("/worker-pools/stats", "workerPoolsStats", 3),
        (
            "/worker-pool/pp%2Fa/launch-configs",
            "workerPoolLaunchConfigs",
            3,
        ),
        ("/worker-pool-errors/pp%2Fa", "workerPoolErrors", 3),
        ("/workers/pp%2Fa", "workers", 4),
        ("/workers/pp%2Fa?state=requested", "workers", 4),
        ("/workers/pp%2Fa/g", "workers", 2),
        ("/provisioners/pp/worker-types/a/workers", "workers", 4),
        ("auth:/clients/", "clients", 6),
        ("auth:/clients/?prefix=c", "clients", 3),
        ("auth:/roles2/", "roles", 3),
        ("auth:/roleids/", "roleIds", 3),
        ("auth:/audit/worker-pool/pp%2Fa", "auditHistory", 1),
        ("auth:/clients/static%2Froot/audit", "auditHistory", 9),
    ] {
        let one_by_one = pages(world, path, list).await;
        assert_eq!(one_by_one.len(), count, "{path}");
        let whole = world.get(path).await.expect(200);
        assert_eq!(whole[list], json!(one_by_one), "{path}");
        assert_eq!(whole.get("continuationToken"), None, "{path}");
        let unique: BTreeSet<String> = one_by_one.iter().map(Value::to_string).collect();
        assert_eq!(unique.len(), count, "{path}");
    }
});

on_both!(a_full_last_page_has_no_token, |world| {
    populate(world).await;
    let page = world.get("/worker-pools?limit=3").await.expect(200);
    assert_eq!(page.get("continuationToken"), None);
    let page = world.get("/providers?limit=6").await.expect(200);
    assert_eq!(page.get("continuationToken"), None);
    let page = world.get("/worker-pools?limit=2").await.expect(200);
    assert!(page["continuationToken"].is_string());
});

on_both!(
    changes_between_pages_neither_repeat_nor_hide_items,
    |world| {
        for id in ["b", "d", "f"] {
            world
                .put(&format!("/worker-pool/pp%2F{id}"), static_pool())
                .await
                .expect(200);
            world.insert(worker("pp/b", "g", id)).await;
        }
        let first = world.get("/worker-pools?limit=1").await.expect(200);
        let workers = world.get("/workers/pp%2Fb?limit=1").await.expect(200);
        assert_eq!(workers["workers"][0]["workerId"], "f");
        for id in ["a", "e"] {
            world
                .put(&format!("/worker-pool/pp%2F{id}"), static_pool())
                .await
                .expect(200);
            let newer = world.now().plus_millis(1);
            world
                .insert(Worker::from_stored(StoredWorker {
                    created: newer,
                    ..worker("pp/b", "g", id).into_stored()
                }))
                .await;
        }
        world
            .write(|tx| store::pools::delete(tx, &"pp/b".parse().unwrap()))
            .await;
        let path = |page: &Value| {
            format!(
                "/worker-pools?continuationToken={}",
                page["continuationToken"].as_str().unwrap()
            )
        };
        let rest = world.get(&path(&first)).await.expect(200);
        let ids: Vec<_> = rest["workerPools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pool| pool["workerPoolId"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["pp/d", "pp/e", "pp/f"]);
        world
            .put("/worker-pool/pp%2Fb", static_pool())
            .await
            .expect(200);
        let token = workers["continuationToken"].as_str().unwrap();
        let rest = world
            .get(&format!("/workers/pp%2Fb?continuationToken={token}"))
            .await
            .expect(200);
        let ids: Vec<_> = rest["workers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|worker| worker["workerId"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["d", "b"]);
    }
);

on_both!(
    limits_beyond_a_thousand_and_of_nothing_mean_a_thousand,
    |world| {
        populate(world).await;
        for limit in ["0", "1001", "99999999999999999999999"] {
            for (path, list) in [
                ("/worker-pools", "workerPools"),
                ("/providers", "providers"),
            ] {
                let page = world
                    .get(&format!("{path}?limit={limit}"))
                    .await
                    .expect(200);
                assert!(page[list].as_array().unwrap().len() > 1, "{path} {limit}");
                assert_eq!(page.get("continuationToken"), None, "{path} {limit}");
            }
        }
    }
);

on_sqlite_first!(bad_tokens_are_refused, |world| {
    populate(world).await;
    for path in [
        "/worker-pools",
        "/worker-pools/stats",
        "/worker-pool/pp%2Fa/launch-configs",
        "/worker-pool-errors/pp%2Fa",
        "/workers/pp%2Fa",
        "/workers/pp%2Fa/g",
        "/provisioners/pp/worker-types/a/workers",
        "auth:/clients/",
        "auth:/audit/client/c1",
    ] {
        // Not base64; not JSON; of the wrong shape; JSON of the right shape with no such id.
        for token in ["***", "abc", "WzEsMiwzLDRd", "bnVsbA", "WyIgIl0"] {
            let answer = world
                .get(&format!("{path}?continuationToken={token}"))
                .await;
            assert_eq!(answer.status, 400, "{path} {token}: {}", answer.text);
        }
        let answer = world.get(&format!("{path}?continuationToken=***")).await;
        answer.refused(400, "InputError", "Invalid continuation token");
    }
    let answer = world
        .get("auth:/roles2/?limit=1&continuationToken=***")
        .await;
    answer.refused(400, "InputError", "Invalid continuation token");
    let answer = world.get("/providers?continuationToken=abc").await;
    answer.refused_with(400, "InvalidRequestArguments", "does not match expression");
    let beyond = world
        .get("/providers?continuationToken=99999999999999999999")
        .await;
    assert_eq!(beyond.expect(200), json!({"providers": []}));
});

on_both!(roles_without_a_limit_come_all_at_once, |world| {
    populate(world).await;
    let page = world.get("auth:/roles2/?limit=1").await.expect(200);
    let token = page["continuationToken"].as_str().unwrap();
    let path = format!("auth:/roles2/?continuationToken={token}");
    assert_eq!(
        world.get(&path).await.expect(200)["roles"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let all = world.get("auth:/roles/").await.expect(200);
    assert_eq!(all.as_array().unwrap().len(), 3);
});

#[tokio::test]
async fn the_default_page_of_providers_has_this_size() {
    const PAGE: usize = 100;
    let world = World::open(Database::sqlite(), |_| {}).await;
    for count in sizes_around("server::api::worker_manager::providers::DEFAULT_PAGE", PAGE) {
        // A server with these and no others.
        let mut config = world.app.config.clone();
        let mut all = config.providers.0.iter();
        let fixed = all.find(|(id, _)| id.as_str() == "static");
        let fixed = fixed.unwrap().1.clone();
        let id = |number: usize| format!("p{number:04}").parse().unwrap();
        config.providers.0 = (0..count)
            .map(|number| (id(number), fixed.clone()))
            .collect();
        let random = Random::new(StdRng::seed_from_u64(99));
        let clock = Arc::clone(&world.clock) as _;
        let app = start_with(config, clock, random, Vec::new()).await.unwrap();
        let server = Arc::new(Server::new(app));
        let get = |path: &str| {
            let ask = Ask::new(Arc::clone(&server), http::Method::GET, path, world.now());
            ask.by(&world.root())
        };
        for limit in ["", "limit=0"] {
            let (mut seen, mut token, mut n_pages) = (BTreeSet::new(), String::new(), 0);
            loop {
                let page = get(&format!("/providers?{limit}{token}")).await.expect(200);
                let listed = page["providers"].as_array().unwrap().iter();
                seen.extend(listed.map(|one| one["providerId"].to_string()));
                n_pages += 1;
                assert_eq!(seen.len(), count.min(n_pages * PAGE));
                match page["continuationToken"].as_str() {
                    Some(next) => token = format!("&continuationToken={next}"),
                    None => break,
                }
            }
            assert_eq!((seen.len(), n_pages), (count, count.div_ceil(PAGE).max(1)));
        }
    }
}
