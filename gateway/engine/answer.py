"""One answer as a coroutine: prefill, then rounds of propose, verify, commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from gateway.engine.controller import Controller
from gateway.engine.costs import RunCosts
from gateway.engine.record import Record
from gateway.engine.requests import Delta, Event, Finished, FinishReason, GenerationRequest
from gateway.engine.service import TargetService
from models.draft import Draft, Drafter
from models.slots import Lease, Slot
from models.target import Row
from models.tokenizer import StreamDecoder, Tokenizer
from models.verification import Outcome, accept_greedy


class Resources(Protocol):
    """What a generation needs of its engine."""

    service: TargetService
    tokenizer: Tokenizer
    costs: RunCosts
    eos_ids: frozenset[int]

    @property
    def exact(self) -> bool: ...

    async def acquire(self, request: GenerationRequest) -> Lease: ...

    def release(self, slot: Slot) -> None: ...

    def prefill_chunk(self) -> int: ...

    def other_streams(self) -> int: ...

    def entering(self, change: int) -> None: ...

    def streaming(self, change: int) -> None: ...

    def make_drafter(self, name: str) -> Drafter: ...

    def next_order(self) -> int: ...


class Answer:
    """The work of one generation: its slot, drafter, controller and record."""

    def __init__(
        self, request: GenerationRequest, resources: Resources, emit: Callable[[Event], None]
    ) -> None:
        self._request = request
        self._resources = resources
        self._emit = emit
        self._record = Record(prompt_tokens=len(request.prompt))
        self._controller = Controller(request.speculation, resources.costs)
        self._decoder = StreamDecoder(resources.tokenizer)
        self._limit = request.max_tokens

    def finished(self, reason: FinishReason) -> Finished:
        drafter = "off" if self._controller.policy == "off" else self._request.speculation.drafter
        timings = self._record.timings(drafter, self._controller.policy, self._resources.exact)
        return Finished(reason=reason, usage=self._record.usage(), timings=timings)

    async def generate(self) -> None:
        lease = await self._resources.acquire(self._request)
        try:
            self._record.mark_started(lease.shared)
            await self._generate_in(lease.slot)
        finally:
            self._resources.release(lease.slot)

    async def _generate_in(self, slot: Slot) -> None:
        room = slot.context - len(self._request.prompt)
        self._limit = room if self._limit is None else min(self._limit, room)
        token = await self._prefill(slot)
        if self._limit == 0:
            self._emit(self.finished("length"))
            return
        self._resources.streaming(1)
        try:
            reason = await self._decode(slot, token)
        finally:
            self._resources.streaming(-1)
        # A character that the limit cut in two is left out; only what the model itself leaves
        # unfinished becomes U+FFFD.
        tail = self._decoder.finish() if reason == "stop" else ""
        if tail:
            self._emit(Delta(text=tail, ids=(), sources=(), round=self._record.rounds))
        self._emit(self.finished(reason))

    async def _prefill(self, slot: Slot) -> int:
        """Run what the slot lacks of the prompt; the target's first token."""
        order = self._resources.next_order()
        prompt = self._request.prompt
        started = time.perf_counter()
        while True:
            width = self._request.prefill_chunk or self._resources.prefill_chunk()
            chunk = prompt[slot.length : slot.length + width]
            last = slot.length + len(chunk) == len(prompt)
            row = Row(slot, chunk, logits=1 if last else 0)
            verified = await self._resources.service.prefill(row, order)
            slot.commit(chunk)
            if last:
                self._record.prefill_ms = (time.perf_counter() - started) * 1e3
                return verified.result.greedy[0]

    async def _decode(self, slot: Slot, token: int) -> FinishReason:
        """Rounds until the answer ends. `token` is committed but its K/V is not there yet."""
        drafter = self._drafter()
        reason = self._commit((token,), Draft())
        if drafter is not None and reason is None:
            drafter.commit((token,))
        while reason is None:
            draft = self._propose(drafter)
            outcome = await self._verify(slot, token, draft)
            tokens = outcome.tokens(draft.tokens)
            slot.commit((token, *draft.tokens[: outcome.accepted]))
            reason = self._commit(tokens, draft)
            if drafter is not None:
                drafter.commit(tokens)
            token = outcome.bonus
        return reason

    def _drafter(self) -> Drafter | None:
        if self._controller.policy == "off":
            return None
        drafter = self._resources.make_drafter(self._request.speculation.drafter)
        drafter.reset(self._request.prompt)
        return drafter

    def _propose(self, drafter: Drafter | None) -> Draft:
        """A draft cut to what pays; the bonus token needs a place in the answer as well."""
        assert self._limit is not None
        budget = self._controller.budget(self._limit - self._record.completion_tokens - 1)
        if drafter is None or budget == 0:
            return Draft()
        started = time.perf_counter()
        draft = drafter.propose(budget)
        confidence = draft.confidence or (1.0,) * len(draft.tokens)
        length = self._controller.length(confidence, self._resources.other_streams())
        self._record.draft_ms += (time.perf_counter() - started) * 1e3
        return Draft(
            tokens=draft.tokens[:length], confidence=confidence[:length], source=draft.source
        )

    async def _verify(self, slot: Slot, token: int, draft: Draft) -> Outcome:
        tokens = (token, *draft.tokens)
        verified = await self._resources.service.decode(Row(slot, tokens, logits=len(tokens)))
        outcome = accept_greedy(draft.tokens, verified.result.greedy)
        self._record.mark_round(len(draft.tokens), outcome.accepted, verified.run_ms)
        self._resources.costs.observe(verified.tokens, verified.run_ms)
        return outcome

    def _commit(self, tokens: tuple[int, ...], draft: Draft) -> FinishReason | None:
        """Emit `tokens` up to the first end-of-sequence or the limit; why the answer ends."""
        assert self._limit is not None
        reason: FinishReason | None = None
        eos = () if self._request.ignore_eos else self._resources.eos_ids
        for index, token in enumerate(tokens):
            if token in eos:
                tokens, reason = tokens[:index], "stop"
                break
        left = self._limit - self._record.completion_tokens
        if reason is None and len(tokens) >= left:
            tokens, reason = tokens[:left], "length"
        self._record.mark_tokens(len(tokens))
        if tokens:
            accepted = min(len(draft.tokens), len(tokens))
            sources = tuple(
                draft.source if index < accepted and token == draft.tokens[index] else "target"
                for index, token in enumerate(tokens)
            )
            text = self._decoder.push(tokens)
            self._emit(Delta(text=text, ids=tokens, sources=sources, round=self._record.rounds))
        return reason
