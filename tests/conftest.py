"""The packages that tests run on: a tiny random one, and the demo's."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, settings

from gateway.engine import loading
from models.errors import UserError
from models.locations import cache_directory, default_package_path
from models.package import Package, load_package
from models.session import share_threads
from tests.checkpoints import make_checkpoint
from tests.drafters_support import drafting_package
from tests.engine_support import Reference
from tests.letters_checkpoint import make_letters_checkpoint
from tests.locks import locked

ROOT = Path(__file__).parent.parent

# How fast a machine makes examples, and runs them, says nothing about what is tested.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


@pytest.fixture(scope="session", autouse=True)
def _one_thread_pool() -> Iterator[None]:
    """In a process all sessions of ONNX Runtime share a pool, or none does.

    The gateway's sessions share one, the export's do not, and their tests run in one process: so
    here the export's sessions join the pool too. It has one thread, and so has torch: others would
    wait for parts of tiny models, spinning, for twice the processor time. Gateways and exports that
    tests start as processes have as many threads as any.
    """
    torch.set_num_threads(1)
    share_threads(1)
    make = onnxruntime.InferenceSession.__init__

    def make_in_pool(
        self: Any, model: Any, sess_options: Any = None, *rest: Any, **options: Any
    ) -> None:
        sess_options = sess_options or onnxruntime.SessionOptions()
        sess_options.use_per_session_threads = False
        make(self, model, sess_options, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime.InferenceSession, "__init__", make_in_pool)
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_calibrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured beside tests is no measurement: gateways started later must not find it."""
    directory, usual = tmp_path_factory.mktemp("calibrations"), cache_directory()

    def chosen() -> Path:
        return directory if cache_directory() == usual else cache_directory()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "cache_directory", chosen)
        yield


@pytest.fixture(scope="session")
def tiny_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama in fp32 for 1, 2 and 4 rows."""

    def checkpoint() -> Path:
        return make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama")

    return _kept("tiny", checkpoint, "1,2,4")


@pytest.fixture(scope="session")
def roomy_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny package with room for 2,048 tokens: for answers that are left before their end."""

    def checkpoint() -> Path:
        directory = tmp_path_factory.mktemp("roomy")
        return make_checkpoint(directory, "llama", max_position_embeddings=2048)

    return _kept("roomy", checkpoint, "1,2,4")


@pytest.fixture(scope="module")
def package(tiny_package: Path) -> Package:
    return load_package(tiny_package)


@pytest.fixture(scope="module")
def reference(package: Package) -> Reference:
    """Plain answers of the tiny package."""
    return Reference(package)


@pytest.fixture(scope="session")
def letters_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a vocabulary of twelve tokens, for one row: its answers can be enumerated."""
    return _kept(
        "letters", lambda: make_letters_checkpoint(tmp_path_factory.mktemp("letters")), "1"
    )


@pytest.fixture(scope="session")
def drafting(tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The tiny package with a random drafter of every kind."""
    return drafting_package(load_package(tiny_package), tmp_path_factory.mktemp("drafting"))


@pytest.fixture(scope="session")
def demo_package() -> Path:
    """The real model's package, which `make setup` builds."""
    path = default_package_path()
    try:
        return load_package(path).path
    except UserError as error:
        pytest.fail(f"{error.message}\nThese tests need the demo package: run `make setup`.")


def _kept(name: str, checkpoint: Callable[[], Path], rows: str) -> Path:
    """A package that is kept in the cache between runs, and exported by one of those that want it
    at once."""
    path = cache_directory() / "tests" / f"{name}-{_digest_of_export()}"
    with locked(path.with_suffix(".lock")):
        if not _is_valid(path):
            _export_tiny(checkpoint(), path, rows)
    return path


def _digest_of_export() -> str:
    """Of everything that decides what the tiny package holds."""
    sources = [
        *sorted((ROOT / "export").rglob("*.py")),
        ROOT / "models" / "package.py",
        ROOT / "tests" / "checkpoints.py",
        ROOT / "tests" / "letters_checkpoint.py",
    ]
    digest = hashlib.sha256()
    for source in sources:
        content = source.read_bytes()
        digest.update(f"{source.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _is_valid(path: Path) -> bool:
    try:
        load_package(path)
    except UserError:
        return False
    return True


def _export_tiny(checkpoint: Path, path: Path, rows: str) -> None:
    options = ["--dtype", "fp32", "--rows", rows, "--name", "tiny", "--force"]
    _export(["--target", str(checkpoint), "--out", str(path), *options])


def _export(arguments: list[str]) -> None:
    """In a process of its own: tracing replaces parts of transformers."""
    command = [sys.executable, "-m", "export", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
