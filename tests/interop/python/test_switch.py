"""The rehearsal of docs/switching.md: a deployment with three clouds changes its worker manager
while tasks run, and changes back. The outputs in the page are those of this test (UPDATE_DOCS)."""

import json
import os
import random
import re
import subprocess
import threading
from pathlib import Path

import pytest
import taskcluster
from ec2 import GONE, ec2
from fleet import Fleet
from fleet_server import CHECKOUT, FleetServer, binary, wait_until
from played_clouds import Azure, Google
from played_taskcluster import Taskcluster
from workload import BRISK, SECONDS, task_definition

__all__ = ["ec2"]  # The fixture.

PAGE = CHECKOUT / "docs/switching.md"
REGIONS = ["us-east-1", "us-west-2"]
LINUX, WINDOWS, MACS = "proj-x/linux", "proj-x/windows", "proj-x/mac"
BUILD = "proj-x/build"
N_MACHINES = {LINUX: 70, BUILD: 70, WINDOWS: 60}
CLOUDS = {LINUX: "aws", BUILD: "google", WINDOWS: "azure"}
N_MORE = 2  # The minimum of each pool is this much above what it has.
# One machine has an archived launch config: it is to go, and another one takes its place.
N_LAUNCHED = {LINUX: N_MORE, BUILD: N_MORE + 1, WINDOWS: N_MORE}
SECRET = "StaticSecret0StaticSecret1StaticSecret2abcde"
THEIR_SECRET = "TheSecretThatOnlyTheTaskclusterKnows12345678"


class World:
    """Three clouds, and the Taskcluster whose machines they run."""

    def __init__(self, aws):
        self.clouds = {"aws": aws, "google": Google(), "azure": Azure()}
        places = {LINUX: REGIONS, BUILD: Google.places, WINDOWS: Azure.places}
        pools = {MACS: ("static", {})}
        for pool_id, provider_id in CLOUDS.items():
            cloud = self.clouds[provider_id]
            n_least = N_MACHINES[pool_id] + N_MORE
            config = {
                "minCapacity": n_least,
                "maxCapacity": n_least + 3,
                "scalingRatio": 1,
                "launchConfigs": [cloud.launch_config(it, f"lc-{it}") for it in places[pool_id]],
            }
            pools[pool_id] = (provider_id, config)
        self.taskcluster = Taskcluster(pools)
        self.machines = {pool_id: self._make(pool_id, places[pool_id]) for pool_id in CLOUDS}
        google = self.clouds["google"]
        old = {**google.launch_config(Google.places[0]), "workerConfig": {"old": True}}
        entry = {"launchConfigId": "lc-old", "isArchived": True, "configuration": old}
        self.taskcluster.archived[BUILD] = [{**entry, "workerPoolId": BUILD}]
        self._row(BUILD, self.machines[BUILD][0])["launchConfigId"] = "lc-old"
        for pool_id in CLOUDS:  # The last one is starting.
            self._row(pool_id, self.machines[pool_id][-1])["state"] = "requested"
        self.forgotten = google.taskcluster_makes(BUILD, "google", Google.places[1], 999)
        for number in (1, 2):
            self.taskcluster.add(MACS, "rack-1", f"mac-{number}", None)

    def close(self):
        self.taskcluster.__exit__()
        for cloud in ("google", "azure"):
            self.clouds[cloud].__exit__()

    def _make(self, pool_id, places):
        """The groups and ids of a pool's machines."""
        provider_id = CLOUDS[pool_id]
        cloud, made = self.clouds[provider_id], []
        n_each = N_MACHINES[pool_id] // len(places)
        for place in places:
            if provider_id == "aws":
                ids = cloud.taskcluster_makes(pool_id, provider_id, place, n_each)
            else:
                numbers = range(len(made), len(made) + n_each)
                ids = [cloud.taskcluster_makes(pool_id, provider_id, place, it) for it in numbers]
            for id in ids:
                made.append((place, id))
                self.taskcluster.add(pool_id, place, id, f"lc-{place}")
        return made

    def _row(self, pool_id, machine):
        rows = self.taskcluster.workers
        [row] = [it for it in rows if (it["workerGroup"], it["workerId"]) == machine]
        assert row["workerPoolId"] == pool_id
        return row

    def settings(self):
        parts = [cloud.settings() for cloud in self.clouds.values()]
        return BRISK + "".join(parts).replace("[providers.ec2]", "[providers.aws]")

    def theirs(self, pool_id):
        return {id for _, id in self.machines[pool_id]}

    def ours(self, pool_id, root_url):
        """The machines that run for us, and that the Taskcluster did not make."""
        provider_id = CLOUDS[pool_id]
        if provider_id == "aws":
            return set(self.clouds["aws"].machines(root_url))
        return self.clouds[provider_id].live() - self.theirs(pool_id) - {self.forgotten}

    def lost(self, pool_id):
        """Machines of the Taskcluster that do not run any more."""
        theirs = self.theirs(pool_id)
        if CLOUDS[pool_id] == "aws":
            states = self.clouds["aws"].states(theirs)
            return theirs - {id for id, state in states.items() if state not in GONE}
        return theirs - self.clouds[CLOUDS[pool_id]].live()


