"""Flags that several commands share: one per setting, and the configuration file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from gateway.engine.requests import Pacing
from gateway.settings import DEFAULT_POLICIES, LOG_FORMATS, LOG_LEVELS, Settings, flag_fields
from gateway.settings_sources import load_settings
from models.providers import DEVICES


def _one_of(names: Iterable[str]) -> str:
    return "{" + ",".join(names) + "}"


HELP: Mapping[str, str] = MappingProxyType(
    {
        "package": "directory that python -m export wrote, or one of such; given again: one more",
        "packages": "further ones that requests may name, separated by commas",
        "keep_alive": "seconds after which a package that nobody uses is unloaded; -1: never",
        "load_seconds": "how long a request may wait for its package to be loaded",
        "stuck_seconds": "after how long a run of the device is stuck; none: never",
        "stuck_exit_seconds": "how much longer it may take before the gateway ends",
        "admins": "names of the keys that may load and unload packages, separated by commas",
        "host": "address to listen on",
        "port": "port to listen on; 0 takes a free one",
        "device": "where to run; auto: what the package was built for",
        "slots": "requests that run at once",
        "threads": "threads of the target's runs",
        "context": "tokens per slot; auto: all that the package holds",
        "queue": "requests that may wait",
        "queue_seconds": "how long one may wait for its slot",
        "request_seconds": "how long one may take in all",
        "prefill_chunk": "prompt tokens per run",
        "busy_chunk": "the same while answers are streaming, for each prompt that waits",
        "share_prefixes": "keys share kept prefixes, and can tell what others' prompts begin with",
        "api_keys_file": "file of API keys, one a line or name:key; read again on SIGHUP",
        "tls_certificate": "file of the certificate chain to serve TLS with; read again on SIGHUP",
        "tls_key": "file of its key; none: it is in the same file",
        "allowed_origins": "origins of web pages that may connect, separated by commas",
        "allowed_hosts": "names that the Host header may have, separated by commas",
        "trees": "load the graphs for branched drafts at start, not at their first use",
        "insecure": "listen beyond this machine without API keys",
        "log_level": "what is worth a line in the log",
        "log_format": "lines of text, or a JSON object a line",
        "drain_seconds": "how long running answers may go on after a request to stop",
        "keep_seconds": "how long a stored response can be had again",
        "temperature": "of requests that name none; auto: as the package advises",
        "speculation_drafter": "drafter of requests that name none",
        "speculation_policy": "policy of requests that name none",
        "speculation_length": "draft tokens per round, 1 to 31; needed with the policy fixed",
        "speculation_tpot_ms": "milliseconds per token that the policy slo keeps; needed with it",
        "speculation_pacing": "even: the tokens of a round are released over the time of the next",
        "ngram_store": "directory that keeps what was said to each user, to draft from",
        "ngram_store_mib": "MiB of it at most; who was not heard of longest is forgotten",
        "check_memory": "refuse to load what does not seem to fit into memory",
        "gpu_memory_mib": "MiB of a GPU that each graph may take for its work",
        "gpu_graphs": "have runs of one shape captured as CUDA graphs and replayed",
        "gpu_strict_width": "verify in runs of so many tokens a row, always: the same kernels",
        "gpu_gemm": "kernels for int4 and int8 weights; auto: the faster ones, as measured",
        "gpu_share_weights": "have all graphs read one copy of the weights on the GPU",
        "limits_connections": "sockets that are open at once",
        "limits_message_bytes": "bytes of a request's body or of a message on a socket",
        "limits_header_bytes": "bytes of a header, and of the request line",
        "limits_headers": "headers of a request",
        "limits_nesting": "levels of a request's JSON",
        "limits_schema_bytes": "bytes of a JSON Schema in a request",
        "limits_schema_nesting": "levels of one",
        "limits_output_tokens": "tokens of an answer",
        "limits_requests": "answers that one key has at a time, waiting ones included",
        "limits_requests_per_minute": "requests of one key in a minute",
        "limits_tokens_per_minute": "tokens of prompts and answers of one key in a minute",
    }
)
AUTOMATIC = frozenset({"threads", "context", "temperature", "speculation_length"})
"""Without a value these are chosen; the others are not there then."""

METAVARS: Mapping[str, str] = MappingProxyType(
    {
        "package": "DIR",
        "packages": "DIRS",
        "keep_alive": "SECONDS",
        "load_seconds": "SECONDS",
        "stuck_seconds": "SECONDS",
        "stuck_exit_seconds": "SECONDS",
        "admins": "NAMES",
        "host": "ADDRESS",
        "device": _one_of(DEVICES),
        "api_keys_file": "FILE",
        "tls_certificate": "FILE",
        "tls_key": "FILE",
        "allowed_origins": "ORIGINS",
        "allowed_hosts": "NAMES",
        "queue_seconds": "SECONDS",
        "request_seconds": "SECONDS",
        "keep_seconds": "SECONDS",
        "log_level": _one_of(LOG_LEVELS),
        "log_format": _one_of(LOG_FORMATS),
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
        if name == "package":
            parser.add_argument(flag, dest=name, metavar="DIR", action="append", help=text)
        elif default is True:
            flag, text = flag.replace("--", "--no-", 1), f"do not {HELP[name]}"
            parser.add_argument(flag, dest=name, action="store_const", const="false", help=text)
        elif default is False:
            parser.add_argument(flag, dest=name, action="store_const", const="true", help=text)
        else:
            parser.add_argument(flag, dest=name, metavar=METAVARS.get(name, "N"), help=text)


def _shown(name: str, default: Any) -> str:
    if default is None:
        return "auto" if name in AUTOMATIC else "none"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, float):
        return f"{default:g}"
    return "none" if default == () else str(default)


def settings_of(parsed: argparse.Namespace) -> Settings:
    """Raises `UserError` for what a file, the environment or a flag has wrong."""
    flags = {name: getattr(parsed, name) for name in flag_fields()}
    given = {name: text for name, text in flags.items() if text is not None}
    if "package" in given:
        first, *more = given["package"]
        given["package"] = first
        if more or "packages" in given:
            given["packages"] = ",".join([*more, *filter(None, [given.get("packages")])])
    return load_settings(os.environ, given, parsed.config)
