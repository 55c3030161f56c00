"""Runs that a device captures once and replays: which there are, and how often each ran how.

A CUDA graph keeps the addresses it was captured with and reads nothing else when it is replayed.
ONNX Runtime captures one for each `gpu_graph_id` of a session, in the thread that ran it. So a
captured run belongs to one binding, which is never bound anew, and to one thread; both are asserted
at every replay. A provider without CUDA graphs ignores the id: all but the capture is the same.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from models.providers import load_onnxruntime

EAGER = -1
"""The graph id of a run that is not captured, as ONNX Runtime has it."""

MOST_GRAPHS = 512
"""Graphs that a session captures; each keeps some memory on the device."""

_GRAPH_ID = "gpu_graph_id"


@dataclass(slots=True)
class GraphCounts:
    """Runs on a device: those that captured a graph, replays, and the others by their reason.

    `refused` says why sessions run without graphs that were to have them, `elsewhere` which nodes
    of theirs another provider runs.
    """

    captured: int = 0
    replayed: int = 0
    eager: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GraphStatus:
    """A snapshot of the counts of all sessions."""

    captured: int
    replayed: int
    eager: Mapping[str, int]
    refused: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def total(counts: Iterable[GraphCounts]) -> GraphStatus:
    every = list(counts)
    eager: Counter[str] = Counter()
    for each in every:
        eager.update(each.eager)
    return GraphStatus(
        captured=sum(each.captured for each in every),
        replayed=sum(each.replayed for each in every),
        eager=dict(eager),
        refused=tuple(reason for each in every for reason in each.refused),
        elsewhere=tuple(note for each in every for note in each.elsewhere),
    )


class Captures:
    """The captured graphs of one session."""

    def __init__(self) -> None:
        self.counts = GraphCounts()
        self._options: dict[int, Any] = {}
        self._bound: dict[int, int] = {}
        self._thread: int | None = None

    @property
    def full(self) -> bool:
        return len(self._bound) >= MOST_GRAPHS

    def new(self) -> int:
        """An id for a binding of its own."""
        assert not self.full, "whoever asks looked before"
        number = len(self._bound)
        self._bound[number] = -1
        return number

    def enter(self, graph: int, changes: int) -> Any:
        """Run options for the graph `graph`, whose binding was bound so many times; the run is
        counted."""
        thread = threading.get_ident()
        assert self._thread in (None, thread), "captured graphs belong to the thread that made them"
        self._thread = thread
        if self._bound[graph] < 0:
            self._bound[graph] = changes
            self.counts.captured += 1
        else:
            assert self._bound[graph] == changes, "a captured binding was bound anew"
            self.counts.replayed += 1
        return self._run_options(graph)

    def leave_out(self, reason: str) -> Any:
        """Run options of a run that is neither captured nor replayed; it is counted."""
        self.counts.eager[reason] += 1
        return self._run_options(EAGER)

    def _run_options(self, graph: int) -> Any:
        options = self._options.get(graph)
        if options is None:
            options = self._options[graph] = load_onnxruntime().RunOptions()
            options.add_run_config_entry(_GRAPH_ID, str(graph))
        return options
