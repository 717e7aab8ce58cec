"""The archives: a static program that needs nothing of its machine, and a list of its contents."""

import hashlib
import json
import os
import re
import shutil
import struct
import urllib.request
import zlib

import pytest
from bare import Bare
from conftest import ARCHITECTURES

PT_DYNAMIC, PT_INTERP = 2, 3
MACHINES = {"x86_64": 62, "aarch64": 183}


class Elf:
    """The parts of a little-endian 64-bit program that the tests ask for."""

    def __init__(self, path):
        self.content = content = path.read_bytes()
        assert content[:6] == b"\x7fELF\x02\x01", path
        self.machine = struct.unpack_from("<H", content, 18)[0]
        segments, self.sections = struct.unpack_from("<QQ", content, 32)
        self.section_size, self.n_sections, self.names = struct.unpack_from("<HHH", content, 58)
        size, number = struct.unpack_from("<HH", content, 54)
        self.segments = [
            struct.unpack_from("<I", content, segments + index * size)[0] for index in range(number)
        ]

    def section(self, name):
        headers = [
            struct.unpack_from("<IIQQQQ", self.content, self.sections + index * self.section_size)
            for index in range(self.n_sections)
        ]
        names = headers[self.names][4]
        for offset, _, _, _, start, size in headers:
            begin = names + offset
            if self.content[begin : self.content.index(b"\0", begin)].decode() == name:
                return self.content[start : start + size]
        return None


def test_programs_are_static_and_stripped(unpacked, architecture):
    program = Elf(unpacked(architecture) / "bin/fleetwright")
    assert program.machine == MACHINES[architecture]
    assert PT_INTERP not in program.segments
    assert program.section(".symtab") is None
    assert program.section(".debug_info") is None


def test_sums_are_those_of_the_files(packages, version):
    lines = (packages / "SHA256SUMS").read_text().splitlines()
    named = {}
    for line in lines:
        digest, name = line.split("  ")
        named[name] = digest
        assert hashlib.sha256((packages / name).read_bytes()).hexdigest() == digest, name
    files = {path.name for path in packages.iterdir() if path.is_file()} - {"SHA256SUMS"}
    assert set(named) == files
    for architecture in ARCHITECTURES:
        assert f"fleetwright-{version}-{architecture}-linux.tar.gz" in named
        assert f"fleetwright-{version}-{architecture}.cdx.json" in named


def test_an_archive_has_all_parts(unpacked, architecture):
    folder = unpacked(architecture)
    for part in [
        "LICENSE-MPL",
        "LICENSE-APACHE",
        "CHANGELOG.md",
        "share/man/man1/fleetwright.1",
        "share/man/man1/fleetwright-task-create.1",
        "share/completions/fleetwright.bash",
        "share/completions/_fleetwright",
        "share/completions/fleetwright.fish",
        "lib/systemd/fleetwright.service",
        "lib/systemd/fleetwright-worker.service",
        "lib/systemd/fleetwright-relay.service",
        "lib/sysusers.d/fleetwright.conf",
        "etc/fleetwright.toml",
    ]:
        assert (folder / part).stat().st_size > 0, part


def crates_of_workspace(version):
    return {("fleetwright", version), ("server", version), ("store", version)}


def test_the_list_of_contents_names_the_crates(packages, version, architecture):
    contents = json.loads((packages / f"fleetwright-{version}-{architecture}.cdx.json").read_text())
    assert contents["bomFormat"] == "CycloneDX"
    components = {(part["name"], part["version"]) for part in contents["components"]}
    components.add(
        (contents["metadata"]["component"]["name"], contents["metadata"]["component"]["version"])
    )
    assert crates_of_workspace(version) <= components, sorted(components)
    assert {"tokio", "rusqlite", "mimalloc", "rustls"} <= {name for name, _ in components}
    assert not {"proptest", "insta"} & {name for name, _ in components}
    missing = [part["name"] for part in contents["components"] if "licenses" not in part]
    assert missing == []


def test_the_list_of_contents_has_no_path_of_its_build(packages, version, architecture):
    text = (packages / f"fleetwright-{version}-{architecture}.cdx.json").read_text()
    paths = set(re.findall(r"file://(/[^/]*)/", text))
    assert paths == {"/fleetwright"}
    # It would be another one in each build.
    assert "serialNumber" not in json.loads(text)


def test_the_program_itself_names_its_crates(packages, unpacked, version, architecture):
    section = Elf(unpacked(architecture) / "bin/fleetwright").section(".dep-v0")
    audited = json.loads(zlib.decompress(section))["packages"]
    audited = {(part["name"], part["version"]) for part in audited if part.get("kind") != "build"}
    assert crates_of_workspace(version) <= audited
    listed = json.loads((packages / f"fleetwright-{version}-{architecture}.cdx.json").read_text())
    listed = {(part["name"], part["version"]) for part in listed["components"]}
    # Both have the libraries that the program has.
    assert audited - listed <= crates_of_workspace(version)


@pytest.fixture
def bare(unpacked, architecture, tmp_path):
    runner = None
    if architecture != os.uname().machine:
        runner = shutil.which(f"qemu-{architecture}-static")
        assert runner is not None, f"qemu-{architecture}-static is not installed"
    program = unpacked(architecture) / "bin/fleetwright"
    return Bare.with_program_only(program, tmp_path / "root", runner)


def test_a_server_runs_in_an_empty_root_as_a_user_without_rights(bare, version, tmp_path):
    assert bare.output("version").startswith(f"fleetwright {version} (commit ")
    with bare.server("/data/fleet", tmp_path / "log") as root_url:
        with urllib.request.urlopen(f"{root_url}/ready") as answer:
            assert answer.status == 200
        with urllib.request.urlopen(f"{root_url}/api/queue/v1/ping") as answer:
            assert json.load(answer)["alive"] is True
