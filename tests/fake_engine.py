"""A scripted engine for tests of the wire: it says what it is told to, token by token.

Tokens are characters, so that what was prefilled can be read in `requests`. Token i of an answer
(or of a scored prompt) has the log-probability -(i + 1) / 8; each further one of its top list is
the next character, with 1 less.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from gateway.engine.marks import RoundTrace, TokenMark
from gateway.engine.pulse import Pulse
from gateway.engine.requests import (
    LOSSLESS_RULES,
    Delta,
    DrafterTimings,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    PromptScored,
    Timings,
    TokenLogprob,
    Usage,
)
from gateway.engine.status import CostStatus, DrafterStatus, EngineStatus
from gateway.engine.stops import ScopedScanner
from models.constraints.source import ConstraintSource
from models.errors import UserError
from models.package import FileEntry, Manifest, Package, TargetSpec

MODEL = "tiny-test"
ENDLESS = "x" * 20_000
"""An answer that is cut: with a pace of 0.005 s and more it outlasts whoever waits for its end."""
FRESH_SEED = 7


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
        tree_graphs={},
        compact_graph=None,
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
    special_ids = frozenset[int]()
    leading_spaces = 0

    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.special_tokens: tuple[str, ...] = ()

    def encode(self, text: str) -> list[int]:
        self.encoded.append(text)
        return [ord(character) for character in text]

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id).encode()

    def token_text(self, token_id: int) -> str:
        return chr(token_id)

    def token_id(self, token: str) -> int | None:
        return ord(token) if len(token) == 1 else None


class BracketTemplate:
    """`<role>content</>` per message, then `<assistant>`. Functions come first, by their names."""

    source = "{{ tools }} <tool_call>"

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
    ) -> str:
        if any("refuse me" in message["content"] for message in messages):
            raise UserError("the chat template refused the messages", code="template_error")
        names = ",".join(tool["function"]["name"] for tool in tools or ())
        said = f"<tools>{names}</>" if names else ""
        said += "" if thinking is None else f"<thinking>{thinking}</>"
        said += "".join(f"<{message['role']}>{self._body(message)}</>" for message in messages)
        return said + "<assistant>" if add_generation_prompt else said

    def _body(self, message: Mapping[str, Any]) -> str:
        functions = (call["function"] for call in message.get("tool_calls", ()))
        calls = [json.dumps(function, ensure_ascii=False) for function in functions]
        parts = [message.get("name", ""), message.get("reasoning_content", "")]
        parts += [message["content"], *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)]
        return "\n".join(filter(None, parts))


MOST_MARKED = 4096
"""Characters of a piece: larger ones are there to fill buffers, and marks take their time."""


def _marks(piece: str, round_: int, ms: float) -> tuple[TokenMark, ...]:
    if len(piece) > MOST_MARKED:
        return ()
    return tuple(TokenMark(character, round_, ms) for character in piece)


class FakeEngine:
    """Says the pieces of `answer`, `pace` seconds each; `failure` is raised behind the first.

    Where `held` is given, so many pieces are said, and the others from `go_on` on: what a test does
    in between is done while the answer runs, on the slowest machine. `said` counts all pieces. An
    answer is the one that was there when it was asked for.

    A stop string ends an answer of single characters. `requests` are as they were asked for;
    generations have a seed: 7 where none was asked for, one more for each further choice.
    `compiled` are the constraints that were asked for, unless they are all `refused`.
    """

    def __init__(
        self,
        answer: str | list[str] = "Hello, world",
        *,
        pace: float = 0.0,
        held: int | None = None,
        finish: FinishReason = "stop",
        failure: Exception | None = None,
        capacity: int = 64,
    ) -> None:
        self.package = fake_package()
        self.tokenizer = CharacterTokenizer()
        self.template = BracketTemplate()
        self.context_length = 1000
        self.pulse = Pulse()
        self.answer = answer
        self.pace = pace
        self.held = held
        self.said = 0
        self.finish = finish
        self.failure = failure
        self.capacity = capacity
        self.requests: list[GenerationRequest] = []
        self.forgotten: list[str] = []
        self.compiled: list[ConstraintSource] = []
        self.refused: UserError | None = None
        self.running = 0
        self.most_running = 0
        self.closed = False
        self.interrupted = False

    def open(self, request: GenerationRequest) -> FakeGeneration:
        return self.open_choices(request, 1)[0]

    def open_choices(self, request: GenerationRequest, n: int) -> list[FakeGeneration]:
        if len(request.prompt) >= self.context_length:
            raise UserError(
                f"the prompt has {len(request.prompt)} tokens; the context holds 1000.",
                code="context_length_exceeded",
                param="input",
            )
        if self.running >= self.capacity:
            raise UserError("the queue is full.", code="queue_full")
        self.requests.append(request)
        seed = FRESH_SEED if request.sampling.seed is None else request.sampling.seed
        seeded = (replace(request.sampling, seed=seed + index) for index in range(n))
        return [FakeGeneration(self, replace(request, sampling=each)) for each in seeded]

    async def compile(self, constraint: ConstraintSource, key: str | None = None) -> None:
        if self.refused is not None:
            raise self.refused
        self.compiled.append(constraint)

    async def forget(self, user: str) -> None:
        self.forgotten.append(user)

    def status(self) -> EngineStatus:
        eagle3 = DrafterStatus(
            name="eagle3",
            loaded=True,
            checkpoint="heads/test",
            reads="taps",
            longest=4,
            draft_n=8,
            draft_n_accepted=6,
            survival=(0.654321, 0.4),
            run_ms={1: 1.23456, 4: 2.0},
        )
        return EngineStatus(
            model=self.package.manifest.name,
            device="cpu",
            exact=True,
            differences=(),
            slots=4,
            free_slots=4 - self.running,
            kv_tokens=0,
            running=self.running,
            waiting=0,
            memory_bytes=1,
            run_ms={2: 10.00049, 8: 12.0},
            costs=CostStatus(
                source="cached",
                measured_at="2026-01-02T03:04:05+00:00",
                scaled=1.1,
                fit_error=-0.03,
                per_row=0.5,
                per_past=0.0012345678,
                per_work=0.0,
                factor=1.05,
                residuals={2: 0.98, 0: 1.02},
                tree=1.2,
                overhead_ms=0.4,
            ),
            drafter="ngram+eagle3",
            drafters=(DrafterStatus("ngram", loaded=True), eagle3),
        )

    def prompt(self, index: int = -1) -> str:
        return "".join(map(chr, self.requests[index].prompt))

    def go_on(self) -> None:
        self.held = None

    def interrupt(self) -> None:
        self.interrupted = True

    async def close(self) -> None:
        self.closed = True


class FakeGeneration:
    def __init__(self, engine: FakeEngine, request: GenerationRequest) -> None:
        self.request = request
        self._engine = engine
        self._answer, self._pace = engine.answer, engine.pace
        self._cancelled = False
        self._failure: Exception | None = None

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

    def fail(self, error: Exception) -> None:
        self._failure = error

    async def __aiter__(self) -> AsyncIterator[Event]:
        if self.request.prompt_logprobs:
            yield PromptScored((None, *self._logprobs(self.request.prompt)[1:]))
        said, reason, stop = self._script()
        for index, piece in enumerate(said):
            await self._due(index)
            if self._failure is not None:
                raise self._failure
            if self._cancelled:
                said, reason, stop = said[:index], "cancelled", None
                break
            source = "ngram" if index % 2 else "target"
            ids = tuple(map(ord, piece))
            scored = () if self.request.top_logprobs is None else self._logprobs(ids, index)
            ms = 10.0 * index
            self._engine.said += 1
            yield Delta(
                piece,
                ids,
                (source,) * len(piece),
                index,
                scored,
                marks=_marks(piece, index, ms),
                rounds=(RoundTrace(index, ms, 0.25, 9.0, 0, 0),) if index else (),
            )
            if self._engine.failure is not None:
                raise self._engine.failure
        usage = Usage(len(self.request.prompt), 3, len(said))
        yield Finished(reason, usage, timings(len(said), self.request), stop)

    async def _due(self, index: int) -> None:
        await asyncio.sleep(self._pace)
        while not (self._cancelled or self._failure or self._engine.held is None):
            if index < self._engine.held:
                break
            await asyncio.sleep(0.001)

    def _script(self) -> tuple[str | list[str], FinishReason, str | None]:
        said, limit = self._answer, self.request.max_tokens
        if limit is not None and limit < len(said):
            return said[:limit], "length", None
        if isinstance(said, str) and self.request.stop_scope is not None:
            over = ScopedScanner((), self.request.stop_scope()).push(said)
            if over is not None:
                return said[: over.end], "stop", None
        if isinstance(said, str):
            found = [(said.find(stop), stop) for stop in self.request.stop if stop in said]
            if found:
                end, stop = min(found)
                return said[:end], "stop", stop
        return said, self._engine.finish, None

    def _logprobs(self, ids: Sequence[int], first: int = 0) -> tuple[TokenLogprob, ...]:
        top = self.request.top_logprobs or 0
        return tuple(
            TokenLogprob(
                token,
                -(first + index + 1) / 8,
                tuple((token + n, -(first + index + 1) / 8 - n) for n in range(top)),
            )
            for index, token in enumerate(ids)
        )


def timings(tokens: int, request: GenerationRequest) -> Timings:
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
        accept_ms=0.4,
        drafter=request.speculation.drafter.replace("auto", "ngram"),
        policy=request.speculation.policy,
        rule=request.speculation.rule,
        lossless=request.speculation.rule in LOSSLESS_RULES,
        exact=True,
        by_drafter={"ngram": DrafterTimings(8, 6, 3), **_predicted(request)},
    )


def _predicted(request: GenerationRequest) -> dict[str, DrafterTimings]:
    return {} if request.prediction is None else {"prediction": DrafterTimings(5, 4, 2)}
