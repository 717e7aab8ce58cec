"""The image, the compose file and the manifests: read by the tools of others and by the program."""

import base64
import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from bare import USER, Bare
from conftest import ARCHITECTURES, CACHE, CHECKOUT, DEBIAN_NAMES, blocks_of_page

PACKAGING = CHECKOUT / "packaging"
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


@pytest.fixture
def image(packages, architecture, tmp_path):
    """The settings and the files of an image that is built without its base."""
    storage = ["--root", tmp_path / "storage", "--runroot", tmp_path / "run", "--storage-driver=vfs"]
    options = ["--isolation=chroot", "--build-arg=BASE=scratch", "--format=oci"]
    # The builder names the machine, as for an image of several machines.
    platform = f"--platform=linux/{DEBIAN_NAMES[architecture]}"
    archive, context = tmp_path / "image", packages / "image"
    run("buildah", *storage, "build", *options, platform, "--tag=fleetwright:test", context)
    run("buildah", *storage, "push", "fleetwright:test", f"oci:{archive}")
    blob = lambda digest: (archive / "blobs" / digest.replace(":", "/")).read_bytes()  # noqa: E731
    index = json.loads((archive / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]["digest"]))
    root = tmp_path / "root"
    root.mkdir()
    for layer in manifest["layers"]:
        subprocess.run(["tar", "-xz", "-C", root], input=blob(layer["digest"]), check=True)
    return json.loads(blob(manifest["config"]["digest"])), root


def test_an_image_has_the_program_of_its_machine_and_the_user(image, unpacked, architecture):
    settings, root = image
    assert settings["architecture"] == DEBIAN_NAMES[architecture]
    config = settings["config"]
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["/usr/bin/fleetwright"]
    assert config["Cmd"][0] == "up"
    program = (root / "usr/bin/fleetwright").read_bytes()
    assert program == (unpacked(architecture) / "bin/fleetwright").read_bytes()
    data = (root / "var/lib/fleetwright").stat()
    assert (data.st_uid, data.st_gid) == (USER, USER)


@pytest.mark.parametrize("architecture", [os.uname().machine])
def test_an_image_keeps_its_data_in_a_volume_above_the_data_folder(image, manifests, tmp_path):
    settings, root = image
    # A volume of the container would cover the folder, and root would own a new working directory.
    assert "Volumes" not in settings["config"]
    assert settings["config"]["WorkingDir"] == "/"
    pod = objects_of(manifests)["StatefulSet", "fleetwright"]["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    volume = root / mounts["state"].lstrip("/")
    shutil.rmtree(volume)
    volume.mkdir()
    # Kubernetes gives an empty volume to the group of the pod.
    os.chown(volume, 0, pod["securityContext"]["fsGroup"])
    volume.chmod(0o2775)
    data = pod["containers"][0]["args"][-1]
    with Bare(root, settings["config"]["Entrypoint"]).server(data, tmp_path / "log"):
        pass
    folder = root / data.lstrip("/")
    assert volume in folder.parents and (folder / "fleetwright.sqlite").exists()
    assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, USER)


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
    assert server["cap_drop"] == ["ALL"]


def test_compose_can_write_the_files_of_each_service(compose):
    for name, service in compose["services"].items():
        written = [one["source"] for one in service.get("configs") or []]
        # Files with `content` are copied into the container before it starts.
        if any("content" in compose["configs"][source] for source in written):
            assert not service.get("read_only"), name


def test_the_compose_file_names_this_version_and_refuses_to_start_without_a_password(version):
    text = (PACKAGING / "compose/compose.yaml").read_text()
    assert f"FLEETWRIGHT_IMAGE:-fleetwright:{version}}}" in text
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


def test_the_overlay_of_the_page_takes_the_image_from_a_registry(version, tmp_path):
    (overlay,) = blocks_of_page("yaml file=kustomization.yaml")
    (tmp_path / "kustomization.yaml").write_text(overlay)
    shutil.copytree(PACKAGING, tmp_path / "packaging")
    built = objects_of(run(CACHE / "go/bin/kustomize", "build", tmp_path))
    pod = built["StatefulSet", "fleetwright"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"registry.example.com/fleetwright:{version}"


def objects_of(manifests):
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(manifests)}


def test_a_deletion_of_the_manifests_keeps_the_data(manifests):
    objects = objects_of(manifests)
    assert not {"Namespace", "PersistentVolumeClaim"} & {kind for kind, _ in objects}
    server = objects["StatefulSet", "fleetwright"]["spec"]
    assert server["volumeClaimTemplates"] and "persistentVolumeClaimRetentionPolicy" not in server


def test_pods_have_no_rights_and_the_server_understands_its_secret(manifests, program, tmp_path):
    objects = objects_of(manifests)
    assert {one["metadata"].get("namespace") for one in objects.values()} == {"fleetwright"}
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
    encoded = objects["Secret", secret]["data"]["fleetwright.toml"]
    configuration = base64.b64decode(encoded).decode()
    # Pods of all namespaces resolve this name. No name is looked up here.
    assert 'root_url = "http://fleetwright.fleetwright:8080"' in configuration
    nowhere = configuration.replace("@postgres.example.com/", "@127.0.0.1:1/")
    assert "example.com" not in nowhere
    doctor_accepts(program, tmp_path, nowhere)
    service = objects["Service", "fleetwright"]["spec"]
    assert service["selector"] == objects["StatefulSet", "fleetwright"]["spec"]["selector"][
        "matchLabels"
    ]
