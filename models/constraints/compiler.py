"""Compiling constraints for a vocabulary."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from models.constraints.allowed import Allowed
from models.constraints.guide import Grammar
from models.constraints.reasons import NOT_ENFORCED, reason
from models.constraints.schemas import never_ends
from models.constraints.source import (
    ANY_OBJECT,
    FREE_SPACE,
    JSON_FORM,
    OWN_FORM,
    ConstraintSource,
)
from models.constraints.trial import Trial
from models.constraints.vocabulary import Encoder, make_vocabulary

_STEPS = 4
_MOST_FORCED = 256
"""Tokens that are walked at once without a choice between them."""

log = logging.getLogger(__name__)

_MOST_LEXER_STATES = 50_000
"""Up to 2 KB each, kept while the grammar is."""


class TooSlowError(Exception):
    """It takes longer than who is not patient waits."""


class GrammarCompiler:
    """Compiles constraints for one vocabulary, in any thread; with a `trial`, which tries them
    first, in one at a time, and in another one that is not patient with a `quick` one."""

    def __init__(
        self,
        encoder: Encoder,
        vocab_size: int,
        eos_ids: Collection[int],
        trial: Trial | None = None,
        quick: Trial | None = None,
    ) -> None:
        self._encoder = encoder
        self._vocab_size = vocab_size
        self._eos_ids = tuple(sorted(eos_ids))
        self._trial = trial
        self._quick = quick
        self._making = threading.Lock()
        self._made: LLTokenizer | None = None

    def prepare(self) -> None:
        """Make the vocabulary now: that holds up every other thread, a tenth of a second for 50,000
        tokens."""
        if self._eos_ids:
            self._vocabulary()

    def close(self) -> None:
        for trial in (self._trial, self._quick):
            if trial is not None:
                trial.close()

    def compile(self, source: ConstraintSource, *, patient: bool = True) -> Grammar:
        """Raises `UserError` that says what is wrong with it (`invalid_value`), or that it cannot
        be had here (`unsupported_value`); `TooSlowError` where it may be had with patience."""
        source.require_size()
        if not self._eos_ids:
            raise source.refusal(
                "needs a model that has an end-of-sequence token", "unsupported_value"
            )
        for schema in source.schemas:
            grammar_text(schema)
        text = grammar_text(source)
        self._try(source, text, patient=patient)
        matcher = self._matcher(text)
        for schema in source.schemas:
            # By itself as well: in the whole, its first tokens may be far from the beginning.
            self._require_sound(schema, self._matcher(grammar_text(schema)))
        return Grammar(self._require_sound(source, matcher), self._vocab_size, self._eos_ids)

    def _try(self, source: ConstraintSource, text: str, *, patient: bool) -> None:
        trial = self._trial if patient else self._quick
        problem = None if trial is None else trial.problem(text)
        if problem is None or trial is None:
            return
        if problem == "slow" and not patient:
            raise TooSlowError
        named = source.schemas[0] if len(source.schemas) == 1 else source
        said = "takes too much memory to be compiled, or is nested too deeply"
        if problem == "slow":
            said = f"takes more than {trial.seconds:g} s to be compiled"
        raise named.refusal(said, "unsupported_value")

    def _matcher(self, text: str) -> LLMatcher | None:
        """One that may have failed; None where that was a fault of the compiler's own."""
        limits = LLParserLimits(max_lexer_states=_MOST_LEXER_STATES, verbose_errors=False)
        try:
            matcher = LLMatcher(self._vocabulary(), text, log_level=0, limits=limits)
            if not matcher.is_error():
                # A grammar that allows nothing is found out by its first mask.
                matcher.compute_bitmask()
            walker = matcher if matcher.is_error() else self._walked(matcher.deep_copy())
        except BaseException as error:
            # What panics there is none of Python's ordinary exceptions, and has no name to import.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                log.warning("a constraint made its compiler fail: %s", type(error).__name__)
                return None
            raise
        return walker if walker.is_error() else matcher

    def _walked(self, matcher: LLMatcher) -> LLMatcher:
        """Behind the first tokens of some answer, those that are forced not counted: most of what
        is too large shows there, and would otherwise end every answer."""
        for _ in range(_STEPS):
            for token in matcher.compute_ff_tokens()[:_MOST_FORCED]:
                if not matcher.consume_token(token):
                    return matcher
            if matcher.is_error() or matcher.is_stopped():
                break
            allowed = Allowed.of_bits(matcher.compute_bitmask(), self._vocab_size).ids
            if not len(allowed) or not matcher.consume_token(int(allowed[0])):
                break
        return matcher

    def _require_sound(self, source: ConstraintSource, matcher: LLMatcher | None) -> LLMatcher:
        """Raises `UserError` that says what is wrong with `source`, which `matcher` is made of."""
        if matcher is None:
            raise source.refusal(NOT_ENFORCED)
        if matcher.is_error():
            schema_of = json.loads(source.text) if source.kind == "json_schema" else None
            raise source.refusal(reason(source.kind, matcher.get_error(), schema_of))
        return matcher

    def _vocabulary(self) -> LLTokenizer:
        with self._making:
            if self._made is None:
                self._made = make_vocabulary(self._encoder, self._vocab_size, self._eos_ids)
            return self._made


def grammar_text(source: ConstraintSource) -> str:
    """The constraint in llguidance's form. Raises `UserError` (`invalid_value`)."""
    if source.kind == "regex":
        return LLMatcher.grammar_from_regex(source.text)
    if source.kind in ("grammar", "calls"):
        # Named for what it is: by itself a text may be taken for something else than Lark.
        return json.dumps({"grammars": [{"lark_grammar": source.text}]})
    schema = ANY_OBJECT if source.kind == "json_object" else source.text
    form: Any = dict(JSON_FORM)
    try:
        read = json.loads(schema)
        _require_own_form(source, read)
        if never_ends(read):
            raise source.refusal(
                "refers to itself without an end: every value of it would have to hold another"
            )
        # What cannot be enforced is an error, whatever the schema says of that.
        return LLMatcher.grammar_from_json_schema(schema, form, {"lenient": False})
    except (RecursionError, ValueError) as error:
        raise source.refusal("is not a JSON schema, or nested too deeply for one") from error


def _require_own_form(source: ConstraintSource, schema: Any) -> None:
    """A schema may leave whitespace free. With separators of its own it would be no JSON."""
    own = schema.get(OWN_FORM) if isinstance(schema, dict) else None
    if own is None:
        return
    known = isinstance(own, dict) and own.keys() <= {FREE_SPACE}
    if not known or not isinstance(own.get(FREE_SPACE, False), bool):
        raise source.refusal(f"has an {OWN_FORM}, which may hold {FREE_SPACE}, a boolean, alone")
