//! Every endpoint and the scopes that it needs: no endpoint can be added without a case.

use http::Method;
use serde_json::{Value, json};
use server::api::endpoint::{Endpoint, Service, Verb};
use server::api::endpoints;

use crate::ask::{Answer, Ask};
use crate::database::on_sqlite_first;
use crate::world::World;

/// Open to everybody, on purpose.
const PUBLIC: [&str; 27] = [
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
    "secrets ping",
    "secrets lbheartbeat",
    "secrets version",
    "secrets heartbeat",
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
        case(
            "workerLog",
            "fleetwright:/worker-log/pp%2Fee/g/w",
            &["fleetwright:read-worker-log:pp/ee"],
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
            crate::fleet_authorization::pool_cases(),
            crate::fleet_authorization::worker_cases(),
            crate::relayed_hosts::cases(),
            crate::fleet_authorization::launch_config_cases(),
            crate::fleet_authorization::state_cases(),
            crate::configuration_authorization::whole_cases(),
            crate::configuration_authorization::rule_cases(),
            crate::documentation::cases(),
            crate::fleet_authorization::override_cases(),
            crate::selected_workers::cases(),
            crate::take_over::cases(),
            crate::provider_test::cases(),
            crate::fleet_authorization::budget_cases(),
        ],
        Service::Queue => vec![
            crate::queue_authorization::task_cases(),
            crate::queue_view_authorization::cases(),
        ],
        Service::PurgeCache => vec![crate::purge_cache::cases()],
        Service::Secrets => vec![crate::secrets::cases()],
        Service::Auth => vec![client_cases(), role_cases(), crate::websocktunnel::cases()],
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
