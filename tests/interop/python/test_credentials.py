"""Identity and scopes of a caller: Hawk, temporary credentials, restrictions, signed URLs."""

import mohawk
import pytest
import requests
from fleet import (
    Fleet,
    assert_error_body,
    assert_refused,
    new_pool,
    refusal,
    temporary,
    unique,
)

LIST = "worker-manager:list-worker-pools"
TESTER = {"clientId": "tester", "accessToken": "no-secret"}


def test_unnamed_temporary_credentials_have_just_their_scopes(server, owner):
    held = temporary(server.credentials, [LIST, "auth:current-scopes"])
    fleet = Fleet(server.root_url, held)
    everyone = owner.auth.expandScopes({"scopes": ["assume:anonymous"]})["scopes"]
    held = {*everyone, "auth:current-scopes", LIST}
    assert set(fleet.auth.currentScopes()["scopes"]) == held
    fleet.worker_manager.listWorkerPools()
    failure = refusal(fleet.worker_manager.listProviders)
    assert_refused(failure, 403, "InsufficientScopes", "listProviders")


def test_named_temporary_credentials_act_under_their_name(server):
    name = f"interop/{unique('temporary')}"
    held = temporary(server.credentials, [LIST], name)
    assert held["clientId"] == name
    fleet = Fleet(server.root_url, held)
    fleet.worker_manager.listWorkerPools()
    failure = refusal(fleet.worker_manager.listProviders)
    assert f"Client ID {name} does not have sufficient scopes" in failure.body["message"]


def test_authorized_scopes_restrict_and_must_be_held(server):
    restricted = Fleet(server.root_url, server.credentials, [LIST])
    restricted.worker_manager.listWorkerPools()
    failure = refusal(restricted.worker_manager.listProviders)
    assert_refused(failure, 403, "InsufficientScopes", "listProviders")

    held = temporary(server.credentials, [LIST])
    greedy = Fleet(server.root_url, held, ["worker-manager:list-providers"])
    failure = refusal(greedy.worker_manager.listProviders)
    text = "do not satisfy authorizedScopes"
    assert_refused(failure, 401, "AuthenticationFailed", "listProviders", text)


def test_a_missing_scope_is_named_in_the_refusal(server):
    held = temporary(server.credentials, [LIST])
    failure = refusal(Fleet(server.root_url, held).worker_manager.workerPool, "a/b")
    text = (
        "does not have sufficient scopes and is missing the following scopes:\n\n"
        "```\nworker-manager:get-worker-pool:a/b\n```"
    )
    assert_refused(failure, 403, "InsufficientScopes", "workerPool", text)


def test_a_caller_without_credentials_is_told_what_it_needs(passer_by):
    failure = refusal(passer_by.worker_manager.workerPool, "a/b")
    text = "This request requires Taskcluster credentials that satisfy the following scope"
    assert_refused(failure, 403, "InsufficientScopes", "workerPool", text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"accessToken": "wrong"}, "Bad mac"),
        ({"clientId": "nobody/at/all"}, ""),
    ],
)
def test_credentials_that_are_wrong_are_refused(server, change, text):
    fleet = Fleet(server.root_url, {**server.credentials, **change})
    failure = refusal(fleet.worker_manager.listWorkerPools)
    assert_refused(failure, 401, "AuthenticationFailed", "listWorkerPools", text)


def test_a_refused_caller_is_told_the_scheme(server):
    answer = requests.get(
        f"{server.root_url}/api/worker-manager/v1/worker-pools",
        headers={"Authorization": "Basic YTpi"},
    )
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].lower() == "hawk"
    assert_error_body(answer.json(), 401, "listWorkerPools")


@pytest.mark.parametrize(
    "window",
    [{"start": "-2 hours", "expiry": "-1 hour"}, {"start": "1 hour", "expiry": "2 hours"}],
)
def test_temporary_credentials_are_good_for_their_time_only(server, window):
    held = temporary(server.credentials, [LIST], **window)
    failure = refusal(Fleet(server.root_url, held).worker_manager.listWorkerPools)
    assert_refused(failure, 401, "AuthenticationFailed", "listWorkerPools", "ext.certificate")


