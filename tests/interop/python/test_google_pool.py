"""A pool on the fake of Google: from the need to a registered worker, and to its end."""

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from fleet import Fleet, launch_config, pool_definition
from fleet_server import FleetServer, wait_until

FAKE = Path(__file__).resolve().parents[2] / "peers/google.py"
SECONDS = 60
POOL = "test/google"
ZONE = "us-central1-a"


class FakeGoogle:
    def __init__(self, url):
        self.url = url

    def read(self, path):
        with urllib.request.urlopen(f"{self.url}/_fake/{path}") as answer:
            return json.load(answer)

    def settings(self):
        account = json.dumps(self.read("account"))
        return f"""
[providers.google]
kind = "google"
project = "project-1"
credentials = {json.dumps(account)}
worker_service_account = "1234567890"
regions = ["us-central1"]
endpoint = "{self.url}"
iam_endpoint = "{self.url}"
certificates_url = "{self.url}/certs"
"""


@pytest.fixture
def google():
    command = [sys.executable, "-B", FAKE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        url = process.stdout.readline().strip().removeprefix("ready at ")
        yield FakeGoogle(url)
        process.stdin.close()


def pool(min_capacity):
    spot = {"provisioningModel": "SPOT"}
    worker_config = {"color": "red"}
    only = {**launch_config(ZONE), "scheduling": spot, "workerConfig": worker_config}
    config = {"minCapacity": min_capacity, "maxCapacity": 1, "launchConfigs": [only]}
    return pool_definition("google", config)


def test_a_pool_gets_a_machine_that_registers_and_ends(google, tmp_path):
    with FleetServer(tmp_path, further=google.settings()) as server:
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
