//! Secrets: written and read by name, sealed in the database, deleted when they expire.

use access::Secret;
use access::seal::{Key, Keyring, generate_key};
use domain::access::{SecretRecord, secret_purpose};
use domain::time::{DAY_MS, HOUR_MS};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::authorization::{Case, case, case_with};
use crate::database::{on_both, on_sqlite_first};
use crate::world::World;

const SECRET: &str = "secrets:/secret/worker-pool%3App%2Fee";

const AUDIT: &str = "auth:/audit/secret/worker-pool%3App%2Fee";

pub(crate) fn cases() -> Vec<Case> {
    let body = json!({"secret": {"a": 1}, "expires": "2036-09-21T14:13:20.000Z"});
    vec![
        case_with("set", SECRET, body, &["secrets:set:worker-pool:pp/ee"]),
        case("remove", SECRET, &["secrets:set:worker-pool:pp/ee"]),
        case("get", SECRET, &["secrets:get:worker-pool:pp/ee"]),
        case("list", "secrets:/secrets", &["secrets:list-secrets"]),
    ]
}

fn body(world: &World, secret: &Value, for_ms: i64) -> Value {
    json!({"secret": secret, "expires": world.now().plus_millis(for_ms).to_string()})
}

async fn names(world: &World, query: &str) -> (Vec<String>, Option<String>) {
    let listed = world.get(&format!("secrets:/secrets{query}")).await;
    let listed = listed.expect(200);
    let names = listed["secrets"].as_array().unwrap().iter();
    let token = listed["continuationToken"].as_str().map(str::to_owned);
    (
        names.map(|it| it.as_str().unwrap().to_owned()).collect(),
        token,
    )
}

/// The audit log of the secret, in the order of words.
async fn actions(world: &World) -> Vec<String> {
    let audit = world.get(AUDIT).await.expect(200);
    let entries = audit["auditHistory"].as_array().unwrap().iter();
    let action = |entry: &Value| entry["actionType"].as_str().unwrap().to_owned();
    let mut actions: Vec<String> = entries.map(action).collect();
    actions.sort_unstable();
    actions
}

fn key(id: &str) -> Key {
    let secret = generate_key(&mut StdRng::seed_from_u64(id.len() as u64));
    let id = id.to_owned();
    Key { id, secret }
}

on_both!(a_secret_is_written_replaced_read_and_removed, |world| {
    let missing = world.get(SECRET).await;
    missing.refused(404, "ResourceNotFound", "Secret not found");
    let first = body(world, &json!({"token": "s3cret-one"}), DAY_MS);
    let written = world.put(SECRET, first.clone()).await.expect(200);
    assert_eq!(written, json!({}));
    assert_eq!(world.get(SECRET).await.expect(200), first);
    // A slash in the path is the same name.
    let plain = world.get("secrets:/secret/worker-pool:pp/ee").await;
    assert_eq!(plain.expect(200), first);
    let second = body(world, &json!({"token": {"deep": ["s3cret-two"]}}), HOUR_MS);
    world.put(SECRET, second.clone()).await.expect(200);
    assert_eq!(world.get(SECRET).await.expect(200), second);
    assert_eq!(names(world, "").await.0, ["worker-pool:pp/ee"]);
    for _ in 0..2 {
        assert_eq!(world.delete(SECRET).await.expect(200), json!({}));
    }
    assert_eq!(world.get(SECRET).await.status, 404);
    let audit = world.get(AUDIT).await;
    assert!(!audit.text.contains("s3cret"));
    assert_eq!(actions(world).await, ["created", "deleted", "updated"]);
    assert!(!world.log.text().contains("s3cret"));
});

on_both!(a_secret_is_deleted_when_it_expires, |world| {
    world
        .put(SECRET, body(world, &json!({}), HOUR_MS))
        .await
        .expect(200);
    world.clock.advance_ms(HOUR_MS - 1);
    world.get(SECRET).await.expect(200);
    world.clock.advance_ms(1);
    assert_eq!(world.get(SECRET).await.status, 404);
    assert_eq!(names(world, "").await.0, Vec::<String>::new());
    let left = world.read(|tx| store::secrets::get(tx, "worker-pool:pp/ee"));
    assert!(left.await.is_some());
    world.keep_house().await;
    let left = world.read(|tx| store::secrets::get(tx, "worker-pool:pp/ee"));
    assert!(left.await.is_none());
});

on_sqlite_first!(the_value_is_sealed_in_the_database, |world| {
    let secret = json!({"token": "very-s3cret"});
    world
        .put(SECRET, body(world, &secret, DAY_MS))
        .await
        .expect(200);
    let stored = world.read(|tx| store::secrets::get(tx, "worker-pool:pp/ee"));
    let stored = stored.await.unwrap();
    assert!(!stored.sealed_value.contains("s3cret"));
    // Under another name it cannot be opened: a row that was copied tells nothing.
    let copied = SecretRecord {
        name: "other".to_owned(),
        ..stored
    };
    world
        .write(move |tx| store::secrets::put(tx, &copied))
        .await;
    world.errors_expected.set(true);
    let refused = world.get("secrets:/secret/other").await;
    assert_eq!(refused.status, 500);
    assert!(!refused.text.contains("s3cret"));
});

