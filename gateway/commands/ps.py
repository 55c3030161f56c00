"""List the packages of a running gateway, and what is loaded of them."""

from __future__ import annotations

import argparse
import json

from gateway.commands.connecting import add_gateway
from gateway.commands.drawing import output_console, show
from gateway.commands.packages import packages_of
from gateway.commands.top_view import packages_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_gateway(parser)
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def run(parsed: argparse.Namespace) -> int:
    packages = packages_of(parsed)
    if parsed.json:
        print(json.dumps(packages, indent=2))
    else:
        show(packages_table(packages), output_console())
    return 0
