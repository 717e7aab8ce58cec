"""One rules file over three clouds, a program and this machine. A cloud is taken away, and comes
back. The file is docs/examples/five-providers/fleet.yaml."""

import re
import shutil

import pytest
import taskcluster
from ec2 import ec2
from fleet import Fleet
from fleet_server import CHECKOUT, FleetServer, binary, wait_until
from played_clouds import Azure, Google
from workload import (
    BRISK,
    SECONDS,
    end_processes,
    fleetwright_text,
    sql,
    task_definition,
)

__all__ = ["ec2"]  # The fixture.

RULES = CHECKOUT / "docs/examples/five-providers/fleet.yaml"
PROGRAM = CHECKOUT / "docs/providers/example-exec.sh"
LOST = "state = 'unknown'"
BUILD, DECISION = "worker-manager/build", "worker-manager/decision"


class World:
    def __init__(self, aws):
        self.aws, self.google, self.azure = aws, Google(), Azure()

    def close(self):
        self.google.__exit__()
        self.azure.__exit__()

    def settings(self, folder):
        program = folder / "rack"
        shutil.copy(PROGRAM, program)
        program.chmod(0o755)
        worker = f"{binary()} worker --identity identity.json"
        aws = self.aws.settings().replace("[providers.ec2]", "[providers.aws]")
        return f"""{BRISK}
{aws}
[providers.aws.on_demand_prices]
"m5.large" = 0.096
{self.google.settings()}
[providers.google.spot_prices]
"n2-standard-4" = 0.05
{self.azure.settings()}
[providers.azure.prices]
"Standard_F2" = 0.08
[providers.rack]
kind = "exec"
command = ["{program}"]
env = {{ MACHINE = "{worker}" }}
[providers.local]
kind = "local"
max_machines = 1
cost_per_hour = 0.01
"""


@pytest.fixture
def world(ec2):
    made = World(ec2("us-east-1"))
    yield made
    made.close()


@pytest.fixture
def server(world, tmp_path):
    with FleetServer(tmp_path, clouds="", further=world.settings(tmp_path)) as started:
        yield started
        started.stop()
    end_processes(started)


class Demand:
    def __init__(self, server):
        options = {"rootUrl": server.root_url, "credentials": dict(server.credentials)}
        self.queue = taskcluster.Queue(options)

    def add(self, pool_id, count=1, command="true"):
        tasks = [taskcluster.slugId() for _ in range(count)]
        for task_id in tasks:
            self.queue.createTask(task_id, task_definition(pool_id, {"command": command}))
        return tasks

    def is_done(self, tasks):
        states = {self.queue.status(it)["status"]["state"] for it in tasks}
        return states == {"completed"}


def providers(manager, pool_id):
    """How many live workers of the pool each provider has."""
    listed = manager.listWorkersForWorkerPool(pool_id)["workers"]
    live = [it["providerId"] for it in listed if it["state"] != "stopped"]
    return {it: live.count(it) for it in live}


def test_work_moves_when_a_cloud_is_taken_away_and_comes_back(world, server, tmp_path):
    assert len(RULES.read_text().splitlines()) < 100
    manager = Fleet(server.root_url, server.credentials).worker_manager
    demand = Demand(server)
    five = {"aws", "google", "azure", "rack", "local"}
    listed = lambda: {it["providerId"] for it in manager.listProviders()["providers"]}
    wait_until(lambda: five <= listed(), SECONDS, "all providers are ready")
    fleetwright_text(server, "rules", "create", "everything", "--file", str(RULES))

    # Decisions run at home: more than this machine takes, so the program has the rest.
    all_there = tmp_path / "all-there"
    until = f"until test -e {all_there}; do sleep 0.1; done"
    decisions = demand.add(DECISION, 3, until)
    are_at_home = lambda: providers(manager, DECISION) == {"local": 1, "rack": 2}
    wait_until(are_at_home, SECONDS, "each task has a worker at home")
    all_there.touch()
    wait_until(lambda: demand.is_done(decisions), SECONDS, "the decisions are made")

    demand.add(BUILD, 2)
    is_there = lambda: providers(manager, BUILD).get("google") == 2
    wait_until(is_there, SECONDS, "the cheapest cloud has machines")

    # It answers nothing any more. What was asked of it last is given up soon, and goes elsewhere.
    world.google.fail("*")
    demand.add(BUILD, 3)
    n_lost = f"SELECT COALESCE(SUM(machines), 0) FROM launches WHERE {LOST}"
    wait_until(lambda: sql(server, n_lost) == 3, SECONDS, "the answers are lost")
    sql(server, f"UPDATE launches SET last_modified = last_modified - 31000 WHERE {LOST}")

    def has_moved():
        found = providers(manager, BUILD)
        elsewhere = found.get("aws", 0) + found.get("azure", 0)
        return (found["google"], elsewhere) == (2, 3)

    wait_until(has_moved, SECONDS, "the work has moved, and what ran has stayed")
    explained = fleetwright_text(server, "explain", "pool", BUILD)
    assert "shut off: lost" in explained, explained
    costs = fleetwright_text(server, "cost", "--by", "provider")
    assert re.search("^google .*\n(.*\n)*(aws|azure) ", costs, re.M), costs

    world.google.recover()
    let_pauses_end(server)
    wait_until(lambda: five <= listed(), SECONDS, "all providers are ready again")
    demand.add(BUILD, 2)
    is_back = lambda: providers(manager, BUILD)["google"] > 2
    wait_until(is_back, SECONDS, "it has come back")


def let_pauses_end(server):
    """Ends the server, and starts it again when the failures are forgotten."""
    server.kill()
    for memory in ("offering_news", "offering_memories"):
        sql(server, f"DELETE FROM {memory}")
    server.start()
