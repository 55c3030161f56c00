"""What a request's tools, its form and its wish to think come to for the model that is served."""

from __future__ import annotations

from dataclasses import dataclass, replace

import orjson

from gateway.calls.dialects import THINK, Manner, manner_of, special_marks
from gateway.calls.grammar import calls_grammar
from gateway.calls.reader import AnswerReader
from gateway.calls.reading import Reading
from gateway.calls.thoughts import ThoughtTokens
from gateway.http.backend import Engine, Vocabulary
from gateway.http.sampling import Decoding
from gateway.http.tools import ToolUse
from models.constraints.source import ConstraintSource
from models.errors import UserError
from models.tokenizer import StreamDecoder


@dataclass(frozen=True, slots=True)
class Conduct:
    """How answers to one request are made, and read. `shown` are special tokens to be seen.

    A model that may think does not where its answer has a form: that begins at once.
    """

    manner: Manner
    use: ToolUse
    constraint: ConstraintSource | None
    shown: frozenset[int]

    @property
    def thinks(self) -> bool:
        return self.manner.thinks and self.constraint is None

    def applied(self, decoding: Decoding) -> Decoding:
        return replace(decoding, constraint=self.constraint, shown_ids=self.shown)

    def reading(self, prompt: str, vocabulary: Vocabulary) -> Reading | None:
        """Of one answer to `prompt`; None where it is nothing but text."""
        if not (self.thinks or self.use.tools):
            return None
        thinking = self.thinks and prompt.rstrip().endswith(THINK)
        manner = replace(self.manner, thinks=self.thinks)
        reader = AnswerReader(manner, calls=bool(self.use.tools), thinking=thinking)
        if not self.thinks:
            return Reading(reader, None)
        decoder = StreamDecoder(vocabulary, shown=self.shown)
        return Reading(reader, ThoughtTokens(decoder, thinking=thinking))


def conduct_of(
    engine: Engine, use: ToolUse, form: ConstraintSource | None, effort: str | None, param: str
) -> Conduct:
    """`effort` is what the field `param` says of thinking. Raises `UserError` for what this model
    cannot do."""
    template, vocabulary = engine.template, engine.tokenizer
    manner = manner_of(None if template is None else template.source)
    if use.tools and template is None:
        raise _beyond("tools", "the model has no chat template, which would tell it of them")
    if effort not in (None, "none") and not manner.thinks:
        raise _beyond(param, "the model does not reason; accepted: 'none' or absent")
    if not (use.tools or manner.thinks):
        return Conduct(manner, use, form, frozenset())
    marks = special_marks(vocabulary.token_id, vocabulary.special_ids)
    constraint = _constraint(manner, use, form, marks)
    return Conduct(manner, use, constraint, frozenset(marks.values()))


def _constraint(
    manner: Manner, use: ToolUse, form: ConstraintSource | None, marks: dict[str, int]
) -> ConstraintSource | None:
    """Where a call must be made, its form; where one may be, and what else is said has a form, one
    or the other."""
    if not use.tools or not (use.must or form is not None):
        return form
    answer = None
    if not use.must and form is not None:
        if form.kind not in ("json_object", "json_schema"):
            raise _beyond(form.param, "beside tools that may be called a form is JSON")
        answer = orjson.loads(form.text) if form.kind == "json_schema" else {"type": "object"}
    grammar = calls_grammar(manner, use.tools, marks, several=use.several, answer=answer)
    return ConstraintSource("calls", grammar, "tools")


def _beyond(param: str, reason: str) -> UserError:
    return UserError(
        f"{param} cannot be honoured: {reason}.", code="unsupported_value", param=param
    )
