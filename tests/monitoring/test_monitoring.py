"""The alerts and the dashboard that the program prints, on Prometheus and the demo.

`./check all` runs it: it needs `prometheus` and `promtool`.
"""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("FLEETWRIGHT_BINARY", CHECKOUT / "target/debug/fleetwright")
# A series needs a minute or two: gauges are renewed every half minute.
SECONDS = 300


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def printed(*command):
    return subprocess.run([PROGRAM, *command], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    address = f"127.0.0.1:{free_port()}"
    folder = tmp_path_factory.mktemp("demo")
    command = [PROGRAM, "demo", "--listen", address, "--data", folder / "data", "--rate", "6"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    yield address
    stop(server)


@pytest.fixture(scope="module")
def prometheus(demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "alerts.yaml").write_text(printed("config", "alerts"))
    (folder / "prometheus.yaml").write_text(f"""
global: {{scrape_interval: 2s, evaluation_interval: 2s}}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: fleetwright
    static_configs: [{{targets: ["{demo}"]}}]
""")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    yield address
    stop(server)


def stop(server):
    server.send_signal(signal.SIGTERM)
    server.wait(60)


def ask(address, path, **query):
    url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)["data"]


def wait_until(check, what):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            if check():
                return
        except OSError:
            pass  # It starts.
        time.sleep(0.5)
    pytest.fail(f"{what} within {SECONDS} s")


def queries():
    dashboard = json.loads(printed("config", "dashboard"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$pool", ".*")


def test_promtool_accepts_the_alerts(tmp_path):
    rules = tmp_path / "alerts.yaml"
    rules.write_text(printed("config", "alerts"))
    checked = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert re.search(r"SUCCESS: \d+ rules found", checked.stdout), checked.stdout


@pytest.mark.parametrize(("title", "query"), list(queries()))
def test_each_panel_shows_something_of_the_demo(prometheus, title, query):
    def has_data():
        return ask(prometheus, "query", query=query)["result"]

    wait_until(has_data, f"{title} has data: {query}")


def test_prometheus_can_evaluate_each_alert(prometheus):
    def rules():
        groups = ask(prometheus, "rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_until(lambda: rules() and all(rule["health"] == "ok" for rule in rules()), "alerts work")
    # The server is up, and no provider of the demo is out of service.
    firing = {rule["name"] for rule in rules() if rule["state"] == "firing"}
    assert not firing & {"FleetwrightDown", "FleetwrightProviderOutOfService"}, firing
