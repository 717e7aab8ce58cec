"""The notes of a release come from the changelog."""

import subprocess

from conftest import CHECKOUT

SCRIPT = CHECKOUT / "scripts/release-notes"


def notes(*words):
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True)


def test_the_notes_of_a_version_are_its_part_of_the_changelog(version):
    done = notes(version)
    assert done.returncode == 0, done.stderr
    changelog = (CHECKOUT / "CHANGELOG.md").read_text()
    part = changelog.split(f"\n## {version}\n")[1].split("\n## ")[0]
    heads = [line for line in part.splitlines() if line.startswith("### ")]
    assert heads, part
    assert [line for line in done.stdout.splitlines() if line.startswith("### ")] == heads
    assert not any(line.startswith("## ") for line in done.stdout.splitlines())
    # The notes are read outside of the repository.
    assert "](docs/" not in done.stdout
    assert f"/blob/v{version}/docs/" in done.stdout


def test_an_unknown_version_is_an_error_that_names_those_that_exist(version):
    done = notes("9.9.9")
    assert done.returncode == 1
    assert "no version 9.9.9" in done.stderr and version in done.stderr
    # A dot is a dot.
    assert notes(version.replace(".", "x")).returncode == 1
    assert notes().returncode == 2
