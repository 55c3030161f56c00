"""Helpers for tests of constraints: sources, texts made of allowed tokens, schemas at random."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.constraints.compiler import GrammarCompiler
from models.constraints.guide import Guide
from models.constraints.source import ConstraintSource
from models.package import Package
from models.tokenizer import Tokenizer

RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "colour": {"enum": ["red", "green", "light green"]},
    },
    "required": ["name", "age", "colour"],
    "additionalProperties": False,
}


def json_schema(schema: Any, param: str = "response_format") -> ConstraintSource:
    return ConstraintSource("json_schema", json.dumps(schema), param)


def regex(text: str) -> ConstraintSource:
    return ConstraintSource("regex", text)


def lark(text: str) -> ConstraintSource:
    return ConstraintSource("grammar", text)


def tokenizer_of(package: Package) -> Tokenizer:
    return Tokenizer.load(package.file(package.manifest.tokenizer))


def compiler_of(package: Package) -> GrammarCompiler:
    target = package.manifest.target
    return GrammarCompiler(tokenizer_of(package), target.vocab_size, target.eos_ids)


def flags_of(guide: Guide, ahead: Sequence[int] = ()) -> NDArray[np.bool_]:
    """Which tokens may come: what sampling makes of a guide."""
    only = guide.only(ahead)
    if only is None:
        return guide.allowed(ahead).flags
    flags = np.zeros_like(guide.allowed(ahead).flags)
    flags[only] = True
    return flags


def next_token(guide: Guide, tokenizer: Tokenizer, left: bytes) -> int | None:
    """The longest token that may come and that `left` begins with."""
    fitting = [
        (len(raw), token)
        for token in np.flatnonzero(flags_of(guide)).tolist()
        if (raw := tokenizer.token_bytes(token)) and left.startswith(raw)
    ]
    return max(fitting)[1] if fitting else None


def tokens_of(guide: Guide, tokenizer: Tokenizer, text: str) -> list[int] | None:
    """Commit `text`, token by token; None where it does not fit."""
    left, tokens = text.encode(), list[int]()
    while left:
        token = next_token(guide, tokenizer, left)
        if token is None:
            return None
        guide.commit([token])
        tokens.append(token)
        left = left[len(tokenizer.token_bytes(token)) :]
    return tokens


def random_schema(random_: random.Random, depth: int = 2) -> dict[str, Any]:
    """One whose documents are short, so that no answer runs into its limit."""
    kinds = ["boolean", "null", "integer", "string", "enum", "const"]
    kind = random_.choice([*kinds, *(["object", "array", "any"] if depth else [])])
    if kind == "integer":
        least = random_.randint(-50, 50)
        return {"type": kind, "minimum": least, "maximum": least + random_.randint(0, 400)}
    if kind == "string":
        return {"type": kind, "maxLength": random_.randint(0, 3)}
    if kind == "enum":
        return {"enum": random_.sample(["on", "off", "one", 'a "b"', 1, 12, None], 3)}
    if kind == "const":
        return {"const": random_.choice(["the other thing", True, [1, 2], {"in": "and"}])}
    if kind == "array":
        items = random_schema(random_, depth - 1)
        return {"type": kind, "items": items, "maxItems": random_.randint(0, 2)}
    if kind == "any":
        return {"anyOf": [random_schema(random_, depth - 1) for _ in range(2)]}
    if kind == "object":
        names = random_.sample(["name", "the", "x", "in order", "id"], random_.randint(1, 3))
        return {
            "type": kind,
            "properties": {name: random_schema(random_, depth - 1) for name in names},
            "required": random_.sample(names, random_.randint(0, len(names))),
            "additionalProperties": False,
        }
    return {"type": kind}
