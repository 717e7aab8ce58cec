"""The wheel: installed without an index, it runs a first task."""

import os
import signal
import subprocess
import sys
import zipfile

import pytest
from machine import SECONDS, wait_until


def wheel_of(packages, version, architecture):
    platforms = f"manylinux_2_17_{architecture}.musllinux_1_1_{architecture}"
    return packages / f"fleetwright-{version}-py3-none-{platforms}.whl"


@pytest.fixture(scope="module")
def installed(packages, version, tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    wheel = wheel_of(packages, version, os.uname().machine)
    install = [folder / "bin/pip", "install", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True)
    return folder / "bin"


def test_a_wheel_has_the_program_of_the_archive(packages, unpacked, version, architecture):
    program = (unpacked(architecture) / "bin/fleetwright").read_bytes()
    with zipfile.ZipFile(wheel_of(packages, version, architecture)) as wheel:
        assert wheel.testzip() is None
        name = f"fleetwright-{version}.data/scripts/fleetwright"
        assert wheel.read(name) == program
        assert wheel.getinfo(name).external_attr >> 16 & 0o777 == 0o755
        names = wheel.namelist()
        metadata = wheel.read(f"fleetwright-{version}.dist-info/METADATA").decode()
    assert "License-Expression: MPL-2.0 OR Apache-2.0\n" in metadata
    assert f"fleetwright-{version}.dist-info/sboms/fleetwright.cdx.json" in names
    assert f"fleetwright-{version}.dist-info/licenses/LICENSE-MPL" in names


def test_pip_accepts_its_metadata(installed, version):
    run = lambda *words: subprocess.run(  # noqa: E731
        [installed / "pip", *words], check=True, capture_output=True, text=True
    ).stdout
    assert "No broken requirements" in run("check")
    shown = run("show", "--verbose", "--files", "fleetwright")
    assert f"Version: {version}" in shown
    assert "bin/fleetwright" in shown


def test_the_first_task_of_an_installed_wheel_prints_its_log(installed, version, tmp_path):
    program = installed / "fleetwright"
    environment = {"PATH": f"{installed}:/usr/bin:/bin", "HOME": str(tmp_path)}

    def fleetwright(*words):
        return subprocess.run(
            [program, *words],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        ).stdout

    assert fleetwright("--version").strip() == f"fleetwright {version}"
    with (tmp_path / "log").open("w") as log:
        command = [program, "up", "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        log = lambda: (tmp_path / "log").read_text()  # noqa: E731
        ready = lambda: "Try, in another terminal" in log() or server.poll() is not None  # noqa: E731
        wait_until(ready, "the server is ready")
        assert server.poll() is None, log()
        assert "hello" in fleetwright(
            "task", "create", "--pool", "local/default", "--log", "--", "echo", "hello"
        )
    finally:
        server.send_signal(signal.SIGTERM)
    assert server.wait(SECONDS) == 0, log()
