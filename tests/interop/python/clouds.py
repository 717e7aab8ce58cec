"""The programs that play clouds, for pools on their providers."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

PEERS = Path(__file__).resolve().parents[2] / "peers"
SUBNET = (
    "/subscriptions/s-1/resourceGroups/ci/providers/"
    "Microsoft.Network/virtualNetworks/net/subnets/machines"
)


class Peer:
    """One program, which ends with the test."""

    program = ""

    def __enter__(self):
        command = [sys.executable, "-B", PEERS / self.program]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.url = self.process.stdout.readline().strip().removeprefix("ready at ")
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def read(self, path, order=None):
        data = None if order is None else json.dumps(order).encode()
        with urllib.request.urlopen(f"{self.url}/_fake/{path}", data) as answer:
            return json.load(answer)

    def metadata_url(self, name):
        return f"{self.url}/_fake/machines/{name}"


class FakeGoogle(Peer):
    program = "google.py"
    group = "us-central1-a"

    def settings(self, _folder):
        account = json.dumps(self.read("account"))
        return f"""
[providers.google]
kind = "google"
project = "project-1"
credentials = {json.dumps(account)}
worker_service_account = "1234567890"
regions = ["us-central1"]
endpoint = "{self.url}"
iam_endpoint = "{self.url}"
certificates_url = "{self.url}/certs"
"""

    def machines(self):
        """The names of the machines that run, by the ids of their workers."""
        ends = ("STOPPING", "TERMINATED")
        return {
            it["id"]: it["name"] for it in self.read("instances") if it["status"] not in ends
        }

    def give_notice(self, worker_id):
        self.read(f"notice/{worker_id}", {})


class FakeAzure(Peer):
    program = "azure.py"
    group = "westus"

    def __enter__(self):
        super().__enter__()
        self.read("group", {"name": "ci", "location": self.group})
        subnets = {"location": self.group, "properties": {"subnets": [{"name": "machines"}]}}
        self.put("Microsoft.Network/virtualNetworks", "net", subnets)
        return self

    def put(self, kind, name, body):
        self.read("put", {"type": kind, "group": "ci", "name": name, "body": body})

    def settings(self, folder):
        authority = self.read("authority", {})
        roots = Path(folder) / "roots.pem"
        roots.write_text(authority["root"] + authority["issuer"])
        return f"""
[providers.azure]
kind = "azure"
tenant = "t-1"
client_id = "c-1"
client_secret = "hush"
subscription = "s-1"
resource_group = "ci"
locations = ["{self.group}"]
endpoint = "{self.url}"
login_endpoint = "{self.url}"
identity_roots_file = "{roots}"
"""

    def machines(self):
        """As for Google; workers are named as their machines. Operations go on."""
        self.read("advance", {})
        names = [it.rsplit("/", 1)[1] for it in self.read("resources") if "/virtualmachines/" in it]
        return {name: name for name in names}

    def give_notice(self, worker_id):
        self.read("event", {"machine": worker_id, "type": "Freeze"})
        self.read("event", {"machine": worker_id, "type": "Preempt"})
