"""What a request's tools, its form and its wish to think come to for the model that is served."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from gateway.calls.dialects import THINK, Manner, manner_of, special_marks
from gateway.calls.grammar import PARAM, calls_source, text_source
from gateway.calls.reader import AnswerReader, Form
from gateway.calls.reading import Reading
from gateway.calls.scope import CallScope
from gateway.calls.thoughts import ThoughtTokens
from gateway.http.backend import Engine, Vocabulary
from gateway.http.sampling import Decoding
from gateway.http.tools import ToolUse
from models.constraints.source import ANY_OBJECT, ConstraintSource
from models.errors import UserError
from models.tokenizer import StreamDecoder


@dataclass(frozen=True, slots=True)
class Conduct:
    """How answers to one request are made, and read. `shown` are special tokens to be seen.

    A model that may think does not where its answer has a form: that begins at once. With `free`
    only the calls in it have one, if they can.
    """

    manner: Manner
    use: ToolUse
    constraint: ConstraintSource | None
    shown: frozenset[int]
    free: bool = False

    @property
    def thinks(self) -> bool:
        return self.manner.thinks and self.constraint is None

    @property
    def form(self) -> Form:
        """What is known of an answer that may call functions."""
        if self.constraint is None or self.free:
            return "free"
        return "calls" if self.use.must else "either"

    async def compiled(self, engine: Engine, key: str | None) -> Conduct:
        """With its constraint at hand for the requests that are opened next, when it is the turn of
        `key`. Raises `UserError` that names the field; what is `free` goes without instead."""
        if self.constraint is None:
            return self
        try:
            await engine.compile(self.constraint, key)
        except UserError as error:
            if self.free and error.param is not None and error.param.startswith(PARAM):
                return replace(self, constraint=None)
            raise
        return self

    def applied(self, decoding: Decoding, prompt: str) -> Decoding:
        """For answers to `prompt`: stops are not looked for in their calls, and where one call is
        all that they may make they are over behind it."""
        scope = None
        if self.use.tools and (decoding.stop or decoding.stop_ids or not self.use.several):
            scope = partial(self._scope, prompt)
        constraint = self.constraint
        if self.free and _wants_no_form(decoding):
            constraint = None
        return replace(decoding, constraint=constraint, shown_ids=self.shown, stop_scope=scope)

    def reading(self, prompt: str, vocabulary: Vocabulary) -> Reading | None:
        """Of one answer to `prompt`; None where it is nothing but text."""
        if not (self.thinks or self.use.tools):
            return None
        reader = self._reader(prompt)
        if not self.thinks:
            return Reading(reader, None)
        decoder = StreamDecoder(vocabulary, shown=self.shown)
        return Reading(reader, ThoughtTokens(decoder, thinking=self._thinking(prompt)))

    def _scope(self, prompt: str) -> CallScope:
        return CallScope(self._reader(prompt))

    def _reader(self, prompt: str) -> AnswerReader:
        manner = replace(self.manner, thinks=self.thinks)
        calls, thinking = bool(self.use.tools), self._thinking(prompt)
        single = not self.use.several
        return AnswerReader(manner, calls=calls, form=self.form, thinking=thinking, single=single)

    def _thinking(self, prompt: str) -> bool:
        return self.thinks and prompt.rstrip().endswith(THINK)


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
    shown = frozenset(marks.values())
    if use.tools and not use.must and form is None and not (manner.told or manner.thinks):
        # It has not learnt how calls are written.
        free = text_source(manner, use.tools, marks, several=use.several)
        return Conduct(manner, use, free, shown, free=True)
    return Conduct(manner, use, _constraint(manner, use, form, marks), shown)


def _wants_no_form(decoding: Decoding) -> bool:
    """Whether something is asked for that an answer of a form cannot have."""
    sampling, synthetic = decoding.sampling, decoding.speculation.rule == "synthetic"
    return bool(sampling.min_tokens or decoding.ignore_eos or decoding.stop_ids or synthetic)


def _constraint(
    manner: Manner, use: ToolUse, form: ConstraintSource | None, marks: dict[str, int]
) -> ConstraintSource | None:
    """Where a call must be made, its form; where one may be, and what else is said has a form, one
    or the other."""
    if not use.tools or not (use.must or form is not None):
        return form
    if use.must or form is None:
        return calls_source(manner, use.tools, marks, several=use.several)
    if form.kind not in ("json_object", "json_schema"):
        raise _beyond(form.param, "beside tools that may be called a form is JSON")
    if form.kind == "json_object":
        form = replace(form, kind="json_schema", text=ANY_OBJECT)
    return calls_source(manner, use.tools, marks, several=use.several, answer=form)


def _beyond(param: str, reason: str) -> UserError:
    return UserError(
        f"{param} cannot be honoured: {reason}.", code="unsupported_value", param=param
    )
