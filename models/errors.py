"""The one exception type for what a user did wrong."""

from __future__ import annotations


class UserError(Exception):
    """Something a user can put right: a bad package, an unknown setting, a bad request.

    `message` says what was wrong and what would be right; `code` is a stable identifier
    (`package_invalid`, `context_length_exceeded`, `model_not_found`, ...); `param` names the
    field, flag or file concerned. The HTTP layer maps `code` to a status in one place; the command
    line prints `message`, and serve tells by `code` whether another attempt may do
    (`gateway.commands.statuses`).
    """

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class DeviceError(RuntimeError):
    """A run of a session failed: memory, a lost device, a graph that does not run. Nobody asked
    for anything wrong. What the device holds of its model is not relied on any more."""
