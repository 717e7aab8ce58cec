//! Every endpoint and the scopes that it needs: no endpoint can be added without a case.

use http::Method;
use serde_json::{Value, json};
use server::api::endpoint::{Endpoint, Service, Verb};
use server::api::endpoints;

use crate::ask::{Answer, Ask};
use crate::database::on_sqlite_first;
use crate::samples::{static_pool, static_worker};
use crate::world::World;

/// Open to everybody, on purpose.
const PUBLIC: [&str; 23] = [
    "fleetwright createSignInLink",
    "worker-manager ping",
    "worker-manager lbheartbeat",
    "worker-manager version",
    "worker-manager heartbeat",
    // The proof counts.
    "worker-manager registerWorker",
    "queue ping",
    "queue lbheartbeat",
    "queue version",
    "queue heartbeat",
    // The URL is signed.
    "fleetwright uploadFile",
    "fleetwright downloadFile",
    "purge-cache ping",
    "purge-cache lbheartbeat",
    "purge-cache version",
    "purge-cache heartbeat",
    "auth ping",
    "auth lbheartbeat",
    "auth version",
    "auth heartbeat",
    // They look at credentials, but for somebody else.
    "auth authenticateHawk",
    "auth testAuthenticate",
    "auth testAuthenticateGet",
];

/// One way to call an endpoint, and all scopes that it needs.
pub(crate) struct Case {
    endpoint: &'static str,
    path: &'static str,
    body: Value,
    scopes: &'static [&'static str],
}

pub(crate) fn case(
    endpoint: &'static str,
    path: &'static str,
    scopes: &'static [&'static str],
) -> Case {
    case_with(endpoint, path, Value::Null, scopes)
}

pub(crate) fn case_with(
    endpoint: &'static str,
    path: &'static str,
    body: Value,
    scopes: &'static [&'static str],
) -> Case {
    Case {
        endpoint,
        path,
        body,
        scopes,
    }
}

fn pool_cases() -> Vec<Case> {
    let manage: &[&str] = &[
        "worker-manager:manage-worker-pool:pp/ee",
        "worker-manager:provider:static",
    ];
    let report = json!({"kind": "k", "title": "t", "description": "d", "extra": {},
        "workerGroup": "g", "workerId": "w"});
    let pool = "/worker-pool/pp%2Fee";
    let get_pool: &[&str] = &["worker-manager:get-worker-pool:pp/ee"];
    vec![
        case(
            "listProviders",
            "/providers",
            &["worker-manager:list-providers"],
        ),
        case_with("createWorkerPool", pool, static_pool(), manage),
        case_with("updateWorkerPool", pool, static_pool(), manage),
        case_with(
            "planWorkerPool",
            "/plan-worker-pool/pp%2Fee",
            static_pool(),
            &[
                "worker-manager:get-worker-pool:pp/ee",
                "worker-manager:provider:static",
            ],
        ),
        case(
            "deleteWorkerPool",
            pool,
            &["worker-manager:manage-worker-pool:pp/ee"],
        ),
        case(
            "listWorkerPoolLaunchConfigs",
            "/worker-pool/pp%2Fee/launch-configs",
            get_pool,
        ),
        case("workerPoolStats", "/worker-pool/pp%2Fee/stats", get_pool),
        case("workerPool", pool, get_pool),
        case(
            "listWorkerPools",
            "/worker-pools",
            &["worker-manager:list-worker-pools"],
        ),
        case(
            "listWorkerPoolsStats",
            "/worker-pools/stats",
            &["worker-manager:list-worker-pools"],
        ),
        case_with(
            "reportWorkerError",
            "/worker-pool-errors/pp%2Fee",
            report,
            &["assume:worker-pool:pp/ee", "assume:worker-id:g/w"],
        ),
        case(
            "workerPoolErrorStats",
            "/worker-pool-errors/stats?workerPoolId=pp%2Fee",
            &["worker-manager:list-worker-pool-errors:pp/ee"],
        ),
        case(
            "workerPoolErrorStats",
            "/worker-pool-errors/stats",
            &["worker-manager:list-worker-pool-errors:*"],
        ),
        case(
            "listWorkerPoolErrors",
            "/worker-pool-errors/pp%2Fee",
            &["worker-manager:list-worker-pool-errors:pp/ee"],
        ),
    ]
}

