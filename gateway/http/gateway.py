"""What all handlers share: the engine once it is loaded, stored turns, running answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Protocol

from gateway.engine.conversation import Prompt, Turn, build_prompt
from gateway.http.backend import Engine
from gateway.http.fields import short
from gateway.http.responses.answer import Answer
from gateway.http.responses.events import ResponseEvents, ServerEvent
from gateway.http.responses.schema import CreateResponse
from gateway.http.responses.store import Conversations, TurnStore
from gateway.settings import Settings
from models.errors import UserError

STORED_TURNS = 256
# Rendering and encoding more text than this would hold up running streams: a thread does it.
LONG_TEXT = 16_384


class Running(Protocol):
    """What runs for a client and can be told to end soon."""

    def cancel(self) -> None: ...


class Gateway:
    """`engine` is None while the model loads; `draining` from the moment of shutdown."""

    def __init__(self, settings: Settings, engine: Engine | None = None) -> None:
        self.settings = settings
        self.engine = engine
        self.draining = False
        self.turns = TurnStore(STORED_TURNS)
        self._running: set[Running] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def ready(self) -> bool:
        return self.engine is not None and not self.draining

    @property
    def running(self) -> int:
        return len(self._running)

    def accepting(self) -> Engine:
        """The engine. Raises `UserError` `draining` or `loading`."""
        if self.draining:
            raise UserError("The gateway is shutting down.", code="draining")
        if self.engine is None:
            raise UserError("The model is still loading.", code="loading")
        return self.engine

    async def answer(
        self, request: CreateResponse, conversations: Conversations, lane: str | None = None
    ) -> Answer:
        """Begin the response. Raises `UserError`; a failed continuation is then forgotten."""
        try:
            return await self._begin(request, conversations, lane)
        except UserError:
            if request.previous_response_id is not None:
                conversations.evict(request.previous_response_id)
            raise

    @asynccontextmanager
    async def streaming(self, answer: Answer) -> AsyncGenerator[AsyncGenerator[ServerEvent]]:
        """The events of an answer; leaving the block ends it. Counted as running meanwhile."""
        with self.counted(answer):
            async with aclosing(answer.events()) as events:
                yield events

    @contextmanager
    def counted(self, running: Running) -> Iterator[None]:
        """Counted as running meanwhile: whoever drains waits for it, and cancels it in the end."""
        self._running.add(running)
        self._idle.clear()
        try:
            yield
        finally:
            self._running.discard(running)
            if not self._running:
                self._idle.set()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def cancel_running(self) -> None:
        for answer in self._running:
            answer.cancel()

    async def _begin(
        self, request: CreateResponse, conversations: Conversations, lane: str | None
    ) -> Answer:
        engine = self.accepting()
        model = engine.package.manifest.name
        if request.model is not None and request.model != model:
            raise model_not_found(request.model, model)
        previous_id = request.previous_response_id
        previous = None if previous_id is None else conversations.find(previous_id)
        prompt = await _prompt(engine, request, previous)
        generation = engine.open(
            request.decoding.request(
                prompt.ids, request.max_output_tokens, top_logprobs=request.top_logprobs
            )
        )

        events = ResponseEvents(request, generation.request, model, engine.tokenizer)

        def ended(response_id: str, turn: Turn | None) -> None:
            if turn is not None:
                conversations.keep(lane, response_id, turn, request.store)
            elif previous_id is not None:
                conversations.evict(previous_id)

        return Answer(generation, prompt, events, engine.tokenizer, ended)


async def _prompt(engine: Engine, request: CreateResponse, previous: Turn | None) -> Prompt:
    def build() -> Prompt:
        return build_prompt(
            engine.tokenizer,
            engine.template,
            request.messages,
            instructions=request.instructions,
            previous=previous,
        )

    length = sum(len(message.content) for message in request.messages)
    length += len(request.instructions or "") + (len(previous.text) if previous else 0)
    return await asyncio.to_thread(build) if length > LONG_TEXT else build()


def model_not_found(asked: str, served: str) -> UserError:
    return UserError(
        f"The model {short(asked)!r} does not exist here; this gateway serves {served!r}.",
        code="model_not_found",
        param="model",
    )
