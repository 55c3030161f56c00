"""What goes into the engine and what comes out of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from gateway.engine.marks import RoundTrace, TokenMark
from gateway.engine.stops import Scope
from models.constraints.source import ConstraintSource
from models.drafters.predicted import PredictedText
from models.sampling.parameters import Sampling

FinishReason = Literal["stop", "length", "cancelled"]
Policy = Literal["cost", "fixed", "ema-tiers", "confidence", "slo", "adasd", "off"]
Pacing = Literal["none", "even"]
Rule = Literal["coupled", "classic", "typical", "adasd", "synthetic"]

POLICY_ALIASES: Mapping[str, Policy] = MappingProxyType({"auto": "cost"})
"""Other names that requests and settings may use."""

POLICIES: tuple[Policy, ...] = get_args(Policy)
POLICY_NAMES = (*POLICIES, *POLICY_ALIASES)
LEAST_TPOT_MS, MOST_TPOT_MS = 0.01, 60_000

LOSSLESS_RULES: frozenset[str] = frozenset({"coupled", "classic"})
MOST_BRANCHES = 8
MOST_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Speculation:
    """How a request speculates.

    `drafter` is a name of `gateway.engine.names`; an engine that opens a request says which ones
    it means, joined by `+`.
    `policy` is one of `gateway.engine.policies`: `cost` adapts the draft length every round (up to
    `length` where it is given), `fixed` proposes `length` tokens whenever the drafter knows any,
    `slo` keeps `tpot_ms` milliseconds per token first, `off` decodes plainly; `adasd` goes with
    the rule of that name. With `pacing` `even` the tokens of a round are released over the time
    that the next one takes.
    With `branches` > 1 a draft is a tree of up to so many continuations; `length` then counts its
    tokens. `rule` is how drafts are verified (models.verification). `acceptance` is the
    probability that rule `synthetic` imposes; `epsilon` and `delta` are those of rule `typical`.
    """

    drafter: str = "auto"
    policy: Policy = "cost"
    length: int | None = None
    branches: int = 1
    rule: Rule = "coupled"
    acceptance: float = 0.7
    epsilon: float = 0.09
    delta: float = 0.3
    tpot_ms: float | None = None
    pacing: Pacing = "none"

    @property
    def drafts(self) -> bool:
        return self.policy != "off" and self.drafter != "off"


def named_policy(name: str) -> Policy:
    """One of `POLICY_NAMES`."""
    return POLICY_ALIASES[name] if name in POLICY_ALIASES else POLICIES[POLICIES.index(name)]


def needed_by_policy(speculation: Speculation) -> Iterator[tuple[Policy, str]]:
    """Its policy, with every field that this one needs and that is not there."""
    if speculation.policy == "fixed" and speculation.length is None:
        yield "fixed", "length"
    if speculation.policy == "slo" and speculation.tpot_ms is None:
        yield "slo", "tpot_ms"


@dataclass(slots=True)
class Prediction:
    """The text that answers are said to be: one for all of a request, however many prompts and
    choices it has. `made` is what the engine made of it, once, when the first of them began;
    `making` that this was begun."""

    text: str
    made: PredictedText | None = field(default=None, compare=False, repr=False)
    making: asyncio.Future[PredictedText] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer to generate.

    `prompt` are token ids, at least one. Of `sampling` the fields in `named` stand, the others are
    as the package advises (None: all stand). `max_tokens` bounds the answer (None: what the context
    leaves). `ignore_eos` goes on past end-of-sequence. The answer ends before the first of the
    strings `stop` that it would contain, and before any of `stop_ids`; neither is looked at until
    it has `sampling.min_tokens` tokens, nor outside what `stop_scope` makes, where there is one
    (but special tokens among `stop_ids` end every answer); where that says so it is over without a
    stop. With a `constraint` it is of that form,
    unless a stop or the limit cuts it, and ends where nothing can follow. Special tokens are no
    part of its text but for those in `shown_ids`. `top_logprobs` None asks for no
    log-probabilities, 0 for those of the answer's tokens, n for those of the n most likely tokens
    as well; `prompt_logprobs` for those of the prompt's tokens (no prefix is reused then).
    A `prediction` is drafted from, beside whatever else is.
    `user` is an opaque name of who asks: what was said to the same one before may be drafted, where
    the gateway keeps it. `key` is an opaque name of whose turn it is: keys that wait for a slot get
    one in turn, and of what the slots hold a request finds what its own key wrote (of any key where
    the engine lets them share). `prefill_chunk` fixes the chunk width and `reuse_prefix` switches
    prefix reuse. All five change only the time, never the answer.
    """

    prompt: tuple[int, ...]
    max_tokens: int | None = None
    ignore_eos: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    named: frozenset[str] | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    stop_scope: Callable[[], Scope] | None = field(default=None, compare=False)
    top_logprobs: int | None = None
    prompt_logprobs: bool = False
    constraint: ConstraintSource | None = None
    shown_ids: frozenset[int] = frozenset()
    speculation: Speculation = field(default_factory=Speculation)
    prediction: Prediction | None = None
    user: str | None = None
    key: str | None = None
    prefill_chunk: int | None = None
    reuse_prefix: bool = True


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The target's own log-probability (temperature 1, before all processing) of a token.

    `top` are the most likely tokens there, as (id, log-probability), in falling order.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptScored:
    """The first event where `prompt_logprobs` was asked for: one entry per prompt token.

    The first token has none: nothing comes before it.
    """

    logprobs: tuple[TokenLogprob | None, ...]