/// In the order of the endpoints: the overrides exist before they are removed.
fn budget_cases() -> Vec<Case> {
    let body = |scope: &str, id: &str| json!({scope: id, "per": "day", "limit": 1});
    let of_pools: &[&str] = &[
        "worker-manager:manage-budget:b.pools",
        "worker-manager:manage-worker-pool:pp/*",
    ];
    let of_provider: &[&str] = &[
        "worker-manager:manage-budget:b.provider",
        "worker-manager:provider:static",
    ];
    let of_owner: &[&str] = &[
        "worker-manager:manage-budget:b.owner",
        "worker-manager:budget-of-owner:ann",
    ];
    let (pools, provider, owner) = ("/budget/b.pools", "/budget/b.provider", "/budget/b.owner");
    let set = |path, body, scopes| case_with("setBudget", path, body, scopes);
    vec![
        set(pools, body("workerPools", "pp/*"), of_pools),
        set(provider, body("providerId", "static"), of_provider),
        set(owner, body("owner", "ann"), of_owner),
        case("budget", pools, &["worker-manager:get-budget:b.pools"]),
        case("listBudgets", "/budgets", &["worker-manager:list-budgets"]),
        case("removeBudget", pools, of_pools),
        case("removeBudget", provider, of_provider),
        case("removeBudget", owner, of_owner),
    ]
}

fn override_cases() -> Vec<Case> {
    let pause = |target: &str, id: &str| json!({target: id, "pause": true, "reason": "r", "until": "2026-10-01T00:00:00Z"});
    let brief = json!({"reason": "r", "until": "2026-10-01T00:00:00Z"});
    let of_pool: &[&str] = &[
        "worker-manager:manage-override:o.pool",
        "worker-manager:manage-worker-pool:pp/ee",
    ];
    let of_provider: &[&str] = &[
        "worker-manager:manage-override:o.provider",
        "worker-manager:provider:static",
    ];
    let of_region: &[&str] = &[
        "worker-manager:manage-override:o.region",
        "worker-manager:region:us-east-1",
    ];
    let of_config: &[&str] = &[
        "worker-manager:manage-override:pause.pp.ee.lc",
        "worker-manager:manage-worker-pool:pp/ee",
    ];
    let (pool, provider, region) = (
        "/override/o.pool",
        "/override/o.provider",
        "/override/o.region",
    );
    let set = |path, body, scopes| case_with("setOverride", path, body, scopes);
    let to_pause = "/launch-config/pp%2Fee/lc/pause";
    let to_resume = "/launch-config/pp%2Fee/lc/resume";
    vec![
        set(pool, pause("workerPoolId", "pp/ee"), of_pool),
        set(provider, pause("providerId", "static"), of_provider),
        set(region, pause("region", "us-east-1"), of_region),
        case("override", pool, &["worker-manager:get-override:o.pool"]),
        case(
            "listOverrides",
            "/overrides",
            &["worker-manager:list-overrides"],
        ),
        case("removeOverride", pool, of_pool),
        case("removeOverride", provider, of_provider),
        case("removeOverride", region, of_region),
        case_with("pauseLaunchConfig", to_pause, brief, of_config),
        case("resumeLaunchConfig", to_resume, of_config),
    ]
}

