"""Opening the n-gram store of a package, and what is said where it cannot be had."""

from __future__ import annotations

import logging
from pathlib import Path

from gateway.engine.ngram_store import UNKEPT, NgramStore, claim
from gateway.engine.options import EngineOptions
from models.errors import UserError
from models.package import Package

log = logging.getLogger(__name__)


def open_store(package: Package, options: EngineOptions) -> NgramStore | None:
    """The n-gram store, where one is wanted. Raises `UserError` where it cannot be had; where only
    the disk is full or read-only it is in memory alone."""
    directory = options.ngram_store
    if directory is None:
        return None
    vocabulary = package.manifest.files[package.manifest.tokenizer].sha256
    store = NgramStore.shared(directory, vocabulary)
    if store is not None:
        return store
    claimed, problem = None, None
    try:
        claimed = claim(directory)
    except OSError as error:
        if error.errno not in UNKEPT:
            raise _no_store(directory, error) from None
        log.warning("the n-gram store in %s is in memory alone: %s", directory, error.strerror)
        problem = str(error)
    store = NgramStore(directory, options.ngram_store_mib << 20, vocabulary, claimed)
    store.problem = problem  # it was said: what fails later is the same
    return store.share()


def _no_store(directory: Path, error: OSError) -> UserError:
    taken = isinstance(error, BlockingIOError)
    reason = "another gateway has it" if taken else error.strerror
    return UserError(
        f"the n-gram store cannot be kept in {directory}: {reason}.",
        # The other one may be about to end.
        code="store_in_use" if taken else "invalid_setting",
        param="ngram_store",
    )
