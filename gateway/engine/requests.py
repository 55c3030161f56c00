"""What goes into the engine and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]
Policy = Literal["auto", "fixed", "off"]


@dataclass(frozen=True, slots=True)
class Speculation:
    """How a request speculates.

    `policy` `auto` adapts the draft length every round (up to `length` where it is given),
    `fixed` proposes `length` tokens whenever the drafter knows any, `off` decodes plainly.
    """

    drafter: str = "ngram"
    policy: Policy = "auto"
    length: int | None = None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer to generate, greedily.

    `prompt` are token ids, at least one. `max_tokens` bounds the answer (None: what the context
    leaves). `ignore_eos` goes on past end-of-sequence. `prefill_chunk` fixes the chunk width and
    `reuse_prefix` switches prefix reuse; both change only the time, never the answer.
    """

    prompt: tuple[int, ...]
    max_tokens: int | None = None
    ignore_eos: bool = False
    speculation: Speculation = field(default_factory=Speculation)
    prefill_chunk: int | None = None
    reuse_prefix: bool = True


@dataclass(frozen=True, slots=True)
class Delta:
    """Tokens committed by one round, with the text they complete (never half a character).

    `sources[i]` is "target" or the name of the drafter that proposed `ids[i]`. An end-of-sequence
    token is neither in `ids` nor in `text`.
    """

    text: str
    ids: tuple[int, ...]
    sources: tuple[str, ...]
    round: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted. `cached_tokens` of the prompt were found in the slot."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """What speculation did for one response. Times in milliseconds.

    `tau` is tokens per round, bonus included (None before the first round), `alpha` accepted /
    verified draft tokens (None where none was verified). `tpot_ms` is the mean time per token
    after the first (None for fewer than two). `lossless`: this answer is what the target alone
    would have said; `exact`: that the kernels are bitwise row-independent was measured at load.
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
    drafter: str
    policy: str
    rule: str
    lossless: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every answer that did not fail."""

    reason: FinishReason
    usage: Usage
    timings: Timings


Event = Delta | Finished