fn worker_cases() -> Vec<Case> {
    let reregister = json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w",
        "secret": "x".repeat(44)});
    let worker = "/workers/pp%2Fee/g/w";
    vec![
        case(
            "listWorkersForWorkerGroup",
            "/workers/pp%2Fee/g",
            &["worker-manager:list-workers:pp/ee/g"],
        ),
        case("worker", worker, &["worker-manager:get-worker:pp/ee/g/w"]),
        case(
            "worker",
            "/workers/pp%2Fee:/g/w",
            &["worker-manager:get-worker:pp/ee/g/w"],
        ),
        case_with(
            "createWorker",
            worker,
            static_worker(),
            &["worker-manager:create-worker:pp/ee/g/w"],
        ),
        case_with(
            "updateWorker",
            worker,
            static_worker(),
            &["worker-manager:update-worker:pp/ee/g/w"],
        ),
        case(
            "removeWorker",
            worker,
            &["worker-manager:remove-worker:pp/ee/g/w"],
        ),
        case(
            "shouldWorkerTerminate",
            "/workers/pp%2Fee/g/w/should-terminate",
            &["worker-manager:should-worker-terminate:pp/ee/g/w"],
        ),
        case(
            "workerLaunchConfig",
            "/workers/pp%2Fee/g/w/launch-config",
            &["worker-manager:should-worker-terminate:pp/ee/g/w"],
        ),
        case(
            "listWorkersForWorkerPool",
            "/workers/pp%2Fee",
            &["worker-manager:list-workers:pp/ee"],
        ),
        case_with(
            "reregisterWorker",
            "/worker/reregister",
            reregister,
            &["worker-manager:reregister-worker:pp/ee/g/w"],
        ),
        case(
            "listWorkers",
            "/provisioners/pp/worker-types/ee/workers",
            &["worker-manager:list-workers:pp/ee"],
        ),
        case(
            "getWorker",
            "/provisioners/pp/worker-types/ee/workers/g/w",
            &["worker-manager:get-worker:pp/ee/g/w"],
        ),
    ]
}

fn launch_config_cases() -> Vec<Case> {
    let get_pool: &[&str] = &["worker-manager:get-worker-pool:pp/ee"];
    vec![
        case("getLaunchConfigs", "/launch-configs/pp%2Fee", get_pool),
        case("getLaunchConfig", "/launch-config/pp%2Fee/lc", get_pool),
        case(
            "launchConfigHealth",
            "/launch-config-health",
            &["worker-manager:list-worker-pools"],
        ),
    ]
}

fn state_cases() -> Vec<Case> {
    let of_pool: &[&str] = &["worker-manager:get-worker-state:pp/ee"];
    vec![
        case("workerState", "/worker-state/pp%2Fee/g/w", of_pool),
        case("workerPoolState", "/worker-state/pool/pp%2Fee", of_pool),
        case(
            "workerTypeState",
            "/worker-state/worker-type/ee",
            &["worker-manager:get-worker-state:worker-manager/ee"],
        ),
        case(
            "workerConfigurationState",
            "/worker-state/configuration/build",
            &["worker-manager:get-worker-configuration:build"],
        ),
    ]
}

fn client_cases() -> Vec<Case> {
    let client = json!({"expires": "2027-01-01T00:00:00.000Z", "description": "",
        "scopes": ["old", "a", "b"]});
    let new_client = "auth:/clients/new";
    vec![
        case("listClients", "auth:/clients/", &["auth:list-clients"]),
        case("client", "auth:/clients/ci", &["auth:get-client:ci"]),
        case_with(
            "createClient",
            new_client,
            client.clone(),
            &["auth:create-client:new", "old", "a", "b"],
        ),
        case(
            "getEntityHistory",
            "auth:/audit/client/ci",
            &["auth:audit-history:client"],
        ),
        case(
            "listAuditHistory",
            "auth:/clients/ci/audit",
            &["auth:client-audit-history:ci"],
        ),
        case(
            "resetAccessToken",
            "auth:/clients/ci/reset",
            &["auth:reset-access-token:ci"],
        ),
        case_with(
            "updateClient",
            "auth:/clients/ci",
            client,
            &["auth:update-client:ci", "a", "b"],
        ),
        case(
            "enableClient",
            "auth:/clients/ci/enable",
            &["auth:enable-client:ci"],
        ),
        case(
            "disableClient",
            "auth:/clients/ci/disable",
            &["auth:disable-client:ci"],
        ),
        case(
            "deleteClient",
            "auth:/clients/ci",
            &["auth:delete-client:ci"],
        ),
    ]
}

