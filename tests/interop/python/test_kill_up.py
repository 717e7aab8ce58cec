"""`up` is killed while it launches worker processes, and started again on the same folder."""

import threading
import time

import pytest
from fleet import pool_definition
from fleet_server import FleetServer, wait_until
from workload import (
    IDLE_SECONDS,
    SECONDS,
    Workload,
    chance,
    end_processes,
    let_time_pass,
    local_workers,
    n_pending_launches,
    worker_processes,
)

POOL = "interop/killed"
# Many more than needed: an interrupted launch counts against the limit for some minutes.
MAX_WORKERS = 40
N_KILLS = 5
N_TASKS_BETWEEN = 6
MAX_DELAY_SECONDS = 0.03


@pytest.fixture
def killable(tmp_path):
    with FleetServer(tmp_path, further=local_workers(MAX_WORKERS)) as server:
        yield server
        server.kill()
        end_processes(server)


def test_every_worker_is_adopted_and_every_task_runs_once(killable):
    work = Workload(killable, POOL, killable.folder)
    work.owner.worker_manager.createWorkerPool(POOL, local_pool())
    rng = chance()
    for _ in range(N_KILLS):
        # Between two tasks there is not a moment in which no launch is under way.
        creating = threading.Thread(target=create_some, args=(work,))
        creating.start()
        wait_for_more(work, rng.randrange(1, N_TASKS_BETWEEN))
        time.sleep(rng.uniform(0, MAX_DELAY_SECONDS))  # Any moment will do.
        killable.kill()
        survivors = set(worker_processes(killable).values())
        killable.start()
        wait_until(
            lambda: survivors <= set(work.workers()), SECONDS, f"{survivors} are all adopted"
        )
        creating.join()
        wait_until(lambda: is_consistent(work), SECONDS, "every process has its row")
    assert len(work.accepted) == N_KILLS * N_TASKS_BETWEEN
    # Until their outcome is known, interrupted launches count as expected workers.
    let_time_pass(killable)
    work.wait_until_all_are_completed()
    check_runs(work)
    until_nothing_is_left(killable, work)


def create_some(work):
    for _ in range(N_TASKS_BETWEEN):
        work.create_in_any_case("sleep 0.1")


def wait_for_more(work, n_more):
    wanted = len(work.accepted) + n_more
    wait_until(lambda: len(work.accepted) >= wanted, SECONDS, f"{wanted} tasks are accepted")


def is_consistent(work):
    """Reads the workers between two lists of processes, since processes start and end."""
    before = list(worker_processes(work.server).values())
    rows = work.live_workers()
    after = list(worker_processes(work.server).values())
    assert len(set(after)) == len(after), f"a worker is there twice: {after}"
    return set(before) == rows == set(after)


def check_runs(work):
    """Each task ran once, unless its worker died or could not report the end."""
    runs = work.runs()
    for task_id, status in work.statuses().items():
        ends = [run["reasonResolved"] for run in status["runs"]]
        assert ends[-1] == "completed", status
        assert ends.count("completed") == 1, status
        assert 1 <= runs[task_id] <= len(ends), (runs[task_id], status)
    assert set(runs) == set(work.accepted)


def until_nothing_is_left(server, work):
    """All workers end, and the outcome of each launch is known."""
    wait_until(lambda: not worker_processes(server), IDLE_SECONDS, "all processes have ended")
    wait_until(lambda: not work.live_workers(), SECONDS, "all workers are stopped")
    folders = (server.folder / "data" / "local" / "local").iterdir()
    lost = [folder for folder in folders if folder.name not in work.workers()]
    assert not [folder for folder in lost if (folder / "process.json").exists()], lost
    wait_until(lambda: n_pending_launches(server) == 0, SECONDS, "no launch is without an outcome")


def local_pool():
    soon = {"fleetwright": {"idleTimeoutSeconds": 1}}
    config = {
        "minCapacity": 0,
        "maxCapacity": MAX_WORKERS,
        "launchConfigs": [{"workerConfig": soon}],
    }
    return pool_definition(provider="local", config=config)
