"""Have a running gateway load a package, answer by it, and free the one before."""

from __future__ import annotations

import argparse

from gateway.commands.packages import add_force, add_model, add_url, change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_url(parser)
    add_force(parser)


def run(parsed: argparse.Namespace) -> int:
    package = change(parsed.url, "switch", {"model": parsed.model, "force": parsed.force})
    print(f"{package['id']}: {package['state']}, the default")
    return 0