class Delta(NamedTuple):
    """Tokens that became final, with the text that did (never half a character).

    `sources[i]` is "target" or the name of the drafter that proposed `ids[i]`. `logprobs[i]` is
    that of `ids[i]`, where they were asked for. `verified` counts the draft tokens of its rounds.
    `marks[i]` says what `ids[i]` added to the text, and when; `rounds` are those that ended since
    the delta before.
    An end-of-sequence token and a stop are neither in `ids` nor in `text`. Where a stop string may
    have begun, text and tokens are held back; text may be ahead of the token that it is the
    beginning of.
    """

    text: str
    ids: tuple[int, ...]
    sources: tuple[str, ...]
    round: int
    logprobs: tuple[TokenLogprob, ...] = ()
    verified: int = 0
    marks: tuple[TokenMark, ...] = ()
    rounds: tuple[RoundTrace, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted. `cached_tokens` of the prompt were found in the slot."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class DrafterTimings:
    """One drafter's part: its verified and accepted tokens, and the rounds it had any in."""

    draft_n: int
    draft_n_accepted: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Timings:
    """What speculation did for one response. Times in milliseconds.

    `tau` is tokens per round, bonus included (None before the first round), `alpha` accepted /
    verified draft tokens (None where none was verified). `tpot_ms` is the mean time per token
    after the first (None for fewer than two). `accept_ms` is the host's own time: processing and
    acceptance. `lossless`: the rule leaves the target's distribution (at temperature 0 its answer)
    as it is; `exact`: that the kernels are bitwise row-independent was measured at load, and no
    tree was verified (their sums are ordered otherwise). `depths` counts, for each depth of the
    drafts, the rounds that verified a token there and those that accepted one: survival at depth i
    is the second over the first. `by_drafter` divides `draft_n` by who proposed the tokens.
    """

    draft_n: int
    draft_n_accepted: int
    rounds: int
    tau: float | None
    alpha: float | None
    queue_ms: float
    prefill_ms: float
    ttft_ms: float | None
    tpot_ms: float | None
    draft_ms: float
    verify_ms: float
    accept_ms: float
    drafter: str
    policy: str
    rule: str
    lossless: bool
    exact: bool
    by_drafter: Mapping[str, DrafterTimings] = field(default_factory=dict)
    depths: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every answer that did not fail.

    `stop` is what ended it where that was asked for: one of the request's stop strings or ids.
    """

    reason: FinishReason
    usage: Usage
    timings: Timings
    stop: str | int | None = None


Event = PromptScored | Delta | Finished
