"""A played Taskcluster hands its machines over, while it runs and work goes on."""

import os
import subprocess

import pytest
from ec2 import GONE, ec2
from fleet import Fleet
from fleet_server import FleetServer, binary, wait_until
from played_taskcluster import Taskcluster
from workload import BRISK, SECONDS

__all__ = ["ec2"]  # The fixture.

REGIONS = ["us-east-1", "us-west-2"]
POOL = "proj-x/linux"
N_MACHINES = 40


@pytest.fixture
def world(ec2):
    """A cloud, and the Taskcluster that makes machines there."""
    cloud = ec2(*REGIONS)
    configs = [cloud.launch_config(region, f"lc-{region}") for region in REGIONS]
    config = {
        "minCapacity": N_MACHINES,
        "maxCapacity": N_MACHINES + 5,
        "scalingRatio": 1,
        "launchConfigs": configs,
    }
    with Taskcluster({POOL: ("ec2", config)}) as played:
        yield cloud, played


def machines_of(taskcluster, cloud):
    """Makes the machines, and the rows of all but the last. Returns their ids."""
    made = []
    for region in REGIONS:
        for id in cloud.taskcluster_makes(POOL, "ec2", region, N_MACHINES // len(REGIONS)):
            made.append(id)
            state = "running" if len(made) % 4 else "requested"
            taskcluster.add(POOL, region, id, f"lc-{region}", state)
    taskcluster.workers.pop()
    # Others' machines in the same account stay as they are.
    others = cloud.taskcluster_makes(POOL, "other", REGIONS[0], 2)
    return made, others


def test_machines_are_counted_at_once_and_nothing_is_doubled(world, tmp_path):
    cloud, taskcluster = world
    made, others = machines_of(taskcluster, cloud)
    with FleetServer(tmp_path, "sqlite", further=BRISK + cloud.settings()) as server:
        environment = {**os.environ, **server.environment}

        def take_over(*more):
            source = ["--live", "--from", taskcluster.url]
            command = [binary(), "import", "taskcluster", *source, *more]
            return subprocess.run(command, env=environment, capture_output=True, text=True)

        owner = Fleet(server.root_url, server.credentials).worker_manager
        dry = take_over("--dry-run")
        assert dry.returncode == 0, dry.stderr
        assert f"ec2: would count {N_MACHINES - 1} machines" in dry.stdout
        unnamed = "it has Taskcluster's tags, and its worker manager does not list it"
        assert f"{made[-1]}: {unnamed}" in dry.stdout
        pools = owner.listWorkerPools()["workerPools"]
        assert POOL not in [pool["workerPoolId"] for pool in pools]

        done = take_over()
        assert done.returncode == 0, done.stderr
        assert f"ec2: counts {N_MACHINES - 1} machines" in done.stdout
        listed = owner.listWorkersForWorkerPool(POOL)["workers"]
        assert {it["workerId"] for it in listed} == set(made[:-1])
        assert owner.listWorkersForWorkerPool(POOL, query={"state": "requested"})["workers"]

        # Its minimum is one more than it has, so one machine is launched, and no more.
        def all_rows():
            rows = owner.listWorkersForWorkerPool(POOL)["workers"]
            return [it for it in rows if it["state"] != "stopped"]

        wait_until(lambda: len(all_rows()) == N_MACHINES, SECONDS, "the minimum is reached")
        again = take_over()
        assert again.returncode == 0, again.stderr
        counted = f"ec2: counts {N_MACHINES - 1} machines, {N_MACHINES - 1} of them before"
        assert counted in again.stdout

        # One of theirs is ended here as one of ours is. Those of others are left alone.
        removed = listed[0]
        owner.removeWorker(POOL, removed["workerGroup"], removed["workerId"])
        wait_until(
            lambda: cloud.states({removed["workerId"]})[removed["workerId"]] in GONE,
            SECONDS,
            "its machine has ended",
        )
        wait_until(lambda: len(all_rows()) == N_MACHINES, SECONDS, "it is replaced")
        kept = cloud.states(set(made + others) - {removed["workerId"]})
        assert set(kept.values()) == {"running"}, kept

        # A provider that the server does not have keeps no other from its machines, and launches
        # stay paused until all is counted.
        elsewhere = {**taskcluster.workers[0], "providerId": "elsewhere", "workerId": "far"}
        taskcluster.workers.append(elsewhere)
        partly = take_over()
        assert partly.returncode == 1
        assert f"ec2: counts {N_MACHINES - 2} machines" in partly.stdout, "one has ended"
        assert "far: the server has no provider elsewhere" in partly.stdout
        command = [binary(), "override", "list"]
        listed = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
        assert "take-over.ec2" in listed and "take-over.elsewhere" not in listed
