"""Two servers on one PostgreSQL provision a hundred pools together, and one of them is killed."""

import contextlib
import os
import threading
from collections import Counter

import pytest
import taskcluster
from ec2 import LAUNCH, POOL, ec2
from fleet import Fleet, pool_definition
from fleet_server import FleetServer, wait_until
from taskcluster.exceptions import TaskclusterConnectionError
from workload import BRISK, SECONDS, let_time_pass, n_pending_launches, task_definition

__all__ = ["ec2"]  # The fixture.

N_POOLS = 100
N_LAUNCHES_BEFORE_THE_KILL = 30
REGION = "us-east-1"


@pytest.fixture
def cloud(ec2):
    return ec2(REGION)


@pytest.fixture
def two_servers(cloud, tmp_path):
    if "TEST_PG_URL" not in os.environ:
        pytest.skip("TEST_PG_URL names no PostgreSQL server (scripts/with-postgres sets it)")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    further = BRISK + cloud.settings()
    with FleetServer(folders[0], "postgres", further=further) as first:
        with FleetServer(folders[1], beside=first) as second:
            yield first, second


def test_no_launch_is_doubled_and_the_death_of_one_loses_nothing(two_servers, cloud):
    first, second = two_servers
    owner = Fleet(first.root_url, first.credentials).worker_manager
    pools = [f"interop/together-{number}" for number in range(N_POOLS)]
    for pool_id in pools:
        owner.createWorkerPool(pool_id, pool_of_one_machine())

    # Each pool has one task. Each server is woken for half of the pools, and both scan all of them.
    creating = [
        threading.Thread(target=create_tasks, args=([first], pools[0::2])),
        threading.Thread(target=create_tasks, args=([second, first], pools[1::2])),
    ]
    for thread in creating:
        thread.start()
    wait_until(
        lambda: cloud.n_calls("RunInstances") >= N_LAUNCHES_BEFORE_THE_KILL,
        SECONDS,
        f"{N_LAUNCHES_BEFORE_THE_KILL} launches are on their way",
    )
    second.kill()
    for thread in creating:
        thread.join()
    wait_until(cloud.is_quiet, SECONDS, "the other has launched what it wants")
    wait_until(
        lambda: sum(n_workers(owner).values()) + n_pending_launches(first) == N_POOLS,
        SECONDS,
        "each pool has its worker or a launch that nobody carries out",
    )
    let_time_pass(first)
    wait_until(lambda: n_pending_launches(first) == 0, SECONDS, "those are given up")
    let_time_pass(first)
    wait_until(
        lambda: n_workers(owner) == dict.fromkeys(pools, 1), SECONDS, "each pool has its worker"
    )

    machines = cloud.machines(first.root_url)
    assert Counter(tags[POOL] for tags in machines.values()) == dict.fromkeys(pools, 1)
    assert max(Counter(tags[LAUNCH] for tags in machines.values()).values()) == 1
    assert cloud.all_machines(first.root_url) == machines
    assert cloud.n_calls("TerminateInstances") == 0
    rows = [owner.listWorkersForWorkerPool(pool_id)["workers"] for pool_id in pools]
    assert {worker["workerId"] for of_pool in rows for worker in of_pool} == set(machines)
    for server in two_servers:
        assert "plan 1 for interop/together-" in server.log.read_text(), "it decided nothing"


def create_tasks(servers, pools):
    """Asks the first server that responds."""
    options = [{"rootUrl": one.root_url, "credentials": dict(one.credentials)} for one in servers]
    queues = [taskcluster.Queue({**option, "maxRetries": 0}) for option in options]
    for pool_id in pools:
        task_id = taskcluster.slugId()
        definition = task_definition(pool_id, {})
        for queue in queues:
            with contextlib.suppress(TaskclusterConnectionError):
                queue.createTask(task_id, definition)
                break
        else:
            raise AssertionError("no server is there")


def n_workers(owner):
    """Of each pool."""
    listed = owner.listWorkerPools()["workerPools"]
    return {pool["workerPoolId"]: pool["requestedCount"] for pool in listed}


def pool_of_one_machine():
    machine = {
        "ImageId": "ami-03cf127a",
        "InstanceType": "m5.large",
        "Placement": {"AvailabilityZone": f"{REGION}a"},
    }
    launch_configs = [{"region": REGION, "launchConfig": machine}]
    config = {"minCapacity": 0, "maxCapacity": 1, "launchConfigs": launch_configs}
    return pool_definition(provider="ec2", config=config)