fn role_cases() -> Vec<Case> {
    let role = json!({"description": "", "scopes": ["old", "a", "b"]});
    let new_role = "auth:/roles/new";
    vec![
        case("listRoles", "auth:/roles/", &["auth:list-roles"]),
        case("listRoles2", "auth:/roles2/", &["auth:list-roles"]),
        case("listRoleIds", "auth:/roleids/", &["auth:list-roles"]),
        case("role", "auth:/roles/r", &["auth:get-role:r"]),
        case_with(
            "createRole",
            new_role,
            role.clone(),
            &["auth:create-role:new", "old", "a", "b"],
        ),
        case_with(
            "updateRole",
            "auth:/roles/r",
            role,
            &["auth:update-role:r", "a", "b"],
        ),
        case("deleteRole", "auth:/roles/r", &["auth:delete-role:r"]),
        case_with(
            "expandScopes",
            "auth:/scopes/expand",
            json!({"scopes": []}),
            &["auth:expand-scopes"],
        ),
        case(
            "currentScopes",
            "auth:/scopes/current",
            &["auth:current-scopes"],
        ),
    ]
}

fn event_cases() -> Vec<Case> {
    vec![
        case(
            "listenEvents",
            "fleetwright:/events?follow=false",
            &["fleetwright:listen-events"],
        ),
        case(
            "explainPool",
            "fleetwright:/explain/pool/pp%2Fee",
            &["fleetwright:explain:pp/ee"],
        ),
        case(
            "explainShadow",
            "fleetwright:/explain/shadow/pp%2Fee",
            &["fleetwright:explain:pp/ee"],
        ),
        case(
            "explainLaunchConfig",
            "fleetwright:/explain/launch-config/pp%2Fee/lc",
            &["fleetwright:explain:pp/ee"],
        ),
        case(
            "explainWorker",
            "fleetwright:/explain/worker/pp%2Fee/g/w",
            &["fleetwright:explain:pp/ee"],
        ),
        case("cost", "fleetwright:/cost", &["fleetwright:read-cost:all"]),
        case(
            "costOfPool",
            "fleetwright:/cost/pool/pp%2Fee",
            &["fleetwright:read-cost:pool:pp/ee"],
        ),
        case(
            "costOfProvider",
            "fleetwright:/cost/provider/static",
            &["fleetwright:read-cost:provider:static"],
        ),
        case(
            "costOfOwner",
            "fleetwright:/cost/owner/me%40example.com",
            &["fleetwright:read-cost:owner:me@example.com"],
        ),
        case(
            "explainTask",
            "fleetwright:/explain/task/00000001QACAAAAAAAAAAA",
            &["fleetwright:explain:pp/ee"],
        ),
        case(
            "readWaits",
            "fleetwright:/waits",
            &["fleetwright:read-waits"],
        ),
    ]
}

fn cases_of(endpoint: &Endpoint) -> Vec<Case> {
    let cases = match endpoint.service {
        Service::WorkerManager => vec![
            pool_cases(),
            worker_cases(),
            crate::relayed_hosts::cases(),
            launch_config_cases(),
            state_cases(),
            crate::configuration_authorization::whole_cases(),
            crate::configuration_authorization::rule_cases(),
            crate::documentation::cases(),
            override_cases(),
            crate::selected_workers::cases(),
            crate::take_over::cases(),
            budget_cases(),
        ],
        Service::Queue => vec![
            crate::queue_authorization::task_cases(),
            crate::queue_view_authorization::cases(),
        ],
        Service::PurgeCache => vec![crate::purge_cache::cases()],
        Service::Auth => vec![client_cases(), role_cases()],
        Service::Fleetwright => vec![
            event_cases(),
            crate::fleet_lists::cases(),
            crate::status::cases(),
            crate::images::cases(),
            crate::images_at_work::cases(),
            crate::what_if::cases(),
            crate::queue_view_authorization::log_cases(),
        ],
    };
    let own = cases.into_iter().flatten();
    own.filter(|case| case.endpoint == endpoint.name).collect()
}

