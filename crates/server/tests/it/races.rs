//! Concurrent requests: whichever wins, the outcome is that of a sequence.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::worker::WorkerState;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::ask::{Answer, Ask};
use crate::database::on_both;
use crate::samples::{
    STATIC_SECRET, aws_pool, key, launch_config, pool, static_pool, static_worker, worker,
};

const MANY: usize = 32;
const POOL: &str = "/worker-pool/pp%2Fee";

/// Sends all of them at once; the answers in the order of the requests.
async fn all_at_once(asks: impl IntoIterator<Item = Ask>) -> Vec<Answer> {
    let tasks: Vec<_> = asks
        .into_iter()
        .map(|ask| tokio::spawn(ask.send()))
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no handler panics"));
    }
    answers
}

fn statuses(answers: &[Answer]) -> BTreeSet<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

/// The positions of those that succeeded.
fn winners(answers: &[Answer]) -> Vec<usize> {
    let won = answers
        .iter()
        .enumerate()
        .filter(|(_, answer)| answer.status == 200);
    won.map(|(number, _)| number).collect()
}

fn wanted(number: usize) -> Value {
    let mut wanted = aws_pool(&[
        launch_config(Some("shared"), "same"),
        launch_config(None, &format!("ami-{number}")),
    ]);
    wanted["description"] = json!(number.to_string());
    wanted
}

