"""The grammar of answers that call functions, in Lark's notation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.calls.dialects import ARGUMENTS, CALL, CALLED, CALLS, PYTHON, Manner
from gateway.calls.tools import Tool
from models.constraints.source import FREE_SPACE, JSON_FORM, OWN_FORM, ConstraintSource

MOST_CALLS = 16
"""In one answer that must call: small models would go on until their context is full."""

PARAM = "tools"
"""The field that errors about all of them name."""

_MORE = f"{{0,{MOST_CALLS - 1}}}"
_ANY = r"(.|\n)*"


def calls_source(
    manner: Manner,
    tools: Sequence[Tool],
    marks: Mapping[str, int],
    *,
    several: bool,
    answer: ConstraintSource | None = None,
) -> ConstraintSource:
    """The constraint of `calls_grammar`; `answer` is one of the kind `json_schema`."""
    schema = None if answer is None else json.loads(answer.text)
    grammar = calls_grammar(manner, tools, marks, several=several, answer=schema)
    more = () if answer is None else (answer,)
    return ConstraintSource("calls", grammar, PARAM, (*_schemas(tools), *more))


def text_source(
    manner: Manner, tools: Sequence[Tool], marks: Mapping[str, int], *, several: bool
) -> ConstraintSource:
    """The constraint of `text_grammar`. Nobody asked for it: it ends no answer."""
    grammar = text_grammar(manner, tools, marks, several=several)
    return ConstraintSource("calls", grammar, PARAM, _schemas(tools), lenient=True)


def _schemas(tools: Sequence[Tool]) -> tuple[ConstraintSource, ...]:
    return tuple(
        ConstraintSource("json_schema", json.dumps(_alone(tool)), tool.param) for tool in tools
    )


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


def text_grammar(
    manner: Manner, tools: Sequence[Tool], marks: Mapping[str, int], *, several: bool
) -> str:
    """Any text, and behind it calls or none: only from the mark of the first call on there is a
    form. For that of Hermes, whose calls no text is taken for."""
    assert manner.dialect == "hermes", "other calls are not told from text by their mark"
    writer = _Writer(manner, marks, marked=False)
    bodies = [writer.body(index, tool) for index, tool in enumerate(tools)]
    mark = writer.mark(CALL)
    if CALL in marks:
        said, text = f"said: TEXT? {mark}", f"/{_ANY}/"
    else:
        said, text = f"said[lazy]: /{_ANY}{CALL}/", f"/{_ANY}/ & ~/{_ANY}{CALL}{_ANY}/"
    more = f' ("\\n" {mark} body){_MORE}' if several else ""
    rules = [
        f"start: TEXT? | said body{more}",
        said,
        f"body: {' | '.join(f'f{index}' for index in range(len(tools)))}",
        *(f"f{index}: {body}" for index, body in enumerate(bodies)),
        *(f"a{index}: %json {_arguments(tool)}" for index, tool in enumerate(tools)),
        f"TEXT: {text}",
    ]
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
            return f'{self.mark(CALLS)} "[" {call}{more} "]"'
        begun = f"{self.mark(PYTHON)} {call}"
        call = begun if self._marked and self._manner.dialect == "llama3" else call
        if not several:
            return call
        between = {"hermes": '"\\n" ', "llama3": '";" ', "mistral": ""}[self._manner.dialect]
        return f"{call} ({between}{call}){_MORE}"

    def call(self, index: int, tool: Tool) -> str:
        if self._manner.dialect == "mistral" and self._manner.named_arguments:
            return f"{self.mark(CALLS)} {_quoted(tool.name)} {self.mark(ARGUMENTS)} a{index}"
        if self._manner.dialect == "hermes":
            return f"{self.mark(CALL)} {self.body(index, tool)}"
        return f'{_quoted(self._opened(tool))} a{index} "}}"'

    def body(self, index: int, tool: Tool) -> str:
        """A call of the form of Hermes behind its mark."""
        opened, closed = _quoted(f"\n{self._opened(tool)}"), _quoted("}\n")
        return f"{opened} a{index} {closed} {self.mark(CALLED)}"

    def _opened(self, tool: Tool) -> str:
        return f'{{"name": {_quoted(tool.name)}, "{self._manner.arguments}": '

    def mark(self, mark: str) -> str:
        """As the special token that it is, or as text."""
        return f"<[{self._marks[mark]}]>" if mark in self._marks else _quoted(mark)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _arguments(tool: Tool) -> str:
    return _schema(_object(tool))


def _object(tool: Tool) -> dict[str, Any]:
    return {**tool.parameters, "type": "object"}


def _alone(tool: Tool) -> dict[str, Any]:
    """The schema without wishes for the form, which are none of what can be wrong with it."""
    return {key: value for key, value in _object(tool).items() if key != OWN_FORM}


def _schema(schema: Mapping[str, Any]) -> str:
    """What cannot be enforced is an error, whatever the schema says of that; of its own wishes for
    the form only free whitespace leaves JSON."""
    own = schema.get(OWN_FORM)
    free = isinstance(own, dict) and own.get(FREE_SPACE) is True
    form = {**JSON_FORM, FREE_SPACE: free, "lenient": False}
    return json.dumps({**schema, OWN_FORM: form}, ensure_ascii=False)
