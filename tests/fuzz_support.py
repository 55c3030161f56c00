"""How much is tried, and what must hold behind it."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.http_serving import ask, socket_to
from tests.server_thread import ServerThread

WANTED = os.environ.get("OUTPACE_FUZZ")
FUZZ = settings(
    max_examples=int(WANTED or 300),
    derandomize=WANTED is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
FEW = settings(FUZZ, max_examples=int(WANTED or 120))


async def still_answers(server: ServerThread) -> None:
    """Every slot is free, a good request is answered, and then every slot is free again."""
    await server.idle()
    async with socket_to(server.served) as socket:
        events = await ask(socket, input="Hi", max_output_tokens=3)
        assert events[-1]["type"] in ("response.completed", "response.incomplete")
    await server.idle()
