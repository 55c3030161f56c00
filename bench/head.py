"""What a report of a run begins with: when and how it was made, of which target, on what."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.run.contract import runtime_group, target_group
from bench.run.schema import REASONS, RuntimeGroup, TargetGroup, plain
from bench.setup import Setup


@dataclass(frozen=True, slots=True)
class Head:
    """`started` is UTC, ISO 8601; `whole` is False where the run was interrupted."""

    started: str
    seconds: float
    command: str
    whole: bool
    target: TargetGroup
    runtime: RuntimeGroup


def head_of(setup: Setup, status: Mapping[str, Any], started: float, whole: bool) -> Head:
    """Of a run that began at `started`, in seconds of the epoch, and ends now; `status` is the
    gateway's."""
    return Head(
        started=datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        seconds=round(time.time() - started, 1),
        command=shlex.join(["python", "-m", "bench", *sys.argv[1:]]),
        whole=whole,
        target=target_group(setup.package),
        runtime=runtime_group(setup, status),
    )


def facts(head: Head) -> list[tuple[str, str]]:
    """The first lines of a report: name and text."""
    target, runtime = head.target, head.runtime
    whole = "" if head.whole else "; interrupted"
    return [
        ("command", f"`{head.command}`"),
        ("measured", f"{head.started}, {head.seconds:.0f} s{whole}"),
        ("target", f"{target.checkpoint}, {target.architecture}, {target.weight_type}"),
        ("package", f"`{target.package[:16]}`"),
        ("runtime", f"{runtime.provider}, {runtime.threads} threads, {runtime.slots} slots"),
        ("hardware", str(runtime.hardware["processor"])),
    ]


def document(schema: str, report: Any) -> dict[str, Any]:
    """A report with a `head` as JSON data, in which the head's fields are its own."""
    data = plain(report)
    return {"schema": schema, "reasons": dict(REASONS), **data.pop("head"), **data}
