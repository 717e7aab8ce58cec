"""A fleet in files: planned, applied, planned again, and judged through the official client."""

import json
import os
import pty
import subprocess

import pytest
from fleet import Fleet, assert_refused, gather, in_an_hour, launch_config, refusal, unique
from fleet_server import CHECKOUT, FleetServer, binary
from raw_http import ask, signed
from taskcluster import Queue, slugId
from workload import task_definition

FLEET_FILE = CHECKOUT.parent / "shared" / "data" / "community-fleet.json"
GOOGLE = "community-tc-workers-google"
COMMAND_SECONDS = 300

DONE, FAILED, USAGE, CONFLICT, DIFFERS = 0, 1, 2, 5, 7

# RFC 124's worker configuration "build", word for word.
RFC = {
    "workerTypes": ["build-opt", "build-dbg"],
    "rules": [
        {
            "ruleId": "basic-options",
            "conditions": None,
            "values": {
                "scalingRatio": 1,
                "owner": "build-team@my-open-source-project.com",
                "description": "configuration for builds",
            },
            "description": "Basic worker options",
        },
        {
            "ruleId": "ec2-ami",
            "conditions": [{"provider": "ec2", "region": "us-east-1"}],
            "values": {"ec2": {"ImageId": "ami-12345abcdef"}},
            "description": "Configure EC2 AMI images to be used",
        },
        {
            "ruleId": "us-east-1a subnets",
            "conditions": [
                {"provider": "ec2", "region": "us-east-1", "availabilityZone": "us-east-1a"}
            ],
            "values": {"ec2": {"SubnetID": "sn-302433abcdef"}},
            "description": "us-east-1a needs own subnet for inter-vpc communication",
        },
    ],
}
RFC_PRESENTED = {"provider": "ec2", "region": "us-east-1", "availabilityZone": "us-east-1a"}
RFC_RESULT = {
    "scalingRatio": 1,
    "owner": "build-team@my-open-source-project.com",
    "description": "configuration for builds",
    "ec2": {"ImageId": "ami-12345abcdef", "SubnetID": "sn-302433abcdef"},
}


class Code:
    """A folder of files, and the program that compares it with a server."""

    def __init__(self, server, folder):
        self.server = server
        self.folder = folder
        self.prefix = unique("code")

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def run(self, *arguments):
        return fleetwright(*arguments, **self.server.environment)

    def plan(self, *options):
        return self.run("plan", "-f", self.folder, *options)

    def apply(self, *options):
        return self.run("apply", "-f", self.folder, "--yes", *options)

    def changes(self):
        """The changes of a plan, in order."""
        planned = self.plan("--json")
        assert planned.returncode == DONE, planned.stderr
        changes = [entry["change"] for entry in json.loads(planned.stdout)["changes"]]
        return [(change["action"], change["kind"], change["id"]) for change in changes]

    def write_fleet(self):
        """One resource of each kind, all with one prefix."""
        prefix = self.prefix
        self.write(
            "owns.yaml",
            f"owns:\n  roles: ['{prefix}:*']\n  clients: ['{prefix}/*']\n"
            f"  workerPools: ['{prefix}/*']\n  workerConfigurations: ['{prefix}*']\n"
            f"  overrides: ['{prefix}*']\n",
        )
        self.write("roles.yaml", f"roles: [{{ roleId: '{prefix}:team', scopes: [b, a] }}]\n")
        self.write(
            "people/ci.toml",
            f'clientId = "{prefix}/ci"\nexpires = "2040-01-01T00:00:00Z"\nscopes = ["x"]\n',
        )
        pool = {"workerPoolId": f"{prefix}/hand", "providerId": "static", "owner": "o@example.com"}
        self.write("hand.json", pool)
        self.write_configuration("m1")

    def write_configuration(self, machine):
        config = launch_config("us-east1-b") | {"machineType": machine}
        zone = config.pop("zone")
        settings = {
            "owner": "build@example.com",
            "description": "Builds",
            "maxCapacity": 4,
            "providers": {GOOGLE: {"places": [{"zone": [zone, "us-east1-c"]}]}},
        }
        rules = [{"ruleId": "settings", "values": settings}]
        rules.append({"ruleId": "machines", "values": {GOOGLE: config}})
        for name in [zone, "us-east1-c"]:
            there = {"zone": name}
            rules.append({"ruleId": name, "conditions": there, "values": {GOOGLE: there}})
        document = {
            "workerConfigurationId": f"{self.prefix}-build",
            "workerTypes": [f"{self.prefix}-opt", f"{self.prefix}-dbg"],
            "rules": rules,
        }
        self.write("build.json", {"workerConfigurations": [document]})


