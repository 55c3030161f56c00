"""The package that one request is answered by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.engine.requests import GenerationRequest
from gateway.fleet.loaded import Use
from gateway.http.backend import Generation
from gateway.http.flow import Flow


class Picked:
    """`engine` stays loaded as long as the `use`, and as the answers that are opened here."""

    def __init__(self, use: Use, flow: Flow, require_open: Callable[[], None]) -> None:
        self.engine = use.engine
        self._require_open = require_open
        self._use = use
        self._flow = flow

    def open_choices(self, request: GenerationRequest, n: int) -> Sequence[Generation]:
        """`n` answers to one prompt, within the limits of its key; all must be entered at once.

        Raises what the engine does, `rate_limit_exceeded`, and `draining`: what is asked first may
        have taken a while.
        """
        self._require_open()
        return self._flow.open(self._use, request, n)
