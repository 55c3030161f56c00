"""What an answer says and thinks, without the whitespace around thoughts and calls."""

from __future__ import annotations

from gateway.calls.parts import Part, Text, Thought


class Spoken:
    """Gathers the parts of an answer. Whitespace is held back in `blank` until something follows
    it; where it is `fresh` something begins, and whitespace before that is left out."""

    def __init__(self, *, fresh: bool) -> None:
        self.parts: list[Part] = []
        self.blank = ""
        self.fresh = fresh

    def take(self) -> list[Part]:
        parts, self.parts = self.parts, []
        return parts

    def add(self, kind: type[Text] | type[Thought], text: str) -> None:
        if self.fresh:
            text = text.lstrip()
        said = text.rstrip()
        if said:
            self.parts.append(kind(self.blank + said))
            self.blank, self.fresh = "", False
        if not self.fresh:
            self.blank += text[len(said) :]

    def release(self) -> None:
        """Nothing follows that would have whitespace around it: what was held back is text."""
        if self.blank:
            self.parts.append(Text(self.blank))
            self.blank = ""


def split_at(mark: str, text: str) -> tuple[str, str, str]:
    """What of `text` is before `mark`, the mark, and what is behind it; where it is not there yet,
    what certainly comes before it, nothing, and the rest."""
    before, found, behind = text.partition(mark)
    if found:
        return before, found, behind
    held = next(
        (n for n in range(min(len(mark) - 1, len(before)), 0, -1) if before.endswith(mark[:n])),
        0,
    )
    end = len(before) - held
    return before[:end], "", before[end:]
