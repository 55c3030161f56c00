"""What the wire needs of the engine, as protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol, Self

from gateway.engine.conversation import Encoder, Template
from gateway.engine.requests import Event, GenerationRequest
from models.package import Package


class Generation(Protocol):
    """One running answer. Leaving the block cancels it within one round."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None: ...

    def __aiter__(self) -> AsyncIterator[Event]:
        """Yields what arrived since the last read as one `Delta`, and at the end `Finished`."""

    def cancel(self) -> None: ...


class Engine(Protocol):
    """The engine (gateway.engine.engine) as the wire sees it."""

    @property
    def package(self) -> Package: ...

    @property
    def tokenizer(self) -> Encoder: ...

    @property
    def template(self) -> Template | None: ...

    @property
    def context_length(self) -> int: ...

    def open(self, request: GenerationRequest) -> Generation: ...

    async def close(self) -> None: ...