def fleetwright(*arguments, **environment):
    return subprocess.run(
        [binary(), *arguments],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )


@pytest.fixture
def code(server, tmp_path):
    return Code(server, tmp_path / "fleet")


def test_the_second_plan_is_empty(code, owner):
    code.write_fleet()
    prefix = code.prefix
    assert code.changes() == [
        ("create", "role", f"{prefix}:team"),
        ("create", "client", f"{prefix}/ci"),
        ("create", "workerConfiguration", f"{prefix}-build"),
        ("create", "workerPool", f"{prefix}/hand"),
    ]
    assert code.plan("--check").returncode == DIFFERS

    applied = code.apply()
    assert applied.returncode == DONE, applied.stderr
    assert owner.auth.role(f"{prefix}:team")["scopes"] == ["b", "a"]
    assert owner.auth.client(f"{prefix}/ci")["expires"] == "2040-01-01T00:00:00.000Z"
    assert owner.worker_manager.workerPool(f"{prefix}/hand")["providerId"] == "static"
    compiled = owner.worker_manager.workerPool(f"worker-manager/{prefix}-opt")
    assert len(compiled["config"]["launchConfigs"]) == 2

    checked = code.plan("--check")
    assert (checked.returncode, checked.stdout) == (DONE, "nothing to do, 4 unchanged\n")
    again = code.apply()
    assert again.returncode == DONE and "nothing to do" in again.stdout


def test_things_of_others_are_never_touched(code, owner):
    code.write_fleet()
    assert code.apply().returncode == DONE
    others = unique("others")
    owner.auth.createRole(f"{others}:role", {"description": "", "scopes": []})
    theirs = {"providerId": "static", "owner": "o@example.com", "description": "", "config": {}}
    owner.worker_manager.createWorkerPool(f"{others}/pool", theirs | {"emailOnError": False})
    owner.auth.createRole(f"{code.prefix}:old", {"description": "", "scopes": []})
    (code.folder / "hand.json").unlink()
    (code.folder / "build.json").unlink()

    assert code.plan("--no-delete", "--check").returncode == DONE
    assert code.changes() == [
        ("remove", "workerPool", f"{code.prefix}/hand"),
        ("remove", "workerConfiguration", f"{code.prefix}-build"),
        ("remove", "role", f"{code.prefix}:old"),
    ]
    asked = code.run("apply", "-f", code.folder)
    assert asked.returncode == USAGE and "--yes" in asked.stderr
    assert code.apply().returncode == DONE
    gone = refusal(owner.auth.role, f"{code.prefix}:old")
    assert_refused(gone, 404, "ResourceNotFound", "role")
    assert owner.auth.role(f"{others}:role")["roleId"] == f"{others}:role"
    assert owner.worker_manager.workerPool(f"{others}/pool")["providerId"] == "static"
    assert code.plan("--check").returncode == DONE


