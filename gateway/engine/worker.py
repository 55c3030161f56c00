"""The thread that an engine's runs are made on: it answers on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from gateway.engine.device_turns import DeviceTurns
from gateway.engine.pulse import Pulse
from models.errors import DeviceError, UserError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Job(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]


class Worker:
    """Runs functions one after the other, in the order in which they were submitted.

    Rounds go there and back: unlike an executor's, a submission is one queue, one future and one
    wake-up of the loop. What it is given before `shutdown` is done. Everything that it does has its
    time in `pulse` and takes its turn in `turns`.
    """

    def __init__(
        self, name: str, pulse: Pulse | None = None, turns: DeviceTurns | None = None
    ) -> None:
        self._name = name
        self.attend(pulse or Pulse(), turns or DeviceTurns())
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def attend(self, pulse: Pulse, turns: DeviceTurns) -> None:
        """Have these told of, and asked before, what is submitted from now on."""
        self._pulse = pulse
        self._turns = turns

    def submit(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """What `function` returns or raises; where the future is cancelled before its turn comes,
        it is not called. From the event loop only."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(_Job(function, arguments, future))
        return future

    def shutdown(self) -> None:
        """Wait until everything submitted is done. Nothing may be submitted afterwards."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def leave(self) -> None:
        """The same, without waiting."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.future.cancelled():
                continue
            how: Callable[..., None]
            outcome: object
            try:
                how, outcome = _settle, self._do(job)
            except BaseException as error:  # handed to whoever awaits it
                how, outcome = _fail, error
            _tell(job.future, how, outcome)
            del job, outcome

    def _do(self, job: _Job) -> Any:
        if not self._turns.shared:
            return self._timed(job)
        # Waiting for others is no run: only who runs can be stuck.
        with self._turns.turn(self._pulse):
            return self._timed(job)

    def _timed(self, job: _Job) -> Any:
        self._pulse.begin()
        try:
            return job.function(*job.arguments)
        finally:
            self._pulse.end()


def on_device(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`function`, whose failures are the device's: they are raised as `DeviceError`."""

    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except UserError:
            raise
        except Exception as error:
            raise DeviceError(str(error) or type(error).__name__) from error

    return run


def _tell(future: asyncio.Future[Any], how: Callable[..., None], outcome: object) -> None:
    try:
        future.get_loop().call_soon_threadsafe(how, future, outcome)
    except RuntimeError:
        return  # the loop was closed: nobody waits


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
