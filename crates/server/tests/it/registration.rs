//! `registerWorker`: which proofs are accepted, the texts of refusals, and what a worker gets.
//!
//! The provider's own tests check that a worker of AWS registers with a genuine document.

use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::lifecycle::DEFAULT_REREGISTRATION_MS;
use domain::time::HOUR_MS;
use domain::worker::{StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Value, json};

use crate::ask::{Answer, Who};
use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::samples::{STATIC_SECRET, key, pool, static_pool, static_worker, worker};
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
const NOT_DECLARED: &str = "the secret differs from the declared one";

fn google_pool() -> Value {
    pool(
        "google",
        json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": []}),
    )
}

async fn with_requested_worker(world: &World) {
    world.put(POOL, google_pool()).await.expect(200);
    let terms = Terms {
        terminate_after: Some(5),
        reregistration_timeout: Some(2 * HOUR_MS),
        worker_config: Some(json!({"deep": {"er": true}})),
        ..Terms::default()
    };
    world
        .insert(Worker::from_stored(StoredWorker {
            terms,
            ..worker("pp/ee", "g", "w").into_stored()
        }))
        .await;
    world.events().await;
}

async fn with_static_worker(world: &World) {
    world.put(POOL, static_pool()).await.expect(200);
    world
        .put("/workers/pp%2Fee/g/w", static_worker())
        .await
        .expect(200);
    world.events().await;
}

fn claim(provider: &str, proof: Value) -> Value {
    json!({
        "workerPoolId": "pp/ee",
        "providerId": provider,
        "workerGroup": "g",
        "workerId": "w",
        "workerIdentityProof": proof,
    })
}

fn static_claim() -> Value {
    claim("static", json!({"staticSecret": STATIC_SECRET}))
}

fn google_claim(world: &World) -> Value {
    let token = world.identity_token(&key("pp/ee", "g", "w"));
    claim("google", json!({"token": token.expose()}))
}

async fn register(world: &World, claim: Value) -> Answer {
    world.post("/worker/register", claim).anonymously().await
}

/// Asserts a refusal, and that the log has exactly one more line about it, with this reason.
async fn refused(world: &World, claim: Value, status: u16, text: &str, logged: &str) {
    let before = world.log.lines("refused to register").len();
    let code = if status == 404 {
        "ResourceNotFound"
    } else {
        "InputError"
    };
    let answer = register(world, claim).await;
    assert_eq!(answer.body()["requestInfo"]["payload"], "(OMITTED)");
    answer.refused(status, code, text);
    let lines = world.log.lines("refused to register");
    assert_eq!(lines.len(), before + 1);
    assert!(lines[before].contains(logged), "{}", lines[before]);
}

