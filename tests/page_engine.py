"""An engine for tests of the page: it says a text in rounds, some of them with drafts.

Its tokens are words; where each came from, and when, is always the same.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

from gateway.engine.marks import RoundTrace, TokenMark
from gateway.engine.requests import (
    Delta,
    DrafterTimings,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Timings,
    TokenLogprob,
    Usage,
)
from tests.drafters_support import HEAD
from tests.fake_engine import CharacterTokenizer, FakeEngine, FakeGeneration, timings

WORD = re.compile(r"\s?\w+|\s|[^\w\s]")
FIRST_WORD = 1 << 17
"""Ids of words begin here; those below are characters."""

PLAIN_MS, DRAFTED_MS, PROMPT_MS = 12.0, 14.0, 40.0

PLAN = (
    ("eagle3", 3, 2),
    ("ngram", 4, 4),
    ("", 0, 0),
    ("ngram-store", 3, 3),
    ("eagle3", 4, 1),
    ("ngram", 4, 0),
)
"""What the rounds draft, again and again: who, how many tokens, and how many are accepted."""

ANSWER = """\
## The sky

Sunlight holds **all colours**; air scatters *short* waves most ([Rayleigh](https://a.example/)).

| colour | wavelength | scattered |
|:-------|-----------:|:---------:|
| blue   | 450 nm     | much      |
| red    | 700 nm     | little    |

1. The light comes in.
   - Blue goes astray, everywhere.
   - Red goes on.
2. We see what went astray.

```python
def scattered(wavelength: float) -> float:
    return wavelength ** -4
```

> So the sky is blue, and the `sunset` is red.
"""


class WordTokenizer(CharacterTokenizer):
    """Characters for prompts, words for answers."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < FIRST_WORD:
            return super().token_bytes(token_id)
        return self.words[token_id - FIRST_WORD].encode()

    def split(self, text: str) -> list[int]:
        """The ids of the words of an answer."""
        first = FIRST_WORD + len(self.words)
        self.words += WORD.findall(text)
        return list(range(first, FIRST_WORD + len(self.words)))


class PageEngine(FakeEngine):
    """`pace` seconds pass between rounds; `plain_answer` is said where nobody drafts."""

    def __init__(
        self, answer: str = ANSWER, *, pace: float = 0.0, plain_answer: str | None = None
    ) -> None:
        super().__init__(answer, pace=pace)
        self.tokenizer = WordTokenizer()
        self.plain_answer = answer if plain_answer is None else plain_answer
        manifest = replace(self.package.manifest, drafters=(HEAD,))
        self.package = replace(self.package, manifest=manifest)

    def text(self, request: GenerationRequest) -> str:
        text = self.answer if request.speculation.drafts else self.plain_answer
        assert isinstance(text, str)
        return text

    def open_choices(self, request: GenerationRequest, n: int) -> list[FakeGeneration]:
        opened = super().open_choices(request, n)
        return [Rounds(self, each.request) for each in opened]


@dataclass(slots=True)
class Count:
    """What the rounds add up to so far."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    ms: float = PROMPT_MS


class Rounds(FakeGeneration):
    """An answer, a delta per round."""

    def __init__(self, engine: PageEngine, request: GenerationRequest) -> None:
        super().__init__(engine, request)
        self._page = engine

    async def __aiter__(self) -> AsyncIterator[Event]:
        count = Count()
        reason: FinishReason = "stop"
        for tokens, source, drafted in self._rounds():
            await asyncio.sleep(self._page.pace)
            if self._cancelled:
                reason = "cancelled"
                break
            yield self._delta(count, tokens, source, drafted)
        usage = Usage(len(self.request.prompt), 0, count.tokens)
        yield Finished(reason, usage, self._timings(count))

    def _rounds(self) -> Iterator[tuple[list[int], str, int]]:
        """The tokens of each, who drafted all but the last, and how many were drafted."""
        ids = self._page.tokenizer.split(self._page.text(self.request))
        yield ids[:1], "", 0
        at = 1
        drafts = self.request.speculation.drafts
        plan = itertools.cycle(PLAN) if drafts else itertools.repeat(("", 0, 0))
        while at < len(ids):
            source, drafted, accepted = next(plan)
            yield ids[at : at + accepted + 1], source, drafted
            at += accepted + 1

    def _delta(self, count: Count, tokens: list[int], source: str, drafted: int) -> Delta:
        prompt = count.tokens == 0
        took = DRAFTED_MS if drafted else PLAIN_MS
        accepted = len(tokens) - 1
        rounds = ()
        if not prompt:
            count.rounds += 1
            count.ms += took
            rounds = (RoundTrace(count.rounds, count.ms, took - 11, 11.0, drafted, accepted),)
        words = [self._page.tokenizer.token_bytes(token).decode() for token in tokens]
        count.drafted += drafted
        count.accepted += accepted
        count.tokens += len(tokens)
        asked = self.request.top_logprobs is not None
        return Delta(
            text="".join(words),
            ids=tuple(tokens),
            sources=(*(source for _ in range(accepted)), "target"),
            round=count.rounds,
            logprobs=tuple(TokenLogprob(token, -0.25) for token in tokens) if asked else (),
            verified=drafted,
            marks=tuple(TokenMark(word, count.rounds, count.ms) for word in words),
            rounds=rounds,
        )

    def _timings(self, count: Count) -> Timings:
        drafts = self.request.speculation.drafts
        return replace(
            timings(count.tokens, self.request),
            draft_n=count.drafted,
            draft_n_accepted=count.accepted,
            rounds=count.rounds,
            tau=(count.tokens - 1) / count.rounds if count.rounds else None,
            alpha=count.accepted / count.drafted if count.drafted else None,
            ttft_ms=PROMPT_MS,
            tpot_ms=(count.ms - PROMPT_MS) / (count.tokens - 1) if count.tokens > 1 else None,
            drafter="ngram+eagle3" if drafts else "off",
            policy=self.request.speculation.policy,
            by_drafter={"ngram": DrafterTimings(count.drafted, count.accepted, count.rounds)},
        )
