"""A run that hangs is ended by the gateway itself, and by the watchdog only where it was not."""

from __future__ import annotations

import re
import time

import pytest

from gateway.fleet.terms import Terms
from gateway.fleet.watch import MOST_SECONDS, Watch
from gateway.installing.units import template
from gateway.installing.watchdogs import seconds
from gateway.service_manager.order import MARGIN, contradiction, least_watchdog
from gateway.service_manager.watchdog import Watchdog, earliest_end, latest_end
from gateway.settings import Settings
from tests.fleet_support import fleet_of

UNITS = ("outpace.service.in", "user/outpace.service.in")


def shipped(name: str) -> float:
    """The seconds of the watchdog in a unit as it is shipped."""
    (told,) = re.findall(r"^WatchdogSec=(.+)$", template(name), re.MULTILINE)
    found = seconds(told)
    assert found is not None
    return found


@pytest.mark.parametrize("name", UNITS)
def test_what_is_shipped_agrees(name: str) -> None:
    terms = Settings().terms
    assert contradiction(shipped(name), terms) is None
    assert terms.stuck_seconds is not None
    ended = terms.stuck_seconds + terms.stuck_exit_seconds
    assert earliest_end(shipped(name)) >= ended + MARGIN
    # As the unit's own words say.
    text = template(name)
    assert f"and stuck_exit_seconds, {ended / 60:g} min;" in text
    assert f"after {earliest_end(shipped(name)) / 60:g} min at the earliest" in text


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("late", [0.0, 0.3, 0.7, 0.99])
async def test_with_what_is_shipped_the_gateway_ends_before_it_is_killed(
    name: str, late: float
) -> None:
    """By a clock of its own: the run begins `late` in the time between two feeds."""
    seconds_of_it = shipped(name)
    terms, events = Settings().terms, dict[str, float]()
    fleet, starts = await fleet_of("a", terms=terms)
    engine = starts.engines[0]
    begun = time.monotonic()
    engine.pulse.begin()
    now = [begun - late * seconds_of_it / 4]
    fed = [now[0]]
    watchdog = Watchdog(
        seconds_of_it, lambda: fed.append(now[0]), fleet.running_for, lambda: now[0]
    )
    watch = Watch(fleet, lambda reason: events.setdefault("left", now[0]), lambda: now[0])
    next_tick = now[0]
    while now[0] < fed[-1] + seconds_of_it:
        assert now[0] - begun < 2 * seconds_of_it, "it is fed without end"
        if now[0] >= next_tick:
            watchdog.tick()
            next_tick += watchdog.interval
        watch.look()
        if engine.interrupted:
            events.setdefault("told", now[0])
        now[0] += MOST_SECONDS
    told, left, killed = events["told"] - begun, events["left"] - begun, now[0] - begun
    assert terms.stuck_seconds is not None
    assert terms.stuck_seconds <= told <= terms.stuck_seconds + 2 * MOST_SECONDS
    ended = terms.stuck_seconds + terms.stuck_exit_seconds
    assert ended <= left <= ended + 2 * MOST_SECONDS
    assert earliest_end(seconds_of_it) - 1 <= killed <= latest_end(seconds_of_it) + 1
    assert killed - left >= MARGIN
    engine.pulse.end()
    await fleet.close()


def test_what_contradicts_is_said_with_what_would_be_right() -> None:
    terms = Terms(stuck_seconds=120, stuck_exit_seconds=60)
    assert least_watchdog(terms) == 168
    assert contradiction(168, terms) is None
    assert contradiction(None, terms) is None
    assert contradiction(120, terms) == (
        "WatchdogSec=120 may kill the gateway 150 s into a run that hangs, before it is"
        " sure to have ended by itself, after stuck_seconds and stuck_exit_seconds (180 s"
        " together): set WatchdogSec=168 or more."
    )
    # It is killed after that, but not so long after that it is sure.
    told = contradiction(150, terms)
    assert told is not None
    assert "WatchdogSec=150 may kill the gateway 187.5 s into a run" in told


def test_where_no_run_is_ever_stuck_no_watchdog_is_long_enough() -> None:
    terms = Terms(stuck_seconds=None)
    assert (least_watchdog(terms), contradiction(None, terms)) == (None, None)
    assert contradiction(1000, terms) == (
        "stuck_seconds is none, and still WatchdogSec=1000 has the gateway killed where one run"
        " takes more than 1500 s: set stuck_seconds, or WatchdogSec=0."
    )
