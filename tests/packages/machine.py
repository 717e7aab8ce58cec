"""A Debian machine with systemd: a root file system in namespaces of its own."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Beside a minimal Debian: the service manager, and what uses or judges the parts of a package.
PACKAGES = "systemd,bash-completion,man-db,lintian"
RELEASE = "bookworm"
# A busy machine may need minutes for what takes seconds.
SECONDS = 300
# Units that would change the kernel's settings, or wait for hardware.
MASKED = [
    "systemd-sysctl.service",
    "systemd-modules-load.service",
    "systemd-remount-fs.service",
    "dev-hugepages.mount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "getty.target",
]


def wait_until(check, what):
    """Returns the first true answer."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if answer := check():
            return answer
        time.sleep(0.1)  # Between two questions; the condition decides.
    raise AssertionError(f"not within {SECONDS} s: {what}")


def root_archive(cache):
    """Debian with the packages, made once."""
    wanted = f"{RELEASE} {PACKAGES}"
    archive, made_for = cache / "debian.tar", cache / "debian.made-for"
    if not made_for.exists() or made_for.read_text() != wanted:
        cache.mkdir(parents=True, exist_ok=True)
        made_for.unlink(missing_ok=True)
        options = ["--variant=minbase", f"--include={PACKAGES}", "--quiet"]
        subprocess.run(["mmdebstrap", *options, RELEASE, archive], check=True)
        made_for.write_text(wanted)
    return archive


class Machine:
    def __init__(self, root, cache):
        self.root = root
        root.mkdir()
        subprocess.run(["tar", "-xf", root_archive(cache), "-C", root], check=True)
        for unit in MASKED:
            (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
        namespaces = ["--mount", "--pid", "--fork", "--cgroup", "--uts", "--ipc", "--net"]
        # Its first process, and with it the machine, ends with the process of the tests.
        unshare = ["setpriv", "--pdeathsig=KILL", "unshare", "--kill-child=KILL", *namespaces]
        command = [*unshare, HERE / "boot", root]
        self.log = (root.parent / "boot.log").open("wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        try:
            wait_until(self._is_up, "the machine is up")
        except BaseException:
            self.stop()
            raise

    def _is_up(self):
        if self.process.poll() is not None:
            log = (self.root.parent / "boot.log").read_text(errors="replace")
            raise AssertionError(f"the machine ended, which needs root's rights: {log}")
        if self._first_process() is None:
            return False
        # A unit that fails matters to the test that needs it.
        state = self.output("systemctl", "is-system-running", check=False)
        return state in {"running", "degraded"}

    def _first_process(self):
        if self.process.poll() is not None:
            return None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = children.read_text().split()
        return found[0] if found else None

    def run(self, *command, check=True, user=None, text=None):
        """Runs a command there, as root or another user."""
        if user is not None:
            command = ["runuser", f"--user={user}", "--", *command]
        environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"]
        done = subprocess.run(
            ["nsenter", "--all", f"--target={self._first_process()}"]
            + ["env", "-i", *environment, *command],
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done

    def output(self, *command, **options):
        return self.run(*command, **options).stdout.strip()

    def add(self, file, to="/root"):
        shutil.copy(file, self.root / to.lstrip("/"))
        return f"{to}/{Path(file).name}"

    def write(self, path, text, mode=0o644):
        file = self.root / path.lstrip("/")
        file.write_text(text)
        file.chmod(mode)

    def journal(self, unit):
        return self.run("journalctl", "--no-pager", "--unit", unit, check=False).stdout

    def stop(self):
        """Lets init end its services, so that no control groups remain."""
        first = self._first_process()
        if first is not None:
            subprocess.run(["kill", f"-{signal.SIGRTMIN + 4}", first], check=False)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()  # The machine ends with it.
            self.process.wait(60)
        self.log.close()
