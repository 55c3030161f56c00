"""The n-gram store: every user's texts, in memory while they are in use and on disk between.

A user is known by an opaque name. What one said is found under that name alone: it names the file,
and the file names it. All reading and writing is done by one thread; the loop never waits for it.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, ClassVar, TypeVar

from gateway.engine.closing import closing
from models.drafters.store import MOST_TOKENS, Texts
from models.drafters.store_file import UNFINISHED, append_text, read_texts, rewrite_texts
from models.errors import UserError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Text = tuple[int, ...]

SUFFIX = ".ngrams"
_CLAIM = "in-use"
UNKEPT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Errors of a disk on which nothing can be kept now: what is said is kept in memory then."""

MOST_USERS = 16
"""Whose texts are in memory at once."""

_REWRITE_BYTES = 2 * 4 * MOST_TOKENS
"""A file of this size holds more that is forgotten than what is not."""


class NgramStore:
    """Lives on one event loop. `most_bytes` bounds the directory: the files that were written
    longest ago go first. `vocabulary` names what the token ids mean; `claimed` is what
    `claim` gave.

    A file that cannot be read or written costs the drafts that it could have made, nothing else.
    One that is `shared` has several holders in this process, each of which closes it: an engine
    that is loaded anew finds the one of the engine whose last answers still run.
    """

    _shared: ClassVar[dict[tuple[Path, str], NgramStore]] = {}

    @classmethod
    def shared(cls, directory: Path, vocabulary: str) -> NgramStore | None:
        """The one that is open here already, with one more holder."""
        store = cls._shared.get((directory.absolute(), vocabulary))
        if store is not None:
            store._holders += 1
        return store

    def share(self) -> NgramStore:
        """Let others of this process hold it too."""
        self._shared[self._directory.absolute(), self._vocabulary] = self
        return self

    def __init__(
        self, directory: Path, most_bytes: int, vocabulary: str, claimed: IO[bytes] | None = None
    ) -> None:
        self._directory = directory
        self._claimed = claimed
        self._most_bytes = most_bytes
        self._vocabulary = vocabulary
        self._users: OrderedDict[str, Texts] = OrderedDict()
        self._loading: dict[str, asyncio.Future[Texts]] = {}
        self._valid: dict[Path, int] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ngram-store")
        self._holders = 1
        self._closed = False
        self.problem: str | None = None
        """What went wrong last."""

    async def load(self, user: str) -> None:
        """Have the texts of `user` in memory."""
        if self._closed:
            return
        if user in self._users:
            self._users.move_to_end(user)
            return
        loading = self._loading.get(user)
        if loading is None:
            loading = self._submit(lambda: self._read(user), Texts())
            self._loading[user] = loading
            loading.add_done_callback(lambda done: self._loaded(user, done))
        await asyncio.wait([loading])

    def texts(self, user: str) -> Texts | None:
        """Those of `user`; None where they are not in memory."""
        return self._users.get(user)

    def add(self, user: str, text: Sequence[int]) -> None:
        """`text` was said to `user`; it reaches the disk soon."""
        texts = self._users.get(user)
        if texts is not None and text and not self._closed:
            texts.add(text)
            kept = tuple(text)
            self._submit(lambda: self._write(user, kept), None)

    async def forget(self, user: str) -> None:
        """Delete all that is known of `user`, in memory and on disk.

        Raises `UserError`: `not_deleted` where the disk keeps it, `draining` after the end.
        """
        if self._closed:
            raise closing()
        self._users.pop(user, None)
        gone = await self._submit(lambda: self._delete(self._path(user)), False)
        # What was being read before that.
        self._users.pop(user, None)
        if not gone:
            raise UserError(
                f"the n-gram store could not delete what it keeps on disk ({self.problem}).",
                code="not_deleted",
                param="user",
            )

    async def close(self) -> None:
        """Until everything is written; it is closed when its last holder has closed it."""
        self._holders -= 1
        if self._is_held():
            return
        await self._submit(lambda: None, None)
        if self._is_held():
            return  # somebody took it meanwhile
        self._closed = True
        if self._shared.get(key := (self._directory.absolute(), self._vocabulary)) is self:
            del self._shared[key]
        self._worker.shutdown()
        if self._claimed is not None:
            self._claimed.close()

    def _is_held(self) -> bool:
        return self._closed or self._holders > 0

    def _loaded(self, user: str, done: asyncio.Future[Texts]) -> None:
        del self._loading[user]
        if not done.cancelled():
            self._users[user] = done.result()
            while len(self._users) > MOST_USERS:
                self._users.popitem(last=False)

    def _submit(self, work: Callable[[], Result], otherwise: Result) -> asyncio.Future[Result]:
        """Queue `work`; what goes wrong is noted, and gives `otherwise`."""

        def guarded() -> Result:
            try:
                return work()
            except OSError as error:
                if self.problem is None:
                    log.warning("the n-gram store in %s: %s", self._directory, error)
                self.problem = str(error)
                return otherwise

        return asyncio.get_running_loop().run_in_executor(self._worker, guarded)

    # What follows runs on the worker's thread.

    def _path(self, user: str) -> Path:
        return self._directory / (self._owner(user) + SUFFIX)

    def _owner(self, user: str) -> str:
        return hashlib.sha256(f"{self._vocabulary}\0{user}".encode()).hexdigest()

    def _read(self, user: str) -> Texts:
        path = self._path(user)
        texts, self._valid[path] = read_texts(path, self._owner(user))
        return Texts(newest(texts, MOST_TOKENS))

    def _write(self, user: str, text: Text) -> None:
        path, owner = self._path(user), self._owner(user)
        size = append_text(path, owner, text, self._valid.get(path, 0))
        if size > _REWRITE_BYTES:
            texts, _ = read_texts(path, owner)
            size = rewrite_texts(path, owner, newest(texts, MOST_TOKENS))
        self._valid[path] = size
        self._evict()

    def _evict(self) -> None:
        files = [(path, path.stat()) for path in self._directory.glob("*" + SUFFIX)]
        left = sum(stat.st_size for _, stat in files)
        for path, stat in sorted(files, key=lambda each: each[1].st_mtime_ns):
            if left <= self._most_bytes:
                return
            self._delete(path)
            left -= stat.st_size

    def _delete(self, path: Path) -> bool:
        self._valid.pop(path, None)
        path.unlink(missing_ok=True)
        # What a rewriting that was cut off has left.
        path.with_suffix(UNFINISHED).unlink(missing_ok=True)
        return True


def claim(directory: Path) -> IO[bytes]:
    """Have the directory, which is made, until the file is closed or the process ends.

    Raises `OSError` where nothing can be kept there: `BlockingIOError` where another has it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (directory / _CLAIM).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    except OSError as error:
        log.warning("the n-gram store in %s cannot be locked: %s", directory, error)
    return file


def newest(texts: Sequence[Text], most: int) -> Sequence[Text]:
    """The last of them that have at most `most` tokens together."""
    first = len(texts)
    while first > 0 and (most := most - len(texts[first - 1])) >= 0:
        first -= 1
    return texts[first:]