fn ask(world: &World, endpoint: &Endpoint, case: &Case) -> Ask {
    let method = match endpoint.method {
        Verb::Get => Method::GET,
        Verb::Put => Method::PUT,
        Verb::Post => Method::POST,
        Verb::Delete => Method::DELETE,
    };
    let ask = world.ask(method, case.path);
    if case.body.is_null() {
        return ask;
    }
    ask.json(&case.body)
}

async fn ask_with(world: &World, endpoint: &Endpoint, case: &Case, scopes: &[&str]) -> Answer {
    let caller = world.root().temporary(None, scopes, world.now());
    ask(world, endpoint, case).by(&caller).await
}

async fn check(world: &World, endpoint: &Endpoint, case: &Case) {
    let name = endpoint.name;
    let refused = ask(world, endpoint, case).anonymously().await;
    assert_eq!(
        refused.status, 403,
        "{name} without credentials: {}",
        refused.text
    );
    let reached = refused.body()["requestInfo"]["method"]
        .as_str()
        .unwrap()
        .to_owned();
    let alias = endpoint.alias.map(|alias| alias.name);
    assert!(
        reached == name || Some(reached.as_str()) == alias,
        "{reached} is not {name}"
    );
    let forged = "Hawk id=\"static/root\", ts=\"1790000000\", nonce=\"n\", mac=\"AAAA\"";
    let refused = ask(world, endpoint, case).authorization(forged).await;
    assert_eq!(
        refused.status, 401,
        "{name} with bad credentials: {}",
        refused.text
    );
    for missing in case.scopes {
        let held: Vec<&str> = case
            .scopes
            .iter()
            .copied()
            .filter(|scope| scope != missing)
            .collect();
        let refused = ask_with(world, endpoint, case, &held).await;
        assert_eq!(
            refused.status, 403,
            "{name} without {missing}: {}",
            refused.text
        );
        // Similar scopes do not suffice either.
        let mut close = held;
        let almost = format!("{missing}x");
        close.push(&almost);
        let refused = ask_with(world, endpoint, case, &close).await;
        assert_eq!(
            refused.status, 403,
            "{name} with {almost}: {}",
            refused.text
        );
    }
    let let_in = ask_with(world, endpoint, case, case.scopes).await;
    assert!(
        ![401, 403].contains(&let_in.status),
        "{name}: {}",
        let_in.text
    );
}

on_sqlite_first!(every_endpoint_lets_in_exactly_who_may_ask, |world| {
    world.client("ci", &["old"]).await;
    crate::queue_authorization::make_tasks(world).await;
    let role = json!({"description": "", "scopes": ["old"]});
    world.put("auth:/roles/r", role).await.expect(200);
    let mut public = Vec::new();
    for endpoint in endpoints() {
        let cases = cases_of(endpoint);
        if endpoint.scopes.is_none() {
            assert!(
                cases.is_empty(),
                "{} is public and has a case",
                endpoint.name
            );
            public.push(format!("{} {}", endpoint.service.as_str(), endpoint.name));
            continue;
        }
        assert!(!cases.is_empty(), "{} has no case", endpoint.name);
        for case in cases {
            check(world, endpoint, &case).await;
        }
    }
    let mut expected = PUBLIC.map(str::to_owned);
    expected.sort();
    public.sort();
    assert_eq!(public, expected);
});
