"""PostgreSQL crashes under load, and is started again."""

import os
import re
import subprocess
import threading
from collections import defaultdict

import pytest
from fleet import pool_definition
from fleet_server import CHECKOUT, FleetServer, wait_until
from workload import (
    IDLE_SECONDS,
    SECONDS,
    Workload,
    end_processes,
    fleetwright_lines,
    local_workers,
    worker_processes,
)

POOL = "interop/crashed"
MAX_WORKERS = 3
N_CRASHES = 2
N_TASKS_BETWEEN = 15


class Postgres:
    """A PostgreSQL server of this test, which keeps committed data."""

    def __enter__(self):
        say = 'echo "$TEST_PG_URL"; echo "$TEST_PG_CONTROL"; read -r _'
        command = [CHECKOUT / "scripts" / "with-postgres", "sh", "-c", say]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.url = self.process.stdout.readline().strip()
        self._control = self.process.stdout.readline().strip()
        durable = "ALTER ROLE fleetwright SET synchronous_commit = on"
        subprocess.run(["psql", self.url, "--quiet", "--command", durable], check=True)
        return self

    def __exit__(self, *_):
        self.process.communicate("\n")

    def crash(self):
        subprocess.run([self._control, "crash"], check=True)

    def start(self):
        subprocess.run([self._control, "start"], check=True)


@pytest.fixture
def postgres(monkeypatch):
    if "TEST_PG_URL" not in os.environ:
        pytest.skip("TEST_PG_URL names no PostgreSQL server (scripts/with-postgres sets it)")
    with Postgres() as postgres:
        monkeypatch.setenv("TEST_PG_URL", postgres.url)
        yield postgres


@pytest.fixture
def serving(postgres, tmp_path):
    with FleetServer(tmp_path, "postgres", further=local_workers(MAX_WORKERS)) as server:
        yield server
        server.kill()
        end_processes(server)


def test_nothing_that_was_accepted_is_lost_and_events_keep_their_order(postgres, serving):
    work = Workload(serving, POOL, serving.folder)
    work.owner.worker_manager.createWorkerPool(POOL, local_pool())
    enough = threading.Event()
    creating = threading.Thread(target=create_tasks, args=(work, enough))
    creating.start()
    for _ in range(N_CRASHES):
        wanted = len(work.accepted) + N_TASKS_BETWEEN
        wait_until(lambda n=wanted: len(work.accepted) >= n, SECONDS, f"{wanted} are accepted")
        postgres.crash()
        n_refused = len(work.refused)
        wait_until(lambda n=n_refused: len(work.refused) > n, SECONDS, "a task is refused")
        postgres.start()
    wanted = len(work.accepted) + N_TASKS_BETWEEN
    wait_until(lambda: len(work.accepted) >= wanted, SECONDS, f"{wanted} are accepted")
    enough.set()
    creating.join()

    work.wait_until_all_are_completed()
    wait_until(lambda: not worker_processes(serving), IDLE_SECONDS, "all processes have ended")
    wait_until(lambda: not work.live_workers(), SECONDS, "all workers are stopped")
    assert all(work.runs()[task_id] >= 1 for task_id in work.accepted)
    check_events(serving, work)
    assert serving.is_alive()


def create_tasks(work, enough):
    """Each request is repeated until it is accepted; a failed one may have had an effect."""
    while not enough.is_set():
        work.create_in_any_case()


def check_events(server, work):
    tasks, workers, last = defaultdict(list), defaultdict(list), 0
    for event in fleetwright_lines(server, "event", "tail", "--since", "1h", "--pool", POOL):
        assert event["sequence"] > last, event
        last = event["sequence"]
        name, payload = event["exchange"].rsplit("/", 1)[-1], event["payload"]
        if name.startswith("task-") and "status" in payload:
            tasks[payload["status"]["taskId"]].append(name)
        if name in ("worker-requested", "worker-running", "worker-stopped"):
            workers[payload["workerId"]].append(name)
    assert set(tasks) >= set(work.accepted)
    for task_id in work.accepted:
        assert re.fullmatch(ORDER_OF_TASK, " ".join(tasks[task_id])), tasks[task_id]
    assert set(workers) == set(work.workers())
    for id, names in workers.items():
        assert re.fullmatch(ORDER_OF_WORKER, " ".join(names)), (id, names)


# A run that could not be reported is tried again.
ORDER_OF_TASK = r"task-defined( task-pending task-running)+ task-completed"
ORDER_OF_WORKER = r"worker-requested( worker-running)? worker-stopped"


def local_pool():
    soon = {"fleetwright": {"idleTimeoutSeconds": 1}}
    config = {
        "minCapacity": 0,
        "maxCapacity": MAX_WORKERS,
        "launchConfigs": [{"workerConfig": soon}],
    }
    return pool_definition(provider="local", config=config)
