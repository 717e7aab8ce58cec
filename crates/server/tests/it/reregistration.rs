//! `reregisterWorker`: new credentials for a worker with the secret of its last registration.

use domain::time::{HOUR_MS, MINUTE_MS};
use domain::worker::{StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Value, json};

use crate::ask::{Answer, Who};
use crate::database::{on_both, on_sqlite_first};
use crate::samples::{
    DAY_MS, STATIC_SECRET, aws_pool, key, launch_config, static_pool, static_worker,
};
use crate::world::World;

const WRONG: &str = "Could not generate credentials for this secret";

/// A static worker that has registered; the reply to that.
async fn registered(world: &World) -> Value {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    world
        .put("/workers/pp%2Fee/g/w", static_worker())
        .await
        .expect(200);
    let claim = json!({
        "workerPoolId": "pp/ee",
        "providerId": "static",
        "workerGroup": "g",
        "workerId": "w",
        "workerIdentityProof": {"staticSecret": STATIC_SECRET},
    });
    world
        .post("/worker/register", claim)
        .anonymously()
        .await
        .expect(200)
}

fn body(secret: &Value) -> Value {
    json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w", "secret": secret})
}

async fn reregister(world: &World, secret: &Value) -> Answer {
    world.post("/worker/reregister", body(secret)).await
}

async fn change(world: &World, edit: impl Fn(&mut StoredWorker) + Send + 'static) {
    let write = move |tx: &mut store::Tx<'_>| {
        let mut worker = store::workers::get(tx, &key("pp/ee", "g", "w"))?
            .unwrap()
            .into_stored();
        edit(&mut worker);
        store::workers::update(tx, &Worker::from_stored(worker))
    };
    world.write(write).await;
}

on_sqlite_first!(a_worker_renews_its_credentials_again_and_again, |world| {
    let mut reply = registered(world).await;
    for _ in 0..3 {
        world.clock.advance_ms(DAY_MS);
        let itself = Who::registered(&reply);
        let ask = world.post("/worker/reregister", body(&reply["secret"]));
        let next = ask.by(&itself).await.expect(200);
        assert_eq!(next["credentials"]["clientId"], "worker/static/pp/ee/g/w");
        assert_eq!(
            next["expires"],
            world.now().plus_millis(4 * DAY_MS).to_string()
        );
        assert_ne!(next["secret"], reply["secret"]);
        assert_eq!(next.get("workerConfig"), None);
        reply = next;
    }
    let stored = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    assert_eq!(stored.expires.to_string(), "2026-12-01T00:00:00.000Z");
});

on_sqlite_first!(a_worker_may_have_been_promised_another_time, |world| {
    let reply = registered(world).await;
    let two_hours = Some(2 * HOUR_MS);
    change(world, move |worker| {
        worker.terms = Terms {
            reregistration_timeout: two_hours,
            ..Terms::default()
        };
    })
    .await;
    let next = reregister(world, &reply["secret"]).await.expect(200);
    assert_eq!(next["expires"], "2026-09-21T16:13:20.000Z");
    let stored = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    assert_eq!(stored.terms.terminate_after, None);
});

on_sqlite_first!(the_end_of_a_worker_moves_with_its_credentials, |world| {
    let reply = registered(world).await;
    change(world, |worker| worker.terms.terminate_after = Some(7)).await;
    reregister(world, &reply["secret"]).await.expect(200);
    let stored = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    assert_eq!(
        stored.terms.terminate_after,
        Some(world.now().as_millis() + 4 * DAY_MS)
    );
});

on_sqlite_first!(
    a_wrong_secret_an_unknown_worker_and_one_that_never_registered_look_the_same,
    |world| {
        let reply = registered(world).await;
        let wrong = json!("x".repeat(44));
        reregister(world, &wrong)
            .await
            .refused(400, "InputError", WRONG);
        let mut unknown = body(&reply["secret"]);
        unknown["workerId"] = json!("nosuch");
        world
            .post("/worker/reregister", unknown)
            .await
            .refused(400, "InputError", WRONG);
        change(world, |worker| worker.secret = None).await;
        reregister(world, &reply["secret"])
            .await
            .refused(400, "InputError", WRONG);
        assert_eq!(world.log.lines("refused to re-register").len(), 3);
        let answer = reregister(world, &json!("short")).await;
        assert_eq!(answer.body()["requestInfo"]["payload"], "(OMITTED)");
        answer.refused_with(
            400,
            "InputValidationError",
            "data/secret must match pattern",
        );
    }
);

