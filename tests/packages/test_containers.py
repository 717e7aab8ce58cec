"""The image, the compose file and the manifests: read by the tools of others and by the program."""

import base64
import json
import os
import re
import subprocess

import pytest
import yaml
from conftest import ARCHITECTURES, CACHE, CHECKOUT, DEBIAN_NAMES

PACKAGING = CHECKOUT / "packaging"
USER = 65532
VALUES = {"FLEETWRIGHT_PASSWORD": "a-password_of_24_letters", "FLEETWRIGHT_IMAGE": "fleetwright:1"}


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def program(unpacked):
    return unpacked(os.uname().machine) / "bin/fleetwright"


def doctor_accepts(program, folder, configuration):
    """What `doctor` finds about a configuration that it can read: it may only miss servers."""
    file = folder / "fleetwright.toml"
    file.write_text(configuration)
    file.chmod(0o600)
    doctor = [program, "doctor", "--json", "--config", file, "--data", folder / "data"]
    (folder / "data").mkdir(mode=0o700)
    done = subprocess.run(doctor, capture_output=True, text=True)
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert "the configuration is valid" in [finding["what"] for finding in findings], findings
    return " ".join(finding["what"] for finding in findings if finding["state"] != "good")


def test_hadolint_accepts_the_containerfile():
    run("hadolint", "--failure-threshold=style", PACKAGING / "oci/Containerfile")


def test_the_context_of_the_image_has_all_that_is_copied(packages):
    context = packages / "image"
    text = (context / "Containerfile").read_text()
    assert text == (PACKAGING / "oci/Containerfile").read_text()
    copied = re.findall(r"^COPY (?:--\S+ )*(.+) \S+$", text, re.MULTILINE)
    for name in " ".join(copied).split():
        for architecture in ARCHITECTURES:
            file = name.replace("${TARGETARCH}", DEBIAN_NAMES[architecture])
            assert (context / file).exists(), file


def test_a_build_without_its_base_has_the_program_and_the_user(packages, unpacked, tmp_path):
    storage = ["--root", tmp_path / "storage", "--runroot", tmp_path / "run", "--storage-driver=vfs"]
    context = packages / "image"
    options = ["--isolation=chroot", "--build-arg=BASE=scratch", "--format=oci"]
    archive = tmp_path / "image"
    run("buildah", *storage, "build", *options, "--tag=fleetwright:test", context)
    run("buildah", *storage, "push", "fleetwright:test", f"oci:{archive}")
    blob = lambda digest: (archive / "blobs" / digest.replace(":", "/")).read_bytes()  # noqa: E731
    index = json.loads((archive / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]["digest"]))
    config = json.loads(blob(manifest["config"]["digest"]))["config"]
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["/usr/bin/fleetwright"]
    assert config["Cmd"][0] == "up"
    root = tmp_path / "root"
    root.mkdir()
    for layer in manifest["layers"]:
        subprocess.run(["tar", "-xz", "-C", root], input=blob(layer["digest"]), check=True)
    program = (root / "usr/bin/fleetwright").read_bytes()
    assert program == (unpacked("x86_64") / "bin/fleetwright").read_bytes()
    data = (root / "var/lib/fleetwright").stat()
    assert (data.st_uid, data.st_gid) == (USER, USER)


def filled(text):
    """The compose file with its variables, as `docker compose` fills them."""
    return re.sub(r"\$\{(\w+)(?::[-?][^}]*)?\}", lambda found: VALUES[found.group(1)], text)


@pytest.fixture(scope="module")
def compose(tmp_path_factory):
    """The compose file as the library of `docker compose` understands it."""
    folder = tmp_path_factory.mktemp("compose")
    file = folder / "compose.yaml"
    file.write_text(filled((PACKAGING / "compose/compose.yaml").read_text()))
    output = run(CACHE / "go/bin/compose-spec", "-format=json", file, cwd=folder)
    return json.loads(output)


def test_the_compose_file_has_the_four_services(compose):
    assert set(compose["services"]) == {"server", "postgres", "rabbitmq", "zookeeper"}
    server = compose["services"]["server"]
    # Only the server can be reached, and only from this machine.
    ports = {name: service.get("ports", []) for name, service in compose["services"].items()}
    assert [port["host_ip"] for port in ports.pop("server")] == ["127.0.0.1"]
    assert all(not ports for ports in ports.values())
    assert compose["networks"]["inside"]["internal"] is True
    assert server["read_only"] is True and server["cap_drop"] == ["ALL"]


def test_the_compose_file_refuses_to_start_without_a_password():
    text = (PACKAGING / "compose/compose.yaml").read_text()
    assert "${FLEETWRIGHT_PASSWORD:?" in text


def test_the_server_understands_its_configuration_of_the_compose_file(compose, program, tmp_path):
    configs = {name: config["content"] for name, config in compose["configs"].items()}
    configuration = configs["fleetwright.toml"]
    for name in ["amqp.url", "zookeeper.password"]:
        (tmp_path / name).write_text(configs[name])
        (tmp_path / name).chmod(0o600)
        configuration = configuration.replace(f"/etc/fleetwright/{name}", str(tmp_path / name))
    assert str(tmp_path) in configuration
    # Nobody answers there, and no name is looked up.
    for host in ["@postgres/", "@rabbitmq:5672/", "zookeeper:2181"]:
        assert host in configuration + configs["amqp.url"]
        nowhere = f"{'@' * host.startswith('@')}127.0.0.1:1{'/' * host.endswith('/')}"
        configuration = configuration.replace(host, nowhere)
        amqp = tmp_path / "amqp.url"
        amqp.write_text(amqp.read_text().replace(host, nowhere))
    mounted = {config["source"] for config in compose["services"]["server"]["configs"]}
    assert mounted == set(configs)
    missing = doctor_accepts(program, tmp_path, configuration)
    for server in ["database", "broker", "ZooKeeper"]:
        assert server in missing, missing


@pytest.fixture(scope="module", params=["base", "postgres"])
def manifests(request):
    text = run(CACHE / "go/bin/kustomize", "build", PACKAGING / "kubernetes" / request.param)
    return text


def test_the_manifests_fit_the_schemas_of_kubernetes(manifests, tmp_path):
    file = tmp_path / "all.yaml"
    file.write_text(manifests)
    run("kubernetes-validate", "--strict", file)


def test_pods_have_no_rights_and_the_server_understands_its_secret(manifests, program, tmp_path):
    objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(manifests)}
    assert {one["metadata"].get("namespace") for one in objects.values()} == {None, "fleetwright"}
    pod = objects["StatefulSet", "fleetwright"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    secret = pod["volumes"][0]["secret"]["secretName"]
    configuration = objects["Secret", secret]["data"]["fleetwright.toml"]
    doctor_accepts(program, tmp_path, base64.b64decode(configuration).decode())
    service = objects["Service", "fleetwright"]["spec"]
    assert service["selector"] == objects["StatefulSet", "fleetwright"]["spec"]["selector"][
        "matchLabels"
    ]
