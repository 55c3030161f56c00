"""What installing a service comes to: files and commands, in their order."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.http.guard import is_loopback
from gateway.installing.machine import Machine, hidden, require_readable
from gateway.installing.units import plain, render, signed, template
from models.errors import UserError
from models.package import Package

UNITS = ("outpace.socket", "outpace.service")
SYSTEM_UNITS = Path("/etc/systemd/system")
CONFIGURATION = Path("/etc/outpace")


@dataclass(frozen=True, slots=True)
class Write:
    """A file. `keep`: where there is one it stays, whatever it holds."""

    path: Path
    content: str
    mode: int = 0o644
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    command: Sequence[str]


Step = Write | Run


@dataclass(frozen=True, slots=True)
class Wish:
    """What the service is to be. `address` is a host and a port."""

    package: Package
    address: tuple[str, int]
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    start: bool = True


def system_plan(machine: Machine, wish: Wish) -> list[Step]:
    """For the whole machine, as a user of its own. Raises `UserError`."""
    directory = CONFIGURATION
    config, keys = directory / "outpace.toml", directory / "keys"
    package = wish.package.path
    require_readable([package, *_python(machine)])
    homes = hidden([package, *machine.prefixes])
    values = _values(machine, wish, config) | {
        "home": " ".join(map(plain, homes)) if homes else None,
        "keys": str(keys),
        "keys_quoted": json.dumps(str(keys)),
        "manager": "systemctl",
        "store": json.dumps("/var/lib/outpace/ngrams"),
    }

    def written(name: str, path: Path, mode: int = 0o644) -> Write:
        return Write(path, signed(render(template(f"{name}.in"), values)), mode)

    start = [Run(("systemctl", "enable", "--now", *UNITS))] if wish.start else []
    return [
        written("sysusers.conf", Path("/etc/sysusers.d/outpace.conf")),
        Run(("systemd-sysusers", "/etc/sysusers.d/outpace.conf")),
        _config(config, values),
        Write(keys, new_keys(), 0o600, keep=True),
        written("tmpfiles.conf", Path("/etc/tmpfiles.d/outpace.conf")),
        Run(("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/outpace.conf")),
        *(written(name, SYSTEM_UNITS / name) for name in UNITS),
        Run(("systemctl", "daemon-reload")),
        *start,
    ]


def user_plan(machine: Machine, wish: Wish, configuration: Path) -> list[Step]:
    """For one user, by that one's own service manager. `configuration` is `~/.config`."""
    if not is_loopback(wish.address[0]):
        raise UserError(
            f"{wish.address[0]} can be reached from other machines, and the service of a user has"
            " no keys; install it for the machine, or choose 127.0.0.1.",
            code="insecure_address",
            param="host",
        )
    config = configuration / "outpace" / "outpace.toml"
    values = _values(machine, wish, config) | {
        "keys": None,
        "manager": "systemctl --user",
        "store": json.dumps(str(configuration.parent / ".local/state/outpace/ngrams")),
    }
    units = configuration / "systemd" / "user"
    start = [Run(("systemctl", "--user", "enable", "--now", *UNITS))] if wish.start else []
    return [
        _config(config, values),
        *(
            Write(units / name, signed(render(template(f"user/{name}.in"), values)))
            for name in UNITS
        ),
        Run(("systemctl", "--user", "daemon-reload")),
        *start,
    ]


def new_keys() -> str:
    """A file of keys with one that nobody knows yet."""
    return f"# A key, or name:key, a line.\ndefault:{secrets.token_urlsafe(24)}\n"


def _config(path: Path, values: Mapping[str, str | None]) -> Write:
    return Write(path, render(template("outpace.toml.in"), values), 0o640, keep=True)


def _values(machine: Machine, wish: Wish, config: Path) -> dict[str, str | None]:
    """None is a condition that does not hold."""
    gpu = wish.package.manifest.target.device != "cpu"
    certificate, key = wish.tls_certificate, wish.tls_key
    host, port = wish.address
    return {
        "python": plain(machine.python),
        "config": plain(config),
        "package": json.dumps(str(wish.package.path)),
        "source": None if machine.source is None else plain(machine.source),
        "address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "gpu": "" if gpu else None,
        "groups": " ".join(machine.groups) if gpu and machine.groups else None,
        "modprobe": None if machine.modprobe is None or not gpu else plain(machine.modprobe),
        "tls": None if certificate is None else "",
        "tls_certificate": None if certificate is None else plain(certificate),
        "tls_key": None if key is None else plain(key),
        **{f"v{at}": "" if machine.version >= at else None for at in (253, 254)},
    }


def _python(machine: Machine) -> list[Path]:
    """What another user must be able to read to run it; what a distribution installs is."""
    return [path for path in machine.prefixes if hidden([path])]
