"""The moments at which a gateway is killed: each is come to, and looked at that it has not passed.

A machine may be faster than was thought. So whoever finds that the load, the prompt, the answer or
the switch had ended comes to the moment again, and sooner.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from bench.crash_victim import Asking, Place, Victim, ask, posted, started
from models.errors import UserError

LOADING = ("checking ", "loading ", "memory needed", "graphs loaded", "bitwise", "run times")
"""Beginnings of the lines that a gateway says while it loads, in their order."""

_MOST_DELAY = 0.3
_MOST_DELTAS = 12
_DELTA_SECONDS = 120.0
_AFTER_DELTA = 0.05
_SHORT = 200
"""Characters of a prompt that leaves room for an answer."""

_ATTEMPTS = 40

Moment = Callable[[Place, random.Random, Sequence[str]], Awaitable[Victim]]
"""Brings a gateway to a moment in which it is to be killed: it has some of the texts to ask."""


async def in_load(place: Place, chance: random.Random, texts: Sequence[str]) -> Victim:
    """At a step of loading; every other time it has to calibrate, and to keep that, first."""
    for attempt in range(_ATTEMPTS):
        if chance.random() < 0.5:
            for kept in place.calibrations.glob("*.json"):
                kept.unlink()
        victim = await Victim.start(place)
        await victim.until_said(chance.choice(LOADING), "ready on ")
        await asyncio.sleep(chance.random() * _MOST_DELAY / (attempt + 1))
        if not victim.has_said("ready on "):
            return victim
        await victim.end()
    raise _too_fast("loading")


async def in_prefill(place: Place, chance: random.Random, texts: Sequence[str]) -> Victim:
    """Before the first token of an answer to a long prompt."""
    victim = await started(place)
    for attempt in range(_ATTEMPTS):
        text = " ".join(chance.sample(list(texts), len(texts))) * 2
        asking = await _ask_as_much_as_fits(victim, text)
        delay = chance.random() * _MOST_DELAY / (attempt + 1)
        if not await asking.said(1, delay):
            return victim
        await asking.leave()
    raise _too_fast("the prompt")


async def in_stream(place: Place, chance: random.Random, texts: Sequence[str]) -> Victim:
    """With several answers streaming, two of them in the background."""
    victim = await started(place)
    for attempt in range(_ATTEMPTS):
        first = await _ask_as_much_as_fits(victim, chance.choice(list(texts))[:_SHORT])
        others = [
            await _ask_as_much_as_fits(victim, text[:_SHORT], background=True) for text in texts[:2]
        ]
        wanted = max(1, chance.randint(1, _MOST_DELTAS) // (attempt + 1))
        await first.said(wanted, _DELTA_SECONDS)
        delay = chance.random() * _AFTER_DELTA / (attempt + 1)
        if not await first.ends(delay):
            return victim
        for each in (first, *others):
            await each.leave()
    raise _too_fast("the answer")


async def in_swap(place: Place, chance: random.Random, texts: Sequence[str]) -> Victim:
    """While a package is loaded to take the place of another one, under a stream of that."""
    victim = await started(place)
    names, took = itertools.cycle(reversed(place.names)), _MOST_DELAY
    for _ in range(_ATTEMPTS):
        streaming = await _ask_as_much_as_fits(victim, chance.choice(list(texts))[:_SHORT])
        began = time.monotonic()
        switching = victim.keep(posted(victim, "packages/switch", {"model": next(names)}))
        await asyncio.wait([switching], timeout=chance.random() * took)
        if not switching.done():
            return victim
        await switching
        took = time.monotonic() - began
        await streaming.leave()
    raise _too_fast("the switch")


MOMENTS: Mapping[str, Moment] = MappingProxyType(
    {"load": in_load, "prefill": in_prefill, "stream": in_stream, "swap": in_swap}
)


async def _ask_as_much_as_fits(victim: Victim, text: str, *, background: bool = False) -> Asking:
    while True:
        try:
            return await ask(victim, text, background=background)
        except UserError as error:
            if error.code != "context_length_exceeded":
                raise
        text = text[: len(text) * 3 // 4]


def _too_fast(what: str) -> UserError:
    return UserError(
        f"{what} had ended before the gateway could be killed, {_ATTEMPTS} times.", code="usage"
    )
