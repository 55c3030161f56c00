"""A compiled constraint, and how it guides one answer.

What may come is a function of the tokens alone. Where the grammar forces text, the tokens that its
canonical tokenization begins with are the only ones allowed; elsewhere those that keep the text
within the grammar. End-of-sequence is allowed where the text so far is complete, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLMatcher

from models.constraints.allowed import Allowed
from models.constraints.reasons import running_reason
from models.constraints.source import ConstraintSource
from models.errors import UserError


class Grammar:
    """A compiled constraint. What its guides learn of its states they share.

    `broken` once a guide met one of the grammar's limits: it is to be compiled anew.
    """

    def __init__(self, matcher: LLMatcher, vocab_size: int, eos_ids: tuple[int, ...]) -> None:
        self.matcher = matcher
        self.vocab_size = vocab_size
        self.eos_ids = eos_ids
        self.broken = False

    def guide(self, source: ConstraintSource) -> Guide:
        """For one more answer. It was compiled from a source like this one, whose field errors
        name."""
        return Guide(self, source)


class Guide:
    """Follows one answer; a `models.constraints.allowed.Guidance`.

    Asked for tokens further ahead, it goes there and on from there: verification never turns back.
    Where it does, it begins anew. (Rolling a matcher back would do as well, but not every grammar
    can be.) Raises `UserError` (`constraint_failed`) where the grammar meets one of its limits.
    """

    def __init__(self, grammar: Grammar, source: ConstraintSource) -> None:
        self._grammar = grammar
        self._source = source
        self._matcher = grammar.matcher.deep_copy()
        self._committed: list[int] = []
        self._ahead: list[int] = []

    @property
    def ending(self) -> int:
        """The end-of-sequence token that stands for all of them."""
        return self._grammar.eos_ids[0]

    @property
    def complete(self) -> bool:
        """Whether nothing but the end may follow what was committed."""
        return bool(self._committed) and self._at(()).is_stopped()

    def only(self, ahead: Sequence[int] = ()) -> int | None:
        matcher = self._at(ahead)
        if matcher.is_stopped():
            return self.ending
        forced = matcher.compute_ff_tokens()
        self._require_sound(matcher)
        return forced[0] if forced else None

    def allows(self, token: int, ahead: Sequence[int] = ()) -> bool:
        matcher = self._at(ahead)
        allowed = matcher.validate_tokens([token]) == 1
        self._require_sound(matcher)
        return allowed

    def allowed(self, ahead: Sequence[int] = ()) -> Allowed:
        matcher = self._at(ahead)
        bits = matcher.compute_bitmask()
        self._require_sound(matcher)
        allowed = Allowed.of_bits(bits, self._grammar.vocab_size)
        if not matcher.is_accepting() and allowed.flags[[*self._grammar.eos_ids]].any():
            allowed.flags[[*self._grammar.eos_ids]] = False
            allowed = Allowed(allowed.flags)
        if allowed.count == 0:
            raise self._failure("no token continues the answer")
        return allowed

    def commit(self, tokens: Sequence[int]) -> None:
        self._at(tokens)
        self._committed += tokens
        self._ahead.clear()

    def valid(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` the grammar takes, one after the other. It may take some that are
        not allowed, because another tokenization is the canonical one."""
        matcher = self._at(())
        count = matcher.validate_tokens(list(tokens))
        self._require_sound(matcher)
        return count

    def forced(self, behind: Sequence[int] = ()) -> list[int]:
        """The tokens that are certain to come behind the committed ones and `behind`, which are
        valid."""
        matcher = self._at(())
        if behind:
            matcher = self._follow(matcher.deep_copy(), behind)
        return [] if matcher.is_stopped() else matcher.compute_ff_tokens()

    def branch(self) -> Branch:
        """What is committed, as the root of a draft that forks."""
        return Branch(self._at(()))

    def _at(self, ahead: Sequence[int]) -> LLMatcher:
        """The matcher behind the committed tokens and `ahead`."""
        known = len(self._ahead)
        if self._ahead != list(ahead[:known]):
            self._begin_anew()
            known = 0
        self._follow(self._matcher, ahead[known:])
        self._ahead += ahead[known:]
        return self._matcher

    def _begin_anew(self) -> None:
        """Behind the committed tokens, nothing ahead."""
        self._matcher = self._follow(self._grammar.matcher.deep_copy(), self._committed)
        self._ahead = []

    def _follow(self, matcher: LLMatcher, tokens: Sequence[int]) -> LLMatcher:
        for token in tokens:
            # One by one: of several it would not take the end behind a text that is complete.
            if not matcher.consume_token(token):
                self._require_sound(matcher)
                raise self._failure("a token that it does not allow was taken")
        return matcher

    def _require_sound(self, matcher: LLMatcher) -> None:
        if matcher.is_error():
            raise self._failure(running_reason(matcher.get_error()))

    def _failure(self, reason: str) -> UserError:
        self._grammar.broken = True
        return self._source.refusal(
            f"could not be followed to the end: {reason}", "constraint_failed"
        )


class Branch:
    """A place in a draft that forks."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def after(self, token: int) -> Branch | None:
        """The place behind `token`; None where it is not valid here."""
        if self._matcher.validate_tokens([token]) != 1:
            return None
        behind = self._matcher.deep_copy()
        return Branch(behind) if behind.consume_token(token) else None
