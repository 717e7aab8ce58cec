"""An orderly stop, and all state after the next start."""

import socket
import stat
import time

from fleet import Fleet, new_pool, new_worker, registration, reregistration
from fleet_server import DRAIN_SECONDS, wait_until
from raw_http import JSON, Connection, request

REGISTER = "/api/worker-manager/v1/worker/register"
LIST = "worker-manager:list-worker-pools"
PROMPT_SECONDS = DRAIN_SECONDS + 5


def test_everything_is_still_there_after_a_restart(own_server):
    owner = Fleet(own_server.root_url, own_server.credentials)
    pool_id = new_pool(owner)
    worker = new_worker(owner, pool_id)
    anonymous = Fleet(own_server.root_url).worker_manager
    registered = anonymous.registerWorker(registration(worker))
    owner.auth.createRole("interop-kept", {"description": "Kept.", "scopes": ["a:b"]})
    client = {"description": "Kept.", "expires": "3000-01-01T00:00:00.000Z", "scopes": [LIST]}
    token = owner.auth.createClient("interop/kept", client)["accessToken"]
    credential = own_server.owner_file.read_bytes()
    before = owner.worker_manager.workerPool(pool_id)

    assert own_server.stop() == 0
    own_server.start()

    assert own_server.owner_file.read_bytes() == credential
    assert owner.worker_manager.workerPool(pool_id) == before
    assert owner.worker_manager.worker(*worker)["state"] == "running"
    assert owner.auth.role("interop-kept")["scopes"] == ["a:b"]
    kept = Fleet(own_server.root_url, {"clientId": "interop/kept", "accessToken": token})
    assert kept.worker_manager.listWorkerPools()["workerPools"]
    fleet = Fleet(own_server.root_url, registered["credentials"]).worker_manager
    fleet.reregisterWorker(reregistration(worker, registered["secret"]))


def test_a_crash_loses_nothing_that_was_answered(own_server):
    owner = Fleet(own_server.root_url, own_server.credentials)
    pools = [new_pool(owner) for _ in range(10)]
    own_server.kill()
    own_server.start()
    for pool_id in pools:
        assert owner.worker_manager.workerPool(pool_id)["workerPoolId"] == pool_id


def test_the_owners_credential_is_for_its_owner_only(own_server):
    assert stat.S_IMODE(own_server.owner_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_server.owner_file.parent.stat().st_mode) == 0o700


def test_a_request_under_way_is_answered_before_the_server_stops(own_server):
    headers = {**JSON, "Expect": "100-continue"}
    with Connection(own_server) as connection:
        connection.send(request(own_server, f"POST {REGISTER} HTTP/1.1", headers, length=2))
        assert connection.awaits_the_body()
        own_server.terminate()
        wait_until(
            lambda: refuses_connections(own_server),
            DRAIN_SECONDS,
            "the server has closed its door",
        )
        connection.send(b"{}")
        assert connection.receive().status == 400
    assert own_server.wait() == 0


def test_a_client_that_never_finishes_does_not_hold_the_server_up(own_server):
    whole = request(own_server, f"POST {REGISTER} HTTP/1.1", JSON, b"{", length=100)
    with Connection(own_server) as with_half_a_body, Connection(own_server) as idle:
        with_half_a_body.send(whole)
        idle.send(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert idle.receive().status == 200
        started = time.monotonic()
        assert own_server.stop() == 0
        assert time.monotonic() - started < PROMPT_SECONDS


def refuses_connections(server):
    try:
        with socket.create_connection((server.address, server.port), 1):
            return False
    except OSError:
        return True
