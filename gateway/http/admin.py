"""Loading and unloading packages over HTTP, by whom that is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from gateway.fleet.member import Member
from gateway.http.access import BODY_DEADLINE, read_body
from gateway.http.errors import STATUS
from gateway.http.fields import decode_object, optional, required
from gateway.http.gateway import Gateway
from gateway.http.guard import API_KEY, is_loopback, json_response
from gateway.http.keys import ApiKey
from gateway.http.packages import package_object, packages_of
from models.errors import UserError

UNLOAD_SECONDS = 5.0
"""How long is waited for an unloaded package to be free before its state is told."""


class AdminRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/packages", self.packages)
        router.add_post("/v1/packages/load", self.load)
        router.add_post("/v1/packages/unload", self.unload)
        router.add_post("/v1/packages/switch", self.switch)

    async def packages(self, request: web.Request) -> web.Response:
        """All that are configured, and what is loaded of them."""
        self._gateway.require_open()
        return json_response({"object": "list", "data": packages_of(self._gateway.fleet)})

    async def load(self, request: web.Request) -> web.Response:
        """Have a package loaded, and kept for `keep_alive` seconds where that is given."""
        member, document = await self._wanted(request)
        keep_alive = keep_alive_of(document)
        with _telling():
            await member.load(force=optional(document, "force", bool) or False)
        if keep_alive is not None:
            member.keep(keep_alive)
        return self._described(member)

    async def unload(self, request: web.Request) -> web.Response:
        """Free a package when its answers have ended. Its state may be `draining` then."""
        member, _ = await self._wanted(request)
        freeing = member.unload()
        if freeing is not None:
            await asyncio.wait([freeing], timeout=UNLOAD_SECONDS)
        return self._described(member)

    async def switch(self, request: web.Request) -> web.Response:
        """Load a package, have requests without a model answered by it, and free what answered
        them; its answers end first."""
        member, document = await self._wanted(request)
        force = optional(document, "force", bool) or False
        with _telling():
            await self._gateway.fleet.switch(member.name, force=force)
        return self._described(member)

    async def _wanted(self, request: web.Request) -> tuple[Member, dict[str, Any]]:
        self._require_admin(request)
        body = await read_body(request, BODY_DEADLINE)
        document = decode_object(body, self._gateway.limits.nesting)
        name = required(document, "model", str)
        self._gateway.require_open()
        return self._gateway.fleet.member(name), document

    def _require_admin(self, request: web.Request) -> None:
        """Of a gateway with keys a key of `admins`; of one without, anybody on this machine."""
        key = request.get(API_KEY)
        # Read anew each time: they may change while it runs.
        admins = {ApiKey.of("", name).owner for name in self._gateway.settings.admins}
        if key is not None and key.owner in admins:
            return
        if key is None and is_loopback(self._gateway.settings.host):
            return
        raise UserError(
            "This key may not load and unload packages. The setting admins has the names of those"
            " that may."
            if key is not None
            else "Without API keys packages can be loaded and unloaded on a loopback address only.",
            code="not_administrator",
        )

    def _described(self, member: Member) -> web.Response:
        return json_response(package_object(member, self._gateway.fleet))


@contextmanager
def _telling() -> Iterator[None]:
    """Who may administer is told what is wrong with a package."""
    try:
        yield
    except UserError as error:
        if error.code in STATUS:
            raise
        raise UserError(error.message, code="package_failed") from error


def keep_alive_of(document: Mapping[str, Any]) -> float | None:
    """Seconds; negative: for ever."""
    value = document.get("keep_alive")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(
            "keep_alive must be a number of seconds; -1 is for ever.",
            code="invalid_type",
            param="keep_alive",
        )
    return float(value)
