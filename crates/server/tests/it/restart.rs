//! Restarts of a server, and two servers on one database.

use std::sync::Arc;

use access::Secret;
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use server::api::listener::Server;
use server::app::App;
use server::config::{Config, StaticClient};
use server::start::{StartError, start_with};

use crate::ask::{Ask, Who};
use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::samples::{STATIC_SECRET, static_pool, static_worker};
use crate::world::World;

/// Another process with the same database.
async fn second(world: &World, change: impl FnOnce(&mut Config)) -> Result<Second, StartError> {
    let mut config = world.app.config.clone();
    change(&mut config);
    let clock = Arc::clone(&world.clock) as _;
    let random = Random::new(StdRng::seed_from_u64(11));
    let app = start_with(config, clock, random, Vec::new()).await?;
    let server = Arc::new(Server::new(Arc::clone(&app)));
    Ok(Second { app, server })
}

struct Second {
    app: Arc<App>,
    server: Arc<Server>,
}

impl Second {
    fn get(&self, path: &str, who: &Who) -> Ask {
        let (server, now) = (Arc::clone(&self.server), self.app.engine.clock.now());
        Ask::new(server, http::Method::GET, path, now).by(who)
    }
}

fn static_client(id: &str, token: &str, scopes: &[&str]) -> StaticClient {
    StaticClient {
        client_id: id.to_owned(),
        access_token: Some(Secret::new(token)),
        access_token_file: None,
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        description: String::new(),
    }
}

on_both!(a_restart_changes_nothing, |world| {
    let before = world.get("auth:/clients/").await.expect(200);
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    world
        .put("/workers/pp%2Fee/g/w", static_worker())
        .await
        .expect(200);
    let claim = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
        "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
    let registered = world.post("/worker/register", claim).await.expect(200);
    world.clock.advance_ms(60_000);
    let again = second(world, |_| {}).await.unwrap();
    assert_eq!(
        again.get("auth:/clients/", &world.root()).await.expect(200),
        before
    );
    let path = "/workers/pp%2Fee/g/w/should-terminate";
    again
        .get(path, &Who::registered(&registered))
        .await
        .expect(200);
});

on_both!(static_clients_follow_the_configuration, |world| {
    let scope = "auth:current-scopes";
    let one = |token: &str, scopes: &[&str]| static_client("static/one", token, scopes);
    let old = "old-old-old-old-old-old-old-old-old-old-old-";
    let new = "new-new-new-new-new-new-new-new-new-new-new-";
    let first = second(world, |config| {
        config.auth.static_clients.push(one(old, &[scope]))
    });
    let first = first.await.unwrap();
    let (old, new) = (Who::new("static/one", old), Who::new("static/one", new));
    first.get("auth:/scopes/current", &old).await.expect(200);
    let token = new.token.expose().to_owned();
    let next = second(world, move |config| {
        config
            .auth
            .static_clients
            .push(one(&token, &[scope, "more"]));
    });
    let next = next.await.unwrap();
    let current = next.get("auth:/scopes/current", &new).await.expect(200);
    assert_eq!(
        current,
        json!({"scopes": ["assume:anonymous", scope, "more"]})
    );
    let refused = next.get("auth:/scopes/current", &old).await;
    refused.refused_with(401, "AuthenticationFailed", "Bad mac");
    let last = second(world, |_| {}).await.unwrap();
    let refused = last.get("auth:/scopes/current", &new).await;
    refused.refused_with(
        401,
        "AuthenticationFailed",
        "Client with clientId 'static/one' not found",
    );
});

on_both!(
    a_change_in_one_process_counts_in_another_within_a_second,
    |world| {
        let client = world.client("ci", &["auth:current-scopes"]).await;
        let other = second(world, |_| {}).await.unwrap();
        other.get("auth:/scopes/current", &client).await.expect(200);
        world
            .post("auth:/clients/ci/disable", json!({}))
            .await
            .expect(200);
        world
            .get("auth:/scopes/current")
            .by(&client)
            .await
            .refused_with(401, "AuthenticationFailed", "disabled");
        world.clock.advance_ms(1_000);
        let refused = other.get("auth:/scopes/current", &client).await;
        refused.refused_with(401, "AuthenticationFailed", "disabled");
        let role = json!({"description": "", "scopes": ["auth:list-roles"]});
        world.put("auth:/roles/anonymous", role).await.expect(200);
        world.clock.advance_ms(1_000);
        other
            .get("auth:/roles/", &world.root())
            .anonymously()
            .await
            .expect(200);
    }
);

