"""Puts a package on disk: written aside, flushed, renamed into place, or not there at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Set
from pathlib import Path

import onnx
from onnx import TensorProto

from models.errors import UserError

_PARTIAL, _OLD = ".partial", ".old"
_FRESH = 10.0
"""Seconds in which a directory that was made may not be locked yet."""

ALIGNMENT = 4096
INLINE_BYTES = 1024
_UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})
# What only a place that can hold no directory answers: /proc, a loop of links, an endless name.
_NO_PLACE = _UNWRITABLE | {errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT}


@contextlib.contextmanager
def staged(out: Path, *, replace: bool) -> Iterator[Path]:
    """A directory beside `out` that becomes `out` when the block ends, and vanishes if it fails.

    What a process that was killed has left there goes first.
    """
    with _explained(out, _NO_PLACE):
        out.parent.mkdir(parents=True, exist_ok=True)
        sweep(out)
        staging = _beside(out, _PARTIAL)
    try:
        with _explained(out), locked(staging):
            yield staging
            # mkdtemp makes it private; a package is as readable as other files of its owner.
            staging.chmod(0o777 & ~_umask())
            _flush(staging)
            _move(staging, out, replace=replace)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def sweep(out: Path) -> None:
    """Remove what processes that were killed left beside `out`; put `out` back where it is aside.

    Those that still run hold a lock.
    """
    for suffix in (_OLD, _PARTIAL):
        for path in abandoned(out.parent, f".{glob.escape(out.name)}.*{suffix}"):
            if (path / out.name).exists() and not out.exists():
                (path / out.name).rename(out)
            shutil.rmtree(path, ignore_errors=True)


def abandoned(parent: Path, pattern: str) -> Iterator[Path]:
    """Directories that processes which have ended left in `parent`; each is locked meanwhile."""
    for path in parent.glob(pattern):
        with contextlib.suppress(OSError):
            # Not even tried to lock: its owner is about to, and would find it taken.
            if time.time() - path.stat().st_mtime < _FRESH:
                continue
            with locked(path):
                yield path


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Have `directory` for oneself. Raises `BlockingIOError` where another process has it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _beside(out: Path, suffix: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=suffix, dir=out.parent))


def check_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise UserError(
            f"not enough disk space in {directory}: the export needs about {_gib(needed)},"
            f" {_gib(free)} are free.",
            code="disk_full",
            param="--out",
        )


def externalise(model: onnx.ModelProto, weights: Path) -> onnx.ModelProto:
    """Write the large initializers to `weights`; return the model with references to them.

    `model` keeps its data; what it refers to already stays where it is. Tensors begin at multiples
    of 4096 bytes, so that they can be mapped.
    """
    graph = model.graph
    skeleton = onnx.helper.make_model(
        onnx.helper.make_graph(list(graph.node), graph.name, list(graph.input), list(graph.output)),
        opset_imports=list(model.opset_import),
    )
    skeleton.ir_version = model.ir_version
    skeleton.metadata_props.extend(model.metadata_props)
    with weights.open("wb") as stream:
        for tensor in graph.initializer:
            if _size(tensor) <= INLINE_BYTES:
                skeleton.graph.initializer.append(tensor)
                continue
            stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
            reference = _reference(tensor, weights.name, stream.tell())
            skeleton.graph.initializer.append(reference)
            stream.write(tensor.raw_data)
    return skeleton


def save_graph(model: onnx.ModelProto, path: Path) -> None:
    path.write_bytes(model.SerializeToString())


def link_or_copy(source: Path, place: Path) -> None:
    """`source` under another name. ONNX Runtime follows no symbolic link to weights that lie in
    another directory than their graph."""
    try:
        place.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, place)


def _size(tensor: TensorProto) -> int:
    return len(tensor.raw_data) if tensor.HasField("raw_data") else 0


def _reference(tensor: TensorProto, location: str, offset: int) -> TensorProto:
    reference = TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        data_location=TensorProto.EXTERNAL,
    )
    entries = {"location": location, "offset": offset, "length": _size(tensor)}
    for key, value in entries.items():
        entry = reference.external_data.add()
        entry.key, entry.value = key, str(value)
    return reference


@contextlib.contextmanager
def _explained(out: Path, meant: Set[int] = _UNWRITABLE) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"the disk is full: {out} was not written.", code="disk_full", param="--out"
            ) from error
        if error.errno in meant:
            raise UserError(
                f"cannot write {out}: {error.strerror} ({error.filename}).",
                code="unwritable",
                param="--out",
            ) from error
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush(directory: Path) -> None:
    for path in directory.iterdir():
        if not path.is_symlink():
            _sync(path)
    _sync(directory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(staging: Path, out: Path, *, replace: bool) -> None:
    if out.exists() and not replace:
        raise existing(out)
    if not out.exists():
        staging.rename(out)
    else:
        aside = _beside(out, _OLD)
        out.rename(aside / out.name)
        staging.rename(out)
        shutil.rmtree(aside, ignore_errors=True)
    _sync(out.parent)


def existing(out: Path) -> UserError:
    return UserError(
        f"{out} exists already. Give another --out, or --force to replace it.",
        code="output_exists",
        param="--out",
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
