"""The fleet of a public Taskcluster, unchanged, on three played clouds: pools of each shape get
machines that prove who they are, run a task, and are removed with all that belongs to them."""

import contextlib
import json
import os
import subprocess

import pytest
import taskcluster
from ec2 import ec2
from ec2_metadata import Ec2Metadata
from fleet import Fleet
from fleet_server import CHECKOUT, FleetServer, binary, wait_until
from played_clouds import Azure, Google
from workload import BRISK, SECONDS, task_definition

__all__ = ["ec2"]  # The fixture.

FLEET_FILE = CHECKOUT.parent / "shared" / "data" / "community-fleet.json"
PROVIDER = "community-tc-workers-{}"
AWS, GOOGLE, AZURE = (PROVIDER.format(cloud) for cloud in ("aws", "google", "azure"))
# One of each shape: images of both workers, sizes, architectures, nested virtualization, a desktop,
# Windows, processors for graphics, bare metal.
POOLS = [
    "proj-taskcluster/old-docker-worker",
    "proj-wpt/ci",
    "proj-fuzzing/ci-arm64",
    "proj-bugbug/compute-super-large",
    "proj-taskcluster/gw-ubuntu-24-04-gui",
    "proj-taskcluster/gw-windows-2022",
    "proj-taskcluster/gw-windows-2022-gpu",
    "proj-git-cinnabar/windows",
    "proj-taskcluster/gw-ubuntu-24-04-metal",
    "proj-taskcluster/gw-windows-2025-staging",
]


class Clouds:
    """The clouds that the fleet names."""

    def __init__(self, ec2, pools):
        configs = [it for pool in pools for it in pool["config"].get("launchConfigs", [])]
        of_azure = [it["armDeployment"] for it in configs if "armDeployment" in it]
        self.aws = ec2(*sorted({it["region"] for it in configs if "launchConfig" in it}))
        self.metadata = Ec2Metadata(self.aws)
        self.google = Google()
        self.google.regions = sorted({it["region"] for it in configs if "zone" in it})
        self.azure = Azure(of_azure[0]["templateLink"]["id"].split("/")[2])
        places = sorted({it["parameters"]["location"]["value"] for it in of_azure})
        self.azure.places = places
        self.azure.add_template(of_azure[0]["templateLink"]["id"])
        for place in places:
            self.azure.add_network("rg-tc-eng-vnets", f"tc-vnet-{place}", place)
        self.parts = self.azure.parts()

    def close(self):
        for one in (self.metadata, self.google, self.azure):
            one.__exit__()

    def settings(self):
        aws = self.aws.settings().replace("[providers.ec2]", f"[providers.{AWS}]")
        aws += self.metadata.settings()
        return aws + self.google.settings(GOOGLE) + self.azure.settings(AZURE)

    def metadata_url(self, worker):
        """The service of the worker's machine, and the kind of its cloud."""
        provider, worker_id = worker["providerId"], worker["workerId"]
        if provider == AWS:
            return "aws", self.metadata.url(worker_id)
        cloud = self.google if provider == GOOGLE else self.azure
        # A deployment makes its machine later.
        wait_until(lambda: worker_id in cloud.names(), SECONDS, f"{worker_id} runs")
        return cloud.kind, cloud.metadata_url(cloud.names()[worker_id])

    def are_empty(self, root_url):
        is_empty = not self.aws.machines(root_url) and not self.google.parts()
        return is_empty and self.azure.parts() == self.parts


@pytest.fixture
def fleet():
    if not FLEET_FILE.exists():
        pytest.skip(f"{FLEET_FILE} does not exist")
    return json.loads(FLEET_FILE.read_text())


@pytest.fixture
def clouds(ec2, fleet):
    made = Clouds(ec2, fleet["workerPools"])
    yield made
    made.close()


def test_pools_of_each_shape_run_a_task_and_leave_nothing(clouds, fleet, tmp_path):
    settings = BRISK + clouds.settings()
    with FleetServer(tmp_path, clouds=settings) as server, contextlib.ExitStack() as workers:
        manager = Fleet(server.root_url, server.credentials).worker_manager
        command = [binary(), "import", "taskcluster", "--from", FLEET_FILE]
        environment = {**os.environ, **server.environment}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"created {len(fleet['workerPools'])} pools" in done.stdout, done.stdout

        options = {"rootUrl": server.root_url, "credentials": dict(server.credentials)}
        queue = taskcluster.Queue(options)
        tasks = {pool_id: taskcluster.slugId() for pool_id in POOLS}
        for pool_id, task_id in tasks.items():
            queue.createTask(task_id, task_definition(pool_id, {"command": "true"}))
        machines = {pool_id: machine_of(manager, pool_id) for pool_id in POOLS}
        for pool_id, worker in machines.items():
            folder = tmp_path / pool_id.replace("/", "-")
            workers.enter_context(start(*clouds.metadata_url(worker), folder))
        for pool_id, task_id in tasks.items():
            is_done = lambda it=task_id: queue.status(it)["status"]["state"] == "completed"
            wait_until(is_done, SECONDS, f"the task of {pool_id} is completed")
            run = queue.status(task_id)["status"]["runs"][0]
            assert run["workerId"] == machines[pool_id]["workerId"]

        for pool_id, worker in machines.items():
            manager.removeWorker(pool_id, worker["workerGroup"], worker["workerId"])
        is_empty = lambda: clouds.are_empty(server.root_url)
        wait_until(is_empty, SECONDS, "nothing is left at the clouds")


def machine_of(manager, pool_id):
    """The machine that the pool's task needs, once it is made."""

    def made():
        return manager.listWorkersForWorkerPool(pool_id)["workers"]

    wait_until(made, SECONDS, f"a machine for {pool_id}")
    [worker] = made()
    return worker


@contextlib.contextmanager
def start(cloud, url, folder):
    """Our worker, as on the machine: its metadata service says all."""
    folder.mkdir()
    clean = {name: value for name, value in os.environ.items() if "TASKCLUSTER" not in name}
    command = [binary(), "worker", "run", "--provider", cloud, "--work-dir", folder / "work"]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            command, env={**clean, "FLEETWRIGHT_METADATA_URL": url}, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
