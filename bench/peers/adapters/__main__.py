"""A peer's process: `python adapters NAME`, started by the peer's own Python.

It reads a JSON object a line from stdin, `{"do": METHOD, ...arguments}`, and writes one a line to
stdout: the method's result, or `{"error": ..., "unsupported": true or false}`. Methods are those of
`Adapter`. Whatever else a library prints goes to stderr. Needs the standard library alone.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Weights:
    """The checkpoint as peers get it. `target` and `draft` are directories of fp32 weights, `gguf`
    a file; the last two may be missing. `eos` are the ids that end an answer. What a peer makes of
    them goes into `directory`."""

    def __init__(
        self, directory: str, target: str, gguf: str | None, draft: str | None, eos: list[int]
    ) -> None:
        self.target, self.eos = target, eos
        self._directory = Path(directory)
        self._gguf, self._draft = gguf, draft

    @property
    def gguf(self) -> str:
        if self._gguf is None:
            raise NotImplementedError("the checkpoint is not a GGUF file")
        return self._gguf

    @property
    def draft(self) -> str:
        if self._draft is None:
            raise NotImplementedError("there is no draft model")
        return self._draft

    def made(self, of: str, name: str, write: Callable[[str], None]) -> str:
        """The path called `name` for `of`, which `write` makes where it is not there yet."""
        path = self._directory / f"{Path(of).name}-{name}"
        if not path.exists():
            partial = path.with_name("partial-" + path.name)
            shutil.rmtree(partial, ignore_errors=True)
            partial.unlink(missing_ok=True)
            write(str(partial))
            partial.rename(path)
        return str(path)


class Adapter(Protocol):
    """What a module of this directory defines as `Peer`."""

    def load(self, weights: Weights, threads: int, settings: dict[str, Any]) -> dict[str, Any]:
        """Make ready to answer, weights in the peer's own form first. Returns its `versions`.

        Raises `NotImplementedError` for what the peer cannot do.
        """

    def answer(self, ids: list[int], max_tokens: int) -> dict[str, Any]:
        """Greedily. Returns `ids`; `ms` from the prompt's ids to the last token's; `ttft_ms`; and
        `drafted`, `accepted`, `rounds` (runs of the target, prefill not counted) as far as the peer
        tells them."""


def main(name: str) -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    adapter: Adapter | None = None
    for line in sys.stdin:
        request = json.loads(line)
        method = request.pop("do")
        try:
            if adapter is None:
                adapter = importlib.import_module(name).Peer()
            if method == "load":
                request["weights"] = Weights(**request["weights"])
            reply = getattr(adapter, method)(**request)
        except Exception as error:  # whatever a library raises is the peer's failure
            unsupported = isinstance(error, NotImplementedError)
            what = str(error) if unsupported else f"{type(error).__name__}: {error}"
            reply = {"error": what, "unsupported": unsupported}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(sys.argv[1])
