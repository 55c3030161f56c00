"""What a unit must know of the machine that it is written for."""

from __future__ import annotations

import grp
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.errors import UserError
from models.locations import DEMO_NAME, default_package_path
from models.providers import nvidia_devices

ROOT = Path(__file__).parents[2]
HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"))
"""What `ProtectHome=yes` hides."""

OLDEST = 249
"""The oldest systemd that the units were written for: Ubuntu 22.04's."""

_SHARED = (Path("/tmp"), Path("/var/tmp"))
_VERSION = re.compile(r"systemd (\d+)")


@dataclass(frozen=True, slots=True)
class Machine:
    """`version` is systemd's. `source`: the directory that Outpace is run from where that is not in
    the environment of `python`. `groups` own the GPU's devices. `root`: whether this is the
    superuser."""

    version: int
    python: Path
    prefixes: Sequence[Path]
    source: Path | None
    groups: Sequence[str]
    modprobe: Path | None
    root: bool


def this_machine() -> Machine:
    """Raises `UserError` (`no_systemd`) where systemd is not installed."""
    installed = ROOT.is_relative_to(sys.prefix)
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), ROOT]
    found = shutil.which("nvidia-modprobe")
    return Machine(
        version=systemd_version(),
        python=Path(sys.executable).absolute(),
        prefixes=[prefix.resolve() for prefix in prefixes],
        source=None if installed else ROOT,
        groups=device_groups(map(Path, nvidia_devices())),
        modprobe=None if found is None else Path(found),
        root=os.geteuid() == 0,
    )


def systemd_version() -> int:
    """Raises `UserError` (`no_systemd`)."""
    try:
        told = subprocess.run(
            ["systemctl", "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        told = ""
    version = _VERSION.match(told)
    if version is None:
        raise UserError(
            "systemd is not installed here (there is no systemctl). Run `outpace serve` under"
            " whatever starts services here.",
            code="no_systemd",
        )
    if int(version[1]) < OLDEST:
        raise UserError(
            f"systemd {version[1]} is too old: the units need {OLDEST} or newer.",
            code="no_systemd",
        )
    return int(version[1])


def require_running(user: bool, environment: Mapping[str, str]) -> None:
    """Raise `UserError` (`no_systemd`) where no service manager runs that could be told."""
    if not Path("/run/systemd/system").is_dir():
        raise UserError(
            "this machine was not started by systemd (a container, perhaps), so nothing would run"
            " the service. `--root DIR` writes the files only.",
            code="no_systemd",
        )
    runtime = environment.get("XDG_RUNTIME_DIR")
    if user and not (runtime and (Path(runtime) / "systemd").is_dir()):
        raise UserError(
            "no service manager of yours runs here: log in as this user, not by su or sudo, or run"
            " `loginctl enable-linger` first.",
            code="no_systemd",
        )


def device_groups(devices: Iterable[Path]) -> list[str]:
    """Groups that may open device nodes which not everybody may."""
    groups = set[str]()
    for device in devices:
        try:
            status = device.stat()
            if not status.st_mode & stat.S_IWOTH and status.st_gid:
                groups.add(grp.getgrgid(status.st_gid).gr_name)
        except (OSError, KeyError):
            continue
    return sorted(groups)


def hidden(paths: Iterable[Path]) -> list[Path]:
    """Those of the paths that the sandbox would hide, without what lies in another of them.

    Raises `UserError` for a place that it does not share at all.
    """
    found = set[Path]()
    for path in paths:
        if any(path.is_relative_to(each) for each in _SHARED):
            raise UserError(
                f"{path} is in a directory for temporary files, which a service has its own of;"
                " put it elsewhere.",
                code="invalid_path",
            )
        if any(path.is_relative_to(each) for each in HIDDEN):
            found.add(path)
    return sorted(
        path for path in found if not any(other in path.parents for other in found - {path})
    )


def require_readable(paths: Iterable[Path]) -> None:
    """Raise `UserError` (`not_readable`) for what another user could not read."""
    for path in paths:
        inside = [path, *path.iterdir()] if path.is_dir() else [path]
        for each in inside:
            mode = each.stat().st_mode
            needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
            if mode & needed != needed:
                raise UserError(
                    f"the service's user could not read {each}; make it readable:"
                    f" chmod -R o+rX {path}",
                    code="not_readable",
                )


def package_path(named: Path | None, environment: Mapping[str, str]) -> Path:
    """That which was named, or the demo: the one of whoever called sudo, where root has none."""
    if named is not None:
        return named.expanduser().resolve()
    path, caller = default_package_path(), environment.get("SUDO_USER")
    if not path.exists() and caller and "OUTPACE_CACHE" not in environment:
        theirs = Path(f"~{caller}").expanduser() / ".cache" / "outpace" / "packages" / DEMO_NAME
        path = theirs if theirs.exists() else path
    return path.resolve()


def user_configuration() -> Path:
    """`~/.config`, or what stands for it."""
    named = os.environ.get("XDG_CONFIG_HOME")
    return Path(named) if named else Path.home() / ".config"
