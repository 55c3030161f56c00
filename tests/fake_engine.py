"""A scripted engine for tests of the wire: it says what it is told to, token by token.

Tokens are characters, so that what was prefilled can be read in `requests`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from gateway.engine.requests import (
    Delta,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Timings,
    Usage,
)
from models.errors import UserError
from models.package import FileEntry, Manifest, Package, TargetSpec

MODEL = "tiny-test"


def fake_package(path: Path = Path("/nowhere")) -> Package:
    target = TargetSpec(
        checkpoint="test",
        revision="none",
        sha256="0" * 64,
        architecture="LlamaForCausalLM",
        weight_type="fp32",
        device="cpu",
        layers=1,
        heads=1,
        kv_heads=1,
        head_dim=8,
        hidden_size=8,
        vocab_size=1 << 20,
        context_length=1000,
        eos_ids=(0,),
        top_k=1,
        kv_type="fp32",
        integer_form=None,
        graphs={"1": "target.r1.onnx"},
        weights="target.weights",
    )
    manifest = Manifest(
        name=MODEL,
        created=1_700_000_000,
        outpace="0",
        target=target,
        tokenizer="tokenizer.json",
        chat_template=None,
        files={"target.weights": FileEntry(bytes=1, sha256="0" * 64)},
        parity={},
        quality={},
    )
    return Package(path=path, manifest=manifest)


class CharacterTokenizer:
    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.special_tokens: tuple[str, ...] = ()

    def encode(self, text: str) -> list[int]:
        self.encoded.append(text)
        return [ord(character) for character in text]


class BracketTemplate:
    """`<role>content</>` per message, then `<assistant>`."""

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        if any("refuse me" in message["content"] for message in messages):
            raise UserError("the chat template refused the messages", code="template_error")
        said = "".join(f"<{message['role']}>{message['content']}</>" for message in messages)
        return said + "<assistant>" if add_generation_prompt else said


class FakeEngine:
    """Says the pieces of `answer`, `pace` seconds each; `failure` is raised behind the first."""

    def __init__(
        self,
        answer: str | list[str] = "Hello, world",
        *,
        pace: float = 0.0,
        finish: FinishReason = "stop",
        failure: Exception | None = None,
        capacity: int = 64,
    ) -> None:
        self.package = fake_package()
        self.tokenizer = CharacterTokenizer()
        self.template = BracketTemplate()
        self.context_length = 1000
        self.answer = answer
        self.pace = pace
        self.finish = finish
        self.failure = failure
        self.capacity = capacity
        self.requests: list[GenerationRequest] = []
        self.running = 0
        self.most_running = 0
        self.closed = False

    def open(self, request: GenerationRequest) -> FakeGeneration:
        if len(request.prompt) >= self.context_length:
            raise UserError(
                f"the prompt has {len(request.prompt)} tokens; the context holds 1000.",
                code="context_length_exceeded",
                param="input",
            )
        if self.running >= self.capacity:
            raise UserError("the queue is full.", code="queue_full")
        self.requests.append(request)
        return FakeGeneration(self, request)

    def prompt(self, index: int = -1) -> str:
        return "".join(map(chr, self.requests[index].prompt))

    async def close(self) -> None:
        self.closed = True


class FakeGeneration:
    def __init__(self, engine: FakeEngine, request: GenerationRequest) -> None:
        self._engine = engine
        self._request = request
        self._cancelled = False

    async def __aenter__(self) -> FakeGeneration:
        self._engine.running += 1
        self._engine.most_running = max(self._engine.most_running, self._engine.running)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.running -= 1

    def cancel(self) -> None:
        self._cancelled = True

    async def __aiter__(self) -> AsyncIterator[Event]:
        limit = self._request.max_tokens
        said, reason = self._engine.answer[:limit], self._engine.finish
        if limit is not None and limit < len(self._engine.answer):
            reason = "length"
        for index, piece in enumerate(said):
            await asyncio.sleep(self._engine.pace)
            if self._cancelled:
                said, reason = said[:index], "cancelled"
                break
            source = "ngram" if index % 2 else "target"
            yield Delta(piece, tuple(map(ord, piece)), (source,) * len(piece), index)
            if self._engine.failure is not None:
                raise self._engine.failure
        yield Finished(reason, self._usage(said), _timings(len(said), self._request))

    def _usage(self, said: str | list[str]) -> Usage:
        return Usage(len(self._request.prompt), 3, len(said))


def _timings(tokens: int, request: GenerationRequest) -> Timings:
    return Timings(
        draft_n=8,
        draft_n_accepted=6,
        rounds=4,
        tau=tokens / 4,
        alpha=0.75,
        queue_ms=0.1,
        prefill_ms=2.0,
        ttft_ms=3.0,
        tpot_ms=1.5,
        draft_ms=0.2,
        verify_ms=9.0,
        drafter=request.speculation.drafter,
        policy=request.speculation.policy,
        rule="coupled",
        lossless=True,
        exact=True,
    )
