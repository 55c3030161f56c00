"""What the wire needs of the engine, as protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from gateway.engine.conversation import Encoder, Template
from gateway.engine.pulse import Pulse
from gateway.engine.requests import Event, GenerationRequest
from gateway.engine.status import EngineStatus
from models.constraints.source import ConstraintSource
from models.package import Package
from models.tokenizer import TokenTable


class Vocabulary(Encoder, TokenTable, Protocol):
    """What is needed of `models.tokenizer.Tokenizer`."""

    def token_id(self, token: str) -> int | None: ...


class Generation(Protocol):
    """One running answer. Leaving the block cancels it within one round."""

    @property
    def request(self) -> GenerationRequest:
        """As it was opened, with the seed that it draws by."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None: ...

    def __aiter__(self) -> AsyncIterator[Event]:
        """Yields what arrived since the last read as one `Delta`, and at the end `Finished`.

        Before the first of them `PromptScored`, where it was asked for.
        """

    def cancel(self) -> None: ...

    def fail(self, error: Exception) -> None:
        """End now; whoever reads it is raised `error`."""


class Engine(Protocol):
    """The engine (gateway.engine.engine) as the wire sees it."""

    @property
    def package(self) -> Package: ...

    @property
    def tokenizer(self) -> Vocabulary: ...

    @property
    def template(self) -> Template | None: ...

    @property
    def context_length(self) -> int: ...

    @property
    def pulse(self) -> Pulse: ...

    async def compile(self, constraint: ConstraintSource, key: str | None = None) -> None:
        """Have it at hand for the requests that are opened next, when it is the turn of `key`.
        Raises `UserError` that names its field."""

    def open(self, request: GenerationRequest) -> Generation: ...

    def open_choices(self, request: GenerationRequest, n: int) -> Sequence[Generation]:
        """`n` answers to one prompt, each with a seed of its own."""

    def status(self) -> EngineStatus: ...

    async def forget(self, user: str) -> None:
        """Delete what is kept of a user beyond the requests that run."""

    def interrupt(self) -> None:
        """Have the device leave its present run, if it can, and run nothing behind it."""

    async def close(self) -> None: ...
