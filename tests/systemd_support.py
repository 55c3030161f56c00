"""systemd for tests: its tools, and an instance of it as the first process of namespaces.

The instance sees this machine's files; whatever it writes goes to memory and ends with it. It needs
root, and a kernel with cgroup2 and overlayfs, but no running systemd.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parent.parent
SYSTEMD = Path("/lib/systemd/systemd")
HOME = Path("/opt/outpace")
"""Where the instance sees this clone (`source`) and this environment (`venv`)."""

_ISOLATE = f"""
set -euo pipefail
[ $$ -eq 1 ]
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
cd /mnt/root
for name in source venv package; do
    mkdir -p .{HOME}/$name
    variable=${{name^^}}
    mount --bind "${{!variable}}" .{HOME}/$name
    mount -o remount,bind,ro .{HOME}/$name
done
for name in dev run tmp var/tmp; do mount -t tmpfs tmpfs $name; done
chmod 1777 tmp var/tmp
mkdir dev/pts dev/shm dev/mqueue dev/hugepages
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
for node in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 dev/${{node%:*}} c 1 ${{node#*:}}
done
mount -t proc proc proc
for name in sys sysrq-trigger irq bus; do
    if [ ! -e proc/$name ]; then continue; fi
    mount --bind proc/$name proc/$name
    mount -o remount,bind,ro proc/$name
done
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mkdir -p run/systemd/system run/old
pivot_root . run/old
cd /
umount -l /run/old
rmdir /run/old
# Whatever runs from here on, nothing of the machine can be written: not a wish, but looked at.
[ "$(stat -f -c %T /)" = overlayfs ]
while read -r _ place kind options _; do
    case "$kind,$options," in
        overlay,* | tmpfs,* | proc,* | devpts,* | cgroup2,* | *,ro,*) ;;
        *) echo "not isolated: $place ($kind) can be written" >&2; exit 1 ;;
    esac
done < /proc/self/mounts
"""
"""Makes a root of its own, in memory over this machine's files, and ends where anything else could
be written: a systemd that starts cleans directories for temporary files, sets up devices, and more.
"""

_BOOT = f"""
printf '[Unit]\\nAllowIsolate=yes\\n' > /run/systemd/system/tests.target
exec env -i PATH="$PATH" container=other setpriv \\
    --bounding-set=-sys_boot,-sys_module,-sys_time,-sys_rawio,-syslog,-mknod \\
    {SYSTEMD} --system --unit=tests.target --log-target=journal --show-status=no
"""


def tool(name: str) -> str:
    """The path of a program; the test fails where it is missing."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is missing: .ci/systemd installs it where apt can.")
    return found


@dataclass(frozen=True, slots=True)
class Instance:
    """A running systemd; `pid` is its own."""

    pid: int

    def run(self, *command: str, check: bool = True, seconds: float = 120) -> str:
        """What `command` says inside; without `check` whatever its status is."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.pid), "--all", "--wdns=/", "--", *command],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        )
        told = done.stdout + done.stderr
        assert not check or done.returncode == 0, f"{command}: {told}"
        return told

    def outpace(self, *arguments: str, check: bool = True) -> str:
        """The command line, from the clone and with the environment of these tests."""
        python = f"{HOME}/venv/bin/python"
        path = f"PYTHONPATH={HOME}/source"
        return self.run("env", path, python, "-m", "gateway", *arguments, check=check)

    def shown(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "-P", name, unit).strip()

    def said(self) -> str:
        """What systemd and the service said so far."""
        return self.run("journalctl", "--no-pager", "--boot")


def until(wanted: Callable[[], bool], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < limit, "it has not come to that in time"
        time.sleep(0.05)  # systemd tells only those who ask


@contextmanager
def booted(log: Path, package: Path) -> Iterator[Instance]:
    """A systemd in namespaces of its own, which sees `package` at `/opt/outpace/package`."""
    with isolated(_BOOT, log, package) as process:
        yield _until_it_runs(process, log)


@contextmanager
def isolated(program: str, log: Path, package: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Bash runs `program` as the first process of namespaces from which nothing of the machine can
    be written."""
    for name in ("unshare", "nsenter", "systemctl", "setpriv"):
        tool(name)
    if not SYSTEMD.exists():
        pytest.fail(f"{SYSTEMD} is missing: .ci/systemd installs it where apt can.")
    group = _cgroup()
    environment = {
        "PATH": os.environ["PATH"],
        "SOURCE": str(ROOT),
        "VENV": str(Path(sys.prefix).resolve()),
        "PACKAGE": str(package.resolve()),
    }
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [
                # What moves into the group does so before it is that group's namespace.
                *("bash", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)),
                *("unshare", "--fork", "--pid", "--mount", "--cgroup", "--uts", "--ipc"),
                *("--mount-proc", "--kill-child", "bash", "-c", _ISOLATE + program),
            ],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=environment,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE)
            _remove(group)


def _cgroup() -> Path:
    """A group of its own in cgroup2, wherever that is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            group = Path(place) / f"outpace-tests-{os.getpid()}"
            group.mkdir(exist_ok=True)
            return group
    raise AssertionError("there is no cgroup2 here, though it was looked for")


def why_not() -> str | None:
    """Why this machine lets nobody here start a systemd of their own; None where it does."""
    if os.geteuid() != 0:
        return "only root can start a systemd in namespaces of its own"
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    groups = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
    if not groups or not os.access(groups[0], os.W_OK):
        return "there is no cgroup2 that can be written, which systemd needs"
    tried = subprocess.run(
        ["unshare", "--fork", "--pid", "--mount", "--cgroup", "mount", "-t", "tmpfs", "x", "/mnt"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return f"namespaces are refused: {tried.stderr.strip()}" if tried.returncode else None


def _until_it_runs(process: subprocess.Popen[bytes], log: Path) -> Instance:
    limit = time.monotonic() + 60
    told = ""
    while time.monotonic() < limit and process.poll() is None:
        child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if child and Path(f"/proc/{child[0]}/comm").read_text().strip() == "systemd":
            instance = Instance(int(child[0]))
            told = instance.run("systemctl", "is-system-running", check=False).strip()
            if told in ("running", "degraded"):
                return instance
        # It tells nobody that it has started but those who ask.
        time.sleep(0.05)
    pytest.fail(f"systemd did not start ({told or 'no answer'}): {log.read_text(errors='replace')}")


def _remove(group: Path) -> None:
    """The killed processes leave their groups within moments."""
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        for pid in _pids(group):
            os.kill(pid, signal.SIGKILL)
        try:
            for each in sorted(group.rglob("*/"), reverse=True):
                each.rmdir()
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return


def _pids(group: Path) -> list[int]:
    files = [group / "cgroup.procs", *group.rglob("*/cgroup.procs")]
    return [int(pid) for file in files if file.exists() for pid in file.read_text().split()]
