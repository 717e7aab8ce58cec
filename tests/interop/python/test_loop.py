"""The first page of the documentation: start, run a task, and stop again."""

import os
import subprocess

import pytest
from fleet_server import FleetServer, wait_until
from workload import (
    BRISK,
    SECONDS,
    Workload,
    end_processes,
    fleetwright,
    fleetwright_text,
    worker_processes,
)

POOL = "local/default"
IDLE_SECONDS = 1


@pytest.fixture
def fresh(tmp_path):
    """`up` in a folder that does not exist yet."""
    with FleetServer(tmp_path, further=BRISK) as server:
        yield server
        server.kill()
        end_processes(server)


def test_a_task_runs_its_log_is_shown_and_its_worker_goes_with_reasons(fresh):
    work = Workload(fresh, POOL, fresh.folder)
    pool = first_pool(work)
    soon = {"fleetwright": {"idleTimeoutSeconds": IDLE_SECONDS}}
    pool["config"]["launchConfigs"] = [{"workerConfig": soon}]
    keys = ("providerId", "description", "owner", "emailOnError", "config")
    work.owner.worker_manager.updateWorkerPool(POOL, {key: pool[key] for key in keys})
    assert work.workers() == {} and worker_processes(fresh) == {}

    told = paste(commands_of(fresh))
    assert "\nhello\n" in told and "exit code 0" in told, told
    assert "because 1 more unit is needed" in told, told

    [(worker_id, _)] = work.workers().items()
    wait_until(lambda: work.workers() == {worker_id: "stopped"}, SECONDS, "the worker has gone")
    wait_until(lambda: not worker_processes(fresh), SECONDS, "its process has ended")
    check_explanations(fresh, worker_id)


def commands_of(server):
    """The commands that `up` suggests once the pool exists."""
    wait_until(lambda: "Ctrl-C" in server.log.read_text(), SECONDS, "it has said all")
    _, tries = server.log.read_text().split("\nTry, in another terminal:\n\n")
    commands = tries.split("\n\n")[0].splitlines()
    assert len(commands) == 3, commands
    return [command.strip() for command in commands]


def paste(commands):
    """The output of the commands in a shell that has no server configured."""
    script = "\n".join(["set -e", *commands])
    bare = {name: os.environ[name] for name in ("PATH", "HOME")}
    shell = ["sh", "-c", script]
    done = subprocess.run(shell, env=bare, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_explanations(server, worker_id):
    """The explanation why the worker was launched and why it ended, as JSON and as text."""
    pool = fleetwright(server, "explain", "pool", POOL)
    [launch] = pool["launches"]
    assert (launch["state"], launch["machines"], launch["made"]) == ("accepted", 1, 1)
    [plan] = [plan for plan in pool["plans"] if plan["number"] == launch["plan"]]
    assert "because 1 more unit is needed: 1 task waits" in plan["text"]
    text = fleetwright_text(server, "explain", "pool", POOL)
    assert f"launch {launch['launch']}: 1 of 1 machines" in text

    [listed] = fleetwright(server, "worker", "list", POOL)["workers"]
    names = (POOL, listed["workerGroup"], worker_id)
    worker = fleetwright(server, "explain", "worker", *names)
    assert worker["state"] == "stopped"
    assert worker["launch"]["launch"] == launch["launch"]
    assert worker["plan"]["number"] == plan["number"]
    story = [line["text"] for line in worker["story"]]
    places = [place_of(story, part) for part in STORY]
    assert places == sorted(places), story
    text = fleetwright_text(server, "explain", "worker", *names)
    assert all(part in text for part in STORY), text


# Parts of the story of such a worker, in this order.
STORY = [
    "plan ",
    "asked local for 1 machine by",
    "requested: local has it",
    "registered and got credentials",
    "asked the queue for work for the first time",
    "ended a task",
    "asked to stop",
    "ended: ",
    "now it is stopped",
]


def place_of(story, part):
    places = [place for place, text in enumerate(story) if part in text]
    assert places, f"nothing says {part!r}: {story}"
    return places[-1]


def first_pool(work):
    """The pool appears a moment after the server is ready."""
    pools = []

    def is_there():
        pools[:] = work.owner.worker_manager.listWorkerPools()["workerPools"]
        return pools

    wait_until(is_there, SECONDS, f"{POOL} is there")
    [pool] = pools
    assert pool["workerPoolId"] == POOL
    return pool
