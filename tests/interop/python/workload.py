"""Work for a fleet, and the states of its tasks and workers."""

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path

import taskcluster
from fleet import OWNER, Fleet
from fleet_server import binary, wait_until
from taskcluster.exceptions import TaskclusterConnectionError, TaskclusterRestFailure

SECONDS = 60
# After a failed launch, idle workers are kept until the next try, which is after 72 s at most, or
# 144 s after a second one.
IDLE_SECONDS = 180
LIVE = {"requested", "running", "stopping"}
# A launch without a known outcome is settled after three minutes; tests let more time pass.
SETTLED_MS = 4 * 60 * 1000
# Configuration of a server that scans and plans every second.
BRISK = """
[fleet]
round_seconds = 1
scan_seconds = 1
"""


def local_workers(at_most):
    """Configuration of a fast server with local workers. Claims are short, since a claim that is
    lost in a crash stays until it expires."""
    return f"""
[queue]
claim_seconds = 30
[providers.local]
kind = "local"
max_machines = {at_most}
{BRISK}"""


def chance():
    """Its actions are printed when a test fails."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


class Workload:
    """Tasks for one pool; every run of a task adds a line with the task's id to a file."""

    def __init__(self, server, pool_id, folder):
        options = {"rootUrl": server.root_url, "credentials": dict(server.credentials)}
        self.queue = taskcluster.Queue({**options, "maxRetries": 0})
        self.owner = Fleet(server.root_url, server.credentials)
        self.server = server
        self.pool_id = pool_id
        self.accepted, self.refused = [], []
        self.notes = Path(folder) / "runs"
        self.notes.touch()

    def create(self, more=""):
        task_id, definition = self._definition(more)
        self.queue.createTask(task_id, definition)
        self.accepted.append(task_id)
        return task_id

    def create_in_any_case(self, more=""):
        """Creates a task, and tries again while the server or its database is down."""
        task_id, definition = self._definition(more)

        def is_accepted():
            try:
                self.queue.createTask(task_id, definition)
            except TaskclusterConnectionError:
                return False
            except TaskclusterRestFailure as failure:
                assert failure.status_code >= 500, failure
                self.refused.append(task_id)
                return False
            return True

        wait_until(is_accepted, SECONDS, f"task {task_id} is accepted")
        self.accepted.append(task_id)
        return task_id

    def status(self, task_id):
        return self.queue.status(task_id)["status"]

    def statuses(self):
        return {task_id: self.status(task_id) for task_id in self.accepted}

    def wait_until_all_are_completed(self):
        waiting = list(self.accepted)

        def are_completed():
            while waiting and self.status(waiting[0])["state"] == "completed":
                waiting.pop(0)
            return not waiting

        # Some may wait until the next try after a failed launch.
        wait_until(are_completed, IDLE_SECONDS, f"all of {len(self.accepted)} tasks are completed")

    def runs(self):
        """How often each task ran."""
        return Counter(self.notes.read_text().split())

    def workers(self):
        """The states of the pool's workers, by id."""
        listed = self.owner.worker_manager.listWorkersForWorkerPool(self.pool_id)["workers"]
        return {worker["workerId"]: worker["state"] for worker in listed}

    def live_workers(self):
        return {id for id, state in self.workers().items() if state in LIVE}

    def launches(self):
        return fleetwright(self.server, "explain", "pool", self.pool_id)["launches"]

    def _definition(self, more):
        task_id = taskcluster.slugId()
        payload = {"command": f"echo {task_id} >> {self.notes}; {more}", "maxRunTime": 60}
        return task_id, task_definition(self.pool_id, payload)


def fleetwright(server, *arguments):
    """The output of a command of the program, run as the owner of the server."""
    return json.loads(fleetwright_text(server, *arguments, "--json"))


def fleetwright_lines(server, *arguments):
    text = fleetwright_text(server, *arguments, "--json")
    return [json.loads(line) for line in text.splitlines()]


def fleetwright_text(server, *arguments):
    environment = {**os.environ, **server.environment}
    done = subprocess.run([binary(), *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def worker_processes(server):
    """The worker processes of a server's local providers: the workers' ids by process number."""
    place = f"{server.folder}/data/local/"
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            words = words_of(entry)
            if "--identity" in words and words[-1].startswith(place):
                found[int(entry.name)] = (Path(words[-1]).parent.name, parent_of(entry))
    # A worker that starts a task has two processes for a moment.
    return {pid: id for pid, (id, parent) in found.items() if found.get(parent, (None,))[0] != id}


def let_time_pass(server):
    """Ends the server, lets its launches grow older, and starts it again."""
    server.kill()
    times = ("created", "last_modified", "last_failure")
    older = ", ".join(f"{name} = {name} - {SETTLED_MS}" for name in times)
    sql(server, f"UPDATE launches SET {older}")
    server.start()


def n_pending_launches(server):
    """Machines that launches with an unknown outcome may still make."""
    where = "state IN ('open', 'unknown')"
    return int(sql(server, f"SELECT coalesce(sum(machines - made), 0) FROM launches WHERE {where}"))


def sql(server, statement):
    config = (server.folder / "config.toml").read_text()
    if url := re.search(r'url = "(postgres://.*)"', config):
        command = ["psql", url[1], "--quiet", "--no-align", "--tuples-only", "--command", statement]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.strip()
    file = server.folder / "data" / "fleetwright.sqlite"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        row = connection.execute(statement).fetchone()
        return row and row[0]


def words_of(process):
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def parent_of(process):
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def end_processes(server):
    """Kills the processes that a failed test left running."""
    for pid in worker_processes(server):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def task_definition(pool_id, payload):
    return {
        "taskQueueId": pool_id,
        "created": taskcluster.fromNowJSON("0 seconds"),
        "deadline": taskcluster.fromNowJSON("1 hour"),
        "payload": payload,
        "metadata": {
            "name": "interop",
            "description": "A task of the interop tests.",
            "owner": OWNER,
            "source": "https://example.com/",
        },
    }
