"""One answer as a coroutine: prefill, then rounds of propose, verify, accept, commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.streams import Stream, Streams
from gateway.engine.drafters import Drafters
from gateway.engine.drafting import Drafting
from gateway.engine.observer import UNOBSERVED, Observer
from gateway.engine.output import Output
from gateway.engine.policies.make import make_policy
from gateway.engine.policies.offers import NOTHING, Offer
from gateway.engine.record import Record, Round
from gateway.engine.record import now as clock_ms
from gateway.engine.requests import (
    Event,
    Finished,
    GenerationRequest,
    PromptScored,
)
from gateway.engine.round_clock import RoundClock
from gateway.engine.scoring import PromptScores, RowsFrom, score
from gateway.engine.service import ModelService
from gateway.engine.solo import Rounds, Solo, now
from gateway.engine.transcript import Accepted
from models.constraints.guide import Guide
from models.constraints.source import ConstraintSource
from models.draft import EMPTY, Draft
from models.drafters.cascade import Cascade
from models.sampling.sampler import Sampler
from models.slots import Lease, Slot
from models.target import Row
from models.tokenizer import Tokenizer
from models.verification import Rows, accept, make_rule


class Resources(Protocol):
    """What a generation needs of its engine."""

    service: ModelService
    drafters: Drafters
    tokenizer: Tokenizer
    costs: RunCosts
    streams: Streams
    observer: Observer
    eos_ids: frozenset[int]
    context_length: int

    @property
    def exact(self) -> bool: ...

    async def acquire(
        self, prompt: Sequence[int], reuse_prefix: bool, key: str | None = None
    ) -> Lease: ...

    def release(self, slot: Slot) -> None: ...

    async def load_trees(self) -> None: ...

    async def guide(self, constraint: ConstraintSource, key: str | None = None) -> Guide: ...

    def compact(self, slot: Slot, start: int, path: Sequence[int]) -> asyncio.Future[None]: ...

    def prefill_chunk(self) -> int: ...

    def entering(self, change: int) -> None: ...

    def make_drafters(
        self, request: GenerationRequest, slot: Slot, sampler: Sampler
    ) -> Cascade: ...

    async def recall(self, request: GenerationRequest) -> None: ...

    async def read_prediction(self, request: GenerationRequest) -> None: ...

    def remember(self, request: GenerationRequest, answer: Sequence[int]) -> None: ...

    def next_order(self) -> int: ...


class Answer:
    """The work of one generation: its slot, drafters, policy, sampler and record."""

    def __init__(
        self, request: GenerationRequest, resources: Resources, emit: Callable[[Event], None]
    ) -> None:
        self._request = request
        self._resources = resources
        speculation = request.speculation
        self._rule = make_rule(
            speculation.rule,
            acceptance=speculation.acceptance,
            epsilon=speculation.epsilon,
            delta=speculation.delta,
        )
        eos_ids = frozenset[int]() if request.ignore_eos else resources.eos_ids
        self._endings = eos_ids | frozenset(request.stop_ids)
        self._guide: Guide | None = None
        self._sampler = Sampler(request.sampling, request.prompt, self._endings)
        room = resources.context_length - len(request.prompt)
        limit = room if request.max_tokens is None else min(request.max_tokens, room)
        record = Record(
            prompt_tokens=len(request.prompt),
            policy=speculation.policy if speculation.drafts else "off",
            # What rule `synthetic` accepts is no acceptance.
            observer=UNOBSERVED if speculation.rule == "synthetic" else resources.observer,
        )
        self._output = Output(
            request,
            resources.tokenizer,
            self._endings,
            limit,
            record,
            emit,
            guided=request.constraint is not None,
        )
        self._compacted: asyncio.Future[None] | None = None
        self._said: list[int] = []
        self._accept_ms = 0.0
        self._over = False

    async def prepare(self) -> None:
        """Have everything loaded that the answer needs, before it takes a slot."""
        request, speculation = self._request, self._request.speculation
        if request.constraint is not None:
            self._guide = await self._resources.guide(request.constraint, request.key)
            self._sampler = Sampler(request.sampling, request.prompt, self._endings, self._guide)
        if not speculation.drafts:
            return
        if speculation.branches > 1:
            await self._resources.load_trees()
        await self._resources.drafters.load(speculation.drafter)
        await self._resources.recall(request)

    async def generate(
        self,
        scored: PromptScored | None = None,
        prefilled: Callable[[PromptScored | None], None] | None = None,
    ) -> None:
        """`scored` is given where the prompt was scored already. `prefilled` is called as soon as
        the prompt's K/V is in the slot."""
        request = self._request
        scores = None
        if scored is not None:
            self._output.emit(scored)
        elif request.prompt_logprobs:
            scores = PromptScores(request.prompt, request.top_logprobs or 0)
        reuse = request.reuse_prefix and scores is None
        lease = await self._resources.acquire(request.prompt, reuse, request.key)
        try:
            self._output.record.mark_started(lease.shared)
            if request.speculation.drafts:
                # Not before: of those that wait in the queue none has more than its text.
                await self._resources.read_prediction(request)
            rows = await self._prefill(lease.slot, scores)
            if prefilled is not None:
                prefilled(None if scores is None else scores.event())
            await self._decode(lease.slot, rows)
            if request.speculation.drafts:
                self._resources.remember(request, self._said)
        finally:
            self._output.flush()
            self._resources.release(lease.slot)
        self._output.emit(self._finished())

    def cancel(self) -> None:
        """Emit what is held back, and the end."""
        self._output.cancel()
        self._output.emit(self._finished())

    def ended(self, failure: BaseException | None) -> None:
        """Nothing follows, whatever the reason."""
        # One that is to have no token has its reason from the beginning.
        reason = (self._output.reason if self._over else None) or "abandoned"
        self._output.record.mark_ended(reason if failure is None else "failed")

    def _finished(self) -> Finished:
        reason = self._output.reason
        assert reason is not None, "an answer ends for a reason"
        self._over = True
        speculation = self._request.speculation
        self._output.record.accept_ms = self._accept_ms
        timings = self._output.record.timings(
            drafter=speculation.drafter if speculation.drafts else "off",
            policy=speculation.policy if speculation.drafts else "off",
            rule=speculation.rule,
            exact=self._resources.exact,
        )
        if speculation.rule != "synthetic":
            self._resources.drafters.count(timings.by_drafter)
        return Finished(reason, self._output.record.usage(), timings, self._output.stop)

    async def _prefill(self, slot: Slot, scores: PromptScores | None) -> Rows:
        """Run what the slot lacks of the prompt; the row behind its last token."""
        order = self._resources.next_order()
        prompt = self._request.prompt
        started = time.perf_counter()
        while True:
            width = self._request.prefill_chunk or self._resources.prefill_chunk()
            width = width if scores is None else scores.width(width)
            chunk = prompt[slot.length : slot.length + width]
            last = slot.length + len(chunk) == len(prompt)
            wanted = int(last) if scores is None else len(chunk)
            verified = await self._resources.service.prefill(Row(slot, chunk, wanted), order)
            if scores is not None:
                scores.add(verified.result, wanted)
            slot.commit(chunk)
            if last:
                break
        self._output.record.prefill_ms = (time.perf_counter() - started) * 1e3
        if scores is not None:
            self._output.emit(scores.event())
        return RowsFrom(verified.result, wanted - 1)

    async def _decode(self, slot: Slot, rows: Rows) -> None:
        """The first token from `rows`, which the next run overwrites; rounds until the end."""
        if self._output.over:
            return  # no token is wanted
        accepted, _ = self._accept(rows, EMPTY)
        self._output.tell_first(accepted)
        (token,) = accepted.tokens
        stream = self._resources.streams.enter(slot)
        try:
            drafting = self._begin_drafting(stream, token)
            while not self._output.over:
                if self._goes_alone(drafting):
                    token = await self._alone(stream, token, drafting)
                else:
                    token = await self._round(stream, token, drafting, self._resources.service)
        finally:
            self._resources.streams.leave(stream)

    def _goes_alone(self, drafting: Drafting | None) -> bool:
        """Whether the next rounds may be made on the thread of the runs. What is spread in time,
        what moves K/V between runs, and drafters with a thread of their own need the event loop."""
        service = self._resources.service
        if self._output.paced or self._request.speculation.branches > 1:
            return False
        elsewhere = service.overlaps and drafting is not None and drafting.learned
        return service.idle and len(self._resources.streams) == 1 and not elsewhere

    async def _alone(self, stream: Stream, token: int, drafting: Drafting | None) -> int:
        """As many rounds as nobody else wants the models for; the next token."""

        def rounds(solo: Solo) -> int:
            following = token
            while not (self._output.over or solo.wanted):
                following = now(self._round(stream, following, drafting, solo))
                solo.relay.post()
            return following

        return await self._resources.service.alone(stream.slot, rounds)

    async def _round(
        self, stream: Stream, token: int, drafting: Drafting | None, rounds: Rounds
    ) -> int:
        """`token` is committed, but its K/V comes with this run; the next such token."""
        clock = RoundClock(self._resources, drafting)
        slot = stream.slot
        offer = NOTHING if drafting is None else await self._propose(drafting, rounds)
        verified = await rounds.decode(slot, token, offer)
        draft = verified.draft
        if self._compacted is not None:
            # Queued before this run, so it is done; what failed there is raised here.
            self._compacted.result()
        accepted, taken = self._accept(verified.result, draft)
        stream.ran(1 + len(draft.tokens))
        self._keep(slot, token, accepted)
        if drafting is not None:
            drafting.commit(accepted.tokens, rounds.tell)
        made = Round(
            accepted,
            taken,
            said=self._output.count,
            draft_ms=0.0 if drafting is None else drafting.spent_ms,
            verify_ms=verified.run_ms,
            ended=clock_ms(),
        )
        rounds.tell(self._output.tell, made, self._output.take())
        clock.stop(verified, rounds)
        return accepted.tokens[-1]

    def _keep(self, slot: Slot, token: int, accepted: Accepted) -> None:
        """Commit `token` and the accepted path behind it, whose K/V moves together first."""
        draft, path, start = accepted.draft, accepted.path, slot.length + 1
        slot.commit((token, *accepted.tokens[:-1]), exact=not draft.forks)
        self._compacted = None
        if draft.parents is not None and path != tuple(range(len(path))):
            self._compacted = self._resources.compact(slot, start, path)

    def _begin_drafting(self, stream: Stream, token: int) -> Drafting | None:
        """Drafters that know the prompt and the answer's first token."""
        speculation = self._request.speculation
        if not speculation.drafts or self._output.over:
            return None
        cascade = self._resources.make_drafters(self._request, stream.slot, self._sampler)
        policy = make_policy(speculation, self._resources.costs)
        drafting = Drafting(cascade, policy, self._resources, stream, self._guide)
        drafting.reset(self._request.prompt)
        drafting.commit((token,))
        return drafting

    async def _propose(self, drafting: Drafting, rounds: Rounds) -> Offer:
        """A draft of what is left of the answer but for the bonus token.

        The slot has room for all of the answer, and so for all tokens of such a tree.
        """
        if self._compacted is not None and rounds.overlaps:
            # Drafts have a thread of their own: what they read is in place first.
            await asyncio.shield(self._compacted)
        return await drafting.propose(self._output.left - 1, self._rule.trim, rounds)

    def _accept(self, rows: Rows, draft: Draft) -> tuple[Accepted, int]:
        """What stands of `draft` goes into the output: the tokens of the round, and how many of
        them it took.

        Reads `rows`: nothing may be awaited between the run and this.
        """
        started = time.perf_counter()
        outcome = accept(draft, rows, self._sampler, self._rule)
        tokens = outcome.tokens(draft.tokens)
        logprobs, top = None, self._request.top_logprobs
        if top is not None:
            behind = (0, *(index + 1 for index in outcome.path))
            scored = zip(behind, tokens, strict=True)
            logprobs = [score(rows.row(row), token, top) for row, token in scored]
        ended = time.perf_counter()
        self._accept_ms += (ended - started) * 1e3
        ms = ended * 1e3 - self._output.record.opened
        accepted = Accepted(draft, outcome.path, tokens, logprobs, ms)
        taken = self._output.add(accepted)
        self._said += tokens[:taken]
        if not self._output.over:
            self._sampler.commit(tokens)
            if self._guide is not None and self._guide.complete:
                # The model could only say so, with one more run.
                self._output.end_at(self._guide.ending)
        return accepted, taken
