"""A played Taskcluster hands its machines over, while it runs and work goes on."""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from ec2 import GONE, SIGNED, ec2
from fleet import Fleet
from fleet_server import FleetServer, binary, wait_until
from workload import BRISK, SECONDS

__all__ = ["ec2"]  # The fixture.

REGIONS = ["us-east-1", "us-west-2"]
POOL = "proj-x/linux"
N_MACHINES = 40


class Taskcluster:
    """The worker manager of a Taskcluster, as far as the import reads it."""

    def __init__(self, config):
        self.pool = {
            "workerPoolId": POOL,
            "providerId": "ec2",
            "description": "Linux",
            "owner": "ops@example.com",
            "emailOnError": False,
            "config": config,
            "created": "2026-01-01T00:00:00.000Z",
            "lastModified": "2026-01-01T00:00:00.000Z",
        }
        self.workers = []
        handler = self._handler()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path, query):
        """None: there is no such thing."""
        path = unquote(path.removeprefix("/api/"))
        if path == "worker-manager/v1/worker-pools":
            return {"workerPools": [self.pool]}
        if path == "auth/v1/roles2/":
            role = {"roleId": "team", "description": "", "scopes": ["a:b"], "expandedScopes": []}
            return {"roles": [role]}
        if path == f"worker-manager/v1/workers/{POOL}":
            [state] = query.get("state", [None])
            return {"workers": [it for it in self.workers if it["state"] == state]}
        if path == f"worker-manager/v1/worker-pool/{POOL}/launch-configs":
            return {"workerPoolLaunchConfigs": []}
        return None

    def _handler(taskcluster):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                url = urlsplit(self.path)
                reply = taskcluster.answer(url.path, parse_qs(url.query))
                body = json.dumps(reply or {"code": "ResourceNotFound", "message": self.path})
                self.send_response(200 if reply else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        return Handler


def launch_config(region):
    return {
        "region": region,
        "launchConfig": {"ImageId": "ami-12c6146b", "InstanceType": "m5.large"},
        "workerConfig": {},
        "workerManager": {"launchConfigId": f"lc-{region}", "capacityPerInstance": 1},
    }


def run_instances(cloud, region, count, tags):
    """Machines as Taskcluster's aws provider makes them. Returns their ids."""
    form = {
        "Action": "RunInstances",
        "Version": "2016-11-15",
        "ImageId": "ami-12c6146b",
        "InstanceType": "m5.large",
        "MinCount": count,
        "MaxCount": count,
        "TagSpecification.1.ResourceType": "instance",
    }
    for number, (key, value) in enumerate(tags.items(), 1):
        form[f"TagSpecification.1.Tag.{number}.Key"] = key
        form[f"TagSpecification.1.Tag.{number}.Value"] = value
    status, body = cloud._ask(urlencode(form), {"Authorization": SIGNED.format(region)})
    assert status == 200, body
    ids = ElementTree.fromstring(body).iterfind(".//{*}instancesSet/{*}item/{*}instanceId")
    return [id.text for id in ids]


def states(cloud, ids):
    """The states of these machines, by id."""
    found = {}
    for region in REGIONS:
        form = {"Action": "DescribeInstances", "Version": "2016-11-15", "MaxResults": "1000"}
        headers = {"Authorization": SIGNED.format(region)}
        _, body = cloud._ask(urlencode(form), headers)
        for instance in ElementTree.fromstring(body).iterfind(".//{*}instancesSet/{*}item"):
            id = instance.findtext("{*}instanceId")
            if id in ids:
                found[id] = instance.findtext("{*}instanceState/{*}name")
    return found


@pytest.fixture
def taskcluster():
    configs = [launch_config(region) for region in REGIONS]
    config = {
        "minCapacity": N_MACHINES,
        "maxCapacity": N_MACHINES + 5,
        "scalingRatio": 1,
        "launchConfigs": configs,
    }
    played = Taskcluster(config)
    yield played
    played.close()


def machines_of(taskcluster, cloud):
    """Makes the machines, and the rows of all but the last. Returns their ids."""
    tags = {
        "CreatedBy": "taskcluster-wm-ec2",
        "ManagedBy": "taskcluster",
        "Name": POOL,
        "Owner": "ops@example.com",
        "WorkerPoolId": POOL,
    }
    made = []
    for region in REGIONS:
        for id in run_instances(cloud, region, N_MACHINES // len(REGIONS), tags):
            made.append(id)
            worker = {
                "workerPoolId": POOL,
                "workerGroup": region,
                "workerId": id,
                "providerId": "ec2",
                "launchConfigId": f"lc-{region}",
                "capacity": 1,
                "state": "running" if len(made) % 4 else "requested",
                "created": "2026-11-01T00:00:00.000Z",
                "expires": "2036-11-01T00:00:00.000Z",
                "lastModified": "2026-11-01T00:00:00.000Z",
                "lastChecked": "2026-11-01T00:00:00.000Z",
            }
            taskcluster.workers.append(worker)
    taskcluster.workers.pop()
    # Others' machines in the same account stay as they are.
    others = run_instances(cloud, REGIONS[0], 2, {"CreatedBy": "taskcluster-wm-other"})
    return made, others


def test_machines_are_counted_at_once_and_nothing_is_doubled(taskcluster, ec2, tmp_path):
    cloud = ec2(*REGIONS)
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
            lambda: states(cloud, {removed["workerId"]})[removed["workerId"]] in GONE,
            SECONDS,
            "its machine has ended",
        )
        wait_until(lambda: len(all_rows()) == N_MACHINES, SECONDS, "it is replaced")
        kept = states(cloud, set(made + others) - {removed["workerId"]})
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
