"""The probe of strict mode: is what is decoded the same, however many tokens a run verifies?

On a GPU a prompt read in other chunks goes through other kernels. In strict mode every verification
is a run of one shape; so behind a prompt that was read in the same chunks the same tokens must give
the same bits, one at a time, several at once, and beside other rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.probe import ProbeResult
from models.rows import Row, RowResult
from models.slots import Slot
from models.target import Target

PROMPT_TOKENS = 48
PROBE_TOKENS = 48


def probe_strict(target: Target, slots: Sequence[Slot], vocab_size: int) -> ProbeResult:
    """Decode tokens one by one, in parts of every size, and beside others; compare bits.

    Uses `slots` and leaves them empty. Compares top values, ids and log-sum-exp.
    """
    width = target.strict_width
    assert width is not None, "every verification has one width"
    most = min(slot.context for slot in slots) - width
    prompt_tokens = min(PROMPT_TOKENS, most // 2)
    length = min(PROBE_TOKENS, most - prompt_tokens)
    ids = np.random.default_rng(2).integers(0, vocab_size, prompt_tokens + length).tolist()
    prompt, said = ids[:prompt_tokens], ids[prompt_tokens:]
    plain = _decoded(target, slots[:1], prompt, said, 1)
    differences = [
        f"{part} tokens a run"
        for part in range(2, width + 1)
        if not _same(plain, _decoded(target, slots[:1], prompt, said, part))
    ]
    for rows in range(2, min(target.most_rows, len(slots)) + 1):
        if not _same(plain, _decoded(target, slots[:rows], prompt, said, min(3, width))):
            differences.append(f"{rows} packed rows")
    for slot in slots:
        slot.truncate(0)
    return ProbeResult(not differences, len(ids), tuple(differences))


def _decoded(
    target: Target, slots: Sequence[Slot], prompt: list[int], said: list[int], part: int
) -> list[RowResult]:
    """The first slot's results of `said`, `part` tokens a run, behind `prompt`; the other slots do
    the same, each a run later."""
    for slot in slots:
        slot.truncate(0)
        target.run([Row(slot, tuple(prompt), logits=0)])
        slot.commit(prompt)
    results: list[RowResult] = []
    turn = 0
    while slots[0].length < len(prompt) + len(said):
        rows = []
        for index, slot in enumerate(slots[: turn + 1]):
            done = slot.length - len(prompt)
            size = part if index == 0 else 1 + (turn + index) % part
            tokens = tuple(said[done : done + size])
            if tokens:
                rows.append(Row(slot, tokens, logits=len(tokens)))
        results.append(target.run(rows)[0])
        for row in rows:
            row.slot.commit(row.tokens)
        turn += 1
    return results


def _same(first: Sequence[RowResult], second: Sequence[RowResult]) -> bool:
    return all(
        np.concatenate([getattr(part, name) for part in first]).tobytes()
        == np.concatenate([getattr(part, name) for part in second]).tobytes()
        for name in ("top_values", "top_ids", "logsumexp")
    )
