"""What quantisation needs from the exporter beside the graph itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CalibrationContext:
    """How to write text with the model that is being quantised.

    `encode` turns text into ids (special tokens parsed, none added). `render` makes the text of a
    conversation with the generation prompt, None where the checkpoint has no chat template.
    `bos_id` starts free continuation where there is no template (None: token 0). `report` receives
    one line per long step.
    """

    encode: Callable[[str], Sequence[int]]
    render: Callable[[Sequence[Mapping[str, str]]], str] | None
    bos_id: int | None
    eos_ids: tuple[int, ...]
    seed: int = 0
    report: Callable[[str], None] | None = None
