"""What a run of peers is asked for on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.catalogue import PEERS, Configuration, Peer, configurations
from bench.setup import Setup
from models.errors import UserError
from models.processor import processor_count

BEST, ALL = "best", "all"
_DEMO_DRAFT = Path(__file__).parents[2] / "export" / "demo_heads" / "draft"


@dataclass(frozen=True, slots=True)
class Plan:
    """`wanted` are configurations named on the command line; None lets a selection run find the
    best of each peer."""

    peers: tuple[Peer, ...]
    wanted: tuple[Configuration, ...] | None
    threads: int
    max_tokens: int
    selection_prompts: int
    selection_max_tokens: int
    checkpoint: str | None
    draft: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("--out", type=Path, required=True, metavar="DIR", help="a new or empty directory")
    flag(
        "--peers",
        default=ALL,
        metavar="NAME,...",
        help=f"of {', '.join(peer.name for peer in PEERS)}; default: {ALL}",
    )
    flag(
        "--configurations",
        default=BEST,
        metavar="NAME,...",
        help=f"{BEST} of each peer, found by a selection run first; {ALL}, at once; or names, as in"
        f" {configurations(PEERS[0])[0].name!r}; default: {BEST}",
    )
    flag("--max-tokens", type=int, default=128, metavar="N", help="of an answer; default: 128")
    flag(
        "--selection-prompts",
        type=int,
        default=6,
        metavar="N",
        help="of the prompts, for the selection run; default: 6",
    )
    flag(
        "--selection-max-tokens",
        type=int,
        default=64,
        metavar="N",
        help="of an answer in the selection run; default: 64",
    )
    flag(
        "--also-package",
        type=Path,
        metavar="DIR",
        help="another package of the same checkpoint, as one closer to the fp32 model",
    )
    flag(
        "--checkpoint",
        metavar="SOURCE",
        help="what the package was made of: hub id, directory or .gguf; default: the demo's",
    )
    flag("--draft", type=Path, metavar="DIR", help="draft model; default: the demo's")


def plan_of(parsed: argparse.Namespace, setup: Setup) -> Plan:
    """Raises `UserError` for what there is not."""
    for name in ("max_tokens", "selection_prompts", "selection_max_tokens"):
        if getattr(parsed, name) < 1:
            raise _usage(name, str(getattr(parsed, name)), "must be at least 1")
    peers = _peers(parsed.peers)
    draft = parsed.draft
    if draft is None and parsed.checkpoint is None and _DEMO_DRAFT.is_dir():
        draft = _DEMO_DRAFT
    return Plan(
        peers=peers,
        wanted=_wanted(parsed.configurations, peers),
        threads=setup.threads or processor_count(),
        max_tokens=parsed.max_tokens,
        selection_prompts=parsed.selection_prompts,
        selection_max_tokens=parsed.selection_max_tokens,
        checkpoint=parsed.checkpoint,
        draft=draft,
    )


def _peers(text: str) -> tuple[Peer, ...]:
    if text == ALL:
        return PEERS
    known = {peer.name.lower(): peer for peer in PEERS}
    names = [part.strip().lower() for part in text.split(",")]
    if not set(names) <= set(known):
        raise _usage("peers", text, f"knows {', '.join(peer.name for peer in PEERS)}")
    return tuple(known[name] for name in dict.fromkeys(names))


def _wanted(text: str, peers: Sequence[Peer]) -> tuple[Configuration, ...] | None:
    if text == BEST:
        return None
    known = {one.name: one for peer in peers for one in configurations(peer)}
    names = list(known) if text == ALL else [part.strip() for part in text.split(",")]
    if not set(names) <= set(known):
        raise _usage("configurations", text, f"knows {BEST}, {ALL} and {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names))


def _usage(flag: str, given: str, problem: str) -> UserError:
    shown = "--" + flag.replace("_", "-")
    return UserError(f"{shown} {given}: {problem}.", code="usage", param=flag)
