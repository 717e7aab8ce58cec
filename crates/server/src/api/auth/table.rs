//! The auth service's endpoints, in the order in which they are declared.

use access::scope::Template::{AllOf, For, Scope};

use super::super::endpoint::Verb::{Delete, Get, Post, Put};
use super::super::endpoint::{Endpoint, Handler, Payload, Query, Service, Verb};
use super::super::worker_manager::{LIMIT, MONITORING, TOKEN, monitoring};
use super::{audit, clients, hawk, roles, scopes};

const CLIENTS: &str = "Clients";
const ROLES: &str = "Roles";
const AUDIT: &str = "Audit";
const SCOPES: &str = "Scopes and Auth";
const ANYTHING: &str = "^";

const EACH_SCOPE: access::scope::Template = For {
    variable: "scope",
    list: "scopes",
    each: "<scope>",
};
const EACH_ADDED: access::scope::Template = For {
    variable: "scope",
    list: "scopesAdded",
    each: "<scope>",
};
const CREATE_CLIENT: &[access::scope::Template] =
    &[Scope("auth:create-client:<clientId>"), EACH_SCOPE];
const UPDATE_CLIENT: &[access::scope::Template] =
    &[Scope("auth:update-client:<clientId>"), EACH_ADDED];
const CREATE_ROLE: &[access::scope::Template] = &[Scope("auth:create-role:<roleId>"), EACH_SCOPE];
const UPDATE_ROLE: &[access::scope::Template] = &[Scope("auth:update-role:<roleId>"), EACH_ADDED];

const fn on(name: &'static str, method: Verb, route: &'static str, handler: Handler) -> Endpoint {
    Endpoint::new(Service::Auth, name, method, route, handler)
}

