"""The Debian package, on a machine with systemd: installed, started, asked, upgraded, removed.

The tests of the machine are steps of one story, in the order of this file.
"""

import json
import re
import subprocess

import pytest
from conftest import ARCHITECTURES, DEBIAN_NAMES, blocks_of_page
from machine import wait_until

CONFIGURATION = "/etc/fleetwright/fleetwright.toml"
DATA = "/var/lib/fleetwright"
TASK = ["fleetwright", "task", "create", "--pool", "local/default"]
# How much of a service's machine is open to it, by `systemd-analyze security`: 0 is best, 10 worst.
# The server and the worker start tasks, which are any programs.
EXPOSURE = {"fleetwright": 3.0, "fleetwright-worker": 2.6, "fleetwright-relay": 1.1}


@pytest.fixture(scope="module")
def installed(machine, debian_package):
    """Installed as an administrator does it, without a network."""
    package = machine.add(debian_package)
    machine.run("apt-get", "install", "--yes", "--no-install-recommends", package)
    return package


def test_lintian_finds_no_error(machine, debian_package):
    package = machine.add(debian_package)
    done = machine.run("lintian", "--allow-root", "--fail-on=error,warning", package, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_packages_of_all_machines_have_the_same_files(packages, version):
    def files(name):
        package = packages / f"fleetwright_{version}-1_{name}.deb"
        listing = ["dpkg-deb", "--contents", package]
        lines = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
        return [(line.split()[0], line.split()[5]) for line in lines.splitlines()]

    listed = [files(DEBIAN_NAMES[architecture]) for architecture in ARCHITECTURES]
    assert all(one == listed[0] for one in listed)
    assert ("-rwxr-xr-x", "./usr/bin/fleetwright") in listed[0]


def test_the_service_runs_after_the_installation(machine, installed):
    is_active = lambda: machine.output("systemctl", "is-active", "fleetwright", check=False)  # noqa: E731
    assert is_active() == "active", machine.journal("fleetwright")
    assert machine.output("systemctl", "is-enabled", "fleetwright") == "enabled"
    for other in ["fleetwright-worker", "fleetwright-relay"]:
        assert machine.output("systemctl", "is-enabled", other, check=False) == "disabled"
    modes = machine.output(
        "stat", "--format=%a %U %G", "/var/lib/fleetwright", "/etc/fleetwright/fleetwright.toml"
    )
    assert modes.splitlines() == ["700 fleetwright fleetwright", "640 root fleetwright"]
    # Nobody reads a link that signs in as the owner in the journal.
    wait_until(lambda: machine.run("fleetwright", "status", check=False).returncode == 0, "ready")
    assert "/link" not in machine.journal("fleetwright")
    assert "ready" in machine.journal("fleetwright") or "listen" in machine.journal("fleetwright")


def test_root_gets_the_log_of_a_first_task_without_any_settings(machine, installed):
    assert "hello" in machine.output(*TASK, "--log", "--", "echo", "hello")
    status = json.loads(machine.output("fleetwright", "status", "--json"))
    assert status["pools"], status
    refused = machine.run("fleetwright", "status", user="nobody", check=False)
    assert refused.returncode == 2 and "`sudo`" in refused.stderr, refused.stderr


def test_doctor_of_the_service_accepts_what_its_group_can_read(machine, installed):
    for path, text in {
        "/etc/fleetwright/metrics.token": "A" * 44 + "\n",
        "/etc/fleetwright/checked.toml": machine.output("cat", CONFIGURATION)
        + '\n[metrics]\ntoken_file = "/etc/fleetwright/metrics.token"\n',
    }.items():
        machine.write(path, text, 0o640)
        machine.run("chown", "root:fleetwright", path)
    for configuration in [CONFIGURATION, "/etc/fleetwright/checked.toml"]:
        doctor = ["fleetwright", "doctor", "--json", "--config", configuration, "--data", DATA]
        findings = json.loads(machine.output(*doctor, user="fleetwright"))["findings"]
        assert [one for one in findings if "can read or change" in one["what"]] == [], findings


def test_a_restart_of_the_server_disturbs_no_task(machine, installed):
    script = "echo begin; until [ -e /tmp/go ]; do sleep 0.1; done; echo end >/tmp/end; echo end"
    task = machine.output(*TASK, "--json", "--", "sh", "-c", script)
    task = json.loads(task)["status"]["taskId"]
    log = lambda: machine.run("fleetwright", "task", "log", task, check=False).stdout  # noqa: E731
    wait_until(lambda: "begin" in log(), "the task runs")
    restart(machine)
    machine.write("/tmp/go", "")
    wait_until(lambda: "end\n" in log(), "the task ends")
    status = lambda: json.loads(machine.output("fleetwright", "task", "show", task, "--json"))  # noqa: E731
    runs = wait_until(
        lambda: status()["state"] == "completed" and status()["runs"],
        "the task is completed",
    )
    assert len(runs) == 1, runs
    # The temporary folders are those of the machine.
    assert machine.output("cat", "/tmp/end") == "end"


def test_a_task_reaches_neither_the_system_nor_homes(machine, installed):
    # The modes alone would let the service write the one and read the other.
    machine.run("install", "-d", "--owner=fleetwright", "/srv/ours", "/home/ana")
    machine.write("/home/ana/notes", "private\n")
    script = """
        id -un
        touch /srv/ours/new 2>/dev/null && echo wrote
        cat /home/ana/notes 2>/dev/null
        ls /home >/dev/null 2>&1 && echo homes
        grep -E '^(NoNewPrivs|CapBnd):' /proc/self/status
    """
    elsewhere = machine.output("sh", "-c", script, user="fleetwright").split()
    assert {"wrote", "private", "homes"} <= set(elsewhere), elsewhere
    log = machine.output(*TASK, "--log", "--", "sh", "-c", script)
    lines = [line.split() for line in log.splitlines()]
    assert ["fleetwright"] in lines, log
    for line in ["wrote", "private", "homes"]:
        assert [line] not in lines, log
    assert ["NoNewPrivs:", "1"] in lines and ["CapBnd:", "0000000000000000"] in lines, log


def test_a_drop_in_opens_a_low_port_and_devices(machine, installed):
    configuration = machine.output("cat", CONFIGURATION) + "\n"
    machine.write(CONFIGURATION, configuration.replace("127.0.0.1:8080", "127.0.0.1:443"), 0o640)
    machine.run("mkdir", "/etc/systemd/system/fleetwright.service.d")
    drop_ins = "".join(blocks_of_page("ini"))
    machine.write("/etc/systemd/system/fleetwright.service.d/override.conf", drop_ins)
    # The machine has no hardware. For the unit a file of the same name is a device.
    machine.run("groupadd", "--force", "--system", "kvm")
    machine.run("sh", "-c", "echo a device >/dev/kvm; chgrp kvm /dev/kvm; chmod 640 /dev/kvm")
    restart_without_workers(machine)
    assert ":443" in machine.output("cat", f"{DATA}/owner.env")
    assert "a device" in machine.output(*TASK, "--log", "--", "cat", "/dev/kvm")
    machine.run("rm", "-r", "/etc/systemd/system/fleetwright.service.d")
    machine.write(CONFIGURATION, configuration, 0o640)
    restart_without_workers(machine)


def restart_without_workers(machine):
    """Workers that run keep their address and their rights, and would get the next task."""
    machine.run("systemctl", "stop", "fleetwright")
    machine.run("systemctl", "kill", "--signal=KILL", "fleetwright", check=False)
    machine.run("systemctl", "daemon-reload")
    restart(machine)


def restart(machine):
    done = machine.run("systemctl", "restart", "fleetwright", check=False)
    assert done.returncode == 0, machine.journal("fleetwright")
    wait_until(lambda: machine.run("fleetwright", "status", check=False).returncode == 0, "ready")


def test_units_are_valid_and_closed(machine, installed):
    for unit, highest in EXPOSURE.items():
        verify = ["systemd-analyze", "verify", f"/lib/systemd/system/{unit}.service"]
        assert machine.run(*verify).stderr.strip() == ""
        shown = machine.output("systemd-analyze", "security", f"{unit}.service", "--no-pager")
        level = float(re.search(r"exposure level for .*: ([0-9.]+)", shown).group(1))
        assert level <= highest, shown


def test_a_worker_of_this_machine_has_a_user_of_its_own(machine, installed):
    pool = ["fleetwright", "pool", "create", "hardware/box", "--provider", "static"]
    machine.run(*pool, "--owner", "admin@example.com")
    made = machine.output(
        "fleetwright", "worker", "create", "hardware/box", "rack", "box-1", "--new-secret", "--json"
    )
    secret = json.loads(made)["staticSecret"]
    machine.write("/etc/fleetwright/worker.secret", secret + "\n", 0o400)
    machine.run("chown", "fleetwright-worker", "/etc/fleetwright/worker.secret")
    (environment,) = blocks_of_page("sh file=worker.env")
    machine.write("/etc/fleetwright/worker.env", environment)
    machine.run("systemctl", "enable", "--now", "fleetwright-worker")
    script = "id -un; cat /var/lib/fleetwright/owner.env || echo closed"
    task = ["fleetwright", "task", "create", "--pool", "hardware/box", "--log"]
    log = machine.output(*task, "--", "sh", "-c", script)
    assert "fleetwright-worker" in log and "closed" in log, log
    assert "ACCESS_TOKEN" not in log
    machine.run("systemctl", "disable", "--now", "fleetwright-worker")


def test_a_worker_of_a_cloud_needs_only_the_name_of_its_cloud(machine, installed):
    machine.write(
        "/etc/fleetwright/worker.env",
        "FLEETWRIGHT_WORKER_PROVIDER=aws\nFLEETWRIGHT_METADATA_URL=http://127.0.0.1:1\n",
    )
    machine.run("systemctl", "start", "fleetwright-worker")
    journal = lambda: machine.journal("fleetwright-worker")  # noqa: E731
    wait_until(lambda: "the metadata service" in journal(), "the worker asks the metadata service")
    machine.run("systemctl", "stop", "fleetwright-worker")


def test_a_relay_runs_as_its_user(machine, installed):
    machine.write("/etc/fleetwright/relay-token", "A" * 44 + "\n", 0o440)
    machine.run("chgrp", "fleetwright-relay", "/etc/fleetwright/relay-token")
    machine.write(
        "/etc/fleetwright/relay.toml",
        """
        relay_id = "dc1"
        root_url = "http://127.0.0.1:8080"
        listen = "127.0.0.1:8126"
        client_id = "relay/dc1"
        access_token_file = "relay-token"

        [dns]
        resolvers = ["127.0.0.1:53"]

        [[hosts]]
        name = "mac-<n>.dc1.example.com"
        worker_pool_id = "hardware/mac"
        worker_group = "dc1"
        worker_id = "mac-<n>"
        """,
    )
    machine.run("systemctl", "start", "fleetwright-relay")
    ask = "exec 3<>/dev/tcp/127.0.0.1/8126; printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3"
    answers = lambda: "200" in machine.run("bash", "-c", ask, check=False).stdout  # noqa: E731
    wait_until(answers, f"the relay answers: {machine.journal('fleetwright-relay')}")
    status = machine.output("systemctl", "show", "--property=MainPID", "fleetwright-relay")
    process = status.split("=")[1]
    assert machine.output("stat", "--format=%U", f"/proc/{process}") == "fleetwright-relay"
    machine.run("systemctl", "stop", "fleetwright-relay")


def test_manual_pages_and_completions_are_found(machine, installed):
    for page in ["fleetwright", "fleetwright-task-create", "fleetwright-up"]:
        assert machine.output("man", "--where", page).endswith(f"/{page}.1.gz")
    complete = """
        . /usr/share/bash-completion/bash_completion
        _completion_loader fleetwright
        spec=$(complete -p fleetwright)
        function=${spec#* -F }; function=${function%% *}
        COMP_WORDS=(fleetwright task cre) COMP_CWORD=2 COMP_LINE='fleetwright task cre' COMP_POINT=20
        COMP_TYPE=9 "$function" fleetwright cre task
        echo "${COMPREPLY[@]}"
    """
    assert machine.output("bash", "-c", complete) == "create"


def test_an_upgrade_keeps_what_the_administrator_wrote(machine, installed):
    configuration = "/etc/fleetwright/fleetwright.toml"
    machine.run("sh", "-c", f"echo '# ours' >>{configuration}; chmod 600 {configuration}")
    machine.run("chown", "fleetwright", configuration)
    process = machine.output("systemctl", "show", "--property=MainPID", "fleetwright")
    options = ["--yes", "--reinstall", "-o", "Dpkg::Options::=--force-confdef"]
    machine.run("apt-get", "install", *options, installed)
    assert machine.output("systemctl", "show", "--property=MainPID", "fleetwright") != process
    assert "# ours" in machine.output("cat", configuration)
    assert machine.output("stat", "--format=%a %U", configuration) == "600 fleetwright"
    wait_until(lambda: machine.run("fleetwright", "status", check=False).returncode == 0, "ready")


def test_a_removal_keeps_the_data_and_a_purge_deletes_it(machine, installed):
    exists = lambda path: machine.run("test", "-e", path, check=False).returncode == 0  # noqa: E731
    processes = lambda: machine.output("find", "/proc", "-maxdepth", "1", "-user", "fleetwright")  # noqa: E731
    script = "echo begin >/tmp/begun; until [ -e /tmp/never ]; do sleep 0.1; done"
    machine.run(*TASK, "--", "sh", "-c", script)
    wait_until(lambda: exists("/tmp/begun"), "the task runs")
    # Without a server workers end by themselves after a while, but not if they do not run.
    machine.run("systemctl", "stop", "fleetwright")
    workers = " ".join(path.split("/")[2] for path in processes().split())
    machine.run("sh", "-c", f"kill -STOP {workers}", check=False)
    machine.run("apt-get", "remove", "--yes", "fleetwright")
    wait_until(lambda: not processes(), "workers and tasks are ended")
    assert machine.output("systemctl", "is-active", "fleetwright", check=False) != "active"
    assert not exists("/usr/bin/fleetwright")
    assert exists("/var/lib/fleetwright/fleetwright.sqlite")
    assert exists("/etc/fleetwright/fleetwright.toml")
    machine.run("apt-get", "purge", "--yes", "fleetwright")
    assert not exists("/var/lib/fleetwright")
    for name in ["fleetwright.toml", "worker.env", "relay.toml"]:
        assert not exists(f"/etc/fleetwright/{name}"), name
    assert exists("/etc/fleetwright/worker.secret")
    assert not exists("/etc/systemd/system/multi-user.target.wants/fleetwright.service")
