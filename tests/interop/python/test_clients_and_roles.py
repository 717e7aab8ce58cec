"""Clients, roles, scopes and the audit history, through the official client."""

import pytest
from fleet import (
    Fleet,
    assert_refused,
    gather,
    in_an_hour,
    new_pool,
    parse_time,
    refusal,
    unique,
)

LIST = "worker-manager:list-worker-pools"


def client_definition(*scopes, **changes):
    described = {"expires": in_an_hour(), "description": "Of the interop tests."}
    return {**described, "scopes": list(scopes), **changes}


def role_definition(*scopes):
    return {"description": "Of the interop tests.", "scopes": list(scopes)}


@pytest.fixture
def client_id():
    return f"interop/{unique('client')}"


def test_a_client_is_created_used_changed_and_deleted(server, owner, client_id):
    created = owner.auth.createClient(client_id, client_definition(LIST))
    assert len(created["accessToken"]) == 44
    assert (created["scopes"], created["disabled"]) == ([LIST], False)

    fleet = Fleet(server.root_url, credentials_of(created))
    fleet.worker_manager.listWorkerPools()
    shown = owner.auth.client(client_id)
    assert "accessToken" not in shown
    assert LIST in shown["expandedScopes"]
    parse_time(shown["lastDateUsed"])

    update = client_definition("worker-manager:list-providers", description="Changed.")
    assert owner.auth.updateClient(client_id, update)["description"] == "Changed."
    fleet.worker_manager.listProviders()
    failure = refusal(fleet.worker_manager.listWorkerPools)
    assert_refused(failure, 403, "InsufficientScopes", "listWorkerPools")

    owner.auth.deleteClient(client_id)
    owner.auth.deleteClient(client_id)
    assert_refused(refusal(owner.auth.client, client_id), 404, "ResourceNotFound", "client")
    failure = refusal(fleet.worker_manager.listProviders)
    assert_refused(failure, 401, "AuthenticationFailed", "listProviders")


def test_a_reset_makes_the_old_token_useless(server, owner, client_id):
    old = owner.auth.createClient(client_id, client_definition(LIST))
    new = owner.auth.resetAccessToken(client_id)
    assert new["accessToken"] != old["accessToken"]
    Fleet(server.root_url, credentials_of(new)).worker_manager.listWorkerPools()
    stale = Fleet(server.root_url, credentials_of(old))
    failure = refusal(stale.worker_manager.listWorkerPools)
    assert_refused(failure, 401, "AuthenticationFailed", "listWorkerPools")


def test_a_disabled_client_is_locked_out_until_it_is_enabled(server, owner, client_id):
    created = owner.auth.createClient(client_id, client_definition(LIST))
    fleet = Fleet(server.root_url, credentials_of(created)).worker_manager
    assert owner.auth.disableClient(client_id)["disabled"] is True
    failure = refusal(fleet.listWorkerPools)
    assert_refused(failure, 401, "AuthenticationFailed", "listWorkerPools", "is disabled")
    assert owner.auth.enableClient(client_id)["disabled"] is False
    fleet.listWorkerPools()


def test_an_expired_client_is_locked_out(server, owner, client_id):
    past = client_definition(LIST, expires="2020-01-01T00:00:00.000Z")
    created = owner.auth.createClient(client_id, past)
    fleet = Fleet(server.root_url, credentials_of(created)).worker_manager
    failure = refusal(fleet.listWorkerPools)
    assert_refused(failure, 401, "AuthenticationFailed", "listWorkerPools", "has expired")


def test_a_client_is_created_once_and_a_repeat_gets_the_first_token(owner, client_id):
    definition = client_definition(LIST)
    created = owner.auth.createClient(client_id, definition)
    assert owner.auth.createClient(client_id, definition)["accessToken"] == created["accessToken"]
    other = {**definition, "description": "Another."}
    failure = refusal(owner.auth.createClient, client_id, other)
    text = "Client already exists"
    assert_refused(failure, 409, "RequestConflict", "createClient", text)


def test_nobody_gives_what_he_does_not_have(server, owner, client_id):
    giver = owner.auth.createClient(client_id, client_definition("auth:create-client:*", LIST))
    fleet = Fleet(server.root_url, credentials_of(giver)).auth
    fleet.createClient(f"{client_id}/child", client_definition(LIST))
    greedy = client_definition("worker-manager:manage-worker-pool:*")
    failure = refusal(fleet.createClient, f"{client_id}/greedy", greedy)
    assert_refused(failure, 403, "InsufficientScopes", "createClient")


