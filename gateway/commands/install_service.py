"""Make a systemd service of the gateway on this machine, or for this user."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.installing.machine import (
    package_path,
    require_running,
    this_machine,
    user_configuration,
)
from gateway.installing.plan import UNITS, Run, Step, Wish, Write, system_plan, user_plan
from gateway.installing.units import is_ours
from gateway.installing.watchdogs import SYSTEM_PLACES, UNIT, read_unit, user_places
from gateway.service_manager.order import contradiction
from gateway.settings import Settings
from gateway.settings_sources import load_settings
from models.errors import UserError
from models.package import load_package

_PRIVATE = 0o700


def add_arguments(parser: argparse.ArgumentParser) -> None:
    defaults = Settings()
    add_common_arguments(parser)
    parser.add_argument(
        "--package", type=Path, metavar="DIR", help="what to serve (default: the demo)"
    )
    parser.add_argument("--host", default=defaults.host, metavar="ADDRESS")
    parser.add_argument("--port", type=int, default=defaults.port, metavar="N")
    parser.add_argument(
        "--tls-certificate", type=Path, metavar="FILE", help="passed on as a credential"
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="passed on as a credential")
    parser.add_argument(
        "--no-start", action="store_true", help="write, but enable and start nothing"
    )
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="write below DIR and run nothing, for images"
    )


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Those that taking it away has too."""
    parser.add_argument("--user", action="store_true", help="the service of this user alone")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, no more")
    parser.add_argument(
        "--force", action="store_true", help="also over files that were changed by hand"
    )


def run(parsed: argparse.Namespace) -> int:
    steps = plan(parsed)
    root = parsed.root
    if root is not None:
        steps = [below(root, step) for step in steps if isinstance(step, Write)]
    for step in steps:
        print(described(step))
    for warning in warnings(parsed, steps):
        print(f"warning: {warning}")
    if parsed.dry_run:
        return 0
    require_possible(parsed, steps)
    if not (parsed.yes or agreed()):
        return 1
    for step in steps:
        carry_out(step)
    if root is None:
        print(after(parsed.user, parsed.no_start))
    return 0


def plan(parsed: argparse.Namespace) -> list[Step]:
    """Raises `UserError` where the service could not run."""
    if not 1 <= parsed.port <= 65535:
        raise UserError("--port must be from 1 to 65535.", code="invalid_setting", param="port")
    if parsed.tls_key is not None and parsed.tls_certificate is None:
        raise UserError(
            "--tls-key needs --tls-certificate.", code="invalid_setting", param="tls_key"
        )
    machine = this_machine()
    wish = Wish(
        load_package(package_path(parsed.package, os.environ)),
        (parsed.host, parsed.port),
        _absolute(parsed.tls_certificate),
        _absolute(parsed.tls_key),
        start=not parsed.no_start,
    )
    if not parsed.user:
        return system_plan(machine, wish)
    if wish.tls_certificate is not None:
        raise UserError(
            "the service of a user reads its certificate itself: put tls_certificate and tls_key"
            " into its outpace.toml.",
            code="invalid_setting",
            param="tls_certificate",
        )
    return user_plan(machine, wish, user_configuration())


def warnings(parsed: argparse.Namespace, steps: Sequence[Step]) -> Iterator[str]:
    """What of the settings that are kept, and of drop-ins, does not go with the new units."""
    files = {step.path.name: step for step in steps if isinstance(step, Write)}
    kept, service = files["outpace.toml"], files[UNIT]
    if is_there(kept.path) and not os.access(kept.path, os.R_OK):
        return  # a dry run; who may install may read it
    try:
        # Without the environment: the service has another one.
        settings = load_settings({}, {}, kept.path) if is_there(kept.path) else Settings()
    except UserError as error:
        yield f"the service will not start with its settings: {error.message}"
        return
    places = user_places(user_configuration()) if parsed.user else SYSTEM_PLACES
    if parsed.root is not None:
        places = tuple(parsed.root / place.relative_to("/") for place in places)
    unit = read_unit(places, service.content)
    problem = None if unit is None else contradiction(unit.watchdog, settings.terms)
    if problem is not None:
        manager = "systemctl --user" if parsed.user else "systemctl"
        yield f"{problem} Set it by `{manager} edit outpace`."


