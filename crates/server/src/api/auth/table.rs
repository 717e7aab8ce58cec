//! The auth service's endpoints, in the order in which they are declared.

use access::scope::Template::{self, AllOf, Scope};

use super::{audit, clients, hawk, roles, scopes, websocktunnel};
use crate::api::endpoint::Verb::{Delete, Get, Post, Put};
use crate::api::endpoint::{
    ANYTHING, Endpoint, LIMIT, NewEndpoint, PAGING, Payload, Service, TOKEN, Verb, each, query,
};

const CLIENTS: &str = "Clients";
const ROLES: &str = "Roles";
const AUDIT: &str = "Audit";
const SCOPES: &str = "Scopes and Auth";
const TUNNEL: &str = "/websocktunnel/<wstAudience>/<wstClient>";
const TUNNELS: &str = "Websocktunnel Credentials";

const EACH_SCOPE: Template = each("scope", "scopes", "<scope>");
const EACH_ADDED: Template = each("scope", "scopesAdded", "<scope>");
const CREATE_CLIENT: &[Template] = &[Scope("auth:create-client:<clientId>"), EACH_SCOPE];
const UPDATE_CLIENT: &[Template] = &[Scope("auth:update-client:<clientId>"), EACH_ADDED];
const CREATE_ROLE: &[Template] = &[Scope("auth:create-role:<roleId>"), EACH_SCOPE];
const UPDATE_ROLE: &[Template] = &[Scope("auth:update-role:<roleId>"), EACH_ADDED];

const fn on(name: &'static str, method: Verb, route: &'static str) -> NewEndpoint {
    NewEndpoint::new(Service::Auth, name, method, route)
}