def test_clients_of_the_configuration_cannot_be_changed(owner):
    for method in ["resetAccessToken", "disableClient", "deleteClient"]:
        failure = refusal(getattr(owner.auth, method), "static/owner")
        assert_refused(failure, 400, "InputError", method)


def test_clients_are_listed_by_prefix_and_page_by_page(owner, client_id):
    made = [f"{client_id}/{name}" for name in ["a", "b", "c"]]
    for name in made:
        owner.auth.createClient(name, client_definition())
    listed = gather(owner.auth.listClients, "clients", prefix=f"{client_id}/")
    assert [client["clientId"] for client in listed] == made


def test_a_role_is_created_assumed_changed_and_deleted(owner):
    role_id = unique("interop-role")
    created = owner.auth.createRole(role_id, role_definition(LIST))
    assert created["scopes"] == [LIST]
    assert created["expandedScopes"] == [f"assume:{role_id}", LIST]
    assert owner.auth.createRole(role_id, role_definition(LIST)) == created
    failure = refusal(owner.auth.createRole, role_id, role_definition("other"))
    assert_refused(failure, 409, "RequestConflict", "createRole")

    assume = {"scopes": [f"assume:{role_id}"]}
    assert owner.auth.expandScopes(assume)["scopes"] == sorted([f"assume:{role_id}", LIST])

    owner.auth.updateRole(role_id, role_definition("changed:scope"))
    assert "changed:scope" in owner.auth.expandScopes(assume)["scopes"]
    assert owner.auth.role(role_id)["scopes"] == ["changed:scope"]

    owner.auth.deleteRole(role_id)
    owner.auth.deleteRole(role_id)
    assert_refused(refusal(owner.auth.role, role_id), 404, "ResourceNotFound", "role")
    assert owner.auth.expandScopes(assume)["scopes"] == [f"assume:{role_id}"]


def test_a_role_with_a_star_passes_on_what_the_star_matched(owner):
    role_id = unique("interop-star")
    owner.auth.createRole(f"{role_id}:*", role_definition("read:<..>", "write:<..>/*"))
    scope = f"assume:{role_id}:docs"
    expanded = owner.auth.expandScopes({"scopes": [scope]})["scopes"]
    assert expanded == sorted([scope, "read:docs", "write:docs/*"])


def test_roles_are_listed_in_every_way(owner):
    made = sorted(unique("interop-listed") for _ in range(3))
    for role_id in made:
        owner.auth.createRole(role_id, role_definition(LIST))
    everything = {role["roleId"] for role in owner.auth.listRoles()}
    assert set(made) <= everything
    assert {role["roleId"] for role in gather(owner.auth.listRoles2, "roles")} == everything
    assert set(gather(owner.auth.listRoleIds, "roleIds")) == everything


def test_the_owner_holds_every_scope(owner):
    assert "*" in owner.auth.currentScopes()["scopes"]


def test_the_audit_history_tells_who_did_what(server, owner, client_id):
    created = owner.auth.createClient(client_id, client_definition("auth:create-role:*", LIST))
    owner.auth.disableClient(client_id)
    owner.auth.enableClient(client_id)
    entries = gather(owner.auth.getEntityHistory, "auditHistory", "client", client_id)
    assert sorted(entry["actionType"] for entry in entries) == ["created", "disabled", "enabled"]
    assert {entry["clientId"] for entry in entries} == {server.credentials["clientId"]}

    role_id = unique("interop-audited")
    fleet = Fleet(server.root_url, credentials_of(created))
    fleet.auth.createRole(role_id, role_definition(LIST))
    done = gather(owner.auth.listAuditHistory, "auditHistory", client_id)
    assert [(e["entityType"], e["entityId"], e["actionType"]) for e in done] == [
        ("role", role_id, "created")
    ]

    pool_id = new_pool(owner)
    of_pool = gather(owner.auth.getEntityHistory, "auditHistory", "worker-pool", pool_id)
    assert [entry["actionType"] for entry in of_pool] == ["created"]


def test_the_history_of_an_unknown_kind_is_refused(owner):
    failure = refusal(owner.auth.getEntityHistory, "teapot", "one")
    assert failure.status_code == 400


def credentials_of(client):
    return {"clientId": client["clientId"], "accessToken": client["accessToken"]}
