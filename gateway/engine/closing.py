"""What those are told who wait for an engine that closes."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from models.errors import UserError

Result = TypeVar("Result")


def closing() -> UserError:
    return UserError("the gateway is shutting down; try again later.", code="draining")


async def outcome_of(shared: asyncio.Future[Result]) -> Result:
    """What `shared` comes to, for which others wait too: who is cancelled here does not end it.

    Raises what it raises, and `UserError` `draining` where it is cancelled: only closing does that.
    """
    if not shared.done():
        await asyncio.wait([shared])
    if shared.cancelled():
        raise closing()
    return shared.result()
