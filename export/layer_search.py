"""Which layers of the target draft best for it.

Every layer left out makes a draft cheaper and more often wrong. The search leaves out one layer
after another, always the one whose loss costs the least agreement with the target, and keeps a few
best sets at each size (a beam). What a set is worth is what a round would gain:

    speed-up = E[tau](K, alpha) / (K * draft + verify(K)),  E[tau] = (1 - alpha^(K+1)) / (1 - alpha)

at its best draft length K, in runs of the whole target for one token. Overhead is not in it, so
what is found not to pay here does not pay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from export.quantization.structure import HEAD
from export.self_speculative import LayerChoice, layer_count

BEAM = 2
SHORTLIST = 4
LONGEST = 8
LIMIT_S = 600.0
_PATIENCE = 3
_PATIENCE_SHARE = 6
Kept = tuple[int, ...]
Judge = Callable[[Kept], float]
Report = Callable[[str], None]
# What a verified token adds to a run of the target, measured with packed rows of 8 tokens.
_VERIFY = {"w8a8": 0.045, "int8": 0.14, "int4": 0.21, "fp32": 0.07, "fp16": 0.03}


@dataclass(frozen=True, slots=True)
class Costs:
    """In runs of the whole target for one token: each layer, the LM head, a verified token."""

    layers: tuple[float, ...]
    head: float
    verify: float

    def draft(self, kept: Kept) -> float:
        return self.head + sum(self.layers[layer] for layer in kept)

    def measured(self, kept: Kept, agreement: float) -> Measured:
        """At the draft length that gains the most."""
        draft = self.draft(kept)
        length = max(range(1, LONGEST + 1), key=lambda k: self._speedup(draft, agreement, k))
        return Measured(kept, agreement, length, self._speedup(draft, agreement, length))

    def bound(self, agreement: float) -> float:
        """What the cheapest set could gain if it agreed as often."""
        draft = self.head + min(self.layers)
        return max(self._speedup(draft, agreement, k) for k in range(1, LONGEST + 1))

    def _speedup(self, draft: float, agreement: float, length: int) -> float:
        tau = sum(agreement**depth for depth in range(length + 1))
        return tau / (length * draft + 1 + length * self.verify)


@dataclass(frozen=True, slots=True)
class Measured:
    """A set of layers: how often its next token is the target's, and what is expected of it."""

    kept: Kept
    agreement: float
    length: int
    speedup: float


@dataclass(frozen=True, slots=True)
class LayerSearch:
    """`table` is the best set of each size, in the order of the search.

    `complete` is False where time ran out before smaller sets could be judged.
    """

    chosen: Measured
    table: tuple[Measured, ...]
    layers: int
    complete: bool

    def lines(self) -> list[str]:
        """The table and the choice, for a person."""
        lines = [f"  {'layers':>9}  agreement  draft length  expected speed-up"]
        lines += [
            f"  {len(row.kept):>3} of {self.layers:>2}  {row.agreement:>9.3f}  {row.length:>12}"
            f"  {row.speedup:>16.2f}x{'  <-' if row == self.chosen else ''}"
            for row in self.table
        ]
        if not self.complete:
            lines.append("  time ran out: smaller sets were not judged")
        kept = ranges(self.chosen.kept)
        if self.chosen.speedup > 1:
            return [*lines, f"  kept layers {kept}"]
        return [*lines, f"  no set of layers pays on these prompts; kept the best, {kept}"]


def costs_of(single: onnx.ModelProto, weight_type: str) -> Costs:
    """By the bytes of the weights that a run reads. `single` is the target's graph for one row."""
    layers, head = [0] * layer_count(single), 0
    for tensor in single.graph.initializer:
        parts = tensor.name.split(".")
        if parts[0] == "layers":
            layers[int(parts[1])] += _bytes(tensor)
        elif tensor.name.startswith(HEAD):
            head += _bytes(tensor)
    whole = sum(layers) + head
    return Costs(tuple(size / whole for size in layers), head / whole, _VERIFY[weight_type])