def require_possible(parsed: argparse.Namespace, steps: Sequence[Step]) -> None:
    """Raise `UserError` before anything is done."""
    if parsed.root is None:
        require_rights(parsed.user)
        require_running(parsed.user, os.environ)
    changed = [step.path for step in steps if isinstance(step, Write) and is_changed(step)]
    if changed and not parsed.force:
        named = ", ".join(map(str, changed))
        raise UserError(
            f"changed by hand, and not overwritten without --force: {named}. Changes are better"
            " kept in drop-ins (systemctl edit outpace).",
            code="file_changed",
        )


def require_rights(user: bool) -> None:
    root = os.geteuid() == 0
    if user and root:
        raise UserError(
            "--user as root would install a service of root's; run it as the user who is meant.",
            code="no_rights",
        )
    if not user and not root:
        raise UserError(
            "only root can install a service for the machine: run it with sudo, or with --user for"
            " a service of your own.",
            code="no_rights",
        )


def is_changed(step: Write) -> bool:
    """Whether somebody else wrote what this would overwrite."""
    if step.keep or not os.path.lexists(step.path):
        return False
    try:
        return not is_ours(step.path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return True


def below(root: Path, step: Write) -> Write:
    return Write(root / step.path.relative_to("/"), step.content, step.mode, step.keep)


def described(step: Step) -> str:
    if isinstance(step, Run):
        return f"run    {' '.join(step.command)}"
    kept = step.keep and is_there(step.path)
    return f"{'keep ' if kept else 'write'}  {step.path} (mode {step.mode:04o})"


def is_there(path: Path) -> bool:
    """What lies where one may not look was put there by an installation: a dry run needs no
    rights."""
    try:
        return path.exists()
    except PermissionError:
        return True


def agreed() -> bool:
    """Asks on the terminal; without one nobody could answer."""
    if not sys.stdin.isatty():
        raise UserError("nobody can be asked here: pass --yes to do this.", code="usage")
    print("Do this? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def carry_out(step: Step) -> None:
    """Raises `UserError` that says which step failed and why."""
    if isinstance(step, Run):
        run_command(step.command)
    elif not (step.keep and step.path.exists()):
        write(step)


def run_command(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{command[0]} cannot be run: {error}.", code="failed") from None
    if done.returncode != 0:
        told = (done.stderr or done.stdout).strip()
        raise UserError(
            f"`{' '.join(command)}` failed with status {done.returncode}: {told}", code="failed"
        )


def write(step: Write) -> None:
    """Whole or not at all, and never readable to more than `mode` says."""
    beside = step.path.with_name(f".{step.path.name}.new")
    try:
        step.path.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, step.mode & _PRIVATE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), step.mode)
            stream.write(step.content)
        beside.replace(step.path)
    except OSError as error:
        raise UserError(
            f"{step.path} cannot be written: {error.strerror}.", code="failed"
        ) from None


def after(user: bool, waits: bool) -> str:
    manager = "systemctl --user" if user else "systemctl"
    lines = []
    if waits:
        lines.append(f"start it:      {manager} enable --now {' '.join(UNITS)}")
    lines.append(f"watch it:      {manager} status outpace")
    if user:
        lines.append("keep it running while you are not logged in: loginctl enable-linger")
    else:
        lines.append("its key:       /etc/outpace/keys")
    lines.append(f"take it away:  outpace uninstall-service{' --user' if user else ''}")
    return "\n".join(lines)


def _absolute(path: Path | None) -> Path | None:
    """Raises `UserError` for a file that is not there: the service would not start."""
    if path is None:
        return None
    if not path.is_file():
        raise UserError(f"{path} is no file.", code="invalid_setting", param="tls_certificate")
    return path.absolute()
