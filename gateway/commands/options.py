"""Flags that several commands share: one per setting, and the configuration file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from gateway.engine.requests import Pacing
from gateway.settings import DEFAULT_POLICIES, LOG_LEVELS, Settings, flag_fields, load_settings
from models.providers import DEVICES


def _one_of(names: Iterable[str]) -> str:
    return "{" + ",".join(names) + "}"


HELP: Mapping[str, str] = MappingProxyType(
    {
        "package": "directory that python -m export wrote",
        "host": "address to listen on",
        "port": "port to listen on; 0 takes a free one",
        "device": "where to run; auto: what the package was built for",
        "slots": "requests that run at once",
        "threads": "threads of the target's runs",
        "context": "tokens per slot; auto: all that the package holds",
        "queue": "requests that may wait",
        "prefill_chunk": "prompt tokens per run",
        "busy_chunk": "the same while answers are streaming, for each prompt that waits",
        "allowed_origins": "origins of web pages that may connect, separated by commas",
        "trees": "load the graphs for branched drafts at start, not at their first use",
        "insecure": "listen beyond this machine without API keys",
        "log_level": "what is worth a line in the log",
        "drain_seconds": "how long running answers may go on after a request to stop",
        "temperature": "of requests that name none: 0 takes the most likely token, 1 samples",
        "speculation_drafter": "drafter of requests that name none",
        "speculation_policy": "policy of requests that name none",
        "speculation_length": "draft tokens per round, 1 to 31; needed with the policy fixed",
        "speculation_tpot_ms": "milliseconds per token that the policy slo keeps; needed with it",
        "speculation_pacing": "even: the tokens of a round are released over the time of the next",
        "ngram_store": "directory that keeps what was said to each user, to draft from",
        "ngram_store_mib": "MiB of it at most; who was not heard of longest is forgotten",
    }
)
METAVARS: Mapping[str, str] = MappingProxyType(
    {
        "package": "DIR",
        "host": "ADDRESS",
        "device": _one_of(DEVICES),
        "allowed_origins": "ORIGINS",
        "log_level": _one_of(LOG_LEVELS),
        "drain_seconds": "SECONDS",
        "temperature": "X",
        "speculation_drafter": "NAME",
        "ngram_store": "DIR",
        "speculation_policy": _one_of(DEFAULT_POLICIES),
        "speculation_pacing": _one_of(get_args(Pacing)),
        "speculation_tpot_ms": "MS",
    }
)


def add_setting_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML file (default: $OUTPACE_CONFIG)"
    )
    defaults = Settings()
    for name in flag_fields():
        default = getattr(defaults, name)
        flag = "--" + name.replace("_", "-")
        text = f"{HELP[name]} (default: {_shown(name, default).replace('%', '%%')})"
        if isinstance(default, bool):
            parser.add_argument(flag, dest=name, action="store_const", const="true", help=text)
        else:
            parser.add_argument(flag, dest=name, metavar=METAVARS.get(name, "N"), help=text)


def _shown(name: str, default: Any) -> str:
    if default is None:
        return "none" if name in ("ngram_store", "speculation_tpot_ms") else "auto"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, float):
        return f"{default:g}"
    return "none" if default == () else str(default)


def settings_of(parsed: argparse.Namespace) -> Settings:
    """Raises `UserError` for what a file, the environment or a flag has wrong."""
    flags = {name: getattr(parsed, name) for name in flag_fields()}
    given = {name: text for name, text in flags.items() if text is not None}
    return load_settings(os.environ, given, parsed.config)
