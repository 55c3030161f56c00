"""Server-sent events to one client."""

from __future__ import annotations

from aiohttp import hdrs, web

from gateway.http.outbox import ClientGoneError, within_deadline

HEADERS = {
    hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8",
    hdrs.CACHE_CONTROL: "no-cache",
    "X-Accel-Buffering": "no",
}


class EventStream:
    """A response whose body are events, each written within `deadline` seconds."""

    def __init__(self, request: web.Request, deadline: float) -> None:
        self._request = request
        self._deadline = deadline
        self.response = web.StreamResponse(headers=HEADERS)

    async def open(self) -> None:
        """Send the head: from here on errors are events. Raises `ClientGoneError`."""
        try:
            await self.response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGoneError(str(error)) from None

    async def send(self, data: bytes, event: str | None = None) -> None:
        """`data` is one line. Raises `ClientGoneError`."""
        name = b"" if event is None else b"event: %b\n" % event.encode()
        write = self.response.write(b"%bdata: %b\n\n" % (name, data))
        await within_deadline(write, self._request.transport, self._deadline)
