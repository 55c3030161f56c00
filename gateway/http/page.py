"""The page at `/`: its files, read once from the package and served as they are.

What is not among them does not exist: no part of a request's path ever names a file. Neither does
anybody need a key to read them; the page asks for one when /v1 wants it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

from aiohttp import hdrs, web

INDEX = "index.html"
ANY = "*"
CONTENT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        ".css": "text/css",
        ".html": "text/html",
        ".js": "text/javascript",
        ".svg": "image/svg+xml",
    }
)
# Nothing comes from elsewhere and nothing goes elsewhere; 'self' includes this host's WebSockets.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        # Kept by browsers, but asked for each time: a new version is there at once.
        hdrs.CACHE_CONTROL: "no-cache",
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)

Handler = Callable[[web.Request], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is served. `digest` changes with its content."""

    body: bytes
    content_type: str
    digest: str


def page_files(directory: Traversable | None = None) -> Mapping[str, PageFile]:
    """By name, the files of the kinds that a page is made of."""
    directory = resources.files("gateway.page") if directory is None else directory
    return {
        entry.name: _read(entry, CONTENT_TYPES[suffix])
        for entry in directory.iterdir()
        if (suffix := _suffix(entry.name)) in CONTENT_TYPES
    }


class PageRoutes:
    """`/` is the page, `/page/...` what it is made of."""

    def __init__(self, files: Mapping[str, PageFile] | None = None) -> None:
        self._files = page_files() if files is None else files

    def add_to(self, router: web.UrlDispatcher) -> None:
        for name, file in self._files.items():
            router.add_get("/" if name == INDEX else f"/page/{name}", _sender(file))


def _sender(file: PageFile) -> Handler:
    headers = {**HEADERS, hdrs.ETAG: f'"{file.digest}"'}

    async def send(request: web.Request) -> web.Response:
        known = request.if_none_match or ()
        if any(tag.value in (ANY, file.digest) for tag in known):
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=file.body, content_type=file.content_type, charset="utf-8", headers=headers
        )

    return send


def _read(entry: Traversable, content_type: str) -> PageFile:
    body = entry.read_bytes()
    return PageFile(body, content_type, hashlib.sha256(body).hexdigest()[:32])


def _suffix(name: str) -> str:
    _, dot, suffix = name.rpartition(".")
    return dot + suffix
