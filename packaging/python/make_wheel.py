"""Writes a wheel that has the static program, and nothing in Python.

A wheel is a zip file with metadata. The program needs no library of its machine, so the wheel fits
all systems: `manylinux` stands for those with glibc, and `musllinux` for those with musl.
"""

import argparse
import base64
import hashlib
import os
import time
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
METADATA = """\
Metadata-Version: 2.4
Name: fleetwright
Version: {version}
Summary: Keeps fleets of CI workers the right size, over any cloud and datacentre
License-Expression: MPL-2.0 OR Apache-2.0
License-File: LICENSE-MPL
License-File: LICENSE-APACHE
Project-URL: Repository, https://github.com/fleetwright/fleetwright
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Software Development :: Build Tools
Description-Content-Type: text/markdown

{description}
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: fleetwright
Root-Is-Purelib: false
{tags}
"""


class Wheel:
    """A zip file that records what it has. The times in it are those of the commit."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        seconds = int(os.environ["SOURCE_DATE_EPOCH"])
        self.time = time.gmtime(seconds)[:6]
        self.records = []

    def add(self, name, content, mode=0o644):
        entry = zipfile.ZipInfo(name, self.time)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(content)}")

    def close(self, record):
        lines = "\n".join([*self.records, f"{record},,"])
        self.zip.writestr(zipfile.ZipInfo(record, self.time), lines + "\n")
        self.zip.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ["version", "architecture", "program", "contents", "output"]:
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    version, architecture = options.version, options.architecture
    platforms = [f"manylinux_2_17_{architecture}", f"musllinux_1_1_{architecture}"]
    tags = "\n".join(f"Tag: py3-none-{platform}" for platform in platforms)
    name = f"fleetwright-{version}"
    wheel = Wheel(Path(options.output) / f"{name}-py3-none-{'.'.join(platforms)}.whl")
    information = f"{name}.dist-info"
    wheel.add(f"{name}.data/scripts/fleetwright", Path(options.program).read_bytes(), 0o755)
    description = (CHECKOUT / "packaging/python/README.md").read_text()
    metadata = METADATA.format(version=version, description=description)
    wheel.add(f"{information}/METADATA", metadata.encode())
    wheel.add(f"{information}/WHEEL", WHEEL.format(tags=tags).encode())
    for licence in ["LICENSE-MPL", "LICENSE-APACHE"]:
        wheel.add(f"{information}/licenses/{licence}", (CHECKOUT / licence).read_bytes())
    wheel.add(f"{information}/sboms/fleetwright.cdx.json", Path(options.contents).read_bytes())
    wheel.close(f"{information}/RECORD")


main()
