//! Clients and roles kept by another service: here a second server, on a loopback socket.
//!
//! The database has no part in this, so these tests run on SQLite only.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use server::config::OutsideAuth;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ask::Who;
use crate::database::Database;
use crate::samples::{STATIC_SECRET, static_pool, static_worker};
use crate::world::{START_MS, World};

/// A server that keeps clients and roles, and a server that uses it for authentication.
struct Two {
    // Dropped first: its log is the one that is captured.
    fleet: World,
    auth: World,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A server that uses the auth service at this address.
async fn asking(address: SocketAddr, token: access::Secret) -> World {
    let outside = OutsideAuth {
        root_url: format!("http://{address}/"),
        client_id: "static/taskcluster/worker-manager".to_owned(),
        access_token: Some(token),
        access_token_file: None,
    };
    World::open(Database::sqlite(), |config| {
        config.auth.static_clients.clear();
        config.auth.taskcluster = Some(outside);
    })
    .await
}

impl Two {
    async fn start() -> Self {
        let auth = World::open(Database::sqlite(), |_| {}).await;
        let (listener, address) = listen().await;
        let stop = CancellationToken::new();
        let serving = tokio::spawn(Arc::clone(&auth.server).serve(listener, stop.clone()));
        let fleet = asking(address, auth.app.engine.issuer.access_token.clone()).await;
        Self {
            fleet,
            auth,
            stop,
            serving,
        }
    }

    async fn stop_auth(&mut self) {
        self.stop.cancel();
        (&mut self.serving).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_of_the_other_service_has_the_same_scopes_here() {
    let two = Two::start().await;
    let client = two
        .auth
        .client("ci", &["worker-manager:list-providers"])
        .await;
    two.fleet
        .get("/providers?limit=1")
        .by(&client)
        .await
        .expect(200);
    let answer = two.fleet.get("/worker-pools").by(&client).await;
    answer.refused_with(403, "InsufficientScopes", "Client ID ci does not have");
    let answer = two.fleet.get("/worker-pools").anonymously().await;
    answer.refused_with(
        403,
        "InsufficientScopes",
        "requires Taskcluster credentials",
    );
    two.fleet
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    // The other service uses this name in its audit log.
    let by_url = two
        .fleet
        .get("/providers")
        .by_bewit(&client, START_MS / 1_000 + 60)
        .await;
    by_url.expect(200);
    two.fleet
        .ask(Method::HEAD, "/providers")
        .by(&client)
        .await
        .expect(200);
}

#[tokio::test]
async fn roles_and_anonymous_scopes_are_those_of_the_other_service() {
    let two = Two::start().await;
    let role = json!({"description": "", "scopes": ["worker-manager:list-providers"]});
    two.auth
        .put("auth:/roles/anonymous", role)
        .await
        .expect(200);
    two.fleet.get("/providers").anonymously().await.expect(200);
}

#[tokio::test]
async fn refusals_of_the_other_service_keep_their_text() {
    let two = Two::start().await;
    for (who, text) in [
        (
            Who::new("nosuch", "x"),
            "Client with clientId 'nosuch' not found",
        ),
        (Who::new("static/root", "x"), "Bad mac"),
    ] {
        let answer = two.fleet.get("/providers").by(&who).await;
        assert_eq!(answer.header("www-authenticate"), "hawk");
        answer.refused_with(401, "AuthenticationFailed", text);
    }
}

#[tokio::test]
async fn the_payload_hash_is_checked_here() {
    let two = Two::start().await;
    let signed = two.fleet.put("/workers/pp%2Fee/g/w", json!({"a": 1}));
    let header = signed.signature(&two.fleet.root());
    let sent = two
        .fleet
        .put("/workers/pp%2Fee/g/w", json!({"a": 2}))
        .authorization(&header);
    sent.await
        .refused_with(401, "AuthenticationFailed", "Invalid payload hash: ");
    let sent = two
        .fleet
        .put("/workers/pp%2Fee/g/w", json!({"a": 1}))
        .authorization(&header);
    sent.await.refused_with(400, "InputValidationError", "");
}

#[tokio::test]
async fn the_credentials_of_a_worker_are_good_for_the_other_service() {
    let two = Two::start().await;
    two.fleet
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    two.fleet
        .put("/workers/pp%2Fee/g/w", static_worker())
        .await
        .expect(200);
    let claim = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
        "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
    let registered = two
        .fleet
        .post("/worker/register", claim)
        .anonymously()
        .await
        .expect(200);
    let itself = Who::registered(&registered);
    let body = json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w",
        "secret": registered["secret"]});
    two.fleet
        .post("/worker/reregister", body)
        .by(&itself)
        .await
        .expect(200);
}

#[tokio::test]
async fn clients_and_roles_are_not_served_here() {
    let two = Two::start().await;
    for path in ["auth:/ping", "auth:/clients/", "auth:/roles/"] {
        let answer = two.fleet.get(path).await;
        answer.refused_with(
            404,
            "ResourceNotFound",
            "is not served here: this server uses the service of",
        );
    }
}

#[tokio::test]
async fn an_invalid_host_is_an_error_of_the_request() {
    let two = Two::start().await;
    for host in ["", "[::1]:80", "not a host", "ü.example.com"] {
        let header = two.fleet.get("/providers").signature(&two.fleet.root());
        let answer = two
            .fleet
            .get("/providers")
            .authorization(&header)
            .header("host", host)
            .await;
        assert_eq!(answer.status, 401, "{host}: {}", answer.text);
    }
}

#[tokio::test]
async fn without_the_other_service_requests_fail_and_the_log_says_why() {
    let mut two = Two::start().await;
    two.fleet.get("/providers").await.expect(200);
    two.stop_auth().await;
    two.fleet.errors_expected.set(true);
    two.auth.errors_expected.set(true);
    let answer = two.fleet.get("/providers").await;
    answer.refused_with(
        500,
        "InternalServerError",
        "The auth service cannot be asked",
    );
    assert_eq!(
        two.fleet.log.lines("the auth service did not answer").len(),
        1
    );
    // Calls that need no credentials still work.
    two.fleet.get("/ping").await.expect(200);
}

/// Answers every connection with this text.
async fn answer_all(listener: TcpListener, reply: String) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut buffer = [0; 8_192];
        let _ = stream.read(&mut buffer).await;
        let _ = stream.write_all(reply.as_bytes()).await;
    }
}

#[tokio::test]
async fn an_invalid_reply_of_the_other_service_is_an_error_and_admits_no_caller() {
    let good = json!({"status": "auth-success", "scheme": "hawk", "clientId": "c",
        "scopes": ["*"], "expires": "tomorrow"});
    for body in [
        Value::Null,
        json!({}),
        json!({"status": "auth-maybe"}),
        json!({"status": "auth-success"}),
        good,
    ] {
        for status in ["200 OK", "302 Found", "404 Not Found", "503 Unavailable"] {
            let (listener, address) = listen().await;
            let text = body.to_string();
            let reply = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nlocation: /\r\n\
                 connection: close\r\ncontent-length: {}\r\n\r\n{text}",
                text.len()
            );
            let answering = tokio::spawn(answer_all(listener, reply));
            let fleet = asking(address, access::Secret::new("x".repeat(44))).await;
            fleet.errors_expected.set(true);
            let answer = fleet.get("/providers").await;
            answer.refused_with(500, "InternalServerError", "The auth service");
            answering.abort();
        }
    }
}
