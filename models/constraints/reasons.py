"""Why a constraint cannot be had, in words of our own.

llguidance says it in its own: with pieces of its grammars, the regular expressions that it makes of
schemas, its limits' names. Of these words only names that the request has itself are repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from models.constraints.schemas import place_of
from models.constraints.source import Kind

_MOST_SHOWN = 60

_TOO_LARGE = re.compile(
    r"too (big|large|many|deep|deeply|complex)\b|fuel|limit|exceed|max is", re.I
)
TOO_LARGE = "is too large, or nested too deeply, to be enforced"
NOT_ENFORCED = "cannot be enforced"
_NOTHING = "NoExtensionBias"

_OF_SCHEMAS: tuple[tuple[str, str], ...] = (
    (r"oneOf constraints", 'has a "oneOf" whose cases may overlap, which {no}; use "anyOf"'),
    (r"required property '(.*)' is unsatisfiable", "requires the property {0}, which nothing fits"),
    (r"Unsatisfiable .*\bminimum .* is greater than", "has a minimum above its maximum"),
    (r"Unsatisfiable .*incompatible types", "asks for different types at once: nothing fits it"),
    (r"Unsatisfiable .*Regex is empty", "has a pattern, format or length that rule each other out"),
    (r"Unsatisfiable|" + _NOTHING, "is one that nothing fits"),
    (r"Pointer '(.*)' does not exist", "refers to {0}, which is not in it"),
    (r"Resource '(.*)' is not present", "refers to {0}: other documents are not fetched"),
    (r"Invalid type: (.*)", "has the type {0}, which JSON Schema does not have"),
    (r"Unknown format: (.*)", "has the format {0}, which {no}"),
    (r"regex parse error", "has a pattern that cannot be used: {error}"),
    (r"Expected .* for '([^']*)'", "has a {0} of a wrong kind"),
    (r"(\w+) must be", "has a {0} of a wrong kind"),
    (r"Value for '(\w+)'", "has a {0} that {no}"),
    (r"range: min", "has bounds that {no}"),
    (r"invalid multiple of", 'has a "multipleOf" that is no number above 0'),
)
_OF_GRAMMARS: tuple[tuple[str, str], ...] = (
    (r"no start rule", 'has no rule "start"'),
    (_NOTHING, "is one that no text fits"),
    (r'failed to parse "%json"', 'has a "%json" without a schema that can be read'),
    (r'unknown name: "(.*)"', "has the name {0}, which it does not define"),
    (r'unknown special token: "(.*?)"', "has the token {0}, which the model does not have"),
    (r"Unknown common regex: ([\w.]+)", "imports {0}, which is not there"),
    (r'circular reference in token "(.*?)"', "has the token {0}, which refers to itself"),
    (r'duplicate rule: "(.*?)"', "has the rule {0} twice"),
    (
        r"Expected token ':', found '\['",
        'has a "[" where ":" should be: attributes, such as [lazy], stand in the definition of a'
        " rule, behind its name in lower case",
    ),
    (r"invalid regex .*regex parse error", "has a regular expression that cannot be used: {error}"),
)
"""Looked for where the message begins: behind it stand lines of the grammar, which may say
anything."""

_OF_EXPRESSIONS: tuple[tuple[str, str], ...] = (
    (r"regex parse error", "is no regular expression that can be used: {error}"),
    (_NOTHING, "is one that no text fits"),
)
_WITHIN = "failed to compile JSON schema: "
_LINE = re.compile(r"(?:at )?(\d+)\(\d+\): ")


def reason(kind: Kind, error: str, schema: Any = None) -> str:
    """What is wrong with a constraint of this kind, by llguidance's `error`: behind the field's
    name it is a sentence. `schema` is the schema, where it is one."""
    if kind in ("json_schema", "json_object"):
        return _of_schema(error, schema)
    if kind == "regex":
        return _said(_OF_EXPRESSIONS, error) or _otherwise(error)
    line = _LINE.match(error)
    where = f" (line {line[1]})" if line is not None and kind == "grammar" else ""
    message = error if line is None else error[line.end() :]
    if message.startswith(_WITHIN):
        inner = _of_schema(_first(message.removeprefix(_WITHIN)), None)
        return f"has a schema that {inner}{where}"
    said = _said(_OF_GRAMMARS, message, re.match)
    if said is None:
        said = TOO_LARGE if _TOO_LARGE.search(_first(error)) else "cannot be read"
    return said + where


def running_reason(error: str) -> str:
    """Why an answer could not go on."""
    return (
        "it grew too large" if _TOO_LARGE.search(error) else "it came to a state without a way on"
    )


def _of_schema(error: str, schema: Any) -> str:
    unknown = re.match(r"Unimplemented keys: \[(.*)\]", error)
    if unknown is None:
        return _said(_OF_SCHEMAS, error) or _otherwise(error)
    keyword = unknown[1].split(",")[0].strip(' "')
    place = place_of(schema, keyword)
    where = f" at {_shown(place)}" if place else ""
    return f"has {_shown(keyword)}{where}, which {NOT_ENFORCED}"


def _said(
    rules: tuple[tuple[str, str], ...],
    error: str,
    find: Callable[[str, str, int], re.Match[str] | None] = re.search,
) -> str | None:
    for pattern, said in rules:
        found = find(pattern, error, re.DOTALL if "{error}" in said else 0)
        if found is not None:
            names = [_shown(group) for group in found.groups()]
            return said.format(*names, no=NOT_ENFORCED, error=_syntax(error))
    return None


def _otherwise(error: str) -> str:
    return TOO_LARGE if _TOO_LARGE.search(_first(error)) else NOT_ENFORCED


def _syntax(error: str) -> str:
    """What is wrong with a regular expression: the one line that says it."""
    found = re.search(r"^error: (.+)$", error, re.MULTILINE)
    return "it cannot be read" if found is None else _clean(found[1])


def _first(error: str) -> str:
    return error.partition("\n")[0]


def _shown(text: str) -> str:
    return f'"{_clean(text)}"'


def _clean(text: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in text).strip()
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."
