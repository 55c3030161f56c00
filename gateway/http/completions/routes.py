"""`/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import orjson
from aiohttp import web

from gateway.calls.reading import Reading
from gateway.engine.conversation import build_prompt
from gateway.http.access import BODY_DEADLINE, read_body
from gateway.http.backend import Engine
from gateway.http.completions.answer import (
    CompletionAnswer,
    EncodedPrompt,
    generation_requests,
)
from gateway.http.completions.choices import opened
from gateway.http.completions.formats import ChatFormat, Format, TextFormat, Writer
from gateway.http.completions.schema import (
    ChatRequest,
    Common,
    PromptText,
    parse_chat,
    parse_text,
)
from gateway.http.conduct import conduct_of
from gateway.http.errors import WireError, wire_error
from gateway.http.fields import decode_object
from gateway.http.gateway import LONG_TEXT, Gateway, text_length
from gateway.http.guard import json_response, owner_of
from gateway.http.outbox import ClientGoneError
from gateway.http.picked import Picked
from gateway.http.sse import Streaming
from gateway.settings import Settings
from models.errors import UserError
from models.tokenizer import StreamDecoder

log = logging.getLogger(__name__)

T = TypeVar("T")
DONE = b"[DONE]"


class CompletionsRoutes:
    def __init__(self, gateway: Gateway, streaming: Streaming) -> None:
        self._gateway = gateway
        self._streaming = streaming

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/chat/completions", self.chat)
        router.add_post("/v1/completions", self.text)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        document = await self._document(request)
        wanted = parse_chat(document, self._gateway.settings, owner_of(request))
        require_room(1, wanted.common.n, self._gateway.settings)
        async with self._gateway.picking(wanted.common.model) as picked:
            return await self._chat(request, picked, wanted)

    async def _chat(
        self, request: web.Request, picked: Picked, wanted: ChatRequest
    ) -> web.StreamResponse:
        engine = picked.engine
        form = wanted.common.decoding.constraint
        conduct = conduct_of(engine, wanted.use, form, wanted.effort, "reasoning_effort")
        conduct = await conduct.compiled(engine, wanted.common.decoding.key)
        with _naming("messages"):
            prompt = await _chat_prompt(engine, wanted)
            decoding = conduct.applied(wanted.common.decoding, prompt.text)
            common = replace(wanted.common, decoding=decoding)
            reading = partial(conduct.reading, prompt.text, engine.tokenizer)
            chat = ChatFormat(engine.tokenizer, common.logprobs)
            return await self._respond(request, picked, chat, common, [prompt], reading=reading)

    async def text(self, request: web.Request) -> web.StreamResponse:
        settings = self._gateway.settings
        document = await self._document(request)
        wanted = parse_text(document, settings, owner_of(request))
        require_room(len(wanted.prompts), wanted.common.n, settings)
        async with self._gateway.picking(wanted.common.model) as picked:
            engine, common = picked.engine, wanted.common
            with _naming("prompt"):
                prompts = [await _text_prompt(engine, prompt) for prompt in wanted.prompts]
                form, decoding = TextFormat(engine.tokenizer, common.logprobs), common.decoding
                if decoding.constraint is not None:
                    await engine.compile(decoding.constraint, decoding.key)
                return await self._respond(request, picked, form, common, prompts, echo=wanted.echo)

    async def _document(self, request: web.Request) -> dict[str, Any]:
        body = await read_body(request, BODY_DEADLINE)
        return decode_object(body, self._gateway.limits.nesting)

    async def _respond(
        self,
        request: web.Request,
        picked: Picked,
        form: Format,
        common: Common,
        prompts: Sequence[EncodedPrompt],
        *,
        echo: bool = False,
        reading: Callable[[], Reading | None] = lambda: None,
    ) -> web.StreamResponse:
        engine = picked.engine
        requests = generation_requests(common, prompts, echo=echo)
        async with opened(picked, requests, common.n) as choices:
            with self._gateway.counted(choices):
                echoed = prompts if echo else ()
                answer = CompletionAnswer(choices, engine.tokenizer, common, echoed, reading)
                writer = Writer(form, engine.package.manifest, choices.seeds, common.n)
                if not common.stream:
                    return json_response(writer.whole(await answer.whole()))
                events = streamed(
                    answer,
                    writer,
                    self._gateway.note_error,
                    include_usage=common.include_usage,
                )
                return await self._stream(request, events)

    async def _stream(
        self, request: web.Request, events: AsyncGenerator[bytes]
    ) -> web.StreamResponse:
        stream = self._streaming.to(request)
        async with aclosing(events):
            try:
                await stream.open()
                async with stream.kept_alive():
                    async for event in events:
                        await stream.send(event)
            except ClientGoneError:
                return stream.response
        return stream.response


async def streamed(
    answer: CompletionAnswer,
    writer: Writer,
    note: Callable[[WireError], None],
    *,
    include_usage: bool,
) -> AsyncGenerator[bytes]:
    """The events of an answer: chunks and `[DONE]`, or where it fails an `error` as the last, which
    `note` is told of."""
    extra = {"usage": None} if include_usage else {}
    try:
        for chunk in writer.opening():
            yield orjson.dumps({**chunk, **extra})
        async with aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                yield orjson.dumps({**writer.chunk(piece), **extra})
        if include_usage:
            yield orjson.dumps(writer.usage_chunk())
        yield DONE
    except Exception as error:
        if not isinstance(error, UserError):
            log.exception("a completion failed")
        failure = wire_error(error)
        note(failure)
        yield orjson.dumps({"error": failure.envelope()})


def require_room(prompts: int, n: int, settings: Settings) -> None:
    """Raises `UserError` for more answers at once than this gateway could ever take."""
    most = settings.slots + settings.queue
    if settings.limits_requests is not None:
        most = min(most, settings.limits_requests)
    if prompts * n > most:
        noun = "prompt" if prompts == 1 else "prompts"
        raise UserError(
            f"{prompts * n} answers are asked for ({prompts} {noun}, n {n}); this gateway takes"
            f" at most {most} at once, running and waiting.",
            code="unsupported_value",
            param="prompt" if n == 1 else "n",
        )


async def _chat_prompt(engine: Engine, wanted: ChatRequest) -> EncodedPrompt:
    def build() -> EncodedPrompt:
        prompt = build_prompt(
            engine.tokenizer,
            engine.template,
            wanted.messages,
            tools=wanted.use.tools,
            thinking=None if wanted.effort is None else wanted.effort != "none",
        )
        return EncodedPrompt(prompt.ids, prompt.text)

    return await _built(build, text_length(wanted.messages, wanted.use.tools))


async def _text_prompt(engine: Engine, prompt: PromptText) -> EncodedPrompt:
    def build() -> EncodedPrompt:
        vocabulary = engine.tokenizer
        if isinstance(prompt, str):
            return EncodedPrompt(tuple(vocabulary.encode(prompt)), prompt)
        decoder = StreamDecoder(vocabulary, skip_special_tokens=False)
        return EncodedPrompt(prompt, decoder.push(prompt) + decoder.finish())

    return await _built(build, len(prompt))


async def _built(build: Callable[[], T], length: int) -> T:
    return await asyncio.to_thread(build) if length > LONG_TEXT else build()


@contextmanager
def _naming(param: str) -> Iterator[None]:
    """Errors about the prompt name the field that it has here."""
    try:
        yield
    except UserError as error:
        if error.param == "input" or error.code == "invalid_prompt":
            raise UserError(error.message, code=error.code, param=param) from None
        raise