on_both!(
    a_pool_that_another_process_changed_is_shown_within_a_second,
    |world| {
        let path = "/worker-pool/pp%2Fee";
        world.put(path, static_pool()).await.expect(200);
        let other = second(world, |_| {}).await.unwrap();
        let before = other.get(path, &world.root()).await.expect(200);
        let mut changed = static_pool();
        changed["description"] = json!("changed");
        world.post(path, changed).await.expect(200);
        let here = world.get(path).await.expect(200);
        assert_eq!(here["description"], "changed");
        world.clock.advance_ms(999);
        let known = other.get(path, &world.root()).await.expect(200);
        assert_eq!(known, before);
        world.clock.advance_ms(1);
        assert_eq!(other.get(path, &world.root()).await.expect(200), here);
    }
);

/// Replaces the file of keys.
fn with_keys(config: &mut Config, keys: &str) {
    let folder = config.keys.file.parent().unwrap().to_owned();
    let file = folder.join("other-keys");
    std::fs::write(&file, keys).unwrap();
    config.keys.file = file;
}

const OLD_KEY: &str = "k1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
const NEW_KEY: &str = "k2 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n";

on_both!(keys_can_be_changed_while_the_old_one_is_kept, |world| {
    let client = world.client("ci", &["auth:current-scopes"]).await;
    let both = format!("{NEW_KEY}# the old one\n\n{OLD_KEY}");
    let changed = second(world, |config| with_keys(config, &both))
        .await
        .unwrap();
    changed
        .get("auth:/scopes/current", &client)
        .await
        .expect(200);
    changed
        .get("auth:/clients/", &world.root())
        .await
        .expect(200);
});

on_both!(a_lost_key_stops_the_start_and_names_the_client, |world| {
    let lost = second(world, |config| with_keys(config, NEW_KEY)).await;
    let problem = lost.err().unwrap().to_string();
    assert_eq!(
        problem,
        "cannot decrypt the access token of static/taskcluster/worker-manager: is its key still in \
             keys.file?"
    );
});

on_sqlite_first!(each_unusable_configuration_is_named, |world| {
    let mut problems = Vec::new();
    let changes: [fn(&mut Config); 5] = [
        |config| config.database.url = String::new(),
        |config| config.database.url = "mysql://x".to_owned(),
        |config| config.keys.file = "/no/such/file".into(),
        |config| with_keys(config, "k1 short\n"),
        |config| config.auth.static_clients[0].client_id = "static/not a client".to_owned(),
    ];
    for change in changes {
        let failed = second(world, change).await.err().unwrap();
        let source = std::error::Error::source(&failed).map(ToString::to_string);
        problems.push(format!("{failed}: {}", source.unwrap_or_default()));
    }
    assert_snapshot!(problems.join("\n"), @r#"
    the configuration is not valid: database.url: is missing: give sqlite:<path> or postgres://…
    the database is not usable: the database address is invalid: it must begin with `sqlite:` or `postgres://`
    the configuration is not valid: cannot read /no/such/file
    the configuration is not valid: keys.file: the secret of key `k1` is not 32 bytes in base64
    "static/not a client" is not a client id:
    "#);
});

on_both!(
    an_internal_error_is_logged_under_the_id_that_the_client_gets,
    |world| {
        world.errors_expected.set(true);
        world
            .put("/worker-pool/a%2Fb", static_pool())
            .await
            .expect(200);
        world
            .database
            .raw("UPDATE worker_pools SET config = 'nonsense'");
        let answer = world.get("/worker-pools").await;
        let body = answer.body();
        let message = body["message"].as_str().unwrap();
        let incident = message
            .split("incidentId ")
            .nth(1)
            .unwrap()
            .split('.')
            .next()
            .unwrap();
        assert_eq!(incident.len(), 22);
        let logged = world.log.lines(incident);
        assert_eq!(logged.len(), 1);
        assert!(
            logged[0].contains(&format!("listWorkerPools failed, incident {incident}: ")),
            "{}",
            logged[0]
        );
        answer.refused_with(500, "InternalServerError", "Internal Server Error");
    }
);

on_both!(
    without_a_database_requests_get_503_and_the_log_says_why,
    |world| {
        world.errors_expected.set(true);
        world.get("root:/ready").await;
        let root = world.root();
        world.get("/providers").by(&root).await.expect(200);
        world.app.engine.store.close().await;
        world.clock.advance_ms(5_000);
        let answer = world.get("/worker-pools").await;
        assert_eq!(answer.header("retry-after"), "5");
        answer.refused_with(503, "DatabaseUnavailable", "does not answer");
        // The same line for all requests, so that it is written once.
        let logged = world.log.lines("requests get 503: the store is closed");
        assert_eq!(logged.len(), 1);
        let ready = world.get("root:/ready").await;
        assert_eq!(
            (ready.status, ready.text.as_str()),
            (503, "the database cannot be written\n")
        );
        assert_eq!(world.get("root:/live").await.status, 200);
        world.get("/ping").await.expect(200);
    }
);
