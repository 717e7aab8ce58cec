//! Roles and scopes: made, changed, expanded, refused.

use serde_json::{Value, json};

use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::world::World;

fn body(scopes: &[&str]) -> Value {
    json!({"description": "for tests", "scopes": scopes})
}

async fn role(world: &World, id: &str, scopes: &[&str]) -> Value {
    world
        .put(&format!("auth:/roles/{id}"), body(scopes))
        .await
        .expect(200)
}

async fn expand(world: &World, scopes: &[&str]) -> Vec<String> {
    let reply = world
        .post("auth:/scopes/expand", json!({ "scopes": scopes }))
        .await
        .expect(200);
    serde_json::from_value(reply["scopes"].clone()).unwrap()
}

on_sqlite_first!(a_made_role_is_shown_expanded, |world| {
    role(world, "inner", &["x"]).await;
    world.events().await;
    let made = role(world, "outer", &["b", "assume:inner", "a*", "ab"]).await;
    assert_snapshot!(format!("{made:#}"), @r#"
    {
      "created": "2026-09-21T14:13:20.000Z",
      "description": "for tests",
      "expandedScopes": [
        "a*",
        "b",
        "x"
      ],
      "lastModified": "2026-09-21T14:13:20.000Z",
      "roleId": "outer",
      "scopes": [
        "b",
        "assume:inner",
        "a*",
        "ab"
      ]
    }
    "#);
    assert_eq!(world.get("auth:/roles/outer").await.expect(200), made);
    assert_snapshot!(world.told().await, @r#"role-created _ {"roleId":"outer","version":1}"#);
    // The same again is a repeat, anything else is a conflict.
    world.clock.advance_ms(1_000);
    assert_eq!(
        role(world, "outer", &["b", "assume:inner", "a*", "ab"]).await,
        made
    );
    assert_eq!(world.told().await, "");
    let other = world.put("auth:/roles/outer", body(&["c"])).await;
    other.refused(409, "RequestConflict", "Role already exists");
});

on_sqlite_first!(creating_or_changing_a_role_needs_its_scopes, |world| {
    let scopes = ["auth:create-role:r", "auth:update-role:r", "a", "c"];
    let editor = world.client("editor", &scopes).await;
    let answer = world
        .put("auth:/roles/r", body(&["a", "b"]))
        .by(&editor)
        .await;
    answer.refused_with(403, "InsufficientScopes", "following scopes:\n\n```\nb\n");
    world
        .put("auth:/roles/r", body(&["a", "b"]))
        .await
        .expect(200);
    let updated = world
        .post("auth:/roles/r", body(&["b", "c"]))
        .by(&editor)
        .await
        .expect(200);
    assert_eq!(updated["scopes"], json!(["b", "c"]));
    let answer = world
        .post("auth:/roles/r", body(&["b", "d"]))
        .by(&editor)
        .await;
    answer.refused_with(403, "InsufficientScopes", "following scopes:\n\n```\nd\n");
    let answer = world.put("auth:/roles/other", body(&[])).by(&editor).await;
    answer.refused_with(403, "InsufficientScopes", "auth:create-role:other");
});

on_sqlite_first!(
    an_update_of_a_role_needs_only_the_scopes_that_it_adds,
    |world| {
        role(world, "inner", &["x:*"]).await;
        role(world, "r", &["a:*", "assume:inner"]).await;
        let editor = world.client("editor", &["auth:update-role:r"]).await;
        let update = |scopes: &[&str]| world.post("auth:/roles/r", body(scopes)).by(&editor);
        // By pattern, through another role, and what is there.
        update(&["a:*", "a:b", "assume:inner", "x:y"])
            .await
            .expect(200);
        for (scopes, missing) in [
            (["a:*", "b"], "b"),
            (["a:*", "a*"], "a*"),
            (["a:*", "assume:other"], "assume:other"),
        ] {
            let refused = update(&scopes).await;
            let text = format!("following scopes:\n\n```\n{missing}\n");
            refused.refused_with(403, "InsufficientScopes", &text);
        }
        // Scopes that it satisfied only through the role that it leaves must be held from then on.
        update(&["a:*"]).await.expect(200);
        let refused = update(&["a:*", "x:y"]).await;
        refused.refused_with(403, "InsufficientScopes", "x:y");
    }
);

on_both!(a_changed_role_counts_at_once, |world| {
    let scope = "worker-manager:list-providers";
    role(world, "r", &[]).await;
    let client = world.client("ci", &["assume:r"]).await;
    let refused = world.get("/providers").by(&client).await;
    refused.refused_with(403, "InsufficientScopes", scope);
    world.events().await;
    world.clock.advance_ms(5);
    let updated = world
        .post("auth:/roles/r", body(&[scope]))
        .await
        .expect(200);
    assert_eq!(updated["created"], "2026-09-21T14:13:20.000Z");
    assert_eq!(updated["lastModified"], "2026-09-21T14:13:20.005Z");
    world.get("/providers").by(&client).await.expect(200);
    world.delete("auth:/roles/r").await.expect(204);
    let refused = world.get("/providers").by(&client).await;
    refused.refused_with(403, "InsufficientScopes", scope);
    assert_snapshot!(world.told().await, @r#"
    role-updated _ {"roleId":"r","version":1}
    role-deleted _ {"roleId":"r","version":1}
    "#);
});

on_sqlite_first!(missing_roles_are_not_found_but_may_be_deleted, |world| {
    let text = "Role not found";
    world
        .get("auth:/roles/r")
        .await
        .refused(404, "ResourceNotFound", text);
    world
        .post("auth:/roles/r", body(&[]))
        .await
        .refused(404, "ResourceNotFound", text);
    world.delete("auth:/roles/r").await.expect(204);
    assert_eq!(world.told().await, "");
});

on_sqlite_first!(roles_with_a_parameter_are_filled_in, |world| {
    role(world, "repo:*", &["read:<..>", "assume:project:<..>/x"]).await;
    role(world, "project:*", &["of:<..>"]).await;
    assert_eq!(
        expand(world, &["assume:repo:a/b"]).await,
        [
            "assume:project:a/b/x",
            "assume:repo:a/b",
            "of:a/b/x",
            "read:a/b"
        ]
    );
    assert_eq!(
        expand(world, &["assume:repo:a*"]).await,
        ["assume:project:a*", "assume:repo:a*", "of:a*", "read:a*"]
    );
    assert_eq!(expand(world, &["*"]).await, ["*"]);
    assert_eq!(expand(world, &["b", "c*", "cd"]).await, ["b", "c*"]);
    // This star covers every role there is.
    assert_eq!(expand(world, &["a*"]).await, ["a*", "of:*", "read:*"]);
});

on_sqlite_first!(endless_and_invalid_roles_are_refused, |world| {
    role(world, "a:*", &["assume:b:<..>"]).await;
    for (id, scopes) in [
        ("b:*", vec!["assume:a:x<..>"]),
        ("r", vec!["x**"]),
        ("r", vec!["x<..>"]),
        ("r*", vec!["x<..>y<..>"]),
        ("r*", vec!["x*<..>"]),
    ] {
        let path = format!("auth:/roles/{id}");
        let answer = world.put(&path, body(&scopes)).await;
        assert_eq!(answer.status, 400, "{id} {scopes:?}: {}", answer.text);
        assert_eq!(answer.body()["code"], "InputError");
    }
    role(world, "b:*", &[]).await;
    let answer = world
        .post("auth:/roles/b:*", body(&["assume:a:x<..>"]))
        .await;
    answer.refused_with(400, "InputError", "");
    // Roles without parameters may go round in circles: that ends.
    role(world, "x", &["assume:y", "1"]).await;
    role(world, "y", &["assume:x", "2"]).await;
    assert_eq!(
        expand(world, &["assume:x"]).await,
        ["1", "2", "assume:x", "assume:y"]
    );
});

on_both!(roles_are_listed_in_three_ways, |world| {
    for id in ["b", "a"] {
        role(world, id, &["s"]).await;
    }
    let all = world.get("auth:/roles/").await.expect(200);
    let (a, b) = (
        world.get("auth:/roles/a").await.expect(200),
        world.get("auth:/roles/b").await.expect(200),
    );
    assert_eq!(all, json!([a, b]));
    assert_eq!(
        world.get("auth:/roles2/").await.expect(200),
        json!({ "roles": all })
    );
    assert_eq!(
        world.get("auth:/roleids/").await.expect(200),
        json!({"roleIds": ["a", "b"]})
    );
});

on_sqlite_first!(
    everybody_may_ask_for_its_own_scopes_if_it_may_ask,
    |world| {
        role(world, "anonymous", &["anybody"]).await;
        role(world, "r", &["through-a-role"]).await;
        let client = world
            .client("ci", &["assume:r", "auth:current-scopes"])
            .await;
        let current = world
            .get("auth:/scopes/current")
            .by(&client)
            .await
            .expect(200);
        let expected = json!({"scopes": ["anybody", "assume:anonymous", "assume:r",
        "auth:current-scopes", "through-a-role"]});
        assert_eq!(current, expected);
    }
);

on_both!(changes_of_a_role_are_in_its_history, |world| {
    role(world, "r:*", &[]).await;
    world
        .post("auth:/roles/r:*", body(&["s"]))
        .await
        .expect(200);
    world.delete("auth:/roles/r:*").await.expect(204);
    let history = world.get("auth:/audit/role/r:*").await.expect(200);
    let entries = history["auditHistory"].as_array().unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| &entry["actionType"]).collect();
    assert_eq!(actions, ["created", "updated", "deleted"]);
});

on_both!(
    roles_of_a_database_that_was_restored_count_at_once,
    |world| {
        let clerk = world.client("clerk", &["assume:clerk"]).await;
        let role = json!({"description": "", "scopes": ["worker-manager:list-providers"]});
        world.put("auth:/roles/clerk", role).await.expect(200);
        world.get("/providers").by(&clerk).await.expect(200);
        // As from a backup of the time before: the role is not there, and the number is smaller.
        world.database.raw(
            "DELETE FROM roles WHERE role_id = 'clerk'; \
         UPDATE revisions SET value = value - 1 WHERE name = 'access'",
        );
        world.clock.advance_ms(1_000);
        let refused = world.get("/providers").by(&clerk).await;
        refused.refused_with(403, "InsufficientScopes", "worker-manager:list-providers");
    }
);

on_both!(a_change_of_a_role_reads_no_other_role_again, |world| {
    let mut n_rows = Vec::new();
    for number in 0..300 {
        let path = format!("auth:/roles/r{number}");
        let asked = world.put(&path, body(&["x"]));
        let (made, counts) = world.counted(asked.into_future()).await;
        made.expect(200);
        n_rows.push(counts.all_rows());
        if number % 100 == 50 {
            let asked = world.post(&path, body(&["y"]));
            let (made, counts) = world.counted(asked.into_future()).await;
            made.expect(200);
            assert!(counts.all_rows() < 30, "{counts:?}");
        }
    }
    let (first, last) = (n_rows[1], n_rows[299]);
    assert!(last <= first + 5, "{first} rows at first, {last} at last");
    assert_eq!(expand(world, &["assume:r150"]).await, ["assume:r150", "y"]);
    assert_eq!(expand(world, &["assume:r299"]).await, ["assume:r299", "x"]);
});
