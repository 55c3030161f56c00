"""One line for each long step, with the seconds it took."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """`write` receives pieces of text; a step is announced at once and timed when it ends."""

    write: Callable[[str], None]

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        begin = time.perf_counter()
        self.write(f"{what} ...")
        try:
            yield
        except BaseException:
            self.write("\n")
            raise
        self.write(f" {time.perf_counter() - begin:.1f} s\n")

    @contextlib.contextmanager
    def steps(self) -> Iterator[Callable[[str], None]]:
        """For work that says itself what it does next: each step ends where the next begins."""
        with contextlib.ExitStack() as current:

            def begin(what: str) -> None:
                current.close()
                current.enter_context(self.step(what))

            yield begin

    def line(self, text: str) -> None:
        self.write(f"{text}\n")