class Load:
    """Tasks of all pools, one after the other in each, which machines of the pool claim."""

    def __init__(self, server, machines):
        self.rng = random.Random(1)
        self.options = {"rootUrl": server.root_url, "credentials": server.credentials}
        self.machines = {pool_id: some[1:-1] for pool_id, some in machines.items()}
        self.done = dict.fromkeys(machines, 0)
        self.failures = []
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[it]) for it in machines]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self):
        """Waits until each pool has completed another task."""
        before = dict(self.done)
        is_further = lambda: all(self.done[it] > n for it, n in before.items())
        wait_until(lambda: self.failures or is_further(), SECONDS, "the load goes on")
        assert not self.failures, self.failures

    def _run(self, pool_id):
        queue = taskcluster.Queue({**self.options, "maxRetries": 0})
        while not self._ends.is_set():
            try:
                self._work(queue, pool_id)
            except Exception as failure:  # Shown by the test.
                self.failures.append(failure)
                return

    def _work(self, queue, pool_id):
        task_id = taskcluster.slugId()
        queue.createTask(task_id, task_definition(pool_id, {"command": ["true"]}))
        claimed = []
        while not claimed and not self._ends.is_set():
            group, id = self.rng.choice(self.machines[pool_id])
            who = {"tasks": 1, "workerGroup": group, "workerId": id}
            claimed = queue.claimWork(pool_id, who)["tasks"]
        for task in claimed:
            assert task["status"]["taskId"] == task_id
            queue.reportCompleted(task_id, task["runId"])
            self.done[pool_id] += 1


@pytest.fixture
def world(ec2):
    made = World(ec2(*REGIONS))
    yield made
    made.close()


class Commands:
    """Runs commands, and keeps them with their outputs for the page."""

    def __init__(self, server, world, folder):
        self.environment = {**os.environ, **server.environment}
        self.source, self.folder, self.shown = world.taskcluster.url, folder, []

    def take(self, *options, host="tc"):
        arguments = ["import", "taskcluster", *options, "--from"]
        command = [binary(), *arguments, self.source]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        shown = " ".join(["fleetwright", *arguments, f"https://{host}.example.com"])
        self.shown.append((shown, done.stdout))
        return done.stdout

    def refused(self, option, source):
        command = [binary(), "import", "taskcluster", option, "--from", source]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 2, done.stdout
        return done.stderr


def test_a_deployment_changes_its_worker_manager_and_changes_back(world, tmp_path):
    folders = [tmp_path / "auth", tmp_path / "fleetwright"]
    for folder in folders:
        folder.mkdir()
    # The auth service of the deployment keeps its clients and roles.
    with (
        FleetServer(folders[0]) as auth,
        FleetServer(folders[1], further=world.settings(), auth=auth) as server,
    ):
        manager = Fleet(server.root_url, server.credentials).worker_manager
        commands = Commands(server, world, tmp_path)
        with Load(server, world.machines) as load:
            there(world, server, manager, commands, load)
            while_it_serves(world, server, manager, load)
            back(world, server, manager, commands, load)
        assert not load.failures, load.failures
    check_page(commands.shown)


def there(world, server, manager, commands, load):
    """Steps 1 to 5."""
    load.goes_on()
    dry = commands.take("--live", "--dry-run")
    for pool_id, provider_id in CLOUDS.items():
        assert f"{provider_id}: would count {N_MACHINES[pool_id]} machines" in dry
    assert world.forgotten in dry
    pools = [it["workerPoolId"] for it in manager.listWorkerPools()["workerPools"]]
    assert not set(CLOUDS) & set(pools), pools
    load.goes_on()

    secrets = {f"{MACS}/rack-1/mac-{number}": SECRET for number in (1, 2)}
    (commands.folder / "secrets.json").write_text(json.dumps(secrets))
    done = commands.take("--live", "--static-secrets", "secrets.json")
    assert "declared 2 hosts" in done
    for pool_id in CLOUDS:
        listed = workers(manager, pool_id)
        assert world.theirs(pool_id) <= set(listed), "all count from the first moment"
        assert listed[world.machines[pool_id][-1][1]] == "requested"

    # Nothing is doubled: only what the minimum lacks is launched.
    def is_full(pool_id):
        n_all = N_MACHINES[pool_id] + N_LAUNCHED[pool_id]
        return manager.workerPool(pool_id)["currentCapacity"] == n_all

    wait_until(lambda: all(map(is_full, CLOUDS)), SECONDS, "all pools have their minimum")
    for pool_id in CLOUDS:
        n_launched = N_LAUNCHED[pool_id]
        has_launched = lambda it=pool_id, n=n_launched: len(world.ours(it, server.root_url)) == n
        wait_until(has_launched, SECONDS, f"the launches for {pool_id}")
    load.goes_on()
    again = commands.take("--live", host="old.tc")
    for pool_id, provider_id in CLOUDS.items():
        n_machines = N_MACHINES[pool_id]
        assert f"{provider_id}: counts {n_machines} machines, {n_machines} of them before" in again