def test_temporary_credentials_cannot_hold_more_than_their_issuer(server, owner):
    issuer = owner.auth.createClient(
        f"interop/{unique('issuer')}",
        {"expires": "3000-01-01T00:00:00.000Z", "description": "", "scopes": [LIST]},
    )
    held = temporary(issuer, [LIST, "worker-manager:list-providers"])
    failure = refusal(Fleet(server.root_url, held).worker_manager.listWorkerPools)
    assert_refused(failure, 401, "AuthenticationFailed", "listWorkerPools", "ext.certificate")


def test_a_signed_url_works_without_further_credentials(server, owner):
    pool_id = new_pool(owner)
    url = owner.worker_manager.buildSignedUrl("workerPool", pool_id)
    assert requests.get(url).json()["workerPoolId"] == pool_id
    assert requests.head(url).status_code == 200

    for broken in [url + "AA", url.replace(pool_id.split("/")[1], "other"), f"{url}&limit=1"]:
        answer = requests.get(broken)
        assert answer.status_code == 401, broken
        assert_error_body(answer.json(), 401, "workerPool")
    assert requests.delete(url).status_code == 401


def test_a_signed_url_of_temporary_credentials_keeps_the_query_and_the_limits(server):
    held = temporary(server.credentials, [LIST])
    fleet = Fleet(server.root_url, held).worker_manager
    url = fleet.buildSignedUrl("listWorkerPools", query={"limit": "1"}, params={})
    assert requests.get(url).status_code == 200
    assert requests.get(fleet.buildSignedUrl("listProviders")).status_code == 403


def test_a_signed_url_stops_working(server, owner):
    url = owner.worker_manager.buildSignedUrl("listProviders", expiration=-60)
    answer = requests.get(url)
    assert answer.status_code == 401
    assert "Access expired" in answer.json()["message"]


def test_a_body_that_was_changed_on_the_way_is_refused(server):
    url = f"{server.root_url}/api/auth/v1/scopes/expand"
    signed = sign(server.credentials, url, "POST", '{"scopes":["a"]}')
    answer = requests.post(url, data='{"scopes":["b"]}', headers=signed)
    assert answer.status_code == 401
    assert "Invalid payload hash" in answer.json()["message"]


def test_the_fixed_tester_is_authenticated_for_clients_that_test_themselves(server):
    tester = Fleet(server.root_url, TESTER)
    reply = tester.auth.testAuthenticate(
        {"clientScopes": ["test:*"], "requiredScopes": ["test:scope"]}
    )
    assert reply["clientId"] == "tester" and "test:*" in reply["scopes"]
    assert tester.auth.testAuthenticateGet()["clientId"] == "tester"

    named = temporary(TESTER, ["test:authenticate-get"], "test:me")
    assert Fleet(server.root_url, named).auth.testAuthenticateGet()["clientId"] == "test:me"

    demand = {"clientScopes": ["test:some"], "requiredScopes": ["test:other"]}
    failure = refusal(tester.auth.testAuthenticate, demand)
    assert_refused(failure, 403, "InsufficientScopes", "testAuthenticate")
    impostor = Fleet(server.root_url, {**TESTER, "accessToken": "guess"})
    failure = refusal(impostor.auth.testAuthenticateGet)
    assert_refused(failure, 401, "AuthenticationFailed", "testAuthenticateGet")


def test_another_service_can_ask_who_signed_a_request(server, passer_by):
    url = "http://other.example.com:8080/resource?a=1"
    question = {"method": "get", "resource": "/resource?a=1", "port": 8080}
    question["host"] = "other.example.com"

    def ask(**more):
        return passer_by.auth.authenticateHawk({**question, **more})

    signed = sign(server.credentials, url, "GET", "")["Authorization"]
    good = ask(authorization=signed)
    assert (good["status"], good["scheme"]) == ("auth-success", "hawk")
    assert good["clientId"] == server.credentials["clientId"] and "*" in good["scopes"]
    assert ask()["status"] == "no-auth"
    assert ask(authorization=signed, resource="/other")["status"] == "auth-failed"


def sign(credentials, url, method, body):
    kind = "application/json" if body else ""
    sender = mohawk.Sender(
        {
            "id": credentials["clientId"],
            "key": credentials["accessToken"],
            "algorithm": "sha256",
        },
        url,
        method,
        content=body,
        content_type=kind,
    )
    headers = {"Authorization": sender.request_header}
    return {**headers, "Content-Type": kind} if kind else headers