/// The pool is what this request wanted, its launch configs included.
fn is_as_wanted(shown: &Value, number: usize) {
    assert_eq!(shown["description"], number.to_string());
    let configs = shown["config"]["launchConfigs"].as_array().unwrap();
    let images: BTreeSet<_> = configs
        .iter()
        .map(|config| {
            config["launchConfig"]["ImageId"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        images,
        BTreeSet::from(["same".to_owned(), format!("ami-{number}")])
    );
}

on_both!(parallel of_many_creations_of_a_pool_one_wins, |world| {
    let answers = all_at_once((0..MANY).map(|number| world.put(POOL, wanted(number)))).await;
    assert_eq!(statuses(&answers), BTreeSet::from([200, 409]));
    let [winner] = winners(&answers).try_into().unwrap();
    is_as_wanted(&world.get(POOL).await.expect(200), winner);
    let events = world.events().await;
    let topics: Vec<_> = events.iter().map(|row| row.topic.rsplit('/').next().unwrap()).collect();
    assert_eq!(topics, ["worker-pool-created", "launch-config-created", "launch-config-created"]);
    let history = world.get("auth:/audit/worker-pool/pp%2Fee").await.expect(200);
    assert_eq!(history["auditHistory"].as_array().unwrap().len(), 1);
});

on_both!(parallel many_equal_creations_of_a_pool_all_succeed, |world| {
    let answers = all_at_once((0..MANY).map(|_| world.put(POOL, wanted(1)))).await;
    assert_eq!(statuses(&answers), BTreeSet::from([200]));
    assert_eq!(world.events().await.len(), 3);
});

on_both!(parallel many_updates_of_a_pool_leave_one_of_them, |world| {
    world.put(POOL, wanted(1_000)).await.expect(200);
    world.events().await;
    let answers = all_at_once((0..MANY).map(|number| world.post(POOL, wanted(number)))).await;
    assert_eq!(statuses(&answers), BTreeSet::from([200]));
    for (number, answer) in answers.iter().enumerate() {
        is_as_wanted(&answer.body(), number);
    }
    let shown = world.get(POOL).await.expect(200);
    let last: usize = shown["description"].as_str().unwrap().parse().unwrap();
    is_as_wanted(&shown, last);
    let path = "/worker-pool/pp%2Fee/launch-configs?includeArchived=true";
    let all = world.get(path).await.expect(200);
    let all = all["workerPoolLaunchConfigs"].as_array().unwrap();
    assert_eq!(all.len(), MANY + 2);
    assert_eq!(all.iter().filter(|config| config["isArchived"] == false).count(), 2);
    // For each update: updated pool, kept, created and archived launch config.
    assert_eq!(world.events().await.len(), 4 * MANY);
});

on_both!(parallel of_many_declarations_of_a_worker_one_wins, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    let secret = |number: usize| format!("{number:0>44}");
    let answers = all_at_once((0..MANY).map(|number| {
        let mut body = static_worker();
        body["providerInfo"]["staticSecret"] = json!(secret(number));
        world.put("/workers/pp%2Fee/g/w", body)
    }))
    .await;
    assert_eq!(statuses(&answers), BTreeSet::from([200, 409]));
    let [winner] = winners(&answers).try_into().unwrap();
    for number in [winner, (winner + 1) % MANY] {
        let claim = claim("static", json!({"staticSecret": secret(number)}));
        let answer = world.post("/worker/register", claim).await;
        assert_eq!(answer.status, if number == winner { 200 } else { 400 });
    }
});

fn claim(provider: &str, proof: Value) -> Value {
    json!({"workerPoolId": "pp/ee", "providerId": provider, "workerGroup": "g", "workerId": "w",
        "workerIdentityProof": proof})
}

on_both!(parallel of_many_registrations_of_a_requested_worker_one_wins, |world| {
    let config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": []});
    world.put(POOL, pool("google", config)).await.expect(200);
    world.insert(worker("pp/ee", "g", "w")).await;
    world.events().await;
    let token = world.identity_token(&key("pp/ee", "g", "w"));
    let claim = claim("google", json!({"token": token.expose()}));
    let asks = (0..MANY).map(|_| world.post("/worker/register", claim.clone()));
    let answers = all_at_once(asks).await;
    assert_eq!(statuses(&answers), BTreeSet::from([200, 400]));
    assert_eq!(winners(&answers).len(), 1);
    assert_eq!(world.events().await.len(), 1);
});

on_both!(parallel of_many_registrations_of_a_static_worker_one_secret_is_live, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    world.put("/workers/pp%2Fee/g/w", static_worker()).await.expect(200);
    let claim = claim("static", json!({"staticSecret": STATIC_SECRET}));
    let asks = (0..MANY).map(|_| world.post("/worker/register", claim.clone()));
    let answers = all_at_once(asks).await;
    assert!(statuses(&answers).is_subset(&BTreeSet::from([200, 409])), "{answers:?}");
    let mut live = 0;
    for winner in winners(&answers) {
        let body = json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w",
            "secret": answers[winner].body()["secret"]});
        // An equal request twice: the first valid one changes the secret.
        let answer = world.post("/worker/reregister", body).await;
        live += usize::from(answer.status == 200);
    }
    assert_eq!(live, 1);
});

on_both!(parallel of_many_renewals_with_one_secret_one_reply_is_live, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    world.put("/workers/pp%2Fee/g/w", static_worker()).await.expect(200);
    let claim = claim("static", json!({"staticSecret": STATIC_SECRET}));
    let registered = world.post("/worker/register", claim).await.expect(200);
    let body = |secret: &Value| {
        json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w", "secret": secret})
    };
    let asks = (0..MANY).map(|_| world.post("/worker/reregister", body(&registered["secret"])));
    let answers = all_at_once(asks).await;
    assert_eq!(statuses(&answers), BTreeSet::from([200]));
    let mut live = 0;
    for answer in &answers {
        let again = world.post("/worker/reregister", body(&answer.body()["secret"])).await;
        live += usize::from(again.status == 200);
    }
    assert_eq!(live, 1);
});

