"""Have a running gateway free one of its packages."""

from __future__ import annotations

import argparse

from gateway.commands.connecting import add_gateway
from gateway.commands.packages import add_model, change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_gateway(parser)


def run(parsed: argparse.Namespace) -> int:
    package = change(parsed, "unload", {"model": parsed.model})
    running = f", {package['requests']} requests still run" if package["requests"] else ""
    print(f"{package['id']}: {package['state']}{running}")
    return 0