on_sqlite_first!(bad_secrets_are_refused_and_not_repeated, |world| {
    let past = world.now().to_string();
    for (bad, part) in [
        (json!({"secret": {"a": "s3cret"}}), "expires"),
        (
            json!({"secret": "s3cret", "expires": "2036-01-01T00:00:00Z"}),
            "secret",
        ),
        (
            json!({"secret": {"a": "s3cret"}, "expires": past}),
            "must be in the future",
        ),
        (
            json!({"secret": {"a": "s3cret"}, "expires": "soon"}),
            "expires",
        ),
    ] {
        let refused = world.put(SECRET, bad).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.text.contains(part), "{}", refused.text);
        assert!(!refused.text.contains("s3cret"), "{}", refused.text);
    }
    assert!(!world.log.text().contains("s3cret"));
    let valid = body(world, &json!({}), DAY_MS);
    for size in [1, 1_023, 1_024, 1_025] {
        let path = format!("secrets:/secret/{}", "n".repeat(size));
        let status = world.put(&path, valid.clone()).await.status;
        assert_eq!(status, if size > 1_024 { 400 } else { 200 }, "{size}");
    }
    for size in [1_048_575, 1_048_576, 1_048_577] {
        let padding = size - json!({"a": ""}).to_string().len();
        let long = body(world, &json!({"a": "x".repeat(padding)}), DAY_MS);
        let status = world.put(SECRET, long).await.status;
        assert_eq!(status == 200, size <= 1_024 * 1_024, "{size}: {status}");
    }
});

on_both!(names_come_in_pages, |world| {
    let mut expected = Vec::new();
    for number in 0..5 {
        let name = format!("a/{number}");
        let path = format!("secrets:/secret/{}", name.replace('/', "%2F"));
        world
            .put(&path, body(world, &json!({}), DAY_MS))
            .await
            .expect(200);
        expected.push(name);
    }
    let (mut seen, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let (page, token) = names(world, &query).await;
        seen.extend(page);
        let Some(token) = token else { break };
        query = format!("?limit=2&continuationToken={token}");
    }
    assert_eq!(seen, expected);
});

on_sqlite_first!(
    a_caller_without_the_scope_does_not_learn_which_secrets_exist,
    |world| {
        let value = body(world, &json!({"a": "s3cret"}), DAY_MS);
        world.put(SECRET, value).await.expect(200);
        let other = world
            .client("other", &["secrets:get:worker-pool:pp/e"])
            .await;
        let known = world.get(SECRET).by(&other).await;
        let unknown = world.get(&SECRET.replace("ee", "xx")).by(&other).await;
        assert_eq!(known.status, 403);
        assert_eq!(unknown.status, 403);
        assert!(!known.text.contains("s3cret"));
        assert_eq!(
            known
                .text
                .replace("pp/ee", "pp/xx")
                .replace("pp%2Fee", "pp%2Fxx"),
            unknown.text
        );
    }
);

on_both!(of_two_writers_one_is_last, |world| {
    let (first, second) = (json!({"by": "first"}), json!({"by": "second"}));
    let (first, second) = (body(world, &first, DAY_MS), body(world, &second, HOUR_MS));
    let (one, two) = tokio::join!(
        world.put(SECRET, first.clone()).open(),
        world.put(SECRET, second.clone()).open()
    );
    assert_eq!((one.status().as_u16(), two.status().as_u16()), (200, 200));
    let last = world.get(SECRET).await.expect(200);
    assert!(last == first || last == second, "{last}");
    assert_eq!(actions(world).await, ["created", "updated"]);
});

on_sqlite_first!(
    a_secret_of_a_key_that_is_lost_is_an_error_until_it_is_set_again,
    |world| {
        let old = Keyring::new(vec![key("old")]).unwrap();
        let mut random = StdRng::seed_from_u64(7);
        let name = "worker-pool:pp/ee".to_owned();
        let value = Secret::new(json!({"a": "b"}).to_string());
        let record = SecretRecord {
            sealed_value: old.seal(&secret_purpose(&name), &value, &mut random),
            name,
            expires: world.now().plus_millis(DAY_MS),
            last_modified: world.now(),
        };
        world
            .write(move |tx| store::secrets::put(tx, &record))
            .await;
        world.errors_expected.set(true);
        let refused = world.get(SECRET).await;
        assert_eq!(refused.status, 500, "{}", refused.text);
        // A new value needs no key of before.
        let written = body(world, &json!({"a": "c"}), DAY_MS);
        world.put(SECRET, written.clone()).await.expect(200);
        assert_eq!(world.get(SECRET).await.expect(200), written);
    }
);
