"""A real fleet, applied with tc-admin, the tool that operators use today."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fleet import Fleet, gather
from fleet_server import CHECKOUT, FleetServer

# tc-admin takes no root URL that names a port.
ADDRESS, PORT = "127.0.0.9", 80
FLEET_FILE = CHECKOUT.parent / "shared" / "data" / "community-fleet.json"
TOOL = Path(sys.executable).with_name("tc-admin")
CONFIG = Path(__file__).with_name("tc_admin_config.py")
APPLY_SECONDS = 300
N_LINES_SHOWN = 60


@pytest.fixture
def server(tmp_path):
    try:
        with socket.create_server((ADDRESS, PORT)):
            pass
    except PermissionError:
        pytest.skip(f"only root may listen on port {PORT}, which tc-admin needs")
    with FleetServer(tmp_path, address=ADDRESS, port=PORT) as server:
        yield server


@pytest.fixture
def fleet_file():
    if not FLEET_FILE.exists():
        pytest.skip(f"{FLEET_FILE} is not here: it holds the fleet to bring in")
    return FLEET_FILE


def test_a_whole_fleet_is_applied_and_nothing_differs_afterwards(server, fleet_file, tmp_path):
    fleet = json.loads(fleet_file.read_text())
    # The addresses in the file were replaced by one, so a scope can be in a role twice.
    roles = [{**role, "scopes": sorted(set(role["scopes"]))} for role in fleet["roles"]]
    resources = [*roles, *fleet["workerPools"]]
    generated = tmp_path / "generated.json"
    managed = ["Role=.*", "WorkerPool=.*"]
    generated.write_text(json.dumps({"managed": managed, "resources": resources}))

    def tc_admin(verb):
        return run_tc_admin(server, generated, verb)

    owner = Fleet(server.root_url, server.credentials)
    # `up` starts with its own role, and a fleet may have a role of the same name.
    owner.auth.deleteRole("anonymous")
    applied = tc_admin("apply")
    assert applied.returncode == 0, tail(applied)
    assert applied.stdout.count("Creating") == len(resources)

    pools = gather(owner.worker_manager.listWorkerPools, "workerPools", limit="10")
    # `up` starts with its own pool.
    applied_pools = [pool for pool in pools if pool["workerPoolId"] != "local/default"]
    assert ids(applied_pools, "workerPoolId") == ids(fleet["workerPools"], "workerPoolId")
    assert ids(owner.auth.listRoles(), "roleId") == ids(fleet["roles"], "roleId")

    different = tc_admin("diff")
    assert different.returncode == 0, tail(different)
    assert different.stdout.strip() == ""
    again = tc_admin("apply")
    assert (again.returncode, again.stdout.strip()) == (0, ""), tail(again)


def test_a_pool_of_several_providers_is_applied_and_does_not_differ_afterwards(
    server, fleet_file, tmp_path
):
    pools = json.loads(fleet_file.read_text())["workerPools"]
    google, aws = (first_of(pools, f"community-tc-workers-{cloud}") for cloud in ("google", "aws"))
    pool = {**google, "workerPoolId": "several/clouds", "config": {**google["config"]}}
    of_aws = {**aws["config"]["launchConfigs"][0]}
    of_aws["workerManager"] = {"providerId": aws["providerId"], "launchConfigId": "second-cloud"}
    of_google = google["config"]["launchConfigs"][0]
    pool["config"]["launchConfigs"] = [of_google, of_aws]
    pool["config"]["providers"] = [google["providerId"], aws["providerId"]]
    pool["config"]["strategy"] = "balanced"
    generated = tmp_path / "generated.json"
    managed = ["WorkerPool=several/.*"]
    generated.write_text(json.dumps({"managed": managed, "resources": [pool]}))

    applied = run_tc_admin(server, generated, "apply")
    assert applied.returncode == 0, tail(applied)
    different = run_tc_admin(server, generated, "diff")
    assert (different.returncode, different.stdout.strip()) == (0, ""), tail(different)

    owner = Fleet(server.root_url, server.credentials)
    stored = owner.worker_manager.workerPool("several/clouds")
    assert stored["config"]["providers"] == pool["config"]["providers"]
    configs = stored["config"]["launchConfigs"]
    providers = [config.get("workerManager", {}).get("providerId") for config in configs]
    assert providers == [None, aws["providerId"]]


def first_of(pools, provider):
    return next(pool for pool in pools if pool["providerId"] == provider)


def run_tc_admin(server, generated, verb):
    return subprocess.run(
        [TOOL, verb, "--without-secrets", "--generated", generated],
        env={**os.environ, **server.environment, "TC_ADMIN_PY": str(CONFIG)},
        capture_output=True,
        text=True,
        timeout=APPLY_SECONDS,
    )


def ids(items, key):
    return sorted(item[key] for item in items)


def tail(finished):
    lines = (finished.stdout + finished.stderr).splitlines()
    return "\n".join(lines[-N_LINES_SHOWN:])
