"""A pool on the fake of Google: from the need to a registered worker, and to its end."""

import json
import urllib.parse

import pytest
from clouds import FakeGoogle
from fleet import Fleet, launch_config, pool_definition
from fleet_server import FleetServer, wait_until

SECONDS = 60
POOL = "test/google"
ZONE = "us-central1-a"


@pytest.fixture
def google():
    with FakeGoogle() as fake:
        yield fake


def pool(min_capacity):
    spot = {"provisioningModel": "SPOT"}
    worker_config = {"color": "red"}
    only = {**launch_config(ZONE), "scheduling": spot, "workerConfig": worker_config}
    config = {"minCapacity": min_capacity, "maxCapacity": 1, "launchConfigs": [only]}
    return pool_definition("google", config)


def test_a_pool_gets_a_machine_that_registers_and_ends(google, tmp_path):
    with FleetServer(tmp_path, further=google.settings(tmp_path)) as server:
        manager = Fleet(server.root_url, server.credentials).worker_manager
        wait_until(lambda: is_ready(manager), SECONDS, "the provider is ready")
        manager.createWorkerPool(POOL, pool(1))
        wait_until(lambda: google.read("instances"), SECONDS, "a machine is made")
        [machine] = google.read("instances")
        items = {item["key"]: item["value"] for item in machine["metadata"]["items"]}
        document = json.loads(items["taskcluster"])
        assert document["workerPoolId"] == POOL and document["workerConfig"] == {"color": "red"}
        audience = urllib.parse.quote(document["rootUrl"], safe="")
        proof = google.read(f"identity/{machine['id']}?audience={audience}")
        registered = manager.registerWorker(
            {
                "workerPoolId": POOL,
                "providerId": document["providerId"],
                "workerGroup": document["workerGroup"],
                "workerId": machine["id"],
                "workerIdentityProof": proof,
            }
        )
        assert registered["workerConfig"] == {"color": "red"}
        assert manager.worker(POOL, ZONE, machine["id"])["state"] == "running"
        manager.updateWorkerPool(POOL, pool(0))
        manager.removeWorker(POOL, ZONE, machine["id"])
        wait_until(lambda: has_ended(google), SECONDS, "the machine ends")


def is_ready(manager):
    """Whether a pool of the provider is accepted."""
    providers = manager.listProviders()["providers"]
    return any(one["providerId"] == "google" for one in providers)


def has_ended(google):
    return any(call["call"] == "instances.delete" for call in google.read("calls"))
