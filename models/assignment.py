"""Which nodes of a graph ONNX Runtime gave to another provider than the one asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

RECORD = "session.record_ep_graph_assignment_info"
"""The session entry without which nothing is known."""


def elsewhere(subgraphs: Sequence[Any], first: str) -> str | None:
    """What ONNX Runtime gave to other providers than `first`, in words; None: nothing."""
    kinds: dict[str, Counter[str]] = {}
    for each in subgraphs:
        if each.ep_name != first:
            nodes = kinds.setdefault(each.ep_name, Counter())
            nodes.update(node.op_type for node in each.get_nodes())
    if not kinds:
        return None
    return "; ".join(
        f"{nodes.total()} nodes on {provider}"
        f" ({', '.join(f'{count} {kind}' for kind, count in nodes.most_common(8))})"
        for provider, nodes in sorted(kinds.items())
    )
