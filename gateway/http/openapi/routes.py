"""`/openapi.json`."""

from __future__ import annotations

from importlib import metadata

from aiohttp import web

from gateway.http.guard import json_response
from gateway.http.openapi.document import document


class OpenApiRoutes:
    def __init__(self) -> None:
        self._document = document(_version())

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/openapi.json", self.openapi)

    async def openapi(self, request: web.Request) -> web.Response:
        """It says nothing that the documentation does not: no key is asked for."""
        return json_response(self._document)


def _version() -> str:
    try:
        return metadata.version("outpace")
    except metadata.PackageNotFoundError:
        return "0"
