#!/usr/bin/env python3
"""Starts a Fleetwright of its own for a test, or for any command.

    tests/interop/fleet_server.py [--database sqlite|postgres] -- COMMAND [ARGUMENT…]

The command finds the server through TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID and
TASKCLUSTER_ACCESS_TOKEN, as every Taskcluster client does; `{root_url}` in an argument is replaced.
Only Python's standard library is used here. FLEETWRIGHT_BINARY names the program, by default the
workspace's debug build; TEST_PG_URL names the PostgreSQL server in which databases are made.
"""

import argparse
import base64
import http.client
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

CHECKOUT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
STOP_SECONDS = 20
POLL_SECONDS = 0.05
LOG_LINES = 40
READY = b"fleetwright is ready at"

DRAIN_SECONDS = 3

SETTINGS = f"""
[auth]
accept_mac_over_path_only = true # The Rust client signs so.
[server]
check_responses = true
drain_seconds = {DRAIN_SECONDS}
[artifacts]
listen = "127.0.0.1:0"
[providers.static]
kind = "static"
"""
# The providers of a real fleet, in memory.
FAKE_CLOUDS = """
[providers.community-tc-workers-google]
kind = "fake"
accepts = "google"
[providers.community-tc-workers-azure]
kind = "fake"
accepts = "azure"
[providers.community-tc-workers-aws]
kind = "fake"
accepts = "aws"
"""


class FleetServer:
    """One server process over one data folder; it can be stopped and started again."""

    def __init__(
        self,
        folder,
        database="sqlite",
        address="127.0.0.1",
        port=None,
        further="",
        beside=None,
        clouds=FAKE_CLOUDS,
        auth=None,
    ):
        """`beside`: another server on PostgreSQL, with which it shares all but the address.
        `auth`: another server, whose clients and roles it uses."""
        self.folder = Path(folder)
        self.settings = SETTINGS + clouds + further
        self.address = address
        self.port = port or free_port(address)
        self.root_url = f"http://{address}" + ("" if self.port == 80 else f":{self.port}")
        self.log = self.folder / "log"
        self.process = None
        self._credentials = None
        if auth:
            self._credentials = auth.credentials
            self.settings += auth.as_auth_service()
        if beside:
            self._command = self._serve_beside(beside)
        elif database == "postgres":
            self._command = self._serve_on_postgres()
        else:
            self._command = self._up()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()

    def start(self):
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                [binary(), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )
        try:
            wait_until(self._is_ready, START_SECONDS, f"{self.root_url} is ready")
        except BaseException:
            self.kill()
            print(self.log_tail(), file=sys.stderr)
            raise
        return self

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=STOP_SECONDS):
        """The exit code, once the process has ended."""
        return self.process.wait(seconds)

    def stop(self):
        self.terminate()
        return self.wait()

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def is_alive(self):
        return self.process.poll() is None and self._answers("/live")

    def log_tail(self):
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join([f"--- the end of {self.log}:", *lines])

    @property
    def owner_file(self):
        return self.folder / "data" / "owner.env"

    @property
    def credentials(self):
        if self._credentials:
            return self._credentials
        variables = read_exports(self.owner_file)
        return {
            "clientId": variables["TASKCLUSTER_CLIENT_ID"],
            "accessToken": variables["TASKCLUSTER_ACCESS_TOKEN"],
        }

    @property
    def environment(self):
        """The variables by which a client finds this server."""
        return {
            "TASKCLUSTER_ROOT_URL": self.root_url,
            "TASKCLUSTER_CLIENT_ID": self.credentials["clientId"],
            "TASKCLUSTER_ACCESS_TOKEN": self.credentials["accessToken"],
        }

    def as_auth_service(self):
        """The settings of a server that uses this one's clients."""
        return f"""
[auth.taskcluster]
root_url = "{self.root_url}"
client_id = "{self.credentials["clientId"]}"
access_token = "{self.credentials["accessToken"]}"
"""

    def _up(self):
        config = self._write_config(self.settings)
        data = str(self.folder / "data")
        listen = f"{self.address}:{self.port}"
        return [
            *("up", "--data", data, "--listen", listen),
            *("--root-url", self.root_url, "--config", config),
        ]

    def _serve_on_postgres(self):
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        keys = self.folder / "keys"
        keys.write_text(f"first {key}\n")
        keys.chmod(0o600)
        self._credentials = {"clientId": "static/owner", "accessToken": secrets.token_hex(22)}
        config = f"""
listen = "{self.address}:{self.port}"
root_url = "{self.root_url}"
data = "{self.folder / "data"}"
[database]
url = "{create_database()}"
[keys]
file = "{keys}"
{self.settings}
[[auth.static_clients]]
client_id = "{self._credentials["clientId"]}"
access_token = "{self._credentials["accessToken"]}"
scopes = ["*"]
description = "Owns the fleet under test."
"""
        return ["serve", "--config", self._write_config(config)]

    def _serve_beside(self, other):
        self._credentials = other.credentials
        config = (other.folder / "config.toml").read_text()
        listen = [f'listen = "{server.address}:{server.port}"' for server in (other, self)]
        return ["serve", "--config", self._write_config(config.replace(*listen))]

    def _write_config(self, text):
        file = self.folder / "config.toml"
        file.write_text(text)
        file.chmod(0o600)
        return str(file)

    def _is_ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(
                f"the server ended with {self.process.returncode} before it was ready"
            )
        # It answers before it has made what a first start makes, and says when it has.
        return READY in self.log.read_bytes()[self._log_start :] and self._answers("/ready")

    def _answers(self, path):
        connection = http.client.HTTPConnection(self.address, self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def binary():
    target = os.environ.get("CARGO_TARGET_DIR", CHECKOUT / "target")
    program = Path(os.environ.get("FLEETWRIGHT_BINARY") or Path(target) / "debug" / "fleetwright")
    if not program.is_file():
        raise FileNotFoundError(f"{program} does not exist: `cargo build` makes it")
    return str(program)


def free_port(address):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def wait_until(is_so, seconds, what):
    """Waits for a level; says what it waited for when that does not come."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds} s it is still not so that {what}")
        time.sleep(POLL_SECONDS)


def create_database():
    """Makes an empty database on the server of TEST_PG_URL; the server's owner throws all away."""
    server = os.environ["TEST_PG_URL"]
    name = f"interop_{secrets.token_hex(6)}"
    statement = f"CREATE DATABASE {name}"
    subprocess.run(["psql", server, "--quiet", "--command", statement], check=True)
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def read_exports(file):
    """The variables of a file that a shell can source."""
    lines = re.findall(r"^export (\w+)=(.*)$", Path(file).read_text(), re.MULTILINE)
    return {name: "".join(shlex.split(value)) for name, value in lines}


def _environment():
    """The server's own: credentials of the person who runs the tests must not reach it."""
    ours = {name: value for name, value in os.environ.items() if "TASKCLUSTER" not in name}
    return {**ours, "RUST_BACKTRACE": "1", "NO_COLOR": "1"}


def main():
    parser = argparse.ArgumentParser(description="Runs a command beside a server of its own.")
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("which command?")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="fleetwright-") as folder:
        with FleetServer(folder, arguments.database) as server:
            command = [word.replace("{root_url}", server.root_url) for word in command]
            code = subprocess.run(command, env={**os.environ, **server.environment}).returncode
            alive = server.is_alive()
            if not alive:
                print("the server did not survive the command", file=sys.stderr)
            if code or not alive:
                print(server.log_tail(), file=sys.stderr)
            return code or int(not alive)


if __name__ == "__main__":
    sys.exit(main())
