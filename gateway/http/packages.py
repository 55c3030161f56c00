"""How packages are written on the wire."""

from __future__ import annotations

import time
from typing import Any

from gateway.engine.names import NGRAM
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member
from gateway.metrics.families import Configured, Loaded
from gateway.metrics.metrics import Metrics


def model_object(member: Member) -> dict[str, Any]:
    manifest = member.source.manifest
    return {
        "id": manifest.name,
        "object": "model",
        "created": manifest.created,
        "owned_by": "outpace",
        "context_length": member.source.context_length,
        "drafters": [NGRAM, *(drafter.kind for drafter in manifest.drafters)],
        "state": member.state,
    }


def models_of(fleet: Fleet) -> list[dict[str, Any]]:
    """The default first: clients that look at the first alone mean that one."""
    return [
        model_object(member) for member in sorted(fleet, key=lambda each: each != fleet.default)
    ]


def package_object(member: Member, fleet: Fleet) -> dict[str, Any]:
    """`idle_seconds` is since when nobody uses it; None where it is used, or not loaded."""
    loaded = member.loaded
    idle = loaded is not None and loaded.uses == 0
    return {
        "id": member.name,
        "object": "package",
        "state": member.state,
        "default": member is fleet.default,
        "needs_bytes": member.source.need.total,
        "memory_bytes": member.claimed,
        "requests": member.uses,
        "waiting": member.waiting,
        "idle_seconds": round(time.monotonic() - loaded.idle_since, 1) if idle and loaded else None,
        "keep_alive": member.keep_alive,
        "loads": member.loads,
        "failures": member.failures.total,
        "problem": member.problem,
    }


def packages_of(fleet: Fleet) -> list[dict[str, Any]]:
    return [package_object(member, fleet) for member in fleet]


def loaded_families(fleet: Fleet, metrics: Metrics) -> list[Loaded]:
    """Of what was loaded at some time."""
    found = []
    for member in fleet:
        status = member.status()
        if status is not None:
            capacity = status.slots * member.source.context_length
            found.append(Loaded(status, capacity, metrics.of(member.name)))
    return found


def configured_families(fleet: Fleet) -> list[Configured]:
    return [
        Configured(member.name, member.state, member.loads, member.failures.total, member.claimed)
        for member in fleet
    ]
