"""The packages of a gateway by their names: which one answers, and what is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from gateway.engine.device_turns import DeviceTurns
from gateway.fleet import refusals
from gateway.fleet.loaded import Use
from gateway.fleet.member import Member, Start
from gateway.fleet.terms import Source, Terms
from gateway.http.backend import Engine
from models.errors import UserError
from models.memory import MemoryNeed, require_memory, resident_bytes, why_unknown

log = logging.getLogger(__name__)

Forget = Callable[[Source, str], Awaitable[None]]

CLOSE_SECONDS = 10.0


class Fleet:
    """Lives on one event loop. The first package is the default, until another one is switched to.

    `turns` are shared by all engines: while several are loaded their runs take turns. `starting`
    until the default was loaded for the first time: nobody waits for that, they are told.
    """

    def __init__(self, terms: Terms | None = None) -> None:
        self.terms = terms or Terms()
        self.turns = DeviceTurns()
        self.starting = True
        self._members: dict[str, Member] = {}
        self._default: Member | None = None
        self._forget: dict[Member, Forget] = {}
        self._switching = asyncio.Lock()
        self._resident_before = resident_bytes()

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    @property
    def default(self) -> Member | None:
        return self._default

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def running_for(self, now: float) -> float | None:
        """As `Pulse.running_for`, of all engines: the longest of their present runs."""
        pulses = (loaded.engine.pulse for member in self for loaded in member.engines)
        running = [seconds for pulse in pulses if (seconds := pulse.running_for(now)) is not None]
        return max(running, default=None)

    @property
    def stuck(self) -> bool:
        return any(member.stuck for member in self)

    def add(self, source: Source, start: Start, forget: Forget | None = None) -> Member:
        """`forget` deletes what its directory keeps of a user while it is not loaded.

        Raises `UserError` where there is one of that name.
        """
        if source.name in self._members:
            raise UserError(
                f"two packages are called {source.name!r}: {source.path} and"
                f" {self._members[source.name].source.path}. Requests tell them apart by their"
                " names; export one with another --name.",
                code="invalid_setting",
                param="packages",
            )
        member = Member(source, self.terms, start, self._require_room, self._changed)
        self._members[source.name] = member
        if forget is not None:
            self._forget[member] = forget
        self._default = self._default or member
        return member

    def adopt(self, engine: Engine) -> None:
        """An engine that was loaded elsewhere, as the default."""
        manifest = engine.package.manifest
        status = engine.status()
        gpu = status.device != "cpu"
        need = MemoryNeed(weights=status.memory_bytes, kv=0, work=0, gpu=gpu)
        source = Source(manifest.name, None, manifest, engine.context_length, need)
        member = self._members[source.name] = Member(
            source, self.terms, _only_once, self._require_room, self._changed
        )
        member.adopt(engine)
        self._default = member
        self.starting = False

    def member(self, name: str | None) -> Member:
        """The package that a request means: None means the default.

        Raises `UserError` `model_not_found`.
        """
        if name is None and self._default is not None:
            return self._default
        member = self._members.get(name or "")
        if member is None:
            raise refusals.model_not_found(name or "", self.names)
        return member

    async def pick(self, name: str | None) -> Use:
        """The engine of the package that a request means; loaded first, if it is not.

        Raises what `member` and `Member.use` do, and `loading` while the gateway starts.
        """
        member = self.member(name) if self._members else None
        if member is None or self.starting:
            raise UserError("The model is still loading.", code="loading")
        return await member.use()

    async def start(self) -> None:
        """Load the default. Raises `UserError` where it cannot be."""
        assert self._default is not None, "a gateway has a package"
        await self._default.load()
        self.starting = False

    async def switch(self, name: str, *, force: bool = False) -> Member:
        """Have `name` loaded and be the default, and free what was: its answers end first.

        The default itself is loaded anew, from what its directory holds now. Where loading fails
        everything stays as it is. Raises what loading does.
        """
        async with self._switching:
            member, before = self.member(name), self._default
            if member is before:
                await member.replace(force=force)
                return member
            await member.load(force=force)
            self._default = member
            log.info("package %s is the default", member.name)
            if before is not None:
                before.unload()
            return member

    async def forget(self, user: str) -> None:
        """Delete what any package keeps of a user. Raises `UserError` `not_deleted` where one could
        not, when all others have."""
        kept = None
        for member in self:
            try:
                if member.loaded is not None:
                    await member.loaded.engine.forget(user)
                elif member in self._forget:
                    await self._forget[member](member.source, user)
            except UserError as error:
                kept = error
        if kept is not None:
            raise UserError(kept.message, code="not_deleted", param="user")

    def drain(self) -> None:
        """Who waits for a package is refused."""
        for member in self:
            member.drain()

    async def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Whether all engines came to their end within `seconds`: one that is stuck does not."""
        closing = [asyncio.create_task(member.close(), name="close") for member in self]
        if not closing:
            return True
        _, pending = await asyncio.wait(closing, timeout=seconds)
        for task in pending:
            task.cancel()
        return not pending

    def _require_room(self, source: Source) -> None:
        if not self.terms.check_memory:
            return
        if (unknown := why_unknown(source.need)) is not None:
            log.warning("package %s is loaded unchecked. %s", source.name, unknown)
        require_memory(source.need, self._promised(gpu=source.need.gpu))

    def _promised(self, *, gpu: bool) -> int:
        """Bytes of what is still there that others will take. A GPU's are taken when a package is
        loaded; the system's as they are written."""
        others = [member for member in self if member.source.need.gpu == gpu]
        if gpu:
            return sum(member.starting for member in others)
        taken = max(0, resident_bytes() - self._resident_before)
        return max(0, sum(member.claimed for member in others) - taken)

    def _changed(self) -> None:
        self.turns.shared = sum(len(member.engines) for member in self) > 1


async def _only_once(source: Source) -> Engine:
    raise UserError(
        f"the package {source.name!r} was loaded by the program that serves it.",
        code="package_missing",
    )
