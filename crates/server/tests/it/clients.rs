//! Clients: created, updated, enabled, disabled, reset and deleted; and the scopes that callers
//! need for that.

use serde_json::{Value, json};

use crate::ask::Who;
use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::world::World;

const CLIENT: &str = "auth:/clients/ci%2Fone";

fn body(scopes: &[&str]) -> Value {
    json!({"expires": "2027-01-01T00:00:00.000Z", "description": "for tests", "scopes": scopes})
}

fn without_token(mut client: Value) -> Value {
    client
        .as_object_mut()
        .unwrap()
        .remove("accessToken")
        .unwrap();
    client
}

on_sqlite_first!(a_made_client_shows_its_token_once, |world| {
    let role = json!({"description": "", "scopes": ["x:*"]});
    world.put("auth:/roles/r", role).await.expect(200);
    world.events().await;
    let answer = world.put(CLIENT, body(&["b", "assume:r", "a"])).await;
    assert_snapshot!(format!("{:#}", answer.body()), @r#"
    {
      "accessToken": "CnaXK8uHR_SusQIW4hHzTgNvLiozFSTpCRqKFi5lqFAw",
      "clientId": "ci/one",
      "created": "2026-09-21T14:13:20.000Z",
      "deleteOnExpiration": false,
      "description": "for tests",
      "disabled": false,
      "expandedScopes": [
        "a",
        "assume:r",
        "b",
        "x:*"
      ],
      "expires": "2027-01-01T00:00:00.000Z",
      "lastDateUsed": "2026-09-21T14:13:20.000Z",
      "lastModified": "2026-09-21T14:13:20.000Z",
      "lastRotated": "2026-09-21T14:13:20.000Z",
      "scopes": [
        "b",
        "assume:r",
        "a"
      ]
    }
    "#);
    let made = answer.expect(200);
    assert_eq!(world.get(CLIENT).await.expect(200), without_token(made));
    assert_snapshot!(world.told().await, @r#"client-created _ {"clientId":"ci/one","version":1}"#);
});

on_both!(
    the_same_client_made_again_within_a_quarter_of_an_hour_is_the_first_one,
    |world| {
        let made = world.put(CLIENT, body(&["a", "b"])).await.expect(200);
        world.events().await;
        world.clock.advance_ms(15 * 60_000 - 1);
        let again = world.put(CLIENT, body(&["a", "b"])).await.expect(200);
        assert_eq!(again, made);
        assert_eq!(world.told().await, "");
        let history = world.get("auth:/audit/client/ci%2Fone").await.expect(200);
        let actions = history["auditHistory"].as_array().unwrap().iter();
        let actions: Vec<_> = actions.map(|entry| entry["actionType"].clone()).collect();
        assert_eq!(actions, ["created", "token-given-again"]);
        world.clock.advance_ms(1);
        let late = world.put(CLIENT, body(&["a", "b"])).await;
        late.refused(409, "RequestConflict", "Client already exists");
    }
);

on_sqlite_first!(a_client_that_is_not_the_same_is_a_conflict, |world| {
    world.put(CLIENT, body(&["a", "b"])).await.expect(200);
    let mut others = vec![body(&["a"]), body(&["b", "a"])];
    for (key, value) in [
        ("description", json!("else")),
        ("expires", json!("2027-01-01T00:00:00.001Z")),
        ("deleteOnExpiration", json!(true)),
    ] {
        let mut other = body(&["a", "b"]);
        other[key] = value;
        others.push(other);
    }
    for other in others {
        let refused = world.put(CLIENT, other).await;
        refused.refused(409, "RequestConflict", "Client already exists");
    }
    for change in ["disable", "enable", "reset"] {
        let path = format!("{CLIENT}/{change}");
        world.post(&path, json!({})).await.expect(200);
        let again = world.put(CLIENT, body(&["a", "b"])).await;
        let status = if change == "enable" { 200 } else { 409 };
        assert_eq!(again.status, status, "after {change}");
        world.clock.advance_ms(1);
    }
});

on_sqlite_first!(creating_a_client_needs_its_scopes, |world| {
    let maker = world
        .client("maker", &["auth:create-client:ci/*", "a:*"])
        .await;
    let made = world
        .put(CLIENT, body(&["a:b"]))
        .by(&maker)
        .await
        .expect(200);
    assert_eq!(made["scopes"], json!(["a:b"]));
    let other = "auth:/clients/ci%2Ftwo";
    let answer = world.put(other, body(&["a:b", "c"])).by(&maker).await;
    answer.refused_with(
        403,
        "InsufficientScopes",
        "is missing the following scopes:\n\n```\nc\n",
    );
    let answer = world
        .put("auth:/clients/another", body(&[]))
        .by(&maker)
        .await;
    answer.refused_with(403, "InsufficientScopes", "auth:create-client:another");
    let answer = world.put(other, body(&["x**"])).await;
    answer.refused_with(400, "InputError", "`**`");
    let answer = world
        .put(other, json!({"description": ""}))
        .by(&maker)
        .await;
    answer.refused_with(
        400,
        "InputValidationError",
        "must have required property 'expires'",
    );
});

on_sqlite_first!(an_update_needs_only_the_added_scopes, |world| {
    let editor = world
        .client("editor", &["auth:update-client:ci/*", "c"])
        .await;
    world.put(CLIENT, body(&["a", "b"])).await.expect(200);
    world.events().await;
    world.clock.advance_ms(1_000);
    let updated = world
        .post(CLIENT, body(&["a", "c"]))
        .by(&editor)
        .await
        .expect(200);
    assert_eq!(updated["scopes"], json!(["a", "c"]));
    assert_eq!(updated["lastModified"], "2026-09-21T14:13:21.000Z");
    assert_eq!(updated["lastRotated"], "2026-09-21T14:13:20.000Z");
    assert_eq!(updated.get("accessToken"), None);
    assert_snapshot!(world.told().await, @r#"client-updated _ {"clientId":"ci/one","version":1}"#);
    let answer = world.post(CLIENT, body(&["a", "d"])).by(&editor).await;
    answer.refused_with(403, "InsufficientScopes", "following scopes:\n\n```\nd\n");
    let kept = json!({"expires": "2027-02-01T00:00:00.000Z", "description": "changed"});
    let updated = world.post(CLIENT, kept).by(&editor).await.expect(200);
    assert_eq!(updated["scopes"], json!(["a", "c"]));
    assert_eq!(updated["description"], "changed");
    assert_eq!(updated["expires"], "2027-02-01T00:00:00.000Z");
    let answer = world.post(CLIENT, body(&["**"])).await;
    answer.refused_with(400, "InputError", "`**`");
});

on_sqlite_first!(missing_clients_are_not_found_but_may_be_deleted, |world| {
    let text = "Client not found";
    world
        .get(CLIENT)
        .await
        .refused(404, "ResourceNotFound", text);
    world
        .post(CLIENT, body(&[]))
        .await
        .refused(404, "ResourceNotFound", text);
    for action in ["enable", "disable", "reset"] {
        let path = format!("{CLIENT}/{action}");
        world
            .post(&path, json!({}))
            .await
            .refused(404, "ResourceNotFound", text);
    }
    world.delete(CLIENT).await.expect(204);
    assert_eq!(world.told().await, "");
});

on_sqlite_first!(a_reset_token_replaces_the_old_one_at_once, |world| {
    let made = world
        .put(CLIENT, body(&["auth:current-scopes"]))
        .await
        .expect(200);
    let old = Who::new("ci/one", made["accessToken"].as_str().unwrap());
    let current = "auth:/scopes/current";
    world.get(current).by(&old).await.expect(200);
    world.clock.advance_ms(1_000);
    let reset = world
        .post("auth:/clients/ci%2Fone/reset", json!({}))
        .await
        .expect(200);
    assert_eq!(reset["lastRotated"], "2026-09-21T14:13:21.000Z");
    let new = Who::new("ci/one", reset["accessToken"].as_str().unwrap());
    world.get(current).by(&new).await.expect(200);
    world
        .get(current)
        .by(&old)
        .await
        .refused_with(401, "AuthenticationFailed", "Bad mac");
});

on_sqlite_first!(a_deleted_client_has_no_access, |world| {
    let made = world
        .put(CLIENT, body(&["auth:current-scopes"]))
        .await
        .expect(200);
    let who = Who::new("ci/one", made["accessToken"].as_str().unwrap());
    world.get("auth:/scopes/current").by(&who).await.expect(200);
    world.events().await;
    world.delete(CLIENT).await.expect(204);
    assert_snapshot!(world.told().await, @r#"client-deleted _ {"clientId":"ci/one","version":1}"#);
    let answer = world.get("auth:/scopes/current").by(&who).await;
    answer.refused_with(401, "AuthenticationFailed", "not found");
});

on_sqlite_first!(static_clients_cannot_be_changed, |world| {
    let before = world.get("auth:/clients/static%2Froot").await.expect(200);
    assert_eq!(before["description"], "May do everything");
    assert!(before["expires"].as_str().unwrap() > "2900");
    for id in ["root", "new"] {
        let path = format!("auth:/clients/static%2F{id}");
        world
            .put(&path, body(&[]))
            .await
            .refused_with(400, "InputError", "static/");
        world
            .post(&path, body(&[]))
            .await
            .refused_with(400, "InputError", "static/");
        for action in ["enable", "disable", "reset"] {
            let path = format!("{path}/{action}");
            world
                .post(&path, json!({}))
                .await
                .refused_with(400, "InputError", "static/");
        }
        world
            .delete(&path)
            .await
            .refused_with(400, "InputError", "static/");
    }
    assert_eq!(
        world.get("auth:/clients/static%2Froot").await.expect(200),
        before
    );
});

on_both!(clients_are_listed_by_prefix, |world| {
    for id in ["b", "a/1", "a/2"] {
        world.client(id, &[]).await;
    }
    let ids = |listed: &Value| {
        let clients = listed["clients"].as_array().unwrap().iter();
        clients
            .map(|client| client["clientId"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let listed = world.get("auth:/clients/").await.expect(200);
    let all = [
        "a/1",
        "a/2",
        "b",
        "static/root",
        "static/taskcluster/queue",
        "static/taskcluster/worker-manager",
    ];
    assert_eq!(ids(&listed), all);
    let listed = world.get("auth:/clients/?prefix=a%2F").await.expect(200);
    assert_eq!(ids(&listed), ["a/1", "a/2"]);
    let listed = world.get("auth:/clients/?prefix=").await.expect(200);
    assert_eq!(ids(&listed), all);
    let listed = world.get("auth:/clients/?prefix=%25").await.expect(200);
    assert_eq!(ids(&listed), Vec::<String>::new());
});

on_both!(changes_of_a_client_and_by_it_can_be_read, |world| {
    let editor = world.client("editor", &["auth:*"]).await;
    world.put(CLIENT, body(&[])).by(&editor).await.expect(200);
    world.post(CLIENT, body(&[])).by(&editor).await.expect(200);
    for action in ["disable", "enable", "reset"] {
        world
            .post(&format!("{CLIENT}/{action}"), json!({}))
            .by(&editor)
            .await
            .expect(200);
    }
    world.delete(CLIENT).by(&editor).await.expect(204);
    let expected = [
        "created", "updated", "disabled", "enabled", "reset", "deleted",
    ];
    for path in ["auth:/audit/client/ci%2Fone", "auth:/clients/editor/audit"] {
        let history = world.get(path).await.expect(200);
        let entries = history["auditHistory"].as_array().unwrap();
        let actions: Vec<_> = entries.iter().map(|entry| &entry["actionType"]).collect();
        assert_eq!(actions, expected);
        assert!(entries.iter().all(|entry| entry["clientId"] == "editor"));
        assert!(entries.iter().all(|entry| entry["entityId"] == "ci/one"));
    }
});

on_sqlite_first!(only_some_things_have_a_history, |world| {
    for kind in ["client", "role", "secret", "hook", "worker-pool"] {
        let history = world
            .get(&format!("auth:/audit/{kind}/nosuch"))
            .await
            .expect(200);
        assert_eq!(history, json!({"auditHistory": []}));
    }
    let answer = world.get("auth:/audit/moon/full").await;
    answer.refused_with(400, "InputError", "history");
    let reader = world.client("reader", &["auth:audit-history:client"]).await;
    world
        .get("auth:/audit/client/x")
        .by(&reader)
        .await
        .expect(200);
    let answer = world.get("auth:/audit/role/x").by(&reader).await;
    answer.refused_with(403, "InsufficientScopes", "auth:audit-history:role");
});

async fn secrets(world: &World) -> Vec<String> {
    let made = world.put(CLIENT, body(&["a"])).await.expect(200);
    let first = made["accessToken"].as_str().unwrap().to_owned();
    let who = Who::new("ci/one", &first);
    world
        .get("/providers")
        .by(&who)
        .await
        .refused_with(403, "InsufficientScopes", "ci/one");
    let reset = world
        .post("auth:/clients/ci%2Fone/reset", json!({}))
        .await
        .expect(200);
    vec![first, reset["accessToken"].as_str().unwrap().to_owned()]
}

on_both!(tokens_are_neither_in_the_database_nor_in_the_log, |world| {
    let mut secrets = secrets(world).await;
    secrets.push(world.root().token.expose().to_owned());
    let (log, bytes) = (world.log.text(), world.database.bytes().unwrap_or_default());
    // The search works: the ids are found in clear text.
    assert!(bytes.is_empty() || bytes.windows(6).any(|window| window == b"ci/one"));
    for secret in &secrets {
        assert!(
            !bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        );
        assert!(!log.contains(secret.as_str()));
    }
    for path in [CLIENT, "auth:/clients/", "auth:/audit/client/ci%2Fone"] {
        let text = world.get(path).await.text;
        assert!(
            secrets.iter().all(|secret| !text.contains(secret.as_str())),
            "{path}"
        );
    }
});

on_sqlite_first!(dates_that_are_none_are_refused, |world| {
    for expires in [
        "tomorrow",
        "2027-01-01",
        "2027-13-01T00:00:00Z",
        "0000-00-00T00:00:00Z",
    ] {
        let mut wrong = body(&[]);
        wrong["expires"] = json!(expires);
        let answer = world.put(CLIENT, wrong).await;
        assert_eq!(answer.status, 400, "{expires}: {}", answer.text);
    }
    let mut offset = body(&[]);
    offset["expires"] = json!("2027-01-01T02:00:00.1234+02:00");
    let made = world.put(CLIENT, offset).await.expect(200);
    assert_eq!(made["expires"], "2027-01-01T00:00:00.123Z");
});

async fn source_of_change(world: &World, id: &str, forwarded: &str) -> String {
    let ask = world.put(&format!("auth:/clients/{id}"), body(&[]));
    ask.header("x-forwarded-for", forwarded).await.expect(200);
    let id = id.to_owned();
    let read = move |tx: &mut store::Tx<'_>| {
        store::audit::by_entity(tx, domain::audit::EntityType::Client, &id, None, 1)
    };
    let (_, entry) = world.read(read).await.remove(0);
    assert!(entry.request_id.is_some());
    entry.source_ip.unwrap()
}

on_sqlite_first!(where_a_change_came_from_is_written_down, |world| {
    // Anybody can write this header.
    assert_eq!(
        source_of_change(world, "a", "198.51.100.1").await,
        "192.0.2.7"
    );
});

on_sqlite_first!(
    only_entries_of_trusted_proxies_count,
    |config| { config.server.trusted_proxies = 2 },
    |world| {
        for (client, forwarded, source) in [
            ("a", "203.0.113.66, 198.51.100.1, 10.0.0.1", "198.51.100.1"),
            ("b", "198.51.100.1,10.0.0.1", "198.51.100.1"),
            ("c", "203.0.113.66, 2001:db8::1 , 10.0.0.1", "2001:db8::1"),
            // Fewer entries than proxies, or none that is an address: nothing is believed.
            ("d", "203.0.113.66", "192.0.2.7"),
            ("e", "203.0.113.66, nonsense, 10.0.0.1", "192.0.2.7"),
            ("f", "", "192.0.2.7"),
        ] {
            let found = source_of_change(world, client, forwarded).await;
            assert_eq!(found, source, "{forwarded}");
        }
    }
);
