"""Do two checkpoints mean the same tokens by the same ids?

A drafter proposes ids, and the target takes them for its own: the ids of both must stand for the
same tokens, and the drafter should have learned texts cut into tokens as the target's are. Sizes
say nothing of either. What only pads a vocabulary to a round size is no difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import tokenizers

from models.errors import UserError

_SCORE_TOLERANCE = 1e-4
_SHOWN = 4
# Each is short, so that the text of a refusal is: the scripts, and what rules for cutting differ in
# (digits, runs of spaces, line ends, contractions, case, accents in two forms, joined emoji, code).
_TEXTS = (
    "The quick brown fox's tail wasn't there; it'd gone.",
    "IT'S HTTPServer2 camelCase snake_case kebab-case",
    "0 12 123 1234 12345678 3.14 1,000,000 2026-11-29 0x1F",
    " leading",
    "trailing ",
    "a  b   c    d        e",
    "\t\ttabs\t",
    "a\nb\n\nc\n\n\n d",
    "a\r\nb\r\n",
    "\u00a0no-break\u2009thin\u3000wide",
    "def f(x):\n    return [y**2 for y in x if y != 0]  # squares\n",
    '<div class="a">&amp;</div> {"k": [1, -2.5e-3, null]}',
    "$x_{i}^{2}$ \\n ~/bin && ls | wc",
    "https://example.org/a?b=c&d=%20#e user@example.org",
    "Über Straße, déjà vu, niño, Åse, Łódź, İstanbul",
    "e\u0301 n\u0303 A\u030a \u1112\u1161\u11ab",
    "\ufb01ne \uff21 \u2122",
    "Привет, как дела?",
    "Καλημέρα κόσμε",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "你好,世界。今天是2026年!",
    "こんにちは、世界。カタカナ",
    "안녕하세요 세계",
    "\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "\u2026\u2014\u2013\u201cquoted\u201d \u2018single\u2019 \u00abguillemets\u00bb",
    "!!!???...;;;",
    "\u200bzero\ufeffwidth",
    "",
)


@dataclass(frozen=True, slots=True)
class NamedTokenizer:
    """A checkpoint's tokenizer. `checkpoint` is what messages call it."""

    checkpoint: str
    backend: tokenizers.Tokenizer


def check_same_tokens(target: NamedTokenizer, draft: NamedTokenizer, option: str) -> None:
    """Raise `UserError` (`tokenizer_mismatch`) that names both and the first difference."""
    difference = first_difference(target, draft)
    if difference is not None:
        raise UserError(
            f"{draft.checkpoint} cannot draft for {target.checkpoint}: {difference}.",
            code="tokenizer_mismatch",
            param=option,
        )


def first_difference(one: NamedTokenizer, other: NamedTokenizer) -> str | None:
    """What sets two tokenizers apart, in a few words; None where nothing does.

    Vocabularies, added tokens among them, and the model's merges or scores are compared whole.
    Normalisers and the rules that cut a text first have many ways to say the same: they are
    compared by what comes of sample texts, and where they are written differently also of the text
    of every token.
    """
    pair = (_Known.of(one), _Known.of(other))
    return _vocabulary(*pair) or _model(*pair) or _encodings(*pair)


@dataclass(frozen=True, slots=True)
class _Known:
    """`ids` are without what pads the vocabulary."""

    name: str
    backend: tokenizers.Tokenizer
    definition: Mapping[str, Any]
    ids: Mapping[str, int]

    @classmethod
    def of(cls, tokenizer: NamedTokenizer) -> _Known:
        source = tokenizer.backend.to_str()
        backend = tokenizers.Tokenizer.from_str(source)
        backend.no_padding()
        backend.no_truncation()
        vocabulary = backend.get_vocab(with_added_tokens=True)
        ids = {token: id_ for token, id_ in vocabulary.items() if not _pads(token, id_)}
        return cls(tokenizer.checkpoint, backend, json.loads(source), ids)

    @property
    def added(self) -> set[str]:
        """Tokens found in a text before it is cut."""
        found = {added["content"] for added in self.definition.get("added_tokens", ())}
        return found & self.ids.keys()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def token(self, id_: int | None) -> str:
        return "nothing" if id_ is None else repr(self.backend.id_to_token(id_))


