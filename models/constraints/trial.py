"""A grammar is first compiled by a process of its own.

A few lines of schema can ask for more memory than there is, or for years of work; nothing in the
compiler stops at that, and what runs in this process cannot be ended from outside. There it can:
the other process has little memory, is killed when it takes too long, and may well crash.
"""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import sys
import threading
from typing import Literal

Problem = Literal["slow", "heavy"]
"""It takes too long; or too much memory, or too deep a stack."""

SECONDS = 5.0
QUICK = 0.5
"""For the trial of whoever would not keep others waiting."""
_START_SECONDS = 20.0

MEMORY = 1 << 30
STACK = 64 << 20
"""Rules, and parts of schemas, are compiled one inside the other."""


class Trial:
    """Used by one thread at a time. The process is begun when it is first wanted, and ends with
    this one."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def problem(self, grammar: str) -> Problem | None:
        """Why `grammar` must not be compiled here; None where nothing speaks against it."""
        process = self._running()
        assert process.stdin is not None, "a pipe"
        try:
            process.stdin.write(json.dumps(grammar).encode() + b"\n")
            process.stdin.flush()
            answer = _answer(process, self.seconds)
        except OSError:
            answer = b""
        if answer:
            return None
        self.close()
        return "slow" if answer is None else "heavy"

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            # How long it takes to begin is nobody's grammar's fault.
            _answer(self._process, _START_SECONDS)
        return self._process


def _answer(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """What it said; nothing where it died, None where it says nothing in time."""
    assert process.stdout is not None, "a pipe"
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return os.read(process.stdout.fileno(), 1) if ready else None


def _serve() -> None:
    """The other process: a byte when it has begun, and for every grammar that it is done with,
    whatever came of that."""
    from llguidance import LLMatcher, LLTokenizer

    tokenizer = LLTokenizer("byte")
    os.write(sys.stdout.fileno(), b".")
    for line in sys.stdin.buffer:
        grammar = json.loads(line)
        LLMatcher.validate_grammar(grammar)
        LLMatcher(tokenizer, grammar, log_level=0)
        os.write(sys.stdout.fileno(), b".")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(STACK)
    server = threading.Thread(target=_serve, daemon=True)
    server.start()
    server.join()


if __name__ == "__main__":
    main()
