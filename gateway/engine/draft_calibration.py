"""What a learned drafter's chains cost, measured when it is loaded."""

from __future__ import annotations

import time

from gateway.engine.learned import Learned
from models.slots import Slot
from models.target import Row, Target

TOKENS = 32
CONTEXT = 128
_REPEATS = 3


def calibration_slot(target: Target) -> Slot:
    """A small slot of its own that holds `TOKENS` tokens and has been run further, to its end.
    Runs the target."""
    (slot,) = target.make_slots(1, CONTEXT)
    target.run([Row(slot, (0,) * CONTEXT, logits=0)])
    slot.commit((0,) * TOKENS)
    return slot


def measure_chains(learned: Learned, kind: str, slot: Slot) -> dict[int, float]:
    """Milliseconds of a proposal by its length, the least of some. `slot` is a calibration slot."""
    drafter = learned.drafter(kind, slot, None, shared=False)
    drafter.reset(slot.tokens.tolist())
    drafter.commit((0,))
    drafter.propose(1)  # reads all that was committed: no round does that
    costs: dict[int, float] = {}
    for _ in range(_REPEATS):
        for length in range(1, learned.spec(kind).longest + 1):
            slot.commit((0,))
            drafter.commit((0,))
            started = time.perf_counter()
            drafter.propose(length)
            taken = (time.perf_counter() - started) * 1e3
            costs[length] = min(costs.get(length, taken), taken)
            drafter.propose(0)  # a token that means nothing teaches nothing
    # Noise only ever adds: no draft costs more than a longer one.
    return {length: min(costs[other] for other in costs if other >= length) for length in costs}