pub const ENDPOINTS: &[Endpoint] = &[
    on("listClients", Get, "/clients/")
        .runs(|call| Box::pin(clients::list(call)))
        .query(&[query("prefix", ANYTHING), TOKEN, LIMIT])
        .output("list-clients-response.json")
        .scope("auth:list-clients")
        .about(CLIENTS, "List clients")
        .describe("All clients, or those whose id begins with `prefix`, ordered by their ids."),
    on("client", Get, "/clients/<clientId>")
        .runs(|call| Box::pin(clients::show(call)))
        .output("get-client-response.json")
        .scope("auth:get-client:<clientId>")
        .about(CLIENTS, "Show a client")
        .describe(
            "A client and its scopes, as given and expanded. Access tokens are never shown again.",
        ),
    on("createClient", Put, "/clients/<clientId>")
        .runs(|call| Box::pin(clients::create(call)))
        .input("create-client-request.json")
        .output("create-client-response.json")
        .scopes(AllOf(CREATE_CLIENT))
        .about(CLIENTS, "Create a client")
        .describe(
            "Creates a client. The reply holds its access token, which is stored encrypted and \
             cannot be read later. The caller must hold every scope of the client.",
        ),
    on("getEntityHistory", Get, "/audit/<entityType>/<entityId>")
        .runs(|call| Box::pin(audit::of_entity(call)))
        .query(PAGING)
        .output("get-entity-history-response.json")
        .scope("auth:audit-history:<entityType>")
        .about(AUDIT, "Show the audit history")
        .describe(
            "The changes of an object and their authors, oldest first: a client, a role, a worker \
             pool, a worker, a worker configuration, an override, a budget, an image or a test of a \
             provider.",
        ),
    on("listAuditHistory", Get, "/clients/<clientId>/audit")
        .runs(|call| Box::pin(audit::of_client(call)))
        .query(PAGING)
        .output("get-entity-history-response.json")
        .scope("auth:client-audit-history:<clientId>")
        .about(AUDIT, "List the changes of a client")
        .describe("Everything that a client has changed, oldest first."),
    on("resetAccessToken", Post, "/clients/<clientId>/reset")
        .runs(|call| Box::pin(clients::reset(call)))
        .output("create-client-response.json")
        .scope("auth:reset-access-token:<clientId>")
        .about(CLIENTS, "Reset a client's access token")
        .describe(
            "Gives a client a new access token and invalidates the old one. The reply holds the \
             new token.",
        ),
    on("updateClient", Post, "/clients/<clientId>")
        .runs(|call| Box::pin(clients::update(call)))
        .input("create-client-request.json")
        .output("get-client-response.json")
        .scopes(AllOf(UPDATE_CLIENT))
        .about(CLIENTS, "Update a client")
        .describe(
            "Changes a client. Without `scopes` they do not change; the caller must hold every \
             added scope. A concurrent change of the client causes a conflict: read it and try \
             again.",
        ),
    on("enableClient", Post, "/clients/<clientId>/enable")
        .runs(|call| Box::pin(clients::enable(call)))
        .output("get-client-response.json")
        .scope("auth:enable-client:<clientId>")
        .about(CLIENTS, "Enable a client")
        .describe("Lets a disabled client sign requests again."),
    on("disableClient", Post, "/clients/<clientId>/disable")
        .runs(|call| Box::pin(clients::disable(call)))
        .output("get-client-response.json")
        .scope("auth:disable-client:<clientId>")
        .about(CLIENTS, "Disable a client")
        .describe("Requests that this client signs are refused until it is enabled again."),
    on("deleteClient", Delete, "/clients/<clientId>")
        .runs(|call| Box::pin(clients::delete(call)))
        .scope("auth:delete-client:<clientId>")
        .about(CLIENTS, "Delete a client")
        .describe(
            "Deletes a client and invalidates the temporary credentials that it issued. It is no \
             error if the client does not exist.",
        ),
    on("listRoles", Get, "/roles/")
        .runs(|call| Box::pin(roles::list_all(call)))
        .output("list-roles-response.json")
        .scope("auth:list-roles")
        .about(ROLES, "List roles at once")
        .describe("All roles in one array, without pages. Prefer `listRoles2`."),
    on("listRoles2", Get, "/roles2/")
        .runs(|call| Box::pin(roles::list(call)))
        .query(PAGING)
        .output("list-roles2-response.json")
        .scope("auth:list-roles")
        .about(ROLES, "List roles")
        .describe("All roles, ordered by their ids; in pages if `limit` is given."),
    on("listRoleIds", Get, "/roleids/")
        .runs(|call| Box::pin(roles::list_ids(call)))
        .query(PAGING)
        .output("list-role-ids-response.json")
        .scope("auth:list-roles")
        .about(ROLES, "List the ids of roles")
        .describe("The ids of all roles, in order; in pages if `limit` is given."),
    on("role", Get, "/roles/<roleId>")
        .runs(|call| Box::pin(roles::show(call)))
        .output("get-role-response.json")
        .scope("auth:get-role:<roleId>")
        .about(ROLES, "Show a role")
        .describe("A role's scopes, as given and expanded."),
    on("createRole", Put, "/roles/<roleId>")
        .runs(|call| Box::pin(roles::create(call)))
        .input("create-role-request.json")
        .output("get-role-response.json")
        .scopes(AllOf(CREATE_ROLE))
        .about(ROLES, "Create a role")
        .describe(
            "Creates a role. The caller must hold every scope that it grants. A role that would \
             expand without end is refused. The same request again gets the same answer.",
        ),
    on("updateRole", Post, "/roles/<roleId>")
        .runs(|call| Box::pin(roles::update(call)))
        .input("create-role-request.json")
        .output("get-role-response.json")
        .scopes(AllOf(UPDATE_ROLE))
        .about(ROLES, "Update a role")
        .describe("Changes a role. The caller must hold every added scope."),
    on("deleteRole", Delete, "/roles/<roleId>")
        .runs(|call| Box::pin(roles::delete(call)))
        .scope("auth:delete-role:<roleId>")
        .about(ROLES, "Delete a role")
        .describe("Deletes a role. It is no error if the role does not exist."),
    on("expandScopes", Post, "/scopes/expand")
        .runs(|call| Box::pin(scopes::expand(call)))
        .input("scopeset.json")
        .output("scopeset.json")
        .scope("auth:expand-scopes")
        .about(SCOPES, "Expand scopes")
        .describe("Expands the given scopes by all roles."),
    on("currentScopes", Get, "/scopes/current")
        .runs(|call| Box::pin(scopes::current(call)))
        .output("scopeset.json")
        .scope("auth:current-scopes")
        .about(SCOPES, "Show the caller's scopes")
        .describe("The caller's scopes, expanded by all roles."),
    on("websocktunnelToken", Get, TUNNEL)
        .runs(|call| Box::pin(websocktunnel::token(call)))
        .output("websocktunnel-token-response.json")
        .scope("auth:websocktunnel-token:<wstAudience>/<wstClient>")
        .about(TUNNELS, "Get a token for a websocktunnel")
        .describe(
            "A token for 96 hours with which a client connects to a websocktunnel server of this \
             audience. Servers accept it if they have the secret of \
             `auth.websocktunnel_secret_file`.",
        ),
    on("authenticateHawk", Post, "/authenticate-hawk")
        .runs(|call| Box::pin(hawk::authenticate(call)))
        .input("authenticate-hawk-request.json")
        .output("authenticate-hawk-response.json")
        .payload(Payload::Omitted)
        .about(SCOPES, "Authenticate a request")
        .describe(
            "For other services: reports the signer of a request and its scopes. The reply is 200 \
             whether the signature is valid or not; see `status`.",
        ),
    on("testAuthenticate", Post, "/test-authenticate")
        .runs(|call| Box::pin(hawk::test(call)))
        .input("test-authenticate-request.json")
        .output("test-authenticate-response.json")
        .about(SCOPES, "Test a client's signatures")
        .describe(
            "For authors of clients: authenticates the request as the client `tester` with the \
             access token `no-secret` and the given scopes.",
        ),
    on("testAuthenticateGet", Get, "/test-authenticate-get/")
        .runs(|call| Box::pin(hawk::test_get(call)))
        .output("test-authenticate-response.json")
        .about(SCOPES, "Test a client's signatures of reads")
        .describe(
            "As `testAuthenticate`, for signed URLs; `tester` has the scopes `test:*` and \
             `auth:create-client:test:*` and needs `test:authenticate-get`.",
        ),
];
