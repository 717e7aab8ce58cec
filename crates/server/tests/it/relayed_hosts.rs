//! Relays get credentials for declared hosts, and announce themselves.

use serde_json::{Value, json};

use crate::ask::{Answer, Who};
use crate::authorization::{Case, case, case_with};
use crate::database::{on_both, on_sqlite_first};
use crate::samples::{DAY_MS, STATIC_SECRET, aws_pool, pool, static_pool, static_worker};
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
const WORKER: &str = "/workers/pp%2Fee/g/w";
const CREDENTIALS: &str = "/workers/pp%2Fee/g/w/relay-credentials";
const SECOND_MS: i64 = 1_000;

fn host(declare: bool) -> Value {
    json!({"address": "10.0.0.7", "hostName": "w.g.example.com", "declare": declare})
}

impl World {
    /// Only for the group `g` of the pool.
    async fn relay(&self) -> Who {
        let scopes = ["worker-manager:relay-credentials:pp/ee/g"];
        self.client("relay", &scopes).await
    }

    async fn relayed(&self, relay: &Who, path: &str, body: Value) -> Answer {
        self.post(path, body).by(relay).await
    }
}

on_both!(
    a_relay_gets_credentials_with_which_the_host_claims_work,
    |world| {
        world.put(POOL, static_pool()).await.expect(200);
        world.put(WORKER, static_worker()).await.expect(200);
        let relay = world.relay().await;
        let reply = world
            .relayed(&relay, CREDENTIALS, host(false))
            .await
            .expect(200);
        assert_eq!(reply["providerId"], "static");
        assert_eq!(reply["workerConfig"], json!({"a": 1}));
        assert_eq!(reply["credentials"]["clientId"], "worker/static/pp/ee/g/w");
        let worker = Who::registered(&reply);
        let work = json!({"workerGroup": "g", "workerId": "w", "tasks": 1});
        // Shorter than the wait for work.
        let claim = world.post("queue:/claim-work/pp%2Fee", work);
        let terminate = world.get(&format!("{WORKER}/should-terminate"));
        terminate.by(&worker).await.expect(200);
        drop(claim);
        // The secret renews the credentials, as that of every registration.
        let renewal = json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w",
        "secret": reply["secret"]});
        let renewed = world
            .post("/worker/reregister", renewal)
            .by(&worker)
            .await
            .expect(200);
        assert_ne!(renewed["secret"], reply["secret"]);
        // And the host may ask its relay again.
        world
            .relayed(&relay, CREDENTIALS, host(false))
            .await
            .expect(200);
    }
);

on_sqlite_first!(
    a_relay_gets_credentials_for_its_own_pools_and_groups_only,
    |world| {
        let relay = world.relay().await;
        for other in [
            "/workers/pp%2Fee/h/w",
            "/workers/pp%2Fff/g/w",
            "/workers/pp%2Fee/gg/w",
        ] {
            let path = format!("{other}/relay-credentials");
            let refused = world.relayed(&relay, &path, host(false)).await;
            refused.refused_with(
                403,
                "InsufficientScopes",
                "worker-manager:relay-credentials:",
            );
        }
    }
);

on_both!(
    an_unknown_host_is_declared_if_the_relay_may_declare_it,
    |world| {
        world.put(POOL, static_pool()).await.expect(200);
        let relay = world.relay().await;
        let refused = world.relayed(&relay, CREDENTIALS, host(false)).await;
        let text = "Worker pp/ee/g/w does not exist: declare it with createWorker";
        refused.refused(404, "ResourceNotFound", text);
        let refused = world.relayed(&relay, CREDENTIALS, host(true)).await;
        refused.refused_with(
            403,
            "InsufficientScopes",
            "worker-manager:create-worker:pp/ee/g/w",
        );
        let scopes = [
            "worker-manager:relay-credentials:pp/ee/g",
            "worker-manager:create-worker:pp/ee/g/*",
        ];
        let relay = world.client("declaring", &scopes).await;
        let mut body = host(true);
        body["capacity"] = json!(3);
        let asked = (0..4).map(|_| world.relayed(&relay, CREDENTIALS, body.clone()));
        for answer in futures_util::future::join_all(asked).await {
            answer.expect(200);
        }
        let made = world.get(WORKER).await.expect(200);
        assert_eq!(
            (&made["state"], &made["capacity"]),
            (&json!("running"), &json!(3))
        );
        let told = world.told().await;
        assert_eq!(told.matches("worker-running").count(), 1, "{told}");
        // It has no secret that anybody knows.
        let proof = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
        "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
        let refused = world.post("/worker/register", proof).anonymously().await;
        refused.refused(400, "InputError", "bad staticSecret in workerIdentityProof");
    }
);

