//! The official Rust client against a running server, found through the TASKCLUSTER_ variables.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use taskcluster::{Auth, ClientBuilder, Credentials, Retry, WorkerManager, err_status_code};

const SECRET: &str = "StaticSecret0StaticSecret1StaticSecret2abcde";
const LIST: &str = "worker-manager:list-worker-pools";
const MAX_PAGES: usize = 100;

/// Nothing is retried: a 5xx must be seen.
fn anonymous() -> ClientBuilder {
    let root_url = std::env::var("TASKCLUSTER_ROOT_URL").expect("the server's root URL is set");
    ClientBuilder::new(root_url).retry(Retry {
        retries: 0,
        ..Retry::default()
    })
}

fn owner() -> Result<ClientBuilder> {
    Ok(anonymous().credentials(Credentials::from_env()?))
}

fn pool_definition(description: &str) -> Value {
    json!({
        "providerId": "static",
        "description": description,
        "owner": "ops@example.com",
        "emailOnError": false,
        "config": {"workerConfig": {"greeting": "hello"}},
    })
}

/// A time that stays ahead without a clock here.
const FAR_AHEAD: &str = "2999-01-01T00:00:00.000Z";

fn credentials_in(reply: &Value) -> Credentials {
    let text = |key: &str| {
        reply["credentials"][key]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    let certificate = text("certificate");
    Credentials::new_with_certificate(text("clientId"), text("accessToken"), certificate)
}

#[tokio::test]
#[ignore = "needs a server: see tests/interop/fleet_server.py"]
async fn a_pool_and_its_worker_live_through_their_whole_life() -> Result<()> {
    let fleet = WorkerManager::new(owner()?)?;
    let pool = "interop/rust";
    fleet
        .createWorkerPool(pool, &pool_definition("From Rust."))
        .await?;
    let changed = fleet
        .updateWorkerPool(pool, &pool_definition("Changed."))
        .await?;
    assert_eq!(changed["description"], "Changed.");

    let (group, id) = ("rack-1", "host-1");
    let worker = json!({"expires": FAR_AHEAD, "providerInfo": {"staticSecret": SECRET}});
    let created = fleet.createWorker(pool, group, id, &worker).await?;
    assert_eq!(created["state"], "running");

    let registration = json!({
        "workerPoolId": pool,
        "providerId": "static",
        "workerGroup": group,
        "workerId": id,
        "workerIdentityProof": {"staticSecret": SECRET},
    });
    let registered = WorkerManager::new(anonymous())?
        .registerWorker(&registration)
        .await?;
    assert_eq!(registered["workerConfig"], json!({"greeting": "hello"}));

    let itself = WorkerManager::new(anonymous().credentials(credentials_in(&registered)))?;
    let advice = itself.shouldWorkerTerminate(pool, group, id).await?;
    assert_eq!(advice, json!({"terminate": false, "reason": "none"}));
    let renewal = json!({
        "workerPoolId": pool,
        "workerGroup": group,
        "workerId": id,
        "secret": registered["secret"],
    });
    let renewed = itself.reregisterWorker(&renewal).await?;
    assert_ne!(renewed["secret"], registered["secret"]);

    fleet.removeWorker(pool, group, id).await?;
    assert_eq!(fleet.worker(pool, group, id).await?["state"], "stopped");
    assert_eq!(
        fleet.deleteWorkerPool(pool).await?["providerId"],
        "null-provider"
    );
    Ok(())
}

/// This client leaves the query out of what it signs, and our server is set to accept that.
#[tokio::test]
#[ignore = "needs a server: see tests/interop/fleet_server.py"]
async fn lists_are_paged_although_the_query_is_not_signed() -> Result<()> {
    let fleet = WorkerManager::new(owner()?)?;
    for pool in ["interop/page-1", "interop/page-2"] {
        fleet
            .createWorkerPool(pool, &pool_definition("To be listed."))
            .await?;
    }
    let mut seen = Vec::new();
    let mut token: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let page = fleet.listWorkerPools(token.as_deref(), Some("1")).await?;
        seen.push(page["workerPools"][0]["workerPoolId"].clone());
        token = page["continuationToken"].as_str().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    assert!(seen.contains(&json!("interop/page-1")) && seen.contains(&json!("interop/page-2")));
    Ok(())
}

#[tokio::test]
#[ignore = "needs a server: see tests/interop/fleet_server.py"]
async fn temporary_and_restricted_credentials_are_held_to_their_scopes() -> Result<()> {
    let hour = Duration::from_secs(3600);
    let held = Credentials::from_env()?.create_named_temp_creds("interop/rust", hour, [LIST])?;
    let fleet = WorkerManager::new(anonymous().credentials(held))?;
    fleet.listWorkerPools(None, None).await?;
    let refused = fleet
        .listProviders(None, None)
        .await
        .expect_err("a scope is missing");
    assert_eq!(
        err_status_code(&refused).map(|code| code.as_u16()),
        Some(403)
    );

    let restricted = WorkerManager::new(owner()?.authorized_scopes([LIST]))?;
    restricted.listWorkerPools(None, None).await?;
    assert!(restricted.listProviders(None, None).await.is_err());
    Ok(())
}

#[tokio::test]
#[ignore = "needs a server: see tests/interop/fleet_server.py"]
async fn a_client_and_a_role_live_through_their_whole_life() -> Result<()> {
    let auth = Auth::new(owner()?)?;
    let scopes = json!(["assume:interop-rust"]);
    let client = json!({"expires": FAR_AHEAD, "description": "From Rust.", "scopes": scopes});
    let created = auth.createClient("interop/rust-made", &client).await?;
    assert!(created["accessToken"].is_string());
    let role = json!({"description": "For its list.", "scopes": [LIST]});
    auth.createRole("interop-rust", &role).await?;
    let expanded = auth.expandScopes(&json!({"scopes": scopes})).await?;
    assert_eq!(expanded["scopes"], json!(["assume:interop-rust", LIST]));
    auth.deleteRole("interop-rust").await?;
    auth.deleteClient("interop/rust-made").await?;
    let missing = auth
        .client("interop/rust-made")
        .await
        .expect_err("it is deleted");
    assert_eq!(
        err_status_code(&missing).map(|code| code.as_u16()),
        Some(404)
    );
    Ok(())
}
