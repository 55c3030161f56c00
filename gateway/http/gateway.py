"""What all handlers share: the engine once it is loaded, stored turns, running answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Protocol

import orjson

from gateway.calls.tools import Tool
from gateway.engine.conversation import Message, Prompt, Turn, build_prompt
from gateway.engine.requests import GenerationRequest
from gateway.http.backend import Engine, Generation
from gateway.http.conduct import conduct_of
from gateway.http.errors import WireError
from gateway.http.fields import short
from gateway.http.flow import Flow
from gateway.http.keys import KeyRing, key_ring
from gateway.http.rates import Rates
from gateway.http.responses.answer import Answer, Terms
from gateway.http.responses.background import Background
from gateway.http.responses.events import ResponseEvents
from gateway.http.responses.items import require_calls
from gateway.http.responses.journal import Entry
from gateway.http.responses.kept import Kept, KeptResponses
from gateway.http.responses.schema import CreateResponse
from gateway.http.responses.store import Conversations, TurnStore
from gateway.metrics.metrics import Metrics
from gateway.settings import Settings
from gateway.trace import CURRENT, Traces
from models.errors import UserError

STORED_TURNS = 256
# Rendering and encoding more text than this would hold up running streams: a thread does it.
LONG_TEXT = 16_384
MESSAGE = 64
"""Characters that take as long to render as a message without any."""


class Running(Protocol):
    """What runs for a client and can be told to end soon."""

    def cancel(self) -> None: ...


class Gateway:
    """`engine` is None while the model loads; `draining` from the moment of shutdown.

    `keys` are those of the settings where none are given.
    """

    def __init__(
        self, settings: Settings, engine: Engine | None = None, keys: KeyRing | None = None
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.engine = engine
        self.draining = False
        self.connections = 0
        self.keys = key_ring(settings) if keys is None else keys
        self.metrics = Metrics()
        self.traces = Traces()
        self.turns = TurnStore(STORED_TURNS)
        self.kept = KeptResponses(settings.keep_seconds)
        self.background = Background(self.traces)
        self._flow = Flow(Rates(self.limits), settings.request_seconds)
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

    def open_choices(self, request: GenerationRequest, n: int) -> Sequence[Generation]:
        """`n` answers to one prompt, within the limits of its key; all must be entered at once.

        Raises what the engine does, and `rate_limit_exceeded`.
        """
        return self._flow.open(self.accepting(), request, n)

    def note_error(self, error: WireError) -> None:
        """Somebody is told it."""
        self.metrics.refused[error.code] += 1
        trace = CURRENT.get()
        if trace is not None:
            trace.code = error.code

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
    async def streaming(self, answer: Answer) -> AsyncGenerator[AsyncGenerator[Entry]]:
        """The events of an answer. Leaving the block ends it, unless it is in the background."""
        if answer.terms.background:
            entries = self.in_background(answer).journal.read()
        else:
            entries = self._entries(answer)
        async with aclosing(entries):
            yield entries

    def in_background(self, answer: Answer) -> Kept:
        """Have it generated, whoever reads it."""
        kept = self.kept.begin(answer, answer.terms.owner)
        self.background.start(self._entries(answer, kept))
        return kept

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

    async def _entries(self, answer: Answer, kept: Kept | None = None) -> AsyncGenerator[Entry]:
        """The events, counted as running meanwhile; recorded where the response is stored."""
        terms = answer.terms
        if kept is None and terms.store:
            kept = self.kept.begin(answer, terms.owner)
        with self.counted(answer):
            try:
                async with aclosing(answer.events()) as events:
                    async for event in events:
                        if answer.failure is not None and event.type == "response.failed":
                            self.note_error(answer.failure)
                        yield Entry.of(event) if kept is None else kept.add(event)
            finally:
                if kept is not None:
                    self.kept.end(kept)

    async def _begin(
        self, request: CreateResponse, conversations: Conversations, lane: str | None
    ) -> Answer:
        engine = self.accepting()
        model = engine.package.manifest.name
        if request.model is not None and request.model != model:
            raise model_not_found(request.model, model)
        previous_id = request.previous_response_id
        previous = None if previous_id is None else conversations.find(previous_id)
        require_calls(request.messages, () if previous is None else previous.messages)
        form, effort = request.decoding.constraint, request.effort
        conduct = conduct_of(engine, request.use, form, effort, "reasoning.effort")
        prompt = await _prompt(engine, request, previous)
        if conduct.constraint is not None:
            await engine.compile(conduct.constraint)
        (generation,) = self.open_choices(
            conduct.applied(request.decoding).request(
                prompt.ids, request.max_output_tokens, top_logprobs=request.top_logprobs
            ),
            1,
        )
        reading = conduct.reading(prompt.text, engine.tokenizer)
        events = ResponseEvents(request, generation.request, model, engine.tokenizer, reading)

        def ended(response_id: str, turn: Turn | None) -> None:
            if turn is not None:
                # One that was deleted while it ran begins nothing.
                store = request.store and response_id in self.kept
                conversations.keep(lane, response_id, turn, store)
            elif previous_id is not None:
                conversations.evict(previous_id)

        terms = Terms(request.decoding.key, request.store, request.background)
        plain = reading is None
        return Answer(generation, prompt, events, engine.tokenizer, ended, terms, plain=plain)


async def _prompt(engine: Engine, request: CreateResponse, previous: Turn | None) -> Prompt:
    def build() -> Prompt:
        return build_prompt(
            engine.tokenizer,
            engine.template,
            request.messages,
            instructions=request.instructions,
            previous=previous,
            tools=request.use.tools,
            thinking=None if request.effort is None else request.effort != "none",
        )

    length = text_length(request.messages, request.use.tools)
    length += len(request.instructions or "") + (len(previous.text) if previous else 0)
    return await asyncio.to_thread(build) if length > LONG_TEXT else build()


def text_length(messages: Sequence[Message], tools: Sequence[Tool]) -> int:
    """About how many characters they come to in a prompt."""
    said = sum(len(message.content) + len(message.thought) + MESSAGE for message in messages)
    called = sum(len(call.arguments) for message in messages for call in message.calls)
    return said + called + sum(len(orjson.dumps(tool.parameters)) for tool in tools)


def model_not_found(asked: str, served: str) -> UserError:
    return UserError(
        f"The model {short(asked)!r} does not exist here; this gateway serves {served!r}.",
        code="model_not_found",
        param="model",
    )
