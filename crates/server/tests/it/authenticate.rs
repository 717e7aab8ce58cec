//! Authentication for other services and for authors of clients.

use access::Secret;
use access::hawk::{RequestLine, sign_bewit, sign_header};
use domain::time::HOUR_MS;
use serde_json::{Value, json};

use crate::ask::Who;
use crate::database::{assert_snapshot, on_sqlite_first};
use crate::world::{START_MS, World};

const LINE: RequestLine<'static> = RequestLine {
    method: "GET",
    resource: "/path?q=1",
    host: "queue.example.com",
    port: 443,
};

fn question(authorization: Option<&str>) -> Value {
    let mut question = json!({"method": "get", "resource": LINE.resource, "host": LINE.host,
        "port": LINE.port, "sourceIp": "192.0.2.1"});
    if let Some(header) = authorization {
        question["authorization"] = json!(header);
    }
    question
}

fn signed(id: &str, token: &Secret, hash: Option<&str>, ext: Option<&str>) -> String {
    sign_header(&LINE, id, token, START_MS / 1_000, "n", hash, ext)
}

async fn ask(world: &World, question: Value) -> Value {
    world
        .post("auth:/authenticate-hawk", question)
        .anonymously()
        .await
        .expect(200)
}

on_sqlite_first!(
    the_signer_of_a_request_is_reported_with_its_scopes,
    |world| {
        let role = json!({"description": "", "scopes": ["anybody"]});
        world.put("auth:/roles/anonymous", role).await.expect(200);
        let client = world.client("ci", &["a", "b*"]).await;
        let told = ask(
            world,
            question(Some(&signed("ci", &client.token, Some("aGFzaA=="), None))),
        )
        .await;
        assert_snapshot!(format!("{told:#}"), @r#"
    {
      "clientId": "ci",
      "expires": "2026-10-21T14:13:20.000Z",
      "hash": "aGFzaA==",
      "scheme": "hawk",
      "scopes": [
        "a",
        "anybody",
        "assume:anonymous",
        "b*"
      ],
      "status": "auth-success"
    }
    "#);
        let told = ask(
            world,
            question(Some(&signed("ci", &client.token, None, None))),
        )
        .await;
        assert_eq!(told.get("hash"), None);
        // Temporary credentials end no later than their certificate says.
        let temporary = client.temporary(Some("x"), &["a"], world.now());
        let ext = temporary.ext();
        let refused = ask(
            world,
            question(Some(&signed("x", &temporary.token, None, ext.as_deref()))),
        )
        .await;
        assert_eq!(refused["status"], "auth-failed");
        let temporary = client.temporary(None, &["a"], world.now());
        let ext = temporary.ext();
        let told = ask(
            world,
            question(Some(&signed("ci", &temporary.token, None, ext.as_deref()))),
        )
        .await;
        assert_eq!(
            told["expires"],
            world.now().plus_millis(HOUR_MS).to_string()
        );
        assert_eq!(told["scopes"], json!(["a", "anybody", "assume:anonymous"]));
    }
);

on_sqlite_first!(a_signed_url_is_answered_as_a_signed_request, |world| {
    let root = world.root();
    let bewit = sign_bewit(
        &LINE,
        &root.client_id,
        &root.token,
        START_MS / 1_000 + 60,
        None,
    );
    let mut asked = question(None);
    asked["resource"] = json!(format!("{}&bewit={bewit}", LINE.resource));
    let told = ask(world, asked).await;
    assert_eq!(
        (&told["status"], &told["scheme"]),
        (&json!("auth-success"), &json!("hawk"))
    );
    assert_eq!(told["scopes"], json!(["*"]));
});

on_sqlite_first!(
    requests_without_credentials_have_the_anonymous_scopes,
    |world| {
        let told = ask(world, question(None)).await;
        assert_snapshot!(format!("{told:#}"), @r#"
    {
      "expires": "2026-09-21T14:28:20.000Z",
      "scheme": "none",
      "scopes": [
        "assume:anonymous"
      ],
      "status": "no-auth"
    }
    "#);
    }
);

on_sqlite_first!(an_invalid_signature_is_reported_with_status_200, |world| {
    let root = world.root();
    let stale = sign_header(
        &LINE,
        "static/root",
        &root.token,
        START_MS / 1_000 - 901,
        "n",
        None,
        None,
    );
    for (header, message) in [
        (
            signed("static/root", &Secret::new("guess"), None, None),
            "Unauthorized: Bad mac",
        ),
        (
            signed("nosuch", &root.token, None, None),
            "Client with clientId 'nosuch' not found",
        ),
        (stale, "Unauthorized: Stale timestamp"),
        ("Basic abc".to_owned(), "Unsupported authentication scheme"),
    ] {
        let told = ask(world, question(Some(&header))).await;
        assert_eq!(told["status"], "auth-failed", "{header}");
        let text = told["message"].as_str().unwrap();
        assert!(text.contains(message), "{text}");
    }
});

on_sqlite_first!(a_question_must_make_sense, |world| {
    for (name, value) in [
        ("method", json!("dance")),
        ("port", json!(70_000)),
        ("port", json!(-1)),
        ("host", json!("not a host")),
        ("surprise", json!(1)),
    ] {
        let mut wrong = question(None);
        wrong[name] = value;
        let answer = world
            .post("auth:/authenticate-hawk", wrong)
            .anonymously()
            .await;
        answer.refused_with(400, "InputValidationError", "Schema Validation Failed!");
    }
});

fn tester() -> Who {
    Who::new("tester", "no-secret")
}

on_sqlite_first!(clients_can_test_their_signatures, |world| {
    let body = json!({"clientScopes": ["test:a", "auth:create-client:test:*"],
        "requiredScopes": ["test:a"]});
    let path = "auth:/test-authenticate";
    let told = world
        .post(path, body.clone())
        .by(&tester())
        .await
        .expect(200);
    let scopes = json!(["assume:anonymous", "auth:create-client:test:*", "test:a"]);
    assert_eq!(told, json!({"clientId": "tester", "scopes": scopes}));
    // Certificates and limits count as everywhere.
    let named = tester().temporary(Some("test:me"), &["test:a"], world.now());
    let told = world.post(path, body.clone()).by(&named).await.expect(200);
    assert_eq!(
        told,
        json!({"clientId": "test:me", "scopes": ["assume:anonymous", "test:a"]})
    );
    let limited = tester().limited_to(&["auth:create-client:test:*"]);
    let answer = world.post(path, body.clone()).by(&limited).await;
    answer.refused_with(403, "InsufficientScopes", "test:a");
    let greedy = tester().temporary(None, &["test:b"], world.now());
    let answer = world.post(path, body.clone()).by(&greedy).await;
    answer.refused_with(401, "AuthenticationFailed", "ext.certificate");
    // No other client is known here, and no role is applied.
    let answer = world.post(path, body.clone()).await;
    answer.refused_with(401, "AuthenticationFailed", "static/root");
    let answer = world
        .post(path, body)
        .by(&Who::new("tester", "guess"))
        .await;
    answer.refused_with(401, "AuthenticationFailed", "Bad mac");
});

on_sqlite_first!(
    without_credentials_a_test_passes_if_it_needs_nothing,
    |world| {
        let path = "auth:/test-authenticate";
        let body = json!({"clientScopes": ["test:a"], "requiredScopes": []});
        let told = world.post(path, body).anonymously().await.expect(200);
        assert_eq!(
            told,
            json!({"clientId": "auth-failed:no-auth", "scopes": ["assume:anonymous"]})
        );
        let body = json!({"clientScopes": ["test:a"], "requiredScopes": ["test:a"]});
        let answer = world.post(path, body).anonymously().await;
        answer.refused_with(
            403,
            "InsufficientScopes",
            "requires Taskcluster credentials",
        );
    }
);

on_sqlite_first!(clients_can_test_their_reads_and_signed_urls, |world| {
    let path = "auth:/test-authenticate-get/";
    let told = world.get(path).by(&tester()).await.expect(200);
    let scopes = json!(["assume:anonymous", "auth:create-client:test:*", "test:*"]);
    assert_eq!(told, json!({"clientId": "tester", "scopes": scopes}));
    let by_url = world
        .get(path)
        .by_bewit(&tester(), START_MS / 1_000 + 60)
        .await
        .expect(200);
    assert_eq!(by_url, told);
    let answer = world.get(path).anonymously().await;
    answer.refused_with(403, "InsufficientScopes", "test:authenticate-get");
});
