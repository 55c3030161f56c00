"""The grammar of answers that call functions, in Lark's notation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.calls.dialects import ARGUMENTS, CALL, CALLED, CALLS, PYTHON, Manner
from gateway.calls.tools import Tool
from models.constraints.source import FREE_SPACE, JSON_FORM, OWN_FORM

MOST_CALLS = 16
"""In one answer that must call: small models would go on until their context is full."""

_MORE = f"{{0,{MOST_CALLS - 1}}}"


def calls_grammar(
    manner: Manner,
    tools: Sequence[Tool],
    marks: Mapping[str, int],
    *,
    several: bool,
    answer: Mapping[str, Any] | None = None,
) -> str:
    """At least one call of one of `tools`, and with `several` at most `MOST_CALLS`; or, where there
    is an `answer`, JSON by this schema instead. `marks` are those that are special tokens.

    A grammar must know by the first character which of the two it is: beside an answer Llama's
    calls have their mark.
    """
    writer = _Writer(manner, marks, marked=answer is not None)
    bodies = [writer.call(index, tool) for index, tool in enumerate(tools)]
    names = " | ".join(f"f{index}" for index in range(len(tools)))
    start = writer.calls("call", several)
    rules = [
        f"start: calls{' | answer' if answer is not None else ''}",
        f"calls: {start}",
        f"call: {names}",
        *(f"f{index}: {body}" for index, body in enumerate(bodies)),
        *(f"a{index}: %json {_arguments(tool)}" for index, tool in enumerate(tools)),
    ]
    if answer is not None:
        rules.append(f"answer: %json {_schema(answer)}")
    return "\n".join(rules) + "\n"


class _Writer:
    """Writes the rules of one manner."""

    def __init__(self, manner: Manner, marks: Mapping[str, int], *, marked: bool) -> None:
        self._manner = manner
        self._marks = marks
        self._marked = marked

    def calls(self, call: str, several: bool) -> str:
        """How calls follow one another."""
        if self._manner.dialect == "mistral" and not self._manner.named_arguments:
            more = f' (", " {call}){_MORE}' if several else ""
            return f'{self._mark(CALLS)} "[" {call}{more} "]"'
        begun = f"{self._mark(PYTHON)} {call}"
        call = begun if self._marked and self._manner.dialect == "llama3" else call
        if not several:
            return call
        between = {"hermes": '"\\n" ', "llama3": '";" ', "mistral": ""}[self._manner.dialect]
        return f"{call} ({between}{call}){_MORE}"

    def call(self, index: int, tool: Tool) -> str:
        if self._manner.dialect == "mistral" and self._manner.named_arguments:
            return f"{self._mark(CALLS)} {_quoted(tool.name)} {self._mark(ARGUMENTS)} a{index}"
        opened = f'{{"name": {_quoted(tool.name)}, "{self._manner.arguments}": '
        if self._manner.dialect != "hermes":
            return f'{_quoted(opened)} a{index} "}}"'
        opened, closed = _quoted(f"\n{opened}"), _quoted("}\n")
        return f"{self._mark(CALL)} {opened} a{index} {closed} {self._mark(CALLED)}"

    def _mark(self, mark: str) -> str:
        return f"<[{self._marks[mark]}]>" if mark in self._marks else _quoted(mark)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _arguments(tool: Tool) -> str:
    return _schema({"type": "object", **tool.parameters})


def _schema(schema: Mapping[str, Any]) -> str:
    """What cannot be enforced is an error, whatever the schema says of that; of its own wishes for
    the form only free whitespace leaves JSON."""
    own = schema.get(OWN_FORM)
    free = isinstance(own, dict) and own.get(FREE_SPACE) is True
    form = {**JSON_FORM, FREE_SPACE: free, "lenient": False}
    return json.dumps({**schema, OWN_FORM: form}, ensure_ascii=False)
