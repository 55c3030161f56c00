"""Have a running gateway load one of its packages."""

from __future__ import annotations

import argparse
from typing import Any

from gateway.commands.connecting import add_gateway
from gateway.commands.packages import add_force, add_model, change
from models.memory import format_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_gateway(parser)
    add_force(parser)
    parser.add_argument(
        "--keep-alive",
        type=float,
        metavar="SECONDS",
        help="unload it when nobody used it for so long; -1: never (default: as it is set)",
    )


def run(parsed: argparse.Namespace) -> int:
    document: dict[str, Any] = {"model": parsed.model, "force": parsed.force}
    if parsed.keep_alive is not None:
        document["keep_alive"] = parsed.keep_alive
    package = change(parsed, "load", document)
    print(f"{package['id']}: {package['state']}, {format_bytes(package['memory_bytes'])}")
    return 0
