//! Signed requests and signed URLs: which are accepted, and the texts of refusals.

use http::Method;
use serde_json::json;

use crate::ask::{Answer, Who};
use crate::database::{Database, assert_snapshot, on_sqlite_first};
use crate::samples::static_pool;
use crate::world::{START_MS, World};

const NOW_S: i64 = START_MS / 1_000;
const PATH: &str = "/providers";

/// Asserts a 401 with its header and this text.
#[track_caller]
fn unauthorized(answer: Answer, text: &str) {
    assert_eq!(answer.header("www-authenticate"), "hawk", "{}", answer.text);
    answer.refused(401, "AuthenticationFailed", text);
}

on_sqlite_first!(a_signed_request_is_believed, |world| {
    world.get(PATH).await.expect(200);
    world.get("/providers?limit=1").await.expect(200);
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    // A payload hash is checked if it is there, and need not be.
    let ask = world.put("/worker-pool/pp%2Fee", static_pool());
    let header = ask.signature_with(&world.root(), NOW_S, None);
    ask.authorization(&header).await.expect(200);
    // Some clients hash the body that a request does not have.
    let nothing = access::hawk::payload_hash("", b"");
    let header = world
        .get(PATH)
        .signature_with(&world.root(), NOW_S, Some(&nothing));
    world.get(PATH).authorization(&header).await.expect(200);
    let empty = world.ask(Method::GET, PATH).body("application/json", "");
    empty.await.expect(200);
});

