"""Take away what install-service wrote; settings, keys and state stay."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gateway.commands.install_service import (
    add_common_arguments,
    agreed,
    is_changed,
    require_rights,
    run_command,
)
from gateway.installing.machine import require_running, user_configuration
from gateway.installing.plan import CONFIGURATION, SYSTEM_UNITS, UNITS, Write
from models.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common_arguments(parser)


def run(parsed: argparse.Namespace) -> int:
    manager = ["systemctl", "--user"] if parsed.user else ["systemctl"]
    files = [path for path in written(parsed.user) if os.path.lexists(path)]
    if not files:
        raise UserError("no service of Outpace is installed here.", code="not_installed")
    print(f"run    {' '.join(manager)} disable --now {' '.join(UNITS)}")
    for path in files:
        print(f"remove {path}")
    print(f"run    {' '.join(manager)} daemon-reload")
    if parsed.dry_run:
        return 0
    require_rights(parsed.user)
    require_running(parsed.user, os.environ)
    _require_unchanged(files, parsed.force)
    if not (parsed.yes or agreed()):
        return 1
    run_command([*manager, "disable", "--now", *UNITS])
    for path in files:
        _remove(path)
    run_command([*manager, "daemon-reload"])
    print(f"left: {left(parsed.user)}")
    return 0


def written(user: bool) -> list[Path]:
    """What installing writes, but for settings and keys."""
    if user:
        return [user_configuration() / "systemd" / "user" / name for name in UNITS]
    conf = [Path("/etc") / f"{kind}.d" / "outpace.conf" for kind in ("sysusers", "tmpfiles")]
    return [*(SYSTEM_UNITS / name for name in UNITS), *conf]


def left(user: bool) -> str:
    if user:
        return str(user_configuration() / "outpace")
    return f"{CONFIGURATION}, /var/lib/outpace, /var/cache/outpace, the user outpace"


def _require_unchanged(files: list[Path], force: bool) -> None:
    changed = [str(path) for path in files if is_changed(Write(path, ""))]
    if changed and not force:
        raise UserError(
            f"changed by hand, and not removed without --force: {', '.join(changed)}.",
            code="file_changed",
        )


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be removed: {error.strerror}.", code="failed") from None
