"""What a request may demand of its answer's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from models.errors import UserError

Kind = Literal["json_object", "json_schema", "regex", "grammar", "calls"]

MOST_CHARACTERS: Mapping[Kind, int] = MappingProxyType(
    {
        "json_object": 0,
        "json_schema": 131_072,
        "regex": 16_384,
        "grammar": 32_768,
        "calls": 262_144,
    }
)
OWN_FORM, FREE_SPACE = "x-guidance", "whitespace_flexible"
JSON_FORM: Mapping[str, Any] = MappingProxyType(
    {"item_separator": ", ", "key_separator": ": ", FREE_SPACE: False}
)
"""JSON is on one line, with a space behind commas and colons, as in most of what models have read:
where whitespace is free small models do not find out of it, and where it is given it need not be
guessed. A schema's own `x-guidance` can leave it free."""

ANY_OBJECT = '{"type": "object"}'

MOST_RULES = 1000
"""Rules of a grammar: they are compiled one inside the other."""


@dataclass(frozen=True, slots=True)
class ConstraintSource:
    """`text` is the schema as JSON, the regular expression, or the grammar in Lark's notation; that
    of `calls` is one made of their tools, and `json_object` has none.

    `param` is the field of the request that errors name: two sources that differ in nothing else
    are the same constraint. `schemas` are those that `calls` are made of, each with its field.
    What is `lenient` ends no answer: where it cannot be followed any further, the rest is free.
    """

    kind: Kind
    text: str = ""
    param: str = field(default="response_format", compare=False)
    schemas: tuple[ConstraintSource, ...] = field(default=(), compare=False)
    lenient: bool = field(default=False, compare=False)

    def require_size(self) -> None:
        """Raises `UserError` (`unsupported_value`) where it is too large to be compiled."""
        most = MOST_CHARACTERS[self.kind]
        if len(self.text) > most:
            raise self.refusal(
                f"has {len(self.text)} characters; at most {most} are taken", "unsupported_value"
            )
        if self.kind == "grammar" and self.text.count(":") > MOST_RULES:
            raise self.refusal(f"has more than {MOST_RULES} rules", "unsupported_value")

    def refusal(self, problem: str, code: str = "invalid_value") -> UserError:
        return UserError(f"{self.param} {problem}.", code=code, param=self.param)
