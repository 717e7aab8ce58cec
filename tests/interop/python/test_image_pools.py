"""An image for Google and Azure: from its definition to machines of pools that boot from it."""

import base64
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fleet import Fleet, launch_config, pool_definition
from fleet_server import FleetServer, binary, wait_until

PEERS = Path(__file__).resolve().parents[2] / "peers"
SECONDS = 120
ZONE = "us-central1-a"
GROUP = "/subscriptions/s-1/resourceGroups/ci/providers"
DISK = b"a disk that boots"
SCRIPT = f'printf "{DISK.decode()}" > "$1.raw"'


class Fake:
    """One program that plays a cloud."""

    def __init__(self, program):
        command = [sys.executable, "-B", PEERS / program]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.url = self.process.stdout.readline().strip().removeprefix("ready at ")

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.url}/_fake/{path}", data=data) as answer:
            return json.load(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture
def google():
    fake = Fake("google.py")
    yield fake
    fake.close()


@pytest.fixture
def azure():
    fake = Fake("azure.py")
    fake.ask("group", {"name": "ci", "location": "westus"})
    net = {"location": "westus", "properties": {"subnets": [{"name": "machines"}]}}
    kind = "Microsoft.Network/virtualNetworks"
    fake.ask("put", {"type": kind, "group": "ci", "name": "net", "body": net})
    yield fake
    fake.close()


def settings(google, azure):
    account = json.dumps(google.ask("account"))
    return f"""
[providers.google]
kind = "google"
project = "project-1"
credentials = {json.dumps(account)}
worker_service_account = "1234567890"
image_bucket = "images"
endpoint = "{google.url}"
iam_endpoint = "{google.url}"
storage_endpoint = "{google.url}"
certificates_url = "{google.url}/certs"
[providers.azure]
kind = "azure"
tenant = "t"
client_id = "c"
client_secret = "hush"
subscription = "s-1"
resource_group = "ci"
locations = ["westus", "eastus"]
endpoint = "{azure.url}"
login_endpoint = "{azure.url}"
metadata_endpoint = "{azure.url}"
[providers.azure.image_storage]
account = "account1"
container = "images"
endpoint = "{azure.url}/storage-1"
"""


def fleetwright(server, *arguments):
    """Runs a command, and returns what it prints as JSON."""
    command = [binary(), *arguments, "--json"]
    environment = {**os.environ, **server.environment}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def definition(**changes):
    return {
        "imageId": "debian",
        "build": {"command": ["sh", "-ec", SCRIPT, "x", "{output}"]},
        "formats": ["raw"],
        "uploads": [
            {"providerId": "google", "options": {"family": "ci"}},
            {"providerId": "azure", "options": {"gallery": "ci/debian"}},
        ],
        **changes,
    }


def pools():
    image = {"$image": "debian"}
    google = launch_config(ZONE)
    google["disks"] = [{"boot": True, "initializeParams": {"sourceImage": image}}]
    azure = {
        "location": "westus",
        "subnetId": f"{GROUP}/Microsoft.Network/virtualNetworks/net/subnets/machines",
        "hardwareProfile": {"vmSize": "Standard_F2"},
        "storageProfile": {
            "imageReference": {"id": image},
            "osDisk": {"createOption": "FromImage"},
        },
        "workerConfig": {},
    }
    for name, only in [("google", google), ("azure", azure)]:
        config = {"minCapacity": 1, "maxCapacity": 1, "launchConfigs": [only]}
        yield name, pool_definition(name, config)


def test_machines_of_pools_boot_from_an_image_that_was_built_here(google, azure, tmp_path):
    with FleetServer(tmp_path, further=settings(google, azure)) as server:
        manager = Fleet(server.root_url, server.credentials).worker_manager
        wait_until(lambda: are_ready(manager), SECONDS, "the providers are ready")
        file = tmp_path / "debian.json"
        file.write_text(json.dumps(definition()))
        fleetwright(server, "image", "create", "debian", "--file", str(file))
        for name, pool in pools():
            manager.createWorkerPool(f"test/{name}", pool)
        wait_until(lambda: google.ask("instances"), SECONDS, "Google has a machine")
        [machine] = google.ask("instances")
        source = machine["disks"][0]["initializeParams"]["sourceImage"]
        project, name = source.rsplit("/", 1)
        assert project == "projects/project-1/global/images"
        image = google.ask(f"image/{name}")
        assert image["size"] == 1024**3
        assert base64.b64decode(image["content"]) == DISK

        wait_until(lambda: machines_of(azure), SECONDS, "Azure has a machine")
        machine = azure.ask("resource", {"id": machines_of(azure)[0]})
        source = machine["properties"]["storageProfile"]["imageReference"]["id"]
        assert "/Microsoft.Compute/galleries/ci/images/debian/versions/0." in source
        version = azure.ask("resource", {"id": source})
        assert base64.b64decode(version["disk"]) == DISK
        assert (google.ask("objects"), azure.ask("blobs", {})) == ([], [])


def test_wrong_options_are_refused_with_their_places(google, azure, tmp_path):
    with FleetServer(tmp_path, further=settings(google, azure)) as server:
        manager = Fleet(server.root_url, server.credentials).worker_manager
        wait_until(lambda: are_ready(manager), SECONDS, "the providers are ready")
        file = tmp_path / "debian.json"
        uploads = [
            {"providerId": "google", "options": {"famly": "ci"}},
            {"providerId": "azure", "region": "eastus"},
        ]
        file.write_text(json.dumps(definition(uploads=uploads)))
        command = [binary(), "image", "create", "debian", "--file", str(file)]
        environment = {**os.environ, **server.environment}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        error = done.stderr.decode()
        assert done.returncode != 0
        for part in ["/uploads/0/options", '"famly"', "/uploads/1/region", "not in eastus"]:
            assert part in error, error


def are_ready(manager):
    """Whether pools of the providers are accepted."""
    known = {one["providerId"] for one in manager.listProviders()["providers"]}
    return {"google", "azure"} <= known


def machines_of(azure):
    return [id for id in azure.ask("resources", {}) if "/virtualmachines/" in id]
