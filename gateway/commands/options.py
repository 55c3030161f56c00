"""Flags that several commands share: one per setting, and the configuration file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from gateway.settings import Settings, flag_fields, load_settings

HELP: Mapping[str, str] = MappingProxyType(
    {
        "package": "directory that python -m export wrote",
        "host": "address to listen on",
        "port": "port to listen on; 0 takes a free one",
        "device": "cpu, cuda, or auto: what the package was built for",
        "slots": "requests that run at once",
        "threads": "threads of the target's runs",
        "context": "tokens per slot; auto: all that the package holds",
        "queue": "requests that may wait",
        "prefill_chunk": "prompt tokens per run",
        "busy_chunk": "prompt tokens per run while answers are streaming",
        "allowed_origins": "origins of web pages that may connect, separated by commas",
        "trees": "load the graphs for drafts that branch at start, not at their first use",
        "insecure": "listen beyond this machine without API keys",
        "log_level": "debug, info, warning or error",
        "drain_seconds": "how long running answers may go on after a request to stop",
        "temperature": "of requests that name none: 0 takes the most likely token, 1 samples",
        "speculation_drafter": "drafter of requests that name none",
        "speculation_policy": "auto, fixed or off, for requests that name none",
        "speculation_length": "draft tokens per round",
    }
)


def add_setting_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML file (default: $OUTPACE_CONFIG)"
    )
    defaults = Settings()
    for name in flag_fields():
        default = getattr(defaults, name)
        shown = "auto" if default is None else "no" if default in (False, ()) else str(default)
        flag = "--" + name.replace("_", "-")
        text = f"{HELP[name]} (default: {shown.replace(chr(37), chr(37) * 2)})"
        if isinstance(default, bool):
            parser.add_argument(flag, dest=name, action="store_const", const="true", help=text)
        else:
            parser.add_argument(flag, dest=name, metavar="VALUE", help=text)


def settings_of(parsed: argparse.Namespace) -> Settings:
    """Raises `UserError` for what a file, the environment or a flag has wrong."""
    flags = {name: getattr(parsed, name) for name in flag_fields()}
    given = {name: text for name, text in flags.items() if text is not None}
    return load_settings(os.environ, given, parsed.config)
