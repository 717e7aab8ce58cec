"""The packages of `scripts/package all`, which these tests install, start and ask."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from machine import Machine

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".check/packaging"
DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
ARCHITECTURES = os.environ.get("ARCHITECTURES", "x86_64 aarch64").split()


def blocks_of_page(kind):
    """The texts of these blocks of docs/install.md."""
    page = (CHECKOUT / "docs/install.md").read_text()
    found = re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found, kind
    return found


@pytest.fixture(scope="session")
def packages():
    target = Path(os.environ.get("CARGO_TARGET_DIR", CHECKOUT / "target"))
    return target / "packages"


@pytest.fixture(scope="session")
def version():
    manifest = (CHECKOUT / "Cargo.toml").read_text()
    return manifest.split('\nversion = "')[1].split('"')[0]


@pytest.fixture(params=ARCHITECTURES)
def architecture(request):
    return request.param


@pytest.fixture(scope="session")
def unpacked(packages, version, tmp_path_factory):
    """The folder of an archive, unpacked once."""
    folder = tmp_path_factory.mktemp("archives")

    def unpack(architecture):
        name = f"fleetwright-{version}-{architecture}-linux"
        if not (folder / name).exists():
            archive = packages / f"{name}.tar.gz"
            subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
        return folder / name

    return unpack


@pytest.fixture(scope="session")
def debian_package(packages, version):
    return packages / f"fleetwright_{version}-1_{DEBIAN_NAMES[os.uname().machine]}.deb"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    machine = Machine(tmp_path_factory.mktemp("machine") / "root", CACHE)
    yield machine
    machine.stop()