on_sqlite_first!(
    a_worker_that_is_not_running_or_has_expired_is_refused,
    |world| {
        let reply = registered(world).await;
        change(world, |worker| worker.state = WorkerState::Stopping).await;
        let text = "Worker g/w is not running";
        reregister(world, &reply["secret"])
            .await
            .refused(400, "InputError", text);
        change(world, |worker| {
            worker.state = WorkerState::Running;
            // Declared workers do not expire.
            worker.terms.declared = false;
            worker.expires = worker.created;
        })
        .await;
        world.clock.advance_ms(1);
        let text = "Worker g/w has expired";
        reregister(world, &reply["secret"])
            .await
            .refused(400, "InputError", text);
        assert_eq!(world.log.lines("refused to re-register").len(), 2);
    }
);

on_sqlite_first!(
    a_worker_whose_launch_config_is_archived_is_refused,
    |world| {
        let reply = registered(world).await;
        let config = launch_config(Some("lc1"), "ami-1");
        world
            .post("/worker-pool/pp%2Fee", aws_pool(&[config]))
            .await
            .expect(200);
        change(world, |worker| {
            // As a launched one.
            worker.terms.declared = false;
            worker.launch_config_id = Some("lc1".parse().unwrap());
        })
        .await;
        let next = reregister(world, &reply["secret"]).await.expect(200);
        world
            .post("/worker-pool/pp%2Fee", aws_pool(&[]))
            .await
            .expect(200);
        let answer = reregister(world, &next["secret"]).await;
        answer.refused_with(400, "InputError", "archived");
    }
);

on_both!(
    after_a_lost_reply_the_last_secret_still_works_for_a_while,
    |world| {
        let reply = registered(world).await;
        let lost = reregister(world, &reply["secret"]).await.expect(200);
        world.clock.advance_ms(15 * MINUTE_MS);
        let again = reregister(world, &reply["secret"]).await.expect(200);
        // A lost secret is worthless now: one secret is valid, and the one before it for a while.
        reregister(world, &lost["secret"])
            .await
            .refused(400, "InputError", WRONG);
        world.clock.advance_ms(1);
        reregister(world, &reply["secret"])
            .await
            .refused(400, "InputError", WRONG);
        reregister(world, &again["secret"]).await.expect(200);
    }
);

on_both!(a_secret_is_dead_once_its_successor_was_used, |world| {
    let first = registered(world).await;
    let second = reregister(world, &first["secret"]).await.expect(200);
    reregister(world, &second["secret"]).await.expect(200);
    reregister(world, &first["secret"])
        .await
        .refused(400, "InputError", WRONG);
});

on_both!(a_new_registration_ends_all_secrets_before_it, |world| {
    let first = registered(world).await;
    let second = reregister(world, &first["secret"]).await.expect(200);
    let claim = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
        "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
    world
        .post("/worker/register", claim)
        .anonymously()
        .await
        .expect(200);
    for old in [first, second] {
        reregister(world, &old["secret"])
            .await
            .refused(400, "InputError", WRONG);
    }
});

on_sqlite_first!(only_the_worker_itself_may_renew_its_credentials, |world| {
    let reply = registered(world).await;
    let anonymous = world
        .post("/worker/reregister", body(&reply["secret"]))
        .anonymously()
        .await;
    anonymous.refused_with(
        403,
        "InsufficientScopes",
        "worker-manager:reregister-worker:pp/ee/g/w",
    );
    let itself = Who::registered(&reply);
    let mut other = body(&reply["secret"]);
    other["workerId"] = json!("other");
    let refused = world.post("/worker/reregister", other).by(&itself).await;
    refused.refused_with(
        403,
        "InsufficientScopes",
        "worker-manager:reregister-worker:pp/ee/g/other",
    );
});

on_both!(secrets_of_registrations_are_not_in_the_database, |world| {
    let first = registered(world).await;
    let second = reregister(world, &first["secret"]).await.expect(200);
    let bytes = world.database.bytes().unwrap_or_default();
    for secret in [
        first["secret"].as_str().unwrap(),
        second["secret"].as_str().unwrap(),
    ] {
        assert!(
            !bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        );
        assert!(!world.log.text().contains(secret));
    }
});