def test_a_saved_plan_is_refused_once_somebody_changed_something(code, owner, tmp_path):
    code.write_fleet()
    assert code.apply().returncode == DONE
    role, saved = f"{code.prefix}:team", tmp_path / "plan.json"
    code.write("roles.yaml", f"roleId: '{role}'\nscopes: [c]\n")
    code.write_configuration("m2")
    assert code.plan("--out", saved).returncode == DONE

    owner.auth.updateRole(role, {"description": "", "scopes": ["theirs"]})
    refused_plan = code.run("apply", "--plan", saved, "--yes")
    assert refused_plan.returncode == CONFLICT
    assert f"role {role} was changed by another client" in refused_plan.stderr
    pool = owner.worker_manager.workerPool(f"worker-manager/{code.prefix}-opt")
    assert pool["config"]["launchConfigs"][0]["machineType"] == "m1"

    owner.auth.updateRole(role, {"description": "", "scopes": ["b", "a"]})
    applied = code.run("apply", "--plan", saved, "--yes")
    assert applied.returncode == DONE, applied.stderr
    assert owner.auth.role(role)["scopes"] == ["c"]
    pool = owner.worker_manager.workerPool(f"worker-manager/{code.prefix}-opt")
    assert pool["config"]["launchConfigs"][0]["machineType"] == "m2"


def test_what_changes_while_somebody_thinks_about_the_question_is_seen(code, owner):
    code.write_fleet()
    assert code.apply().returncode == DONE
    role = f"{code.prefix}:team"
    code.write("roles.yaml", f"roleId: '{role}'\nscopes: [c]\n")
    code.write_configuration("m2")
    terminal, other_end = pty.openpty()
    asking = subprocess.Popen(
        [binary(), "apply", "-f", code.folder],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **code.server.environment},
        stdin=other_end,
        stdout=subprocess.DEVNULL,
        stderr=other_end,
    )
    os.close(other_end)
    said = read_until(terminal, "[y/N]")
    assert code.server.root_url in said
    owner.auth.updateRole(role, {"description": "", "scopes": ["theirs"]})
    os.write(terminal, b"y\n")
    said = read_until(terminal, "run `fleetwright plan` again")
    assert asking.wait(COMMAND_SECONDS) == CONFLICT, said
    os.close(terminal)
    assert "nothing was changed" in said and f"role {role} was changed by another client" in said, said
    assert owner.auth.role(role)["scopes"] == ["theirs"]
    pool = owner.worker_manager.workerPool(f"worker-manager/{code.prefix}-opt")
    assert pool["config"]["launchConfigs"][0]["machineType"] == "m1"


def read_until(terminal, part):
    """The output of a terminal, up to the expected text."""
    said = ""
    while part not in said:
        read = os.read(terminal, 4096)
        assert read, said
        said += read.decode()
    return said


def test_pools_to_be_taken_over_are_those_that_were_seen(code, owner, tmp_path):
    code.write_fleet()
    saved = tmp_path / "plan.json"
    assert code.plan("--adopt-pools", "--out", saved).returncode == DONE
    pool_id = f"worker-manager/{code.prefix}-opt"
    theirs = {"providerId": "static", "owner": "o@example.com", "description": "", "config": {}}
    owner.worker_manager.createWorkerPool(pool_id, theirs | {"emailOnError": False})
    refused = code.run("apply", "--plan", saved, "--yes")
    assert refused.returncode == CONFLICT, refused.stderr
    assert f"pool {pool_id}, which worker configuration" in refused.stderr
    assert "was created by hand by another client" in refused.stderr
    assert_refused(refusal(owner.auth.role, f"{code.prefix}:team"), 404, "ResourceNotFound", "role")

    assert code.plan("--adopt-pools", "--out", saved).returncode == DONE
    applied = code.run("apply", "--plan", saved, "--yes")
    assert applied.returncode == DONE, applied.stderr
    assert len(owner.worker_manager.workerPool(pool_id)["config"]["launchConfigs"]) == 2
    again = code.run("apply", "--plan", saved, "--yes")
    assert again.returncode == DONE and "4 already done" in again.stdout, again.stderr