pub const ENDPOINTS: &[Endpoint] = &[
    on("ping", Get, "/ping", |call| {
        Box::pin(monitoring::ping(call))
    })
    .about(
        MONITORING,
        "Ping the service",
        "Answers at once if the service is alive, with its uptime in seconds.",
    ),
    on("lbheartbeat", Get, "/__lbheartbeat__", |call| {
        Box::pin(monitoring::heartbeat(call))
    })
    .about(
        MONITORING,
        "Heartbeat for load balancers",
        "Answers 200 while the service serves requests.",
    ),
    on("version", Get, "/__version__", |call| {
        Box::pin(monitoring::version(call))
    })
    .about(
        MONITORING,
        "Version of the service",
        "The running version and the commit that it was built from.",
    ),
    on("listClients", Get, "/clients/", |call| {
        Box::pin(clients::list(call))
    })
    .query(&[
        Query {
            name: "prefix",
            pattern: ANYTHING,
        },
        TOKEN,
        LIMIT,
    ])
    .output("list-clients-response.json")
    .scopes(Scope("auth:list-clients"))
    .about(
        CLIENTS,
        "List clients",
        "All clients, or those whose id begins with `prefix`, ordered by their ids.",
    ),
    on("client", Get, "/clients/<clientId>", |call| {
        Box::pin(clients::show(call))
    })
    .output("get-client-response.json")
    .scopes(Scope("auth:get-client:<clientId>"))
    .about(
        CLIENTS,
        "Show a client",
        "A client and its scopes, as given and expanded. Access tokens are never shown again.",
    ),
    on("createClient", Put, "/clients/<clientId>", |call| {
        Box::pin(clients::create(call))
    })
    .input("create-client-request.json")
    .output("create-client-response.json")
    .scopes(AllOf(CREATE_CLIENT))
    .about(
        CLIENTS,
        "Create a client",
        "Creates a client. The reply holds its access token, which is stored encrypted and cannot \
         be read later. The caller must hold every scope of the client.",
    ),
    on(
        "getEntityHistory",
        Get,
        "/audit/<entityType>/<entityId>",
        |call| Box::pin(audit::of_entity(call)),
    )
    .query(&[TOKEN, LIMIT])
    .output("get-entity-history-response.json")
    .scopes(Scope("auth:audit-history:<entityType>"))
    .about(
        AUDIT,
        "Show the audit history",
        "The changes of an object and their authors, oldest first: a client, a role, a worker \
         pool, a worker, a worker configuration, an override, a secret or a hook.",
    ),
    on(
        "listAuditHistory",
        Get,
        "/clients/<clientId>/audit",
        |call| Box::pin(audit::of_client(call)),
    )
    .query(&[TOKEN, LIMIT])
    .output("get-entity-history-response.json")
    .scopes(Scope("auth:client-audit-history:<clientId>"))
    .about(
        AUDIT,
        "List the changes of a client",
        "Everything that a client has changed, oldest first.",
    ),
    on(
        "resetAccessToken",
        Post,
        "/clients/<clientId>/reset",
        |call| Box::pin(clients::reset(call)),
    )
    .output("create-client-response.json")
    .scopes(Scope("auth:reset-access-token:<clientId>"))
    .about(
        CLIENTS,
        "Reset a client's access token",
        "Gives a client a new access token and invalidates the old one. The reply holds the new \
         token.",
    ),
    on("updateClient", Post, "/clients/<clientId>", |call| {
        Box::pin(clients::update(call))
    })
    .input("create-client-request.json")
    .output("get-client-response.json")
    .scopes(AllOf(UPDATE_CLIENT))
    .about(
        CLIENTS,
        "Update a client",
        "Changes a client. Without `scopes` they do not change; the caller must hold every added \
         scope. A concurrent change of the client causes a conflict: read it and try again.",
    ),
    on("enableClient", Post, "/clients/<clientId>/enable", |call| {
        Box::pin(clients::enable(call))
    })
    .output("get-client-response.json")
    .scopes(Scope("auth:enable-client:<clientId>"))
    .about(
        CLIENTS,
        "Enable a client",
        "Lets a disabled client sign requests again.",
    ),
    on(
        "disableClient",
        Post,
        "/clients/<clientId>/disable",
        |call| Box::pin(clients::disable(call)),
    )
    .output("get-client-response.json")
    .scopes(Scope("auth:disable-client:<clientId>"))
    .about(
        CLIENTS,
        "Disable a client",
        "Requests that this client signs are refused until it is enabled again.",
    ),
    on("deleteClient", Delete, "/clients/<clientId>", |call| {
        Box::pin(clients::delete(call))
    })
    .scopes(Scope("auth:delete-client:<clientId>"))
    .about(
        CLIENTS,
        "Delete a client",
        "Deletes a client and invalidates the temporary credentials that it issued. It is no \
         error if the client does not exist.",
    ),
    on("listRoles", Get, "/roles/", |call| {
        Box::pin(roles::list_all(call))
    })
    .output("list-roles-response.json")
    .scopes(Scope("auth:list-roles"))
    .about(
        ROLES,
        "List roles at once",
        "All roles in one array, without pages. Prefer `listRoles2`.",
    ),
    on("listRoles2", Get, "/roles2/", |call| {
        Box::pin(roles::list(call))
    })
    .query(&[TOKEN, LIMIT])
    .output("list-roles2-response.json")
    .scopes(Scope("auth:list-roles"))
    .about(
        ROLES,
        "List roles",
        "All roles, ordered by their ids; in pages if `limit` is given.",
    ),
    on("listRoleIds", Get, "/roleids/", |call| {
        Box::pin(roles::list_ids(call))
    })
    .query(&[TOKEN, LIMIT])
    .output("list-role-ids-response.json")
    .scopes(Scope("auth:list-roles"))
    .about(
        ROLES,
        "List the ids of roles",
        "The ids of all roles, in order; in pages if `limit` is given.",
    ),
    on("role", Get, "/roles/<roleId>", |call| {
        Box::pin(roles::show(call))
    })
    .output("get-role-response.json")
    .scopes(Scope("auth:get-role:<roleId>"))
    .about(
        ROLES,
        "Show a role",
        "A role's scopes, as given and expanded.",
    ),
    on("createRole", Put, "/roles/<roleId>", |call| {
        Box::pin(roles::create(call))
    })
    .input("create-role-request.json")
    .output("get-role-response.json")
    .scopes(AllOf(CREATE_ROLE))
    .about(
        ROLES,
        "Create a role",
        "Creates a role. The caller must hold every scope that it grants. A role that would \
         expand without end is refused. The same request again gets the same answer.",
    ),
    on("updateRole", Post, "/roles/<roleId>", |call| {
        Box::pin(roles::update(call))
    })
    .input("create-role-request.json")
    .output("get-role-response.json")
    .scopes(AllOf(UPDATE_ROLE))
    .about(
        ROLES,
        "Update a role",
        "Changes a role. The caller must hold every added scope.",
    ),
    on("deleteRole", Delete, "/roles/<roleId>", |call| {
        Box::pin(roles::delete(call))
    })
    .scopes(Scope("auth:delete-role:<roleId>"))
    .about(
        ROLES,
        "Delete a role",
        "Deletes a role. It is no error if the role does not exist.",
    ),
    on("expandScopes", Post, "/scopes/expand", |call| {
        Box::pin(scopes::expand(call))
    })
    .input("scopeset.json")
    .output("scopeset.json")
    .scopes(Scope("auth:expand-scopes"))
    .about(
        SCOPES,
        "Expand scopes",
        "Expands the given scopes by all roles.",
    ),
    on("currentScopes", Get, "/scopes/current", |call| {
        Box::pin(scopes::current(call))
    })
    .output("scopeset.json")
    .scopes(Scope("auth:current-scopes"))
    .about(
        SCOPES,
        "Show the caller's scopes",
        "The caller's scopes, expanded by all roles.",
    ),
    on("authenticateHawk", Post, "/authenticate-hawk", |call| {
        Box::pin(hawk::authenticate(call))
    })
    .input("authenticate-hawk-request.json")
    .output("authenticate-hawk-response.json")
    .payload(Payload::Omitted)
    .about(
        SCOPES,
        "Authenticate a request",
        "For other services: reports the signer of a request and its scopes. The reply is 200 \
         whether the signature is valid or not; see `status`.",
    ),
    on("testAuthenticate", Post, "/test-authenticate", |call| {
        Box::pin(hawk::test(call))
    })
    .input("test-authenticate-request.json")
    .output("test-authenticate-response.json")
    .about(
        SCOPES,
        "Test a client's signatures",
        "For authors of clients: authenticates the request as the client `tester` with the access \
         token `no-secret` and the given scopes.",
    ),
    on(
        "testAuthenticateGet",
        Get,
        "/test-authenticate-get/",
        |call| Box::pin(hawk::test_get(call)),
    )
    .output("test-authenticate-response.json")
    .about(
        SCOPES,
        "Test a client's signatures of reads",
        "As `testAuthenticate`, for signed URLs; `tester` has the scopes `test:*` and \
         `auth:create-client:test:*` and needs `test:authenticate-get`.",
    ),
    on("heartbeat", Get, "/__heartbeat__", |call| {
        Box::pin(monitoring::heartbeat(call))
    })
    .about(MONITORING, "Heartbeat", "Answers 200 if the service works."),
];