on_sqlite_first!(each_bad_header_has_its_text, |world| {
    let good = world.get(PATH).signature(&world.root());
    let replaced = |from: &str, to: &str| good.replace(from, to);
    let mut told = Vec::new();
    for header in [
        replaced("mac=\"", "mac=\"A"),
        replaced("n0nce", "other"),
        replaced("nonce=\"n0nce\", ", ""),
        replaced("ts=\"", "tz=\""),
        replaced("ts=\"1", "ts=\"x"),
        replaced("ts=\"1", "ts=\"99999999999999999999"),
        good.clone() + ", id=\"static/root\"",
        replaced("static/root", "sta\\tic"),
        replaced("static/root", ""),
        "Hawk".to_owned(),
        "Hawk ".to_owned(),
        "Basic abc=".to_owned(),
        "Bearer x".to_owned(),
        format!("Hawk id=\"{}\"", "x".repeat(4096)),
    ] {
        let answer = world.get(PATH).authorization(&header).await;
        assert_eq!(answer.status, 401, "{header}");
        let message = answer.body()["message"].as_str().unwrap().to_owned();
        let text = message.split("\n\n---").next().unwrap();
        told.push(format!(
            "{} → {text}",
            header.chars().take(60).collect::<String>()
        ));
    }
    assert_snapshot!(told.join("\n"), @r#"
    Hawk id="static/root", ts="1790000000", nonce="n0nce", mac=" → Unauthorized: Bad mac
    Hawk id="static/root", ts="1790000000", nonce="other", mac=" → Unauthorized: Bad mac
    Hawk id="static/root", ts="1790000000", mac="gDFK9iprUt9aF7C → Bad Request: Missing attributes
    Hawk id="static/root", tz="1790000000", nonce="n0nce", mac=" → Bad Request: Unknown attribute: tz
    Hawk id="static/root", ts="x790000000", nonce="n0nce", mac=" → Bad Request: Bad attribute value: ts
    Hawk id="static/root", ts="99999999999999999999790000000", n → Bad Request: Bad attribute value: ts
    Hawk id="static/root", ts="1790000000", nonce="n0nce", mac=" → Bad Request: Duplicate attribute: id
    Hawk id="sta\tic", ts="1790000000", nonce="n0nce", mac="gDFK → Bad Request: Bad header format
    Hawk id="", ts="1790000000", nonce="n0nce", mac="gDFK9iprUt9 → Bad Request: Missing attributes
    Hawk → Bad Request: Missing attributes
    Hawk  → Bad Request: Missing attributes
    Basic abc= → Unauthorized: Unsupported authentication scheme
    Bearer x → Unauthorized: Unsupported authentication scheme
    Hawk id="xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx → Bad Request: Header length too long
    "#);
    let lower = replaced("Hawk ", "hawk ");
    world.get(PATH).authorization(&lower).await.expect(200);
});

on_sqlite_first!(
    a_request_signed_for_something_else_is_not_believed,
    |world| {
        let root = world.root();
        let header = world.get(PATH).signature(&root);
        let elsewhere = world.get("/worker-pools").authorization(&header).await;
        unauthorized(elsewhere, "Unauthorized: Bad mac");
        let other_method = world.ask(Method::DELETE, PATH).signature(&root);
        unauthorized(
            world.get(PATH).authorization(&other_method).await,
            "Unauthorized: Bad mac",
        );
        let query = world.get("/providers?limit=1").authorization(&header).await;
        unauthorized(query, "Unauthorized: Bad mac");
        let host = world
            .get(PATH)
            .authorization(&header)
            .header("host", "evil.example.com")
            .await;
        unauthorized(host, "Unauthorized: Bad mac");
    }
);

/// A request that is signed for this port and has these headers.
async fn signed_for(world: &World, port: u16, headers: &[(&str, &str)]) -> Answer {
    let mut ask = world.get(PATH);
    ask.port = port;
    if let Some((_, host)) = headers.iter().find(|(name, _)| *name == "host") {
        let (name, _) = host.rsplit_once(':').unwrap_or((host, ""));
        ask.host = name.to_lowercase();
    }
    let header = ask.signature(&world.root());
    let ask = ask.authorization(&header);
    let ask = headers
        .iter()
        .fold(ask, |ask, (name, value)| ask.header(name, value));
    ask.await
}

#[tokio::test]
async fn a_trusted_proxy_knows_the_port_that_the_client_saw_and_nobody_else() {
    let https = ("x-forwarded-proto", "https");
    let port = ("x-forwarded-port", "4430");
    for (host, headers, client_port) in [
        ("fleet.example.com", vec![], 80),
        ("FLEET.example.com", vec![], 80),
        ("fleet.example.com:80", vec![https], 443),
        ("fleet.example.com", vec![port, https], 4430),
        ("fleet.example.com", vec![("x-forwarded-proto", "http")], 80),
    ] {
        for n_proxies in [0, 1] {
            let world = World::open(Database::sqlite(), |config| {
                config.server.trusted_proxies = n_proxies;
                config.root_url_aliases = vec![
                    "https://fleet.example.com".to_owned(),
                    "https://fleet.example.com:4430".to_owned(),
                ];
            })
            .await;
            let mut headers = headers.clone();
            headers.push(("host", host));
            let answer = signed_for(&world, client_port, &headers).await;
            let is_right = n_proxies > 0 || client_port == 80;
            let expected = if is_right { 200 } else { 401 };
            assert_eq!(answer.status, expected, "{host} {client_port} {n_proxies}");
        }
    }
}

#[tokio::test]
async fn a_request_that_was_signed_for_another_server_is_refused_whoever_sends_it_here() {
    let world = World::open(Database::sqlite(), |config| {
        config.root_url_aliases = vec!["http://old.example:81".to_owned()];
    })
    .await;
    for (host, port, expected) in [
        ("fleet.example.com", 80, 200),
        ("old.example:81", 81, 200),
        ("localhost:8080", 8080, 200),
        ("127.0.0.1:8080", 8080, 200),
        ("[::1]:8080", 8080, 200),
        ("evil.example:1234", 1234, 401),
        ("fleet.example.com:8080", 8080, 401),
        ("localhost:8081", 8081, 401),
    ] {
        let answer = signed_for(&world, port, &[("host", host)]).await;
        assert_eq!(answer.status, expected, "{host}: {}", answer.text);
        if expected == 401 {
            let text = format!(
                "Unauthorized: this request was signed for {host}, which is not a host of this \
                 server. Use the root URL http://fleet.example.com. If {host} is right, its \
                 operator adds it to `root_url_aliases`"
            );
            answer.refused(401, "AuthenticationFailed", &text);
        }
    }
    // A signed URL, too; and without credentials the host does not matter.
    let mut ask = world.get(PATH);
    ask.host = "evil.example".to_owned();
    let until = world.now().as_millis() / 1_000 + 60;
    ask.by_bewit(&world.root(), until).await.refused_with(
        401,
        "AuthenticationFailed",
        "signed for evil.example:80",
    );
    let ping = world.get("/ping").anonymously();
    ping.header("host", "evil.example").await.expect(200);
}

on_sqlite_first!(a_quarter_of_an_hour_of_clock_skew_is_forgiven, |world| {
    let root = world.root();
    let at = |seconds| world.get(PATH).signature_with(&root, NOW_S + seconds, None);
    for seconds in [-15 * 60, 0, 15 * 60] {
        assert_eq!(
            world.get(PATH).authorization(&at(seconds)).await.status,
            200,
            "{seconds}"
        );
    }
    for seconds in [-15 * 60 - 1, 15 * 60 + 1] {
        let answer = world.get(PATH).authorization(&at(seconds)).await;
        unauthorized(answer, "Unauthorized: Stale timestamp");
    }
    // Nonces are not stored: the same request again is valid until its time has passed.
    let header = at(0);
    world.get(PATH).authorization(&header).await.expect(200);
    world.get(PATH).authorization(&header).await.expect(200);
    world.clock.advance_ms(15 * 60_000 + 1_000);
    unauthorized(
        world.get(PATH).authorization(&header).await,
        "Unauthorized: Stale timestamp",
    );
});

on_sqlite_first!(a_body_that_is_not_the_signed_one_is_refused, |world| {
    let signed = world.put("/worker-pool/pp%2Fee", static_pool());
    let header = signed.signature(&world.root());
    let sent = world.put("/worker-pool/pp%2Fee", json!({"another": "body"}));
    let answer = sent.authorization(&header).await;
    // The sender is authenticated first, also where the scopes depend on the body.
    answer.refused_with(401, "AuthenticationFailed", "Invalid payload hash: ");
    let mut other = static_pool();
    other["description"] = json!("not what was signed");
    let sent = world.put("/worker-pool/pp%2Fee", other);
    let answer = sent.authorization(&header).await;
    answer.refused_with(401, "AuthenticationFailed", "Invalid payload hash: ");
    let worker = world.put("/workers/pp%2Fee/g/w", json!({"a": 1}));
    let header = worker.signature(&world.root());
    let sent = world
        .put("/workers/pp%2Fee/g/w", json!({"a": 2}))
        .authorization(&header)
        .await;
    sent.refused_with(401, "AuthenticationFailed", "Invalid payload hash: ");
    let typed = world
        .ask(Method::PUT, "/workers/pp%2Fee/g/w")
        .body("text/plain", "{\"a\":1}");
    typed
        .authorization(&header)
        .await
        .refused_with(401, "AuthenticationFailed", "Invalid payload");
});

on_sqlite_first!(two_headers_are_none_that_anybody_understands, |world| {
    let header = world.get(PATH).signature(&world.root());
    let answer = world
        .get(PATH)
        .authorization(&header)
        .header("authorization", &header)
        .await;
    assert_eq!(answer.status, 401);
});

on_sqlite_first!(unknown_disabled_and_expired_clients_are_refused, |world| {
    let unknown = Who::new("nosuch", "x");
    let answer = world.get(PATH).by(&unknown).await;
    answer.refused_with(
        401,
        "AuthenticationFailed",
        "Client with clientId 'nosuch' not found",
    );
    let client = world.client("ci", &["worker-manager:list-providers"]).await;
    world.get(PATH).by(&client).await.expect(200);
    let no_body = json!({});
    world
        .post("auth:/clients/ci/disable", no_body.clone())
        .await
        .expect(200);
    let answer = world.get(PATH).by(&client).await;
    answer.refused_with(
        401,
        "AuthenticationFailed",
        "Client with clientId 'ci' is disabled",
    );
    world
        .post("auth:/clients/ci/enable", no_body)
        .await
        .expect(200);
    world.get(PATH).by(&client).await.expect(200);
    world.clock.advance_ms(31 * 86_400_000);
    let answer = world.get(PATH).by(&client).await;
    answer.refused_with(
        401,
        "AuthenticationFailed",
        "Client with clientId 'ci' has expired",
    );
});

on_sqlite_first!(a_signed_url_is_good_for_reading_until_its_time, |world| {
    let root = world.root();
    for path in ["/providers", "/providers?limit=1"] {
        world
            .get(path)
            .by_bewit(&root, NOW_S + 60)
            .await
            .expect(200);
        let head = world
            .ask(Method::HEAD, path)
            .by_bewit(&root, NOW_S + 60)
            .await;
        assert_eq!(head.status, 200);
    }
    let ask = world.get("/providers").by_bewit(&root, NOW_S + 60);
    let path = ask.path.replace("bewit=", "limit=1&bewit=");
    unauthorized(
        world.get(&format!("root:{path}")).anonymously().await,
        "Unauthorized: Bad mac",
    );
    let late = world.get(PATH).by_bewit(&root, NOW_S - 1).await;
    unauthorized(late, "Unauthorized: Access expired");
    let write = world
        .ask(Method::DELETE, "/worker-pool/pp%2Fee")
        .by_bewit(&root, NOW_S + 60);
    unauthorized(write.await, "Unauthorized: Invalid method");
    let empty = world.get("/providers?bewit=").anonymously().await;
    unauthorized(empty, "Unauthorized: Empty bewit");
    let garbage = world.get("/providers?bewit=%20").anonymously().await;
    assert_eq!(garbage.status, 401);
});

on_sqlite_first!(a_signed_url_may_be_limited_and_temporary, |world| {
    let list = "worker-manager:list-providers";
    let temporary = world
        .root()
        .temporary(None, &["worker-manager:*"], world.now());
    world
        .get(PATH)
        .by_bewit(&temporary, NOW_S + 60)
        .await
        .expect(200);
    let limited = world.root().limited_to(&[list]);
    world
        .get(PATH)
        .by_bewit(&limited, NOW_S + 60)
        .await
        .expect(200);
    let answer = world
        .get("/worker-pools")
        .by_bewit(&limited, NOW_S + 60)
        .await;
    answer.refused_with(
        403,
        "InsufficientScopes",
        "worker-manager:list-worker-pools",
    );
});

on_sqlite_first!(two_schemes_at_once_are_refused, |world| {
    let root = world.root();
    let ask = world.get(PATH).by_bewit(&root, NOW_S + 60);
    let header = world.get(PATH).signature(&root);
    let answer = ask.authorization(&header).await;
    let part = "Cannot use two authentication schemes at once";
    answer.refused_with(401, "AuthenticationFailed", part);
});

on_sqlite_first!(
    requests_without_credentials_have_the_scopes_of_the_anonymous_role,
    |world| {
        let refused = world.get(PATH).anonymously().await;
        refused.refused_with(
            403,
            "InsufficientScopes",
            "requires Taskcluster credentials",
        );
        let role = json!({"description": "", "scopes": ["worker-manager:list-providers"]});
        world.put("auth:/roles/anonymous", role).await.expect(200);
        world.get(PATH).anonymously().await.expect(200);
        // Those with credentials may do it as well, even limited to nothing.
        let nobody = world.client("nobody", &[]).await;
        world.get(PATH).by(&nobody).await.expect(200);
        world
            .get(PATH)
            .by(&world.root().limited_to(&[]))
            .await
            .expect(200);
        world.delete("auth:/roles/anonymous").await.expect(204);
        world
            .get(PATH)
            .anonymously()
            .await
            .refused_with(403, "InsufficientScopes", "requires");
    }
);

on_sqlite_first!(a_mac_over_the_path_only_is_refused, |world| {
    let header = world.get(PATH).signature(&world.root());
    let answer = world.get("/providers?limit=1").authorization(&header).await;
    unauthorized(answer, "Unauthorized: Bad mac");
});

on_sqlite_first!(
    a_mac_over_the_path_only_is_accepted_if_the_configuration_says_so,
    |config| { config.auth.accept_mac_over_path_only = true },
    |world| {
        let header = world.get(PATH).signature(&world.root());
        world
            .get("/providers?limit=1")
            .authorization(&header)
            .await
            .expect(200);
    }
);
