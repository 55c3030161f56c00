"""Runs of fixed shape on a device: every row has the same width, and nothing moves between them.

What a device has captured can be replayed for other tokens, but not for other shapes or addresses.
So narrow chains are padded to one of a few widths; for every set of slots and every width there is
one binding, whose inputs are updated in place. The K/V length that kernels read in the host's
memory is the buffers' whole capacity; the real one, `seqlens_k`, lies on the device. All rows'
logits are made, those of the padding too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.device_binding import DeviceBinding
from models.memory import PAD_TOKENS
from models.package import FEATURE_INDEX, KEPT, TargetSpec
from models.providers import WIDTHS, Provider
from models.rows import Row
from models.session import Binding, Session
from models.slots import Slot
from models.workspace import Workspace

__all__ = ["WIDTHS", "FixedRun", "FixedRuns"]

FAST_TOKENS = 16
"""Tokens of a run up to which 4-bit weights have kernels of their own on CUDA (`MatMulNBits`);
beyond, whole matrices are taken apart first."""

WARM_GRAPHS = 128
"""Shapes that are captured at the start; others are when they first come."""

SessionOf = Callable[[int, Sequence[Slot]], Session]
Outputs = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]


def fast_tokens(spec: TargetSpec) -> int | None:
    """Tokens of a run beyond which it leaves the fast kernels; None where there is no such end."""
    return FAST_TOKENS if spec.device == "cuda" and spec.weight_type == "int4" else None


@dataclass(frozen=True, slots=True)
class FixedRun:
    """A binding for `slots`, one a row, each with `width` tokens. Arrays are what it is fed."""

    binding: Binding
    slots: tuple[Slot, ...]
    width: int
    ids: NDArray[np.int64]
    outputs: Outputs
    features: bool

    def run(self, rows: Sequence[Row]) -> None:
        """The first slots are those of `rows`; the others have nothing to do."""
        width, binding = self.width, self.binding
        self.ids[...] = 0
        for index, slot in enumerate(self.slots):
            past = 0
            if index < len(rows):
                assert rows[index].slot is slot, "a run is for these slots"
                tokens, past = rows[index].tokens, rows[index].past
                begin = index * width
                self.ids[0, begin : begin + len(tokens)] = tokens
                self.ids[0, begin + len(tokens) : begin + width] = tokens[-1]
            places = np.arange(past, past + width)
            name = "position_ids" if len(self.slots) == 1 else f"position_ids.{index}"
            binding.feed(name, places[None])
            binding.feed(f"seqlens_k.{index}", np.array([past + width - 1], dtype=np.int32))
            if self.features:
                binding.feed(f"{FEATURE_INDEX}.{index}", places[:, None])
        binding.feed("input_ids", self.ids)
        binding.run()


class FixedRuns:
    """The fixed runs of a target. `sessions` are by row count, `spare` stands in for rows that are
    not there. `session_of` makes one for a width and slots, where each shape has its own, which is
    built when it is first wanted."""

    def __init__(
        self,
        spec: TargetSpec,
        provider: Provider,
        sessions: Mapping[int, Session],
        workspace: Workspace,
        spare: Slot,
        session_of: SessionOf | None = None,
    ) -> None:
        self._spec = spec
        self._sessions = sessions
        self._session_of = session_of
        self._workspace = workspace
        self.spare = spare
        self._strict = provider.use.strict_width is not None
        self.widths = provider.use.widths
        self._runs: dict[tuple[object, ...], FixedRun] = {}

    def rows_of(self, count: int) -> int:
        """Rows of the graph for `count` rows; in strict mode always the most, so that the products
        are always of one shape."""
        fitting = [size for size in self._sessions if size >= count]
        return max(fitting) if self._strict else min(fitting)

    def width(self, rows: Sequence[Row]) -> int | None:
        """The width that takes `rows`, all chains; None where they are no fixed run."""
        count = self.rows_of(len(rows))
        widest = max(len(row.tokens) for row in rows)
        width = next((width for width in self.widths if width >= widest), None)
        if width is None or not (self._session_of or self._sessions[count].capturing):
            return None
        ends = (row.past + width <= row.slot.context + PAD_TOKENS for row in rows)
        if not all(ends):
            return None
        key = (width, *self._slots(rows, count))
        room = self._session_of is not None or not self._sessions[count].captures.full
        return width if room or key in self._runs else None

    def run(self, rows: Sequence[Row], width: int) -> Outputs:
        """Of every row `width` entries, which the next run of the shape overwrites."""
        count = self.rows_of(len(rows))
        slots = self._slots(rows, count)
        fixed = self._runs.get((width, *slots))
        if fixed is None:
            fixed = self._runs[width, *slots] = self._made(slots, width)
        self._workspace.bind(fixed.binding, count * width)
        fixed.run(rows)
        return fixed.outputs

    def shapes(self, slots: Sequence[Slot], most: int | None) -> Iterator[list[Row]]:
        """Rows for every shape that is worth making ready beforehand: what is captured of at most
        `most` tokens, and all that an engine has to be built for. `slots` are of one size."""
        if self._session_of is not None:
            counts = {self.rows_of(count): count for count in self._counts(slots)}
            return (
                [Row(slot, (0,) * width, logits=0) for slot in slots[:count]]
                for count in counts.values()
                for width in self.widths
            )
        shapes = (
            [Row(slot, (0,) * width, logits=0) for slot in chosen]
            for count in self._counts(slots)
            for chosen in itertools.combinations(slots, count)
            for width in self.widths
            if most is None or count * width <= most or width == self.widths[0]
        )
        return itertools.islice(shapes, WARM_GRAPHS)

    def _counts(self, slots: Sequence[Slot]) -> range:
        """How many rows may run at once."""
        return range(1, 1 + min(max(self._sessions), len(slots)))

    def _slots(self, rows: Sequence[Row], count: int) -> tuple[Slot, ...]:
        return (*(row.slot for row in rows), *[self.spare] * (count - len(rows)))

    def _made(self, slots: tuple[Slot, ...], width: int) -> FixedRun:
        count = len(slots)
        if self._session_of is None:
            session = self._sessions[count]
        else:
            session = self._session_of(width, slots)
        binding = session.binding()
        assert isinstance(binding, DeviceBinding), "only devices capture"
        features = bool(self._spec.features)
        for row, slot in enumerate(slots):
            binding.bind_slot(slot.buffers, row)
            if features:
                bind_kept(binding, slot, row)
            capacity = slot.context + PAD_TOKENS
            binding.feed(f"total_length.{row}", np.array(capacity, dtype=np.int32))
            if count > 1:
                binding.feed(f"row_index.{row}", np.arange(row * width, (row + 1) * width))
        whole = np.arange(count * width)
        binding.feed("logits_index", whole)
        if count > 1:
            binding.feed("unpack_index", whole)
        top = (count * width, self._spec.top_k)
        outputs = (
            binding.collect("top_values", top, np.float32),
            binding.collect("top_ids", top, np.int64),
            binding.collect("logsumexp", (count * width,), np.float32),
        )
        self._feed_first(binding, slots, width, features)
        self._workspace.bind(binding, count * width)
        binding.gather()
        if session.capturing:
            binding.keep()
        ids = np.zeros((1, count * width), dtype=np.int64)
        return FixedRun(binding, slots, width, ids, outputs, features)

    def _feed_first(
        self, binding: Binding, slots: Sequence[Slot], width: int, features: bool
    ) -> None:
        """What every run updates, so that nothing is bound after this."""
        positions = np.arange(width)
        binding.feed("input_ids", np.zeros((1, len(slots) * width), dtype=np.int64))
        for row in range(len(slots)):
            name = "position_ids" if len(slots) == 1 else f"position_ids.{row}"
            binding.feed(name, positions[None])
            binding.feed(f"seqlens_k.{row}", np.array([width - 1], dtype=np.int32))
            if features:
                binding.feed(f"{FEATURE_INDEX}.{row}", positions[:, None])


def keeps_features(session: Session) -> bool:
    """Whether the graph writes features where the slot keeps them, at an address that stays."""
    return any(name.startswith(KEPT) for name in session.input_names)


def bind_kept(binding: Binding, slot: Slot, row: int) -> None:
    """Have features written where `slot` keeps them."""
    for name, value in slot.features.items():
        binding.bind_in_place(f"{KEPT}{name}.{row}", f"{name}.{row}", value)
