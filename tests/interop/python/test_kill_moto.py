"""`serve` launches on a fake EC2 (moto) that fails, and is killed meanwhile."""

import json
import os
import threading
from collections import Counter

import pytest
from ec2 import LAUNCH, LOSE_ANSWER, LOSE_CALL, NO_STOCK, POOL, THROTTLED, ec2, sometimes
from fleet_server import CHECKOUT, FleetServer, wait_until
from workload import BRISK, SECONDS, Workload, chance, let_time_pass, n_pending_launches

__all__ = ["ec2"]  # The fixture.

FLEET_FILE = CHECKOUT.parent / "shared" / "data" / "community-fleet.json"
REAL_POOL = "proj-fuzzing/bugmon-pernosco"
N_TASKS = 10  # Its maximum.


@pytest.fixture
def serving(ec2, tmp_path):
    """A server on PostgreSQL with a pool of a real fleet, and its EC2."""
    if "TEST_PG_URL" not in os.environ:
        pytest.skip("TEST_PG_URL names no PostgreSQL server (scripts/with-postgres sets it)")
    if not FLEET_FILE.exists():
        pytest.skip(f"{FLEET_FILE} is not there")
    fleet = json.loads(FLEET_FILE.read_text())
    [pool] = [pool for pool in fleet["workerPools"] if pool["workerPoolId"] == REAL_POOL]
    cloud = ec2(*sorted({config["region"] for config in pool["config"]["launchConfigs"]}))
    with FleetServer(tmp_path, "postgres", further=BRISK + cloud.settings()) as server:
        work = Workload(server, REAL_POOL, tmp_path)
        kept = ("description", "owner", "emailOnError", "config")
        definition = {"providerId": "ec2", **{key: pool[key] for key in kept}}
        work.owner.worker_manager.createWorkerPool(REAL_POOL, definition)
        yield server, cloud, work


def test_a_real_pool_goes_from_zero_to_its_maximum_and_back_under_trouble(serving):
    server, cloud, work = serving
    owner = work.owner.worker_manager
    cloud.trouble = sometimes(chance())
    assert cloud.machines(server.root_url) == {}

    tasks = [work.create() for _ in range(N_TASKS)]
    wait_until(lambda: len(work.live_workers()) == N_TASKS, SECONDS, "each task has a worker")
    wait_until(
        lambda: set(cloud.machines(server.root_url)) == work.live_workers(),
        SECONDS,
        "every machine has its row",
    )
    for task_id in tasks:
        work.queue.cancelTask(task_id)
    for worker in owner.listWorkersForWorkerPool(REAL_POOL)["workers"]:
        owner.removeWorker(REAL_POOL, worker["workerGroup"], worker["workerId"])
    wait_until(lambda: not work.live_workers(), SECONDS, "all workers are stopped")
    assert cloud.machines(server.root_url) == {}
    assert set(cloud.all_machines(server.root_url)) == set(work.workers())
    told = owner.listWorkerPoolErrors(REAL_POOL)["workerPoolErrors"]
    assert {THROTTLED, NO_STOCK, LOSE_ANSWER, LOSE_CALL} <= set(cloud.troubles)
    for _, code in (THROTTLED, NO_STOCK):
        assert any(code in one["description"] for one in told), told


def test_every_machine_is_adopted_when_the_server_is_killed_while_it_launches(serving):
    server, cloud, work = serving
    for n_tasks, end in ((3, None), (3, LOSE_CALL), (4, None)):
        killed = threading.Event()
        cloud.trouble = kill_at_launch(server, killed, end)
        creating = threading.Thread(
            target=lambda n_tasks=n_tasks: [work.create_in_any_case() for _ in range(n_tasks)]
        )
        creating.start()
        assert killed.wait(SECONDS), "it never launched"
        cloud.trouble = lambda call: None
        server.start()
        wait_until(
            lambda: set(cloud.machines(server.root_url)) <= work.live_workers(),
            SECONDS,
            "every machine is adopted",
        )
        creating.join()

    wait_until(
        lambda: len(work.live_workers()) + n_pending_launches(server) == N_TASKS,
        SECONDS,
        "each task has a worker or a launch",
    )
    let_time_pass(server)
    wait_until(lambda: len(work.live_workers()) == N_TASKS, SECONDS, "each task has a worker")
    machines = cloud.machines(server.root_url)
    assert set(machines) == work.live_workers()
    assert {tags[POOL] for tags in machines.values()} == {REAL_POOL}
    assert cloud.n_calls("TerminateInstances") == 0
    made = {launch["launch"]: launch["made"] for launch in work.launches() if launch["made"]}
    assert made == Counter(tags[LAUNCH] for tags in machines.values())


def kill_at_launch(server, killed, end):
    """A failure: the server is killed during a launch call, before or after EC2 gets the call."""
    one_at_a_time = threading.Lock()

    def trouble(call):
        with one_at_a_time:
            if call["Action"] != "RunInstances" or killed.is_set():
                return None
            server.kill()
            killed.set()
            return end

    return trouble
