"""The command line: `outpace` and `python -m gateway`."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import metadata

from gateway.commands import (
    chat,
    check,
    doctor,
    install_service,
    load,
    ps,
    serve,
    switch,
    top,
    uninstall_service,
    unload,
)
from gateway.settings_sources import check_environment
from models.errors import UserError
from models.usage import Parser, add_command

COMMANDS = (
    serve,
    chat,
    ps,
    load,
    unload,
    switch,
    top,
    check,
    doctor,
    install_service,
    uninstall_service,
)

UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 for what a user can put right, 2 for wrong usage, and what else
    a command says of its failures."""
    parsed = _parser().parse_args(arguments)
    try:
        check_environment(os.environ)
        status: int = parsed.run(parsed)
        sys.stdout.flush()
    except UserError as error:
        print(f"outpace {parsed.command}: {error.message}", file=sys.stderr)
        failed: int = parsed.failed(error)
        return failed
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has left.
        _discard_output()
        return 1
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        print(f"outpace {parsed.command}: cannot write: {error.strerror}", file=sys.stderr)
        _discard_output()
        return 1
    return status


def _failed(_error: UserError) -> int:
    return 1


def _discard_output() -> None:
    """What could not be written would be tried again, and fail again, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> Parser:
    parser = Parser(
        prog="outpace",
        description="A streaming gateway that runs speculative decoding on ONNX Runtime.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"outpace {version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2].replace("_", "-")
        summary = (command.__doc__ or "").partition("\n")[0]
        added = add_command(commands, name, summary, run=command.run, failed=_failed)
        command.add_arguments(added)
    return parser


def version() -> str:
    try:
        return metadata.version("outpace")
    except metadata.PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