def choose_layers(
    choice: LayerChoice,
    judge: Judge,
    costs: Costs,
    report: Report,
    *,
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> LayerSearch:
    """The layers that `choice` means. `judge` gives the agreement of a set, the same each time.

    Within `limit_s` the result depends on nothing but the agreements. `report` hears what is
    judged next.
    """
    count = len(costs.layers)
    whole = tuple(range(count))
    if choice.kept or choice.count == count:
        report("judging the layers kept")
        kept = choice.kept or whole
        only = costs.measured(kept, judge(kept))
        return LayerSearch(only, (only,), count, complete=True)
    search = _Search(judge, costs, clock() + limit_s, clock)
    beam, table = [Measured(whole, 1.0, 1, 1.0)], list[Measured]()
    least = choice.count or 1
    while len(beam[0].kept) > least and not search.over:
        report(f"judging {len(beam[0].kept) - 1} of {count} layers")
        beam = search.level(beam)
        table.append(beam[0])
        best = max(table, key=lambda row: row.speedup)
        if choice.count is None and _past_best(table, best, costs):
            break
    complete = not search.over
    if choice.count is None:
        return LayerSearch(best, tuple(table), count, complete)
    if len(beam[0].kept) > choice.count:
        table.append(search.measured(search.shortened(beam[0].kept, choice.count)))
    return LayerSearch(table[-1], tuple(table), count, complete)


def _past_best(table: Sequence[Measured], best: Measured, costs: Costs) -> bool:
    """Nothing smaller can be better, or for several sizes nothing was."""
    patience = max(_PATIENCE, len(costs.layers) // _PATIENCE_SHARE)
    return (
        costs.bound(table[-1].agreement) <= best.speedup
        or len(table) - table.index(best) > patience
    )


class _Search:
    """Remembers what leaving out a layer cost when it was last tried."""

    def __init__(self, judge: Judge, costs: Costs, end: float, clock: Callable[[], float]) -> None:
        self._judge = judge
        self._costs = costs
        self._end = end
        self._clock = clock
        self._losses: dict[int, float] = {}

    @property
    def over(self) -> bool:
        return self._clock() > self._end

    def measured(self, kept: Kept) -> Measured:
        return self._costs.measured(kept, self._judge(kept))

    def level(self, beam: Sequence[Measured]) -> list[Measured]:
        """The best sets of one layer less."""
        tried: dict[Kept, Measured] = {}
        for state in beam:
            for layer in self._candidates(state.kept):
                kept = tuple(other for other in state.kept if other != layer)
                if kept in tried or (tried and self.over):
                    continue
                tried[kept] = self.measured(kept)
                self._losses[layer] = state.agreement - tried[kept].agreement
        return sorted(tried.values(), key=lambda row: (-row.agreement, row.kept))[:BEAM]

    def shortened(self, kept: Kept, count: int) -> Kept:
        """Without the layers that cost the least by themselves."""
        ranked = sorted(kept, key=lambda layer: (-self._losses.get(layer, 1.0), layer))
        return tuple(sorted(ranked[:count]))

    def _candidates(self, kept: Kept) -> list[int]:
        """All at first, then those whose loss cost the least.

        At first those about two thirds down: where time ends the search early, the layers that
        are the most likely to be spared were tried.
        """
        if not all(layer in self._losses for layer in kept):
            return sorted(kept, key=lambda layer: (abs(3 * layer - 2 * len(kept)), layer))
        return sorted(kept, key=lambda layer: (self._losses[layer], layer))[:SHORTLIST]


def ranges(kept: Kept) -> str:
    """`0-11,15-29`, as `--self-speculative` takes it."""
    runs: list[tuple[int, int]] = []
    for layer in kept:
        if runs and layer == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], layer)
        else:
            runs.append((layer, layer))
    return ",".join(f"{begin}-{end}" for begin, end in runs)


def _bytes(tensor: TensorProto) -> int:
    for entry in tensor.external_data:
        if entry.key == "length":
            return int(entry.value)
    return len(tensor.raw_data)