on_both!(parallel many_removals_and_registrations_never_bring_a_worker_back, |world| {
    let config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": []});
    world.put(POOL, pool("google", config)).await.expect(200);
    world.insert(worker("pp/ee", "g", "w")).await;
    let token = world.identity_token(&key("pp/ee", "g", "w"));
    let claim = claim("google", json!({"token": token.expose()}));
    let asks = (0..MANY).map(|number| match number % 2 {
        0 => world.post("/worker/register", claim.clone()),
        _ => world.delete("/workers/pp%2Fee/g/w"),
    });
    let answers = all_at_once(asks).await;
    assert!(statuses(&answers).is_subset(&BTreeSet::from([200, 400])), "{answers:?}");
    let stored = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    assert_eq!(stored.state, WorkerState::Stopping);
});

/// How often a race is run before it counts as never happening.
const ROUNDS: usize = 50;

on_both!(parallel a_client_that_was_changed_meanwhile_is_a_conflict, |world| {
    world.client("ci", &[]).await;
    let body = |number: usize| {
        json!({"expires": "2027-01-01T00:00:00.000Z", "description": number.to_string()})
    };
    for _ in 0..ROUNDS {
        let asks = (0..8).map(|number| world.post("auth:/clients/ci", body(number)));
        let answers = all_at_once(asks).await;
        assert!(statuses(&answers).is_subset(&BTreeSet::from([200, 409])), "{answers:?}");
        let shown = world.get("auth:/clients/ci").await.expect(200);
        let last: usize = shown["description"].as_str().unwrap().parse().unwrap();
        assert!(winners(&answers).contains(&last));
        if let Some(refused) = answers.into_iter().find(|answer| answer.status == 409) {
            refused.refused_with(409, "RequestConflict", "changed by somebody else");
            return;
        }
    }
    panic!("no update ever came in between");
});

on_both!(parallel a_change_of_a_client_counts_at_once_whatever_else_is_asked, |world| {
    let client = world.client("ci", &["worker-manager:list-providers"]).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut noise = JoinSet::new();
    for _ in 0..4 {
        let (server, done, now) = (Arc::clone(&world.server), Arc::clone(&done), world.now());
        let root = world.root();
        noise.spawn(async move {
            while !done.load(Ordering::Acquire) {
                let ask = Ask::new(Arc::clone(&server), http::Method::GET, "/providers", now);
                Box::pin(ask.by(&root).send()).await.expect(200);
                // A task that a request has started may run next on this very thread.
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..ROUNDS {
        for (action, status) in [("disable", 401), ("enable", 200)] {
            let path = format!("auth:/clients/ci/{action}");
            world.post(&path, json!({})).await.expect(200);
            assert_eq!(world.get("/providers").by(&client).await.status, status, "{action}");
        }
    }
    done.store(true, Ordering::Release);
    while let Some(ended) = noise.join_next().await {
        ended.unwrap();
    }
});

on_both!(parallel roles_made_at_once_never_close_a_circle, |world| {
    // Each alone is fine; both together would expand without end.
    for round in 0..10 {
        let asks = [("a", "b"), ("b", "a")].map(|(one, other)| {
            let scopes = [format!("assume:{other}{round}:x<..>")];
            let path = format!("auth:/roles/{one}{round}:*");
            world.put(&path, json!({"description": "", "scopes": scopes}))
        });
        let answers = all_at_once(asks).await;
        assert_eq!(winners(&answers).len(), 1, "{answers:?}");
        assert!(statuses(&answers).is_subset(&BTreeSet::from([200, 400])));
    }
});

on_both!(parallel a_storm_of_different_requests_does_no_harm, |world| {
    let asks = (0..8 * MANY).map(|number| {
        let pool = format!("/worker-pool/pp%2Fp{}", number % 8);
        match number % 5 {
            0 => world.put(&pool, wanted(number % 3)),
            1 => world.post(&pool, wanted(number % 3)),
            2 => world.delete(&pool),
            3 => world.get("/worker-pools"),
            _ => world.get(&pool),
        }
    });
    let answers = all_at_once(asks).await;
    assert!(statuses(&answers).is_subset(&BTreeSet::from([200, 404, 409])));
});