def test_a_change_of_a_rule_is_told_to_its_last_consequence(code):
    code.write_fleet()
    assert code.apply().returncode == DONE
    code.write_configuration("m2")
    planned = code.plan()
    for part in [
        "~ rule machines",
        f'/values/{GOOGLE}/machineType: "m1" → "m2"',
        f"~ pool worker-manager/{code.prefix}-opt: 2 replaced launch configs",
        "zone=us-east1-c: lc-",
    ]:
        assert part in planned.stdout, planned.stdout


def test_an_override_is_set_and_taken_back_by_files(code):
    code.write_fleet()
    override = {
        "overrideId": f"{code.prefix}-pause",
        "workerPoolId": f"{code.prefix}/hand",
        "pause": True,
        "reason": "maintenance",
        "until": in_an_hour(),
    }
    path = code.write("pause.json", override)
    assert code.apply().returncode == DONE
    shown = json.loads(code.run("override", "show", override["overrideId"], "--json").stdout)
    assert shown["inForce"] and shown["reason"] == "maintenance"
    assert code.plan("--check").returncode == DONE
    code.write("pause.json", override | {"reason": "still"})
    assert code.changes() == [("update", "override", override["overrideId"])]
    assert code.apply().returncode == DONE
    path.unlink()
    assert code.changes() == [("remove", "override", override["overrideId"])]
    assert code.apply().returncode == DONE
    assert code.plan("--check").returncode == DONE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pools: []\n", ": /pools: unknown key"),
        ("roles: {}\n", ": /roles: must be a list"),
        ("roles:\n  - { roleId: r, scope: [] }\n", ": /roles/0/scope: a role has no such key"),
        ("roles:\n  - { roleId: r }\n  - { roleId: r }\n", "role r is already defined in"),
        ("clientId: c\n", "must have required property 'expires'"),
        ("clientId: static/c\nexpires: 2040-01-01T00:00:00Z\n", "begin with static/"),
        (
            "overrideId: o\nregion: r\npause: true\nreason: r\nuntil: 2999-01-01T00:00:00Z\n",
            "ends within 90 days",
        ),
        ("clientId: c\naccessToken: t\n", "access tokens must not be in files"),
        (
            "workerConfigurationId: w\nworkerTypes: [a]\nrules: [{ ruleId: r, values: 1 }]\n",
            ": /rules/0/values: ",
        ),
        ("owns: { role: [] }\n", ": /owns/role: unknown key"),
        ("owns: { roles: ['x*'] }\nroles: [{ roleId: r }]\n", "role r is not owned"),
        ("roles: []\nclients: [1,\n", "bad.yaml:2:"),
    ],
)
def test_a_mistake_is_told_with_file_and_path(tmp_path, text, said):
    # No server listens there: mistakes are found before a call.
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    planned = fleetwright("plan", "-f", path, TASKCLUSTER_ROOT_URL="http://127.0.0.1:0")
    assert planned.returncode == USAGE, planned.stderr
    assert str(path) in planned.stderr and said in planned.stderr, planned.stderr


def test_the_example_of_rfc_124_gives_its_result_on_the_command_line(tmp_path):
    path = tmp_path / "build.json"
    path.write_text(json.dumps(RFC))
    options = [f"--set={name}={value}" for name, value in RFC_PRESENTED.items()]
    done = fleetwright("rules", "eval", path, *options)
    assert json.loads(done.stdout) == RFC_RESULT, done.stderr
    origins = fleetwright("rules", "eval", path, *options, "--origins", "--json")
    origins = json.loads(origins.stdout)["origins"]
    assert origins["/ec2/SubnetID"] == {"ruleId": "us-east-1a subnets"}
    ours = {"/scalingRatio", "/owner", "/description", "/ec2/ImageId", "/ec2/SubnetID"}
    assert set(origins) == ours


