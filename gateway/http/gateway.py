"""What all handlers share: the packages, stored turns, running answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Protocol

import orjson

from gateway.calls.tools import Tool
from gateway.engine.conversation import Message, Prompt, Turn, build_prompt
from gateway.fleet.fleet import Fleet
from gateway.http.backend import Engine
from gateway.http.conduct import conduct_of
from gateway.http.errors import WireError
from gateway.http.flow import Flow
from gateway.http.keys import KeyRing, key_ring
from gateway.http.picked import Picked
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
from models.package import Manifest

STORED_TURNS = 256
# Rendering and encoding more text than this would hold up running streams: a thread does it.
LONG_TEXT = 16_384
MESSAGE = 64
"""Characters that take as long to render as a message without any."""


class Running(Protocol):
    """What runs for a client and can be told to end soon."""

    def cancel(self) -> None: ...


class Gateway:
    """`fleet` has the packages, `engine` is that of the default one (None: it is not loaded);
    `draining` from the moment of shutdown. `keys` are those of the settings where none are given.
    """

    def __init__(
        self, settings: Settings, engine: Engine | None = None, keys: KeyRing | None = None
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.fleet = Fleet(settings.terms)
        if engine is not None:
            self.fleet.adopt(engine)
        self.draining = False
        self.connections = 0
        self.keys = key_ring(settings) if keys is None else keys
        self.metrics = Metrics()
        self.traces = Traces()
        self.turns = TurnStore(STORED_TURNS)
        self.kept = KeptResponses(settings.keep_seconds)
        self.background = Background(self.traces)
        self._rates = Rates(self.limits)
        self._flow = Flow(self._rates, settings.request_seconds)
        self._running: set[Running] = set()
        self._begun = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def engine(self) -> Engine | None:
        default = self.fleet.default
        return None if default is None or default.loaded is None else default.loaded.engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self.fleet.adopt(engine)

    @property
    def state(self) -> str:
        """`ready`, or why not: `draining`, `loading`, `failed`, `stuck`. A package that is not
        loaded because nobody wanted it is loaded when somebody does."""
        if self.draining:
            return "draining"
        if self.fleet.stuck:
            return "stuck"
        if self.fleet.starting or self.fleet.default is None:
            return "loading"
        state = self.fleet.default.state
        return {"failed": "failed", "reloading": "loading"}.get(state, "ready")

    @property
    def running(self) -> int:
        return len(self._running)

    def use_settings(self, settings: Settings) -> None:
        """Have these in use from now on, as far as they are read anew for each request."""
        self.settings = settings
        self.limits = settings.limits
        self._rates.use(self.limits)

    def require_open(self) -> None:
        """Raises `UserError` `draining` or `loading`."""
        if self.draining:
            raise UserError("The gateway is shutting down.", code="draining")
        if self.fleet.starting:
            raise UserError("The model is still loading.", code="loading")

    @asynccontextmanager
    async def picking(self, model: str | None) -> AsyncGenerator[Picked]:
        """The package that a request means, which stays loaded within the block and as long as
        answers that were opened there. Raises `UserError`: what `require_open` and `Fleet.pick`
        do."""
        self.require_open()
        with self._beginning():
            use = await self.fleet.pick(model)
            try:
                self.require_open()  # that may have been a while
                yield Picked(use, self._flow, self.require_open)
            finally:
                use.release()

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
        self._note_idle()
        try:
            yield
        finally:
            self._running.discard(running)
            self._note_idle()

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """A request that has no answer yet, to which something will be said."""
        self._begun += 1
        self._note_idle()
        try:
            yield
        finally:
            self._begun -= 1
            self._note_idle()

    def _note_idle(self) -> None:
        if self._running or self._begun:
            self._idle.clear()
        else:
            self._idle.set()

    async def wait_idle(self) -> None:
        while not self._idle.is_set():
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
        async with self.picking(request.model) as picked:
            return await self._answer_of(picked, request, conversations, lane)

    async def _answer_of(
        self,
        picked: Picked,
        request: CreateResponse,
        conversations: Conversations,
        lane: str | None,
    ) -> Answer:
        engine, manifest = picked.engine, picked.engine.package.manifest
        model, tokenizer = manifest.name, tokenizer_of(manifest)
        previous_id = request.previous_response_id
        previous = None if previous_id is None else conversations.find(previous_id)
        if previous is not None and previous.tokenizer not in (None, tokenizer):
            previous = replace(previous, text="", ids=())  # what another model was told
        require_calls(request.messages, () if previous is None else previous.messages)
        form, effort = request.decoding.constraint, request.effort
        conduct = conduct_of(engine, request.use, form, effort, "reasoning.effort")
        prompt = await _prompt(engine, request, previous)
        decoding = request.decoding.unused()
        most: int | None = 0
        if request.generate:
            conduct = await conduct.compiled(engine, request.decoding.key)
            decoding = conduct.applied(request.decoding, prompt.text)
            most = request.max_output_tokens
        wanted = decoding.request(prompt.ids, most, top_logprobs=request.top_logprobs)
        (generation,) = picked.open_choices(wanted, 1)
        reading = conduct.reading(prompt.text, engine.tokenizer)
        events = ResponseEvents(request, generation.request, model, engine.tokenizer, reading)

        def ended(response_id: str, turn: Turn | None) -> None:
            if turn is not None:
                # One that was deleted while it ran begins nothing.
                store = request.store and response_id in self.kept
                told = replace(turn, tokenizer=tokenizer)
                conversations.keep(lane, response_id, told, store)
            elif previous_id is not None:
                conversations.evict(previous_id)

        terms = Terms(request.decoding.key, request.store, request.background)
        plain = reading is None
        return Answer(generation, prompt, events, engine.tokenizer, ended, terms, plain=plain)


def tokenizer_of(manifest: Manifest) -> str:
    """Names what the ids of a turn mean: packages may share it."""
    entry = manifest.files.get(manifest.tokenizer)
    return manifest.name if entry is None else entry.sha256


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
    calls = [call for message in messages for call in message.calls]
    called = sum(len(call.id) + len(call.name) + len(call.arguments) for call in calls)
    return said + called + sum(len(orjson.dumps(tool.described())) for tool in tools)
