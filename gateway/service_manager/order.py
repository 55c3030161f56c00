"""Who ends a run that hangs: first the gateway itself, and the watchdog only where it did not.

The gateway tells the requests concerned, tries to get the device back, and ends with a status of
its own; a watchdog that is quicker does none of that.
"""

from __future__ import annotations

import math

from gateway.fleet.terms import Terms
from gateway.service_manager.watchdog import earliest_end, latest_end

MARGIN = 30.0
"""Seconds that the gateway may be late: between two looks at the device, and on a busy machine."""


def least_watchdog(terms: Terms) -> float | None:
    """The least seconds of a watchdog that lets the gateway end first, in whole ones; None: the
    gateway ends for no run, so no watchdog would be long enough."""
    ended = _ended(terms)
    return None if ended is None else float(math.ceil((ended + MARGIN) / earliest_end(1.0)))


def contradiction(watchdog: float | None, terms: Terms) -> str | None:
    """What is wrong with a watchdog of so many seconds (None: there is none), in a sentence; None:
    nothing."""
    if watchdog is None:
        return None
    ended, least = _ended(terms), least_watchdog(terms)
    if ended is None or least is None:
        return (
            f"stuck_seconds is none, and still WatchdogSec={watchdog:g} has the gateway killed"
            f" where one run takes more than {latest_end(watchdog):g} s: set stuck_seconds, or"
            " WatchdogSec=0."
        )
    if watchdog >= least:
        return None
    return (
        f"WatchdogSec={watchdog:g} may kill the gateway {earliest_end(watchdog):g} s into a run"
        " that hangs, before it is sure to have ended by itself, after stuck_seconds and"
        f" stuck_exit_seconds ({ended:g} s together): set WatchdogSec={least:g} or more."
    )


def _ended(terms: Terms) -> float | None:
    """Seconds into a run that hangs at which the gateway ends by itself."""
    return None if terms.stuck_seconds is None else terms.stuck_seconds + terms.stuck_exit_seconds
