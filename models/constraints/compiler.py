"""Compiling constraints for a vocabulary."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from models.constraints.guide import Grammar, reason_of, shortened
from models.constraints.source import FREE_SPACE, JSON_FORM, OWN_FORM, ConstraintSource
from models.constraints.trial import Trial
from models.constraints.vocabulary import Encoder, make_vocabulary

ANY_OBJECT = '{"type": "object"}'

_MOST_LEXER_STATES = 50_000
"""Up to 2 KB each, kept while the grammar is."""


class GrammarCompiler:
    """Compiles constraints for one vocabulary, in any thread; with a `trial`, which tries them
    first, in one at a time."""

    def __init__(
        self,
        encoder: Encoder,
        vocab_size: int,
        eos_ids: Collection[int],
        trial: Trial | None = None,
    ) -> None:
        self._encoder = encoder
        self._vocab_size = vocab_size
        self._eos_ids = tuple(sorted(eos_ids))
        self._trial = trial
        self._making = threading.Lock()
        self._made: LLTokenizer | None = None

    def prepare(self) -> None:
        """Make the vocabulary now: that holds up every other thread, a tenth of a second for 50,000
        tokens."""
        if self._eos_ids:
            self._vocabulary()

    def close(self) -> None:
        if self._trial is not None:
            self._trial.close()

    def compile(self, source: ConstraintSource) -> Grammar:
        """Raises `UserError` that says what is wrong with it (`invalid_value`), or that it cannot
        be had here (`unsupported_value`)."""
        source.require_size()
        if not self._eos_ids:
            raise source.refusal(
                "needs a model that has an end-of-sequence token", "unsupported_value"
            )
        text = grammar_text(source)
        problem = None if self._trial is None else self._trial.problem(text)
        if problem is not None:
            raise source.refusal(problem, "unsupported_value")
        limits = LLParserLimits(max_lexer_states=_MOST_LEXER_STATES, verbose_errors=False)
        matcher = LLMatcher(self._vocabulary(), text, log_level=0, limits=limits)
        if not matcher.is_error():
            # A grammar that allows nothing is found out by its first mask.
            matcher.compute_bitmask()
        if matcher.is_error():
            raise source.refusal(f"cannot be compiled: {reason_of(matcher)}")
        return Grammar(matcher, self._vocab_size, self._eos_ids)

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
        _require_own_form(source, json.loads(schema))
        # What cannot be enforced is an error, whatever the schema says of that.
        return LLMatcher.grammar_from_json_schema(schema, form, {"lenient": False})
    except (RecursionError, ValueError) as error:
        raise source.refusal(f"is not a JSON schema: {shortened(str(error))}") from error


def _require_own_form(source: ConstraintSource, schema: Any) -> None:
    """A schema may leave whitespace free. With separators of its own it would be no JSON."""
    own = schema.get(OWN_FORM) if isinstance(schema, dict) else None
    if own is None:
        return
    known = isinstance(own, dict) and own.keys() <= {FREE_SPACE}
    if not known or not isinstance(own.get(FREE_SPACE, False), bool):
        raise source.refusal(f"has an {OWN_FORM}, which may hold {FREE_SPACE}, a boolean, alone")
