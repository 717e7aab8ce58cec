"""A folder as the root of the program's processes, which are those of a user without rights."""

import os
import shutil
import subprocess
from contextlib import contextmanager

from machine import SECONDS, wait_until

# The user of the container image.
USER = 65532


class Bare:
    def __init__(self, root, command):
        self.root = root
        self.command = command

    @classmethod
    def with_program_only(cls, program, root, runner=None):
        (root / "data").mkdir(parents=True)
        shutil.copy(program, root / "fleetwright")
        os.chown(root / "data", USER, USER)
        if runner is None:
            return cls(root, ["/fleetwright"])
        shutil.copy(runner, root / "runner")
        return cls(root, ["/runner", "/fleetwright"])

    def start(self, *arguments, **options):
        # The user changes last, so setpriv's work is done by hand.
        def become():
            os.chroot(self.root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)

        command = [*self.command, *arguments]
        return subprocess.Popen(
            command, preexec_fn=become, env={}, stdin=subprocess.DEVNULL, text=True, **options
        )

    def output(self, *arguments):
        process = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, output
        return output

    @contextmanager
    def server(self, data, log):
        """Yields the URL of a server with this data folder, and ends the server."""
        with log.open("w") as file:
            arguments = ["up", "--data", data, "--listen", "127.0.0.1:0"]
            server = self.start(*arguments, stdout=file, stderr=file)
        try:
            ready = lambda: "fleetwright is ready at" in log.read_text()  # noqa: E731
            wait_until(lambda: ready() or server.poll() is not None, "the server is ready")
            assert server.poll() is None, log.read_text()
            owner = (self.root / data.lstrip("/") / "owner.env").read_text()
            yield owner.split("TASKCLUSTER_ROOT_URL=")[1].split()[0].strip("'")
        finally:
            server.terminate()
        assert server.wait(SECONDS) == 0, log.read_text()
