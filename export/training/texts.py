"""Shaping what the target wrote into what people paste and ask."""

from __future__ import annotations

import re
from itertools import pairwise

_PUNCTUATION = re.compile(r"\s*([,.:;!?“”„()])\s*")
_INSIDE_NUMBER = re.compile(r"(\d) ([.,]) (\d)")
_HEADING = re.compile(r"^(#+ .*|\*\*[^*]*\*\*:?|[-=_*]{3,})$", re.MULTILINE)
_REPEATED, _REACH = 7, 100


def tokenised(text: str) -> str:
    """As news corpora have it: punctuation stands alone."""
    spaced = _PUNCTUATION.sub(r" \1 ", text)
    return " ".join(_INSIDE_NUMBER.sub(r"\1\2\3", spaced).split())


def flatten(text: str, separator: str) -> str:
    """Paragraphs without headings and emphasis, `separator` between them."""
    plain = _HEADING.sub("", text).replace("**", "")
    paragraphs = (" ".join(part.split()) for part in plain.split("\n"))
    return separator.join(part for part in paragraphs if part)


def first_words(text: str, count: int) -> str:
    """The first `count` words with what lies between them."""
    words = list(re.finditer(r"\S+", text))
    return text if len(words) <= count else text[: words[count - 1].end()]


def before_repeating(text: str) -> str:
    """`text` up to where seven words recur within a hundred: small models loop, what people paste
    seldom does."""
    words = list(re.finditer(r"\S+", text))
    seen: dict[tuple[str, ...], int] = {}
    for place in range(len(words) - _REPEATED + 1):
        key = tuple(word[0] for word in words[place : place + _REPEATED])
        if key in seen and place - seen[key] <= _REACH:
            return text[: words[place].start()].rstrip()
        seen[key] = place
    return text


def first_question(text: str) -> str | None:
    """The first line of `text` up to its question mark; None where it has none."""
    line = text.strip().partition("\n")[0]
    end = line.find("?")
    return line[: end + 1] if end > 0 else None


def whole_problem(text: str) -> str | None:
    """The first paragraph of `text` up to its last question mark; None where nothing is asked, or
    nothing can be counted."""
    paragraph = text.strip().partition("\n\n")[0]
    problem = paragraph[: paragraph.rfind("?") + 1]
    return problem if re.search(r"\d", problem) else None


def beginning(text: str, share: float) -> str:
    """The first sentence of `text`, or of that only this share of its words."""
    sentence = re.split(r"(?<=[.])\s", text, maxsplit=1)[0]
    words = sentence.split()
    return " ".join(words[: max(2, round(share * len(words)))])


def list_items(text: str) -> list[str]:
    """The whole lines of `text` without bullets; the last may be cut."""
    return [line.strip(" -") for line, _ in pairwise(text.split("\n"))]
