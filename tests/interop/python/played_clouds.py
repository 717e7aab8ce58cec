"""The fakes of Google and Azure, for tests of a server: its configuration, and their machines.

Each also plays a Taskcluster that makes machines there, with its labels or tags.
"""

import json
import subprocess
import sys
import tempfile
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
        self._time = threading.Thread(target=self._time_passes, daemon=True)
        self._time.start()

    def _time_passes(self):
        while not self._ends.wait(STEP_SECONDS):
            self.step()

    def step(self):
        self.ask(f"_fake/{self._step}", {}, "POST")

    def live(self):
        """The ids of the workers whose machines have not ended."""
        return set(self.names())

    def metadata_url(self, name):
        """The metadata service of this machine."""
        return f"{self.url}/_fake/machines/{name}"

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
    kind, project = "google", "project-1"
    places = ["us-central1-a", "us-central1-b"]
    regions = ["us-central1"]
    spot = {"scheduling": {"provisioningModel": "SPOT"}}

    def __init__(self):
        super().__init__("google.py", "settle")

    def read(self, path):
        return self.ask(f"_fake/{path}")

    def settings(self, provider_id="google"):
        account = json.dumps(self.read("account"))
        regions = ", ".join(f'"{one}"' for one in self.regions)
        return f"""
[providers.{provider_id}]
kind = "google"
project = "{self.project}"
credentials = {json.dumps(account)}
worker_service_account = "1234567890"
regions = [{regions}]
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
        path = f"compute/v1/projects/{self.project}/zones/{zone}/instances"
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

    def fail(self, calls):
        """Answers none of these calls, such as `instances.*`, until it recovers."""
        self.ask("_fake/faults", [{"call": calls, "times": 1 << 30, "status": 503}], "POST")

    def recover(self):
        self.ask("_fake/no-faults", {}, "POST")

    def names(self):
        """The names of the machines that have not ended, by the ids of their workers."""
        going = {"STOPPING", "TERMINATED"}
        machines = self.read("instances")
        return {it["id"]: it["name"] for it in machines if it["status"] not in going}

    def give_notice(self, worker_id):
        self.ask(f"_fake/notice/{worker_id}", {}, "POST")

    def parts(self):
        """All that machines leave behind here."""
        return [it["name"] for it in self.read("instances")]


class Azure(Peer):
    kind, group = "azure", "ci"
    places = ["westus", "eastus"]
    spot = {"priority": "spot"}

    def __init__(self, subscription="s-1"):
        super().__init__("azure.py", "advance")
        self.subscription = subscription
        self._folder = tempfile.TemporaryDirectory()
        self._groups = set()
        for location in self.places:
            self.add_network(self.group, f"net-{location}", location, "machines")

    def __exit__(self, *_):
        super().__exit__()
        self._folder.cleanup()

    def steer(self, name, order=None):
        return self.ask(f"_fake/{name}", order or {}, "POST")

    def put(self, kind, name, body, group=None):
        group = group or self.group
        if group not in self._groups:
            self._groups.add(group)
            place = {"subscription": self.subscription, "location": "westus"}
            self.steer("group", {"name": group, **place})
        self.steer("put", {"type": kind, "group": group, "name": name, "body": body})

    def add_network(self, group, name, location, subnet="default"):
        net = {"location": location, "properties": {"subnets": [{"name": subnet}]}}
        self.put("Microsoft.Network/virtualNetworks", name, net, group)

    def add_template(self, link):
        """Makes a template spec with this id, for a machine with an interface of its own."""
        *_, group, _, _, _, name, _, version = link.split("/")
        template = json.loads((PEERS / "azure_template.json").read_text())
        kind = "Microsoft.Resources/templateSpecs"
        self.put(kind, f"{name}/versions/{version}", {"properties": {"mainTemplate": template}}, group)

    def settings(self, provider_id="azure"):
        locations = ", ".join(f'"{one}"' for one in self.places)
        authority = self.steer("authority")
        roots = Path(self._folder.name) / "roots.pem"
        roots.write_text(authority["root"] + authority["issuer"])
        return f"""
[providers.{provider_id}]
kind = "azure"
tenant = "t-1"
client_id = "c-1"
client_secret = "hush"
subscription = "{self.subscription}"
resource_group = "{self.group}"
locations = [{locations}]
endpoint = "{self.url}"
login_endpoint = "{self.url}"
identity_roots_file = "{roots}"
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

    def names(self):
        """As for Google: workers are named as their machines."""
        machines = [it for it in self._resources() if "/virtualmachines/" in it]
        names = [it.rsplit("/", 1)[1] for it in machines]
        return {name: name for name in names}

    def give_notice(self, worker_id):
        self.steer("event", {"machine": worker_id, "type": "Freeze"})
        self.steer("event", {"machine": worker_id, "type": "Preempt"})

    def parts(self):
        """All that machines leave behind here."""
        return [it for it in self._resources() if "/virtualnetworks/" not in it]

    def _resources(self):
        return self.ask("_fake/resources")

    def _id(self, kind, name):
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.group}/providers/{kind}/{name}"


def taskcluster_data(pool_id):
    return json.dumps({"workerPoolId": pool_id, "rootUrl": "https://tc.example.com"})
