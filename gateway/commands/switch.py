"""Have a running gateway load a package, answer by it, and free the one before."""

from __future__ import annotations

import argparse

from gateway.commands.connecting import add_gateway
from gateway.commands.packages import add_force, add_model, change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_gateway(parser)
    add_force(parser)


def run(parsed: argparse.Namespace) -> int:
    package = change(parsed, "switch", {"model": parsed.model, "force": parsed.force})
    print(f"{package['id']}: {package['state']}, the default")
    return 0
