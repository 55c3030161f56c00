"""The one way in which graphs are run, so that whatever runs can be ended."""

from __future__ import annotations

from typing import Any

from models.errors import DeviceError


class Runs:
    """The runs of all sessions that belong together: those of a target and of its drafters.

    A session is run from one thread at a time, different ones at the same time; `interrupt` is for
    any thread.
    """

    def __init__(self) -> None:
        self._running: set[Any] = set()
        self._interrupted = False

    def run(self, session: Any, binding: Any, options: Any) -> None:
        """Run an IOBinding. Raises what ONNX Runtime does, and `DeviceError` once interrupted.

        `options` are of no other run that goes on at the same time.
        """
        # Entered before it looks: whoever interrupts sets the mark first and then goes through
        # those entered, so that no run is missed by both.
        self._running.add(options)
        try:
            if self._interrupted:
                raise DeviceError("the run was interrupted before it began")
            session.run_with_iobinding(binding, options)
        finally:
            self._running.discard(options)

    def interrupt(self) -> None:
        """Have the present runs fail before their next node, and every later one; from any thread.

        Two kinds of runs are not ended by that. A kernel that does not return is waited for by its
        driver. And of a captured graph ONNX Runtime launches all at once: `InferenceSession::Run`
        hands it to the provider's `ReplayGraph` before anything looks at the options. Where such a
        run hangs, the process has to end (`gateway.fleet.watch`).
        """
        self._interrupted = True
        for options in tuple(self._running):
            options.terminate = True