on_sqlite_first!(
    a_removed_host_and_a_machine_of_a_cloud_are_refused,
    |world| {
        world.put(POOL, static_pool()).await.expect(200);
        world.put(WORKER, static_worker()).await.expect(200);
        world.delete(WORKER).await.expect(200);
        let root = world.root();
        for declare in [false, true] {
            let refused = world.relayed(&root, CREDENTIALS, host(declare)).await;
            refused.refused(400, "InputError", "worker is not running");
        }
        world
            .put("/worker-pool/pp%2Fff", aws_pool(&[]))
            .await
            .expect(200);
        let machine = crate::samples::worker("pp/ff", "g", "w");
        world.insert(machine).await;
        let path = "/workers/pp%2Fff/g/w/relay-credentials";
        let refused = world.relayed(&root, path, host(false)).await;
        let part = "which declares no hosts";
        refused.refused_with(400, "InputError", part);
        // A pool of machines gets no hosts either.
        let path = "/workers/pp%2Fff/g/v/relay-credentials";
        let refused = world.relayed(&root, path, host(true)).await;
        refused.refused_with(400, "InputError", "not supported for this provider");
    }
);

on_both!(
    a_relay_is_listed_as_it_last_announced_itself_until_it_is_forgotten,
    |world| {
        let mut announced = json!({"version": "0.1.0", "started": "2026-09-21T14:00:00.000Z",
        "intervalSeconds": 30, "workerPools": ["pp/ee"], "served": 1, "refused": 2, "failed": 3,
        "hosts": [{"address": "10.0.0.7", "lastAsked": "2026-09-21T14:10:00.000Z",
            "outcome": "refused", "reason": "no PTR record"}]});
        world.put("/relay/dc1", announced.clone()).await.expect(200);
        let first = world.get("/relay/dc1").await.expect(200);
        assert_eq!(first["firstSeen"], first["lastSeen"]);
        world.clock.advance_ms(60 * SECOND_MS);
        announced["served"] = json!(7);
        world.put("/relay/dc1", announced.clone()).await.expect(200);
        world.put("/relay/dc2", announced).await.expect(200);
        let shown = world.get("/relay/dc1").await.expect(200);
        assert_eq!(
            (&shown["firstSeen"], &shown["served"]),
            (&first["firstSeen"], &json!(7))
        );
        assert_eq!(shown.get("silentSince"), None);
        world.clock.advance_ms(91 * SECOND_MS);
        let page = world.get("/relays?limit=1").await.expect(200);
        assert_eq!(page["relays"][0]["relayId"], "dc1");
        assert_eq!(page["relays"][0]["silentSince"], shown["lastSeen"]);
        let token = page["continuationToken"].as_str().unwrap();
        let path = format!("/relays?continuationToken={token}");
        let rest = world.get(&path).await.expect(200);
        assert_eq!(rest["relays"].as_array().unwrap().len(), 1);
        world.clock.advance_ms(31 * DAY_MS);
        world.keep_house().await;
        assert_eq!(
            world.get("/relays").await.expect(200),
            json!({"relays": []})
        );
        world
            .get("/relay/dc1")
            .await
            .refused(404, "ResourceNotFound", "Relay does not exist");
    }
);

on_sqlite_first!(
    the_credentials_of_a_host_last_as_long_as_its_pool_says,
    |world| {
        let config = json!({"lifecycle": {"reregistrationTimeout": 900}, "workerConfig": {"a": 1}});
        world.put(POOL, pool("static", config)).await.expect(200);
        world.put(WORKER, static_worker()).await.expect(200);
        let relay = world.relay().await;
        let reply = world
            .relayed(&relay, CREDENTIALS, host(false))
            .await
            .expect(200);
        assert_eq!(reply["workerConfig"], json!({"a": 1}));
        let expires = reply["expires"].as_str().unwrap().parse().unwrap();
        assert_eq!(world.now().millis_since(expires), -900 * SECOND_MS);
    }
);

pub(crate) fn cases() -> Vec<Case> {
    let host =
        |declare: bool| json!({"address": "10.0.0.7", "hostName": "h7.dc1", "declare": declare});
    let credentials = "/workers/pp%2Fee/g/w/relay-credentials";
    let announced = json!({"version": "1", "started": "2026-09-21T14:13:20Z", "workerPools": [],
        "intervalSeconds": 30, "served": 0, "refused": 0, "failed": 0, "hosts": []});
    let declares: &[&str] = &[
        "worker-manager:relay-credentials:pp/ee/g",
        "worker-manager:create-worker:pp/ee/g/w",
    ];
    vec![
        case_with("relayCredentials", credentials, host(false), &declares[..1]),
        case_with("relayCredentials", credentials, host(true), declares),
        case_with(
            "announceRelay",
            "/relay/dc1",
            announced,
            &["worker-manager:announce-relay:dc1"],
        ),
        case("relay", "/relay/dc1", &["worker-manager:get-relay:dc1"]),
        case("listRelays", "/relays", &["worker-manager:list-relays"]),
    ]
}
