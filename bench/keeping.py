"""Measurements that may be interrupted: what was seen by then is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from bench.setup import progress


def run_to_the_end(measuring: Coroutine[Any, Any, None]) -> bool:
    """Whether `measuring` came to its end. Where Ctrl-C (or SIGTERM) ended it, what it has noted
    in objects of its caller's is what there is."""
    try:
        asyncio.run(measuring)
    except KeyboardInterrupt:
        progress("interrupted: the report holds what was measured")
        return False
    return True
