"""What requests are told of a package that does not answer them now."""

from __future__ import annotations

from collections.abc import Sequence

from models.errors import UserError

SHOWN = 80
"""Characters of what a client sent that an error repeats."""


def model_not_found(asked: str, served: Sequence[str]) -> UserError:
    """`served` are the names of all packages."""
    names = ", ".join(map(repr, served))
    asked = asked if len(asked) <= SHOWN else asked[: SHOWN - 3] + "..."
    return UserError(
        f"The model {asked!r} does not exist here; this gateway serves {names}.",
        code="model_not_found",
        param="model",
    )


def device_failed() -> UserError:
    return UserError(
        "The device failed on this request. The model is being loaded again; try again shortly.",
        code="device_error",
    )


def device_lost(seconds: float) -> UserError:
    """Of answers that are cut because the device failed on others."""
    return UserError(
        "The device failed, and this answer did not end within"
        f" {seconds:g} s after that. The model is being loaded again; try again shortly.",
        code="device_error",
    )


def device_stuck(seconds: float) -> UserError:
    return UserError(
        f"The device has not come back from a run for {seconds:.0f} s. Try again later.",
        code="device_error",
    )


def failed(name: str, failures: int) -> UserError:
    return UserError(
        f"The model {name!r} failed {failures} times lately and is not tried again by itself; the"
        " gateway's status says why.",
        code="package_failed",
    )


def not_loadable(name: str) -> UserError:
    return UserError(
        f"The model {name!r} could not be loaded; the gateway's status says why.",
        code="package_failed",
    )


def loading(name: str, seconds: float | None = None) -> UserError:
    waited = "" if seconds is None else f" after {seconds:g} s"
    return UserError(f"The model {name!r} is still being loaded{waited}.", code="loading")


def too_many_waiting(name: str, waiting: int) -> UserError:
    return UserError(
        f"{waiting} requests wait already for the model {name!r} to be loaded. Try again shortly.",
        code="queue_full",
    )


def unloaded(name: str) -> UserError:
    """Of answers that are cut because they were in the way of an unload."""
    return UserError(f"The model {name!r} was unloaded: the answer was cut.", code="unloaded")
