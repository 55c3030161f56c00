"""Whether answers are the same token for token, whatever was drafted."""

from __future__ import annotations

from collections.abc import Sequence

from bench.cells import Cell, Sample
from bench.drafting import COUPLED, Setting
from bench.report import Promise, none_of

_TREES_NOTE = "trees sum in another order: near ties may turn"


def promises_of_identity(
    samples: Sequence[Sample], settings: Sequence[Setting], cells: Sequence[Cell], *, greedy: bool
) -> list[Promise]:
    """Chains under `coupled` are promised to change nothing; of other rules it is told.

    Of sampled answers that means: with the same seed.
    """
    chains = [item for item in settings if item.identical]
    promises: list[Promise] = []
    if len(chains) > 1 or chains == list(settings):
        count = len(different(samples, chains))
        name = "answers that differ between settings"
        promises.append(none_of(name if greedy else f"{name}, same seed", count))
    off = [item for item in settings if item.rule is None]
    for rule in dict.fromkeys(item.rule for item in settings if not item.identical):
        under = [item for item in settings if item.rule == rule]
        count = len(different(samples, [*off, *under]))
        name = f"{rule}: answers that differ from off"
        note = next(cell.mark for cell in cells if cell.rule == rule)
        note = note or _lossless_note(under[0], greedy=greedy)
        promises.append(Promise(name, float(count), "<=", 0.0, note=note, applies=False))
    return promises


def _lossless_note(setting: Setting, *, greedy: bool) -> str:
    """Why answers under a lossless rule that is not promised to change nothing may differ."""
    if setting.rule == COUPLED or (greedy and setting.branches > 1):
        return _TREES_NOTE
    return "greedily the same answer" if greedy else "the same distribution, another answer"


def different(samples: Sequence[Sample], settings: Sequence[Setting]) -> list[str]:
    """Prompts whose answers are not the same token for token in every setting and repeat."""
    names = {setting.name for setting in settings}
    seen: dict[str, set[tuple[int, ...]]] = {}
    for sample in samples:
        if sample.setting in names:
            seen.setdefault(sample.question, set()).add(sample.ids)
    return [question for question, answers in seen.items() if len(answers) > 1]