on_both!(a_requested_worker_that_proves_itself_runs, |world| {
    with_requested_worker(world).await;
    world.clock.advance_ms(1_000);
    let reply = register(world, google_claim(world)).await.expect(200);
    assert_eq!(reply["expires"], "2026-09-21T16:13:21.000Z");
    assert_eq!(reply["workerConfig"], json!({"deep": {"er": true}}));
    // It cannot ask for it again.
    let stored = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    assert_eq!(stored.terms.worker_config, None);
    assert_eq!(reply["credentials"]["clientId"], "worker/google/pp/ee/g/w");
    assert_eq!(reply["secret"].as_str().unwrap().len(), 44);
    let certificate = Who::registered(&reply).certificate.unwrap();
    assert_snapshot!(certificate.scopes.join("\n"), @r"
    assume:worker-type:pp/ee
    assume:worker-pool:pp/ee
    assume:worker-id:g/w
    queue:worker-id:g/w
    secrets:get:worker-type:pp/ee
    secrets:get:worker-pool:pp/ee
    queue:claim-work:pp/ee
    worker-manager:remove-worker:pp/ee/g/w
    worker-manager:reregister-worker:pp/ee/g/w
    worker-manager:should-worker-terminate:pp/ee/g/w
    ");
    assert_eq!(
        certificate.issuer.as_deref(),
        Some("static/taskcluster/worker-manager")
    );
    // Expiry as promised; start in the past, for clocks that are behind or are set back.
    assert_eq!(certificate.expiry - world.now().as_millis(), 2 * HOUR_MS);
    assert_eq!(
        world.now().as_millis() - certificate.start,
        33 * HOUR_MS / 4
    );
    assert_snapshot!(world.told().await, @r#"worker-running primary.google.pp.ee.g.w._._ {"capacity":1,"providerId":"google","timestamp":"2026-09-21T14:13:21.000Z","workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}"#);
    let stored = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    assert_eq!(stored.state, WorkerState::Running);
    assert_eq!(stored.terms.terminate_after, Some(certificate.expiry));
    assert_eq!(stored.terms.registered_at, Some(world.now().as_millis()));
});

on_sqlite_first!(the_credentials_of_a_worker_are_good_for_it_alone, |world| {
    with_requested_worker(world).await;
    world.insert(worker("pp/ee", "g", "neighbour")).await;
    let reply = register(world, google_claim(world)).await.expect(200);
    let itself = Who::registered(&reply);
    let path = |id: &str| format!("/workers/pp%2Fee/g/{id}/should-terminate");
    world.get(&path("w")).by(&itself).await.expect(200);
    let refused = world.get(&path("neighbour")).by(&itself).await;
    refused.refused_with(
        403,
        "InsufficientScopes",
        "worker/google/pp/ee/g/w does not have",
    );
    let error = |id: &str| {
        json!({"kind": "k", "title": "t", "description": "d", "extra": {},
        "workerGroup": "g", "workerId": id})
    };
    let errors = "/worker-pool-errors/pp%2Fee";
    world.post(errors, error("w")).by(&itself).await.expect(200);
    let refused = world.post(errors, error("neighbour")).by(&itself).await;
    refused.refused_with(403, "InsufficientScopes", "assume:worker-id:g/neighbour");
    world
        .delete("/workers/pp%2Fee/g/w")
        .by(&itself)
        .await
        .expect(200);
    // They end when they said they would.
    world.clock.advance_ms(2 * HOUR_MS + 5 * 60_000 + 1_000);
    let late = world.get(&path("w")).by(&itself).await;
    late.refused_with(401, "AuthenticationFailed", "expiry");
});

on_both!(a_worker_registers_once, |world| {
    with_requested_worker(world).await;
    let claim = google_claim(world);
    register(world, claim.clone()).await.expect(200);
    let text = "Token validation error";
    refused(
        world,
        claim,
        400,
        text,
        "a running worker cannot become running",
    )
    .await;
});

on_sqlite_first!(a_static_worker_registers_as_often_as_it_likes, |world| {
    with_static_worker(world).await;
    let first = register(world, static_claim()).await.expect(200);
    assert_eq!(first["workerConfig"], json!({"a": 1}));
    let lasts = world.now().plus_millis(DEFAULT_REREGISTRATION_MS);
    assert_eq!(first["expires"], lasts.to_string());
    let second = register(world, static_claim()).await.expect(200);
    assert_ne!(first["secret"], second["secret"]);
    // It was running before: no new event.
    assert_eq!(world.told().await, "");
});

on_sqlite_first!(
    the_lifecycle_of_a_static_pool_says_how_long_credentials_last,
    |world| {
        let config = json!({"lifecycle": {"reregistrationTimeout": 60}});
        world.put(POOL, pool("static", config)).await.expect(200);
        world
            .put("/workers/pp%2Fee/g/w", static_worker())
            .await
            .expect(200);
        let reply = register(world, static_claim()).await.expect(200);
        assert_eq!(reply["expires"], "2026-09-21T14:14:20.000Z");
        assert_eq!(reply["workerConfig"], json!({}));
    }
);

on_sqlite_first!(each_refusal_has_its_text_and_one_line_in_the_log, |world| {
    let claim = static_claim();
    let text = "Worker pool pp/ee does not exist";
    refused(world, claim.clone(), 404, text, text).await;

    world.put(POOL, static_pool()).await.expect(200);
    let mut unknown = claim.clone();
    unknown["providerId"] = json!("nosuch");
    let text = "Provider nosuch does not exist";
    refused(world, unknown, 404, text, text).await;

    let mut foreign = claim.clone();
    foreign["providerId"] = json!("google");
    let text = "Worker pool pp/ee not associated with provider google";
    refused(world, foreign, 400, text, text).await;

    let text = "Worker g/w in worker pool pp/ee does not exist";
    refused(world, claim.clone(), 404, text, text).await;
    world.insert(worker("pp/other", "g", "w")).await;
    refused(world, claim.clone(), 404, text, text).await;

    world
        .insert(Worker::from_stored(StoredWorker {
            expires: world.now().plus_millis(-1),
            ..worker("pp/ee", "g", "w").into_stored()
        }))
        .await;
    let text = "Worker g/w has expired";
    refused(world, claim.clone(), 400, text, text).await;
    world.keep_house().await;

    world.insert(worker("pp/ee", "g", "w")).await;
    let text = "Worker g/w does not have provider static";
    refused(world, claim, 400, text, text).await;
});

on_sqlite_first!(each_bad_proof_of_a_static_worker_has_its_text, |world| {
    with_static_worker(world).await;
    let text = "missing staticSecret in workerIdentityProof";
    let token = claim("static", json!({"token": "abc"}));
    refused(world, token, 400, text, "the proof is not a static secret").await;
    let text = "bad staticSecret in workerIdentityProof";
    let wrong = claim("static", json!({"staticSecret": "x".repeat(44)}));
    refused(world, wrong, 400, text, NOT_DECLARED).await;
    world.delete("/workers/pp%2Fee/g/w").await.expect(200);
    refused(
        world,
        static_claim(),
        400,
        "worker is not running",
        "the worker is stopped",
    )
    .await;
});

on_both!(a_changed_secret_is_the_only_one_that_counts, |world| {
    with_static_worker(world).await;
    let other = "t".repeat(44);
    let change = json!({"expires": "2026-12-01T00:00:00.000Z",
        "providerInfo": {"staticSecret": other}});
    world.post("/workers/pp%2Fee/g/w", change).await.expect(200);
    let text = "bad staticSecret in workerIdentityProof";
    refused(world, static_claim(), 400, text, NOT_DECLARED).await;
    register(world, claim("static", json!({"staticSecret": other})))
        .await
        .expect(200);
});

on_sqlite_first!(bad_proofs_of_a_cloud_worker_all_look_the_same, |world| {
    with_requested_worker(world).await;
    let text = "Token validation error";
    for (proof, logged) in [
        (
            json!({"token": "forged"}),
            "the proof is not this worker's token",
        ),
        (
            json!({"document": "d"}),
            "the proof is not this worker's token",
        ),
        (
            json!({"document": "d", "signature": "s"}),
            "the proof is not this worker's token",
        ),
        (
            json!({"staticSecret": STATIC_SECRET}),
            "the proof is not this worker's token",
        ),
    ] {
        refused(world, claim("google", proof), 400, text, logged).await;
    }
    let neighbour = world.identity_token(&key("pp/ee", "g", "neighbour"));
    let stolen = claim("google", json!({"token": neighbour.expose()}));
    refused(
        world,
        stolen,
        400,
        text,
        "the proof is not this worker's token",
    )
    .await;
});

on_sqlite_first!(a_proof_must_be_of_exactly_one_kind, |world| {
    with_static_worker(world).await;
    for proof in [
        json!({}),
        json!({"staticSecret": STATIC_SECRET, "token": "t"}),
        json!({"staticSecret": "short"}),
        json!({"signature": "s"}),
    ] {
        let answer = register(world, claim("static", proof)).await;
        assert!(!answer.text.contains(STATIC_SECRET));
        answer.refused_with(400, "InputValidationError", "workerIdentityProof");
    }
});

on_sqlite_first!(
    a_worker_of_a_provider_that_the_pool_has_left_may_still_register,
    |world| {
        with_requested_worker(world).await;
        world.post(POOL, static_pool()).await.expect(200);
        register(world, google_claim(world)).await.expect(200);
        // And so may one of a deleted pool.
        let mut second = google_claim(world);
        second["workerId"] = json!("second");
        let token = world.identity_token(&key("pp/ee", "g", "second"));
        second["workerIdentityProof"]["token"] = json!(token.expose());
        world.insert(worker("pp/ee", "g", "second")).await;
        world.delete(POOL).await.expect(200);
        register(world, second).await.expect(200);
    }
);

on_sqlite_first!(
    a_provider_that_failed_to_start_registers_no_worker,
    |world| {
        world.shaky.works.store(true, Ordering::Release);
        world.put(POOL, static_pool()).await.expect(200);
        let claim = claim("shaky", json!({"token": "t"}));
        let text = "Provider backend may be down or misconfigured";
        let answer = register(world, claim).await;
        answer.refused(503, "ProviderSetupFailed", text);
    }
);

on_sqlite_first!(
    a_proof_that_cannot_be_verified_now_may_be_sent_again_later,
    |world| {
        world.shaky.works.store(true, Ordering::Release);
        world
            .app
            .engine
            .providers
            .set_up_missing(Duration::from_secs(5))
            .await;
        world.put(POOL, pool("shaky", json!({}))).await.expect(200);
        let requested = Worker::from_stored(StoredWorker {
            provider_id: "shaky".parse().unwrap(),
            ..worker("pp/ee", "g", "w").into_stored()
        });
        world.insert(requested).await;
        let claim = claim("shaky", json!({"token": "t"}));
        world.shaky.is_blind.store(true, Ordering::Release);
        let answer = register(world, claim.clone()).await;
        let text = "Provider backend may be down or misconfigured";
        answer.refused(503, "ProviderSetupFailed", text);
        let logged = world.log.lines("its proof cannot be checked now");
        assert!(
            logged[0].contains("its service does not answer"),
            "{logged:?}"
        );
        // Its answer is final once it can verify proofs.
        world.shaky.is_blind.store(false, Ordering::Release);
        refused(world, claim, 400, "never satisfied", "on principle").await;
    }
);

on_both!(
    a_worker_that_is_removed_while_its_proof_is_looked_at_gets_nothing,
    |world| {
        world
            .put(POOL, pool("pausing", json!({})))
            .await
            .expect(200);
        let pausing = Worker::from_stored(StoredWorker {
            provider_id: "pausing".parse().unwrap(),
            ..worker("pp/ee", "g", "w").into_stored()
        });
        world.insert(pausing).await;
        let claim = claim("pausing", json!({"token": "t"}));
        let waiting = tokio::spawn(world.post("/worker/register", claim).anonymously().send());
        world.pausing.arrived.acquire().await.unwrap().forget();
        world.delete("/workers/pp%2Fee/g/w").await.expect(200);
        world.pausing.go.add_permits(2);
        waiting
            .await
            .unwrap()
            .refused(400, "InputError", "too late");
        let stored = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
        assert_eq!(stored.state, WorkerState::Stopping);
        assert_eq!(stored.secret, None);
    }
);

on_sqlite_first!(the_time_since_boot_is_measured, |world| {
    world
        .put("/worker-pool/boot%2Ftime", google_pool())
        .await
        .expect(200);
    world.insert(worker("boot/time", "g", "w")).await;
    world.clock.advance_ms(10_000);
    let token = world.identity_token(&key("boot/time", "g", "w"));
    let mut claim = claim("google", json!({"token": token.expose()}));
    claim["workerPoolId"] = json!("boot/time");
    claim["systemBootTime"] = json!("2026-09-21T14:13:24.000Z");
    register(world, claim).await.expect(200);
    let metrics = world.app.telemetry.render();
    for (name, sum) in [("registration", 10), ("provision", 4), ("startup", 6)] {
        let line = format!(
            "worker_manager_worker_{name}_seconds_sum{{workerPoolId=\"boot/time\",providerId=\"google\"}}"
        );
        let line = metrics
            .lines()
            .find(|found| found.starts_with(&line))
            .unwrap();
        let value: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(value % sum, 0, "{line}");
    }
});

on_both!(
    proofs_and_credentials_are_never_logged_or_stored_in_clear,
    |world| {
        with_requested_worker(world).await;
        let claim = google_claim(world);
        let reply = register(world, claim.clone()).await.expect(200);
        let secrets = [
            reply["secret"].as_str().unwrap(),
            reply["credentials"]["accessToken"].as_str().unwrap(),
            claim["workerIdentityProof"]["token"].as_str().unwrap(),
        ];
        let (log, bytes) = (world.log.text(), world.database.bytes().unwrap_or_default());
        for secret in secrets {
            assert!(!log.contains(secret));
            assert!(
                !bytes
                    .windows(secret.len())
                    .any(|window| window == secret.as_bytes())
            );
        }
    }
);

on_sqlite_first!(
    names_that_anybody_may_make_up_are_no_labels_of_metrics,
    |world| {
        let mut made_up = static_claim();
        made_up["providerId"] = json!("made-up-provider");
        refused(
            world,
            made_up,
            404,
            "Worker pool pp/ee does not exist",
            "made-up-provider",
        )
        .await;
        let metrics = world.app.telemetry.render();
        assert!(
            metrics.contains("fleetwright_registrations_refused_total{providerId=\"unknown\"}")
        );
        assert!(!metrics.contains("made-up"));
    }
);