def test_the_example_of_rfc_124_gives_its_result_over_the_api(server):
    question = {"rules": RFC["rules"], "conditions": RFC_PRESENTED}
    path, body = "/api/worker-manager/v1/evaluate-rules", json.dumps(question).encode()
    kind = "application/json"
    headers = {"Content-Type": kind, **signed(server, "POST", path, body, kind)}
    answer = ask(server, f"POST {path} HTTP/1.1", headers, body)
    assert answer.status == 200, answer.body
    result = answer.json()
    assert result["values"] == RFC_RESULT
    assert result["origins"]["/ec2/SubnetID"] == {"ruleId": "us-east-1a subnets"}
    assert result["applying"] == [rule["ruleId"] for rule in RFC["rules"]]


def test_a_fleet_moved_to_rules_and_applied_is_the_fleet_that_was_imported(tmp_path):
    if not FLEET_FILE.exists():
        pytest.skip(f"{FLEET_FILE} is not here: it holds the fleet to bring in")
    (tmp_path / "direct").mkdir()
    (tmp_path / "by-rules").mkdir()
    rules = tmp_path / "rules"
    with FleetServer(tmp_path / "direct") as direct, FleetServer(tmp_path / "by-rules") as by_rules:
        source = ["--from", FLEET_FILE]
        direct_import = ["import", "taskcluster", *source, "--only", "pools"]
        imported = fleetwright(*direct_import, **direct.environment)
        assert imported.returncode == DONE, imported.stderr
        written = fleetwright("import", "rules", *source, "--out", rules)
        assert written.returncode == DONE, written.stderr
        applied = fleetwright("apply", "-f", rules, "--yes", **by_rules.environment)
        assert applied.returncode == DONE, applied.stderr
        assert fleet_of(direct) == fleet_of(by_rules)
        checked = fleetwright("plan", "-f", rules, "--check", **by_rules.environment)
        assert checked.returncode == DONE, checked.stdout


def test_the_example_of_three_clouds_gives_its_launch_configs_and_checks_payloads(tmp_path):
    example = CHECKOUT / "docs" / "examples" / "three-clouds"
    clouds = (example / "clouds.toml").read_text(encoding="utf-8")
    rules = example / "fleet.yaml"
    assert len(rules.read_text(encoding="utf-8").splitlines()) < 80
    linted = fleetwright("rules", "lint", rules)
    assert linted.returncode == DONE, linted.stdout
    with FleetServer(tmp_path, further=clouds) as server:
        applied = fleetwright("apply", "-f", rules, "--yes", **server.environment)
        assert applied.returncode == DONE, applied.stderr
        fleet = fleet_of(server)
        counts = {pool_id: len(pool["ids"]) for pool_id, pool in fleet.items()}
        assert counts == {
            "worker-manager/build-opt": 7,
            "worker-manager/build-dbg": 7,
            "worker-manager/test-linux": 5,
        }
        again = fleetwright("plan", "-f", rules, "--check", **server.environment)
        assert again.returncode == DONE, again.stdout
        options = {"rootUrl": server.root_url, "credentials": server.credentials, "maxRetries": 0}
        queue = Queue(options)
        misfit = task_definition("worker-manager/build-opt", {"commnd": ["true"]})
        refused = refusal(queue.createTask, slugId(), misfit)
        said = "payload must have required property 'command'"
        assert_refused(refused, 400, "InputValidationError", "createTask", said)
        fitting = task_definition("worker-manager/build-opt", {"command": ["true"]})
        queue.createTask(slugId(), fitting)


def fleet_of(server):
    """The pools with their definitions, and their launch configs by id."""
    worker_manager = Fleet(server.root_url, server.credentials).worker_manager
    keys = ["workerPoolId", "providerId", "description", "owner", "emailOnError", "config"]
    pools = gather(worker_manager.listWorkerPools, "workerPools", limit="1000")
    pools = [pool for pool in pools if pool["workerPoolId"] != "local/default"]
    fleet = {pool["workerPoolId"]: {key: pool.get(key) for key in keys} for pool in pools}
    for pool_id, pool in fleet.items():
        configs = worker_manager.listWorkerPoolLaunchConfigs(pool_id)["workerPoolLaunchConfigs"]
        pool["ids"] = sorted(config["launchConfigId"] for config in configs)
    return fleet