def while_it_serves(world, server, manager, load):
    # It renews, and Taskcluster still knows its secret.
    group, id = world.machines[LINUX][1]
    names = {"workerPoolId": LINUX, "workerGroup": group, "workerId": id}
    for _ in range(2):
        renewed = manager.reregisterWorker({**names, "secret": THEIR_SECRET})
        assert renewed["secret"] == THEIR_SECRET
    # A launch config that its pool no longer has lets its machine go.
    old = world.machines[BUILD][0]
    asked = manager.shouldWorkerTerminate(BUILD, *old)
    assert asked == {"terminate": True, "reason": "launch config archived"}
    # One that is removed ends with all that belongs to it, and is replaced.
    azure = world.clouds["azure"]
    removed = world.machines[WINDOWS].pop(0)
    manager.removeWorker(WINDOWS, *removed)
    own = re.compile(r"/(pip|nic|disk|vm)-0*$")
    has_ended = lambda: not [it for it in azure.parts() if own.search(it)]
    wait_until(has_ended, SECONDS, "the machine and its parts have ended")
    is_known = lambda: removed[1] in workers(manager, WINDOWS)
    wait_until(lambda: not is_known(), SECONDS, "its end is known")
    is_replaced = lambda: len(world.ours(WINDOWS, server.root_url)) == N_LAUNCHED[WINDOWS] + 1
    wait_until(is_replaced, SECONDS, "it is replaced")
    # One of ours registers by the proof of its cloud.
    google = world.clouds["google"]
    ours = world.ours(BUILD, server.root_url)
    [machine, *_] = [it for it in google.read("instances") if it["id"] in ours]
    items = {item["key"]: item["value"] for item in machine["metadata"]["items"]}
    data = json.loads(items["taskcluster"])
    world.registered = (data["workerGroup"], machine["id"])
    audience = server.root_url.replace(":", "%3A").replace("/", "%2F")
    proof = google.read(f"identity/{machine['id']}?audience={audience}")
    names = {"workerPoolId": BUILD, "providerId": "google", "workerGroup": data["workerGroup"]}
    manager.registerWorker({**names, "workerId": machine["id"], "workerIdentityProof": proof})
    load.goes_on()


def back(world, server, manager, commands, load):
    """The way back: all that Taskcluster does not know ends, and all else stays."""
    commands.take("--give-back", "--dry-run", host="old.tc")
    assert all(world.ours(pool_id, server.root_url) for pool_id in CLOUDS)
    first = commands.take("--give-back", host="old.tc")
    assert "google: 70 machines known there, 3 machines only here, drained" in first
    asked = manager.shouldWorkerTerminate(BUILD, *world.registered)
    assert asked["terminate"] and "given back" in asked["reason"], asked
    world.clouds["google"].ask(f"_fake/status/{world.registered[1]}/TERMINATED", {}, "POST")
    for pool_id in CLOUDS:
        have_ended = lambda it=pool_id: not world.ours(it, server.root_url)
        wait_until(have_ended, SECONDS, f"our machines of {pool_id} have ended")
    is_known = lambda it: not set(workers(manager, it)) - world.theirs(it)
    wait_until(lambda: all(map(is_known, CLOUDS)), SECONDS, "only theirs are left")
    load.goes_on()
    last = commands.take("--give-back", host="old.tc")
    itself = commands.refused("--give-back", server.root_url)
    assert "is a Fleetwright, and not that of a Taskcluster" in itself
    assert "only machines that the deployment knows are left" in last
    for pool_id in CLOUDS:
        assert not world.lost(pool_id), "each machine is still there, and works"
    assert world.forgotten in world.clouds["google"].live(), "not one of the deployment's"


def workers(manager, pool_id):
    """The states of the workers that have not stopped, by id."""
    listed = manager.listWorkersForWorkerPool(pool_id)["workers"]
    return {it["workerId"]: it["state"] for it in listed if it["state"] != "stopped"}


def check_page(shown):
    """The page shows each of these commands with its output, the first if it is given twice."""
    page = PAGE.read_text()
    for command, output in reversed(shown):
        block = re.compile(r"^\$ " + re.escape(command) + r"\n.*?(?=^```$|^\$ )", re.M | re.S)
        assert block.search(page), f"docs/switching.md does not show: {command}"
        page = block.sub(lambda _, text=output, it=command: f"$ {it}\n{text}", page, count=1)
    if "UPDATE_DOCS" in os.environ:
        Path(PAGE).write_text(page)
    assert page == PAGE.read_text(), "its outputs are older: run this test with UPDATE_DOCS=1"
