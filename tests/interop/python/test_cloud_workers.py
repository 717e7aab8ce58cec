"""Our worker on machines of Google and Azure: from its launch to the notice of its end."""

import json
import os
import subprocess

import pytest
import taskcluster
from fleet import Fleet, pool_definition
from fleet_server import FleetServer, binary, wait_until
from played_clouds import Azure, Google
from workload import BRISK, SECONDS, fleetwright_text, task_definition

POOL = "test/cloud"
TELL_LOCATION = {"command": "echo $TASKCLUSTER_WORKER_LOCATION"}


@pytest.mark.parametrize("played", [Google, Azure])
def test_our_worker_works_on_a_machine_until_its_notice(played, tmp_path):
    with played() as cloud, FleetServer(tmp_path, further=BRISK + cloud.settings()) as server:
        provider, group = cloud.kind, cloud.places[0]
        config = cloud.launch_config(group)
        config.update(cloud.spot)
        manager = Fleet(server.root_url, server.credentials).worker_manager
        wait_until(lambda: is_ready(manager, provider), SECONDS, "the provider is ready")
        manager.createWorkerPool(POOL, pool(provider, config, 1))
        wait_until(cloud.names, SECONDS, "a machine is made")
        [(worker_id, name)] = cloud.names().items()
        worker = (POOL, group, worker_id)
        with start(provider, cloud.metadata_url(name), tmp_path) as process:
            location = run_task(server)
            assert location["cloud"] == provider and group.startswith(location["region"])
            assert manager.worker(*worker)["state"] == "running"
            manager.updateWorkerPool(POOL, pool(provider, config, 0))
            cloud.give_notice(worker_id)
            assert process.wait(SECONDS) == 0, process.stderr.read()
            log = process.stderr.read()
        assert "is about to stop this machine" in log, log
        assert manager.worker(*worker)["state"] in ("stopping", "stopped")
        wait_until(lambda: not cloud.names(), SECONDS, "the machine ends")


def pool(provider, config, least):
    config = {"minCapacity": least, "maxCapacity": 1, "launchConfigs": [config]}
    return pool_definition(provider, config)


def is_ready(manager, provider):
    providers = manager.listProviders()["providers"]
    return any(one["providerId"] == provider for one in providers)


def start(provider, url, folder):
    """The worker as on the machine: its metadata service says all."""
    clean = {name: value for name, value in os.environ.items() if "TASKCLUSTER" not in name}
    work = folder / "work"
    return subprocess.Popen(
        [binary(), "worker", "run", "--provider", provider, "--work-dir", work],
        env={**clean, "FLEETWRIGHT_METADATA_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )


def run_task(server):
    """The location that a task is told."""
    options = {"rootUrl": server.root_url, "credentials": dict(server.credentials)}
    queue, task_id = taskcluster.Queue(options), taskcluster.slugId()
    queue.createTask(task_id, task_definition(POOL, TELL_LOCATION))

    def is_completed():
        return queue.status(task_id)["status"]["state"] == "completed"

    wait_until(is_completed, SECONDS, "the task is completed")
    log = fleetwright_text(server, "task", "log", task_id)
    return json.loads(next(line for line in log.splitlines() if line.startswith("{")))
