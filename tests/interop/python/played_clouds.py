"""The fakes of Google and Azure, for tests of a server: its configuration, and their machines.

Each also plays a Taskcluster that makes machines there, with its labels or tags.
"""

import json
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from pathlib import Path

PEERS = Path(__file__).resolve().parents[2] / "peers"
OWNER = "ops@example.com"
STEP_SECONDS = 0.2


class Peer:
    """A fake in a process of its own, which ends with this one. Its changes go on by themselves, as
    those of a cloud do."""

    def __init__(self, script, step):
        pipe = subprocess.PIPE
        command = [sys.executable, "-B", PEERS / script]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.url = self._process.stdout.readline().strip().removeprefix("ready at ")
        self._step, self._ends = step, threading.Event()
        self._time = threading.Thread(target=self._time_passes)
        self._time.start()

    def _time_passes(self):
        while not self._ends.wait(STEP_SECONDS):
            self.step()

    def step(self):
        self.ask(f"_fake/{self._step}", {}, "POST")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._time.join()
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def ask(self, path, body=None, method=None, headers=None):
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(f"{self.url}/{path}", content, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


class Google(Peer):
    PROJECT, ZONES = "project-1", ["us-central1-a", "us-central1-b"]

    def __init__(self):
        super().__init__("google.py", "settle")

    def read(self, path):
        return self.ask(f"_fake/{path}")

    def settings(self, provider_id="google"):
        account = json.dumps(self.read("account"))
        return f"""
[providers.{provider_id}]
kind = "google"
project = "{self.PROJECT}"
credentials = {json.dumps(account)}
worker_service_account = "1234567890"
regions = ["us-central1"]
endpoint = "{self.url}"
iam_endpoint = "{self.url}"
certificates_url = "{self.url}/certs"
"""

    def launch_config(self, zone, launch_config_id=None):
        config = {
            "region": zone.rsplit("-", 1)[0],
            "zone": zone,
            "machineType": f"zones/{zone}/machineTypes/n2-standard-4",
            "disks": [{"boot": True}],
            "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
            "scheduling": {"onHostMaintenance": "terminate"},
            "workerConfig": {},
        }
        if launch_config_id:
            config["workerManager"] = {"launchConfigId": launch_config_id}
        return config

    def taskcluster_makes(self, pool_id, provider_id, zone, number):
        """Returns the id of the machine, as its worker has it."""
        path = f"compute/v1/projects/{self.PROJECT}/zones/{zone}/instances"
        kind = f"https://www.googleapis.com/compute/v1/projects/p/zones/{zone}/machineTypes"
        labels = {
            "created-by": f"taskcluster-wm-{provider_id}",
            "managed-by": "taskcluster",
            "worker-pool-id": pool_id.replace("/", "-"),
            "owner": OWNER.replace("@", "-").replace(".", "-"),
        }
        body = {
            "name": f"made-{number}",
            "labels": labels,
            "machineType": f"{kind}/n2-standard-4",
            "disks": [{"boot": True, "autoDelete": True}],
            "networkInterfaces": [{}],
            "metadata": {"items": [{"key": "taskcluster", "value": taskcluster_data(pool_id)}]},
        }
        token = self.ask(
            "computeMetadata/v1/instance/service-accounts/default/token",
            headers={"Metadata-Flavor": "Google"},
        )["access_token"]
        made = self.ask(path, body, "POST", {"Authorization": f"Bearer {token}"})
        self.step()
        self.step()
        return made["targetId"]

    def live(self):
        """The ids of all machines that have not ended."""
        going = {"STOPPING", "TERMINATED"}
        return {it["id"] for it in self.read("instances") if it["status"] not in going}

    def parts(self):
        """All that machines leave behind here."""
        return [it["name"] for it in self.read("instances")]


class Azure(Peer):
    GROUP, LOCATIONS = "ci", ["westus", "eastus"]

    def __init__(self):
        super().__init__("azure.py", "advance")
        self.steer("group", {"name": self.GROUP, "location": "westus"})
        for location in self.LOCATIONS:
            net = {"location": location, "properties": {"subnets": [{"name": "machines"}]}}
            self.put("Microsoft.Network/virtualNetworks", f"net-{location}", net)

    def steer(self, name, order=None):
        return self.ask(f"_fake/{name}", order or {}, "POST")

    def put(self, kind, name, body):
        order = {"type": kind, "group": self.GROUP, "name": name, "body": body}
        self.steer("put", order)

    def settings(self, provider_id="azure", further=""):
        locations = ", ".join(f'"{one}"' for one in self.LOCATIONS)
        return f"""
[providers.{provider_id}]
kind = "azure"
tenant = "t-1"
client_id = "c-1"
client_secret = "hush"
subscription = "s-1"
resource_group = "{self.GROUP}"
locations = [{locations}]
endpoint = "{self.url}"
login_endpoint = "{self.url}"
{further}
"""

    def subnet(self, location):
        return self._id("Microsoft.Network/virtualNetworks", f"net-{location}/subnets/machines")

    def launch_config(self, location, launch_config_id=None):
        config = {
            "location": location,
            "subnetId": self.subnet(location),
            "hardwareProfile": {"vmSize": "Standard_F2"},
            "storageProfile": {
                "imageReference": {"id": "/images/1"},
                "osDisk": {"createOption": "FromImage"},
            },
            "workerConfig": {},
        }
        if launch_config_id:
            config["workerManager"] = {"launchConfigId": launch_config_id}
        return config

    def taskcluster_makes(self, pool_id, provider_id, location, number):
        """Returns the id of the machine, as its worker has it."""
        vm = f"vm-{number:035}"
        tags = {
            "created-by": f"taskcluster-wm-{provider_id}",
            "managed-by": "taskcluster",
            "provider-id": provider_id,
            "worker-group": location,
            "worker-pool-id": pool_id,
            "root-url": "https://tc.example.com",
            "owner": OWNER,
        }

        def make(kind, name, properties):
            self.put(kind, name, {"location": location, "tags": tags, "properties": properties})
            return self._id(kind, name)

        address = make("Microsoft.Network/publicIPAddresses", f"pip-{number}", {})
        network = {"subnet": {"id": self.subnet(location)}, "publicIPAddress": {"id": address}}
        configurations = {"ipConfigurations": [{"name": "one", "properties": network}]}
        nic = make("Microsoft.Network/networkInterfaces", f"nic-{number}", configurations)
        properties = {
            "hardwareProfile": {"vmSize": "Standard_F2"},
            "networkProfile": {"networkInterfaces": [{"id": nic}]},
            "storageProfile": {"osDisk": {"createOption": "FromImage", "name": f"disk-{number}"}},
        }
        make("Microsoft.Compute/virtualMachines", vm, properties)
        self.step()
        return vm

    def live(self):
        return {self._name(it) for it in self._resources() if "/virtualmachines/" in it}

    def parts(self):
        """All that machines leave behind here."""
        return [it for it in self._resources() if "/virtualnetworks/" not in it]

    def _resources(self):
        return self.ask("_fake/resources")

    def _id(self, kind, name):
        return f"/subscriptions/s-1/resourceGroups/{self.GROUP}/providers/{kind}/{name}"

    @staticmethod
    def _name(resource):
        return resource.rsplit("/", 1)[1]


def taskcluster_data(pool_id):
    return json.dumps({"workerPoolId": pool_id, "rootUrl": "https://tc.example.com"})