def _pads(token: str, id_: int) -> bool:
    """How conversion to GGUF calls rows of the embedding that no token has."""
    return token == f"[PAD{id_}]"


def _vocabulary(one: _Known, other: _Known) -> str | None:
    tokens = one.ids.keys() | other.ids.keys()
    different = [token for token in tokens if one.ids.get(token) != other.ids.get(token)]
    if not different:
        return None
    places = {known for token in different for known in (one.ids.get(token), other.ids.get(token))}
    first = min(place for place in places if place is not None)
    names = (known.token(first if first in known.ids.values() else None) for known in (one, other))
    said = " and ".join(f"{name} in {k.name}" for name, k in zip(names, (one, other), strict=True))
    more = f" ({len(places - {None})} ids differ)" if len(places - {None}) > 1 else ""
    return f"token {first} is {said}{more}"


def _model(one: _Known, other: _Known) -> str | None:
    """Of the rules that make tokens out of characters."""
    first, second = one.definition["model"], other.definition["model"]
    if first.get("type") != second.get("type"):
        kinds = first.get("type"), second.get("type")
        return f"{one.name} is a {kinds[0]} tokenizer, {other.name} is a {kinds[1]} one"
    merges = zip_longest(_merges(first), _merges(second))
    for rank, (left, right) in enumerate(merges):
        if left != right:
            return f"merge {rank} is {_pair(left)} in {one.name} and {_pair(right)} in {other.name}"
    for (token, score), (_, their) in zip(_scores(first), _scores(second), strict=True):
        if abs(score - their) > _SCORE_TOLERANCE:
            return (
                f"token {token!r} scores {score:.4f} in {one.name} and {their:.4f} in {other.name}"
            )
    return None


def _merges(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for merge in model.get("merges") or ():
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        yield left, right


def _scores(model: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Of a unigram model; the others' vocabulary is a table of ids."""
    vocabulary = model.get("vocab")
    return sorted((t, s) for t, s in vocabulary) if isinstance(vocabulary, list) else []


def _pair(merge: tuple[str, str] | None) -> str:
    return "none" if merge is None else f"{merge[0]!r} + {merge[1]!r}"


def _encodings(one: _Known, other: _Known) -> str | None:
    for text in _texts(one, other):
        left, right = one.encode(text), other.encode(text)
        if left != right:
            return (
                f"{text!r} is {_shown(one, left, right)} in {one.name}"
                f" and {_shown(other, right, left)} in {other.name}"
            )
    return None


def _texts(one: _Known, other: _Known) -> Iterator[str]:
    yield from _TEXTS
    for added in sorted(one.added | other.added):
        yield f"a{added}b {added} c"
    parts = ("normalizer", "pre_tokenizer", "model")
    if any(one.definition.get(part) != other.definition.get(part) for part in parts):
        yield from _token_texts(one)


def _token_texts(known: _Known) -> Iterable[str]:
    return (known.backend.decode([id_], skip_special_tokens=False) for id_ in known.ids.values())


def _shown(known: _Known, ids: Sequence[int], others: Sequence[int]) -> str:
    """The ids from the first difference on."""
    begin = next(
        (i for i, pair in enumerate(zip(ids, others, strict=False)) if pair[0] != pair[1]),
        min(len(ids), len(others)),
    )
    part = ids[begin : begin + _SHOWN]
    listed = ", ".join(f"{id_} {known.token(id_)}" for id_ in part)
    before = "... " if begin else ""
    after = ", ..." if begin + _SHOWN < len(ids) else ""
    return f"[{before}{listed}{after}]"
