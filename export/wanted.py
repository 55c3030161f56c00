"""What a command line asks for by way of drafters."""

from __future__ import annotations

from dataclasses import dataclass

DRAFT, MEDUSA, EAGLE, MTP = "--draft", "--medusa", "--eagle", "--mtp"
SELF_SPECULATIVE = "--self-speculative"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An option and its value: a source, or layers. An empty source is the target's checkpoint."""

    option: str
    text: str
