"""Interrupting runs: whatever runs a graph, the target's or a drafter's, can be ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from models.capture import total
from models.compaction import DeviceCompaction
from models.drafters.learned import LearnedModels
from models.errors import DeviceError
from models.package import Package
from models.providers import select_provider
from models.rows import Row
from models.runs import Runs
from models.slots import Slot
from models.target import Target
from tests.device_support import for_device, played
from tests.engine_support import make_prompt

CONTEXT = 128
PROMPT = make_prompt(24)
PATIENCE = 20.0
ROOT = Path(__file__).parent.parent
CPU = select_provider("cpu", "cpu")

Work = Callable[[], object]


class Place:
    """A target and its drafters, whose runs belong together."""

    def __init__(self, package: Package, *, device: bool) -> None:
        provider = played() if device else CPU
        self.package = package
        self.target = Target(package, provider)
        self.learned = LearnedModels(
            package, provider, None, self.target.weights, self.target.running
        )

    def work(self, kind: str) -> Work:
        """A run of this kind, which was done once and can be done again."""
        first, second = (self.prefilled(), self.prefilled())
        if kind == "one row":
            work: Work = lambda: self.target.run([row(first, 4)])  # noqa: E731
        elif kind == "two rows":
            work = lambda: self.target.run([row(first, 4), row(second, 2)])  # noqa: E731
        elif kind == "a chunk":
            work = lambda: self.target.run([row(first, 32)])  # noqa: E731
        elif kind == "a tree":
            self.target.load_trees()
            tree = Row(first, (5, 6, 7), 1, parents=(-1, 0, 0))
            work = lambda: self.target.run([tree])  # noqa: E731
        elif kind == "moving a path":
            graph = self.package.manifest.target.compact_graph
            assert graph is not None
            compact = DeviceCompaction(self.package.file(graph), CPU, runs=self.target.running)
            work = lambda: compact(first, len(PROMPT), (0, 2))  # noqa: E731
        else:
            work = self._drafting(first, *kind.split(" in "))
        work()
        return work

    def _drafting(self, slot: Slot, kind: str, shape: str) -> Work:
        self.learned.load(kind)
        branches = 2 if shape == "trees" else 1
        drafter = self.learned.drafter(kind, slot, None, shared=False, branches=branches)
        drafter.reset(PROMPT)
        drafter.commit((3,))

        def propose() -> None:
            slot.commit((3,))
            drafter.commit((4,))
            assert drafter.propose(2).tokens

        return propose

    def prefilled(self) -> Slot:
        (slot,) = self.target.make_slots(1, CONTEXT)
        self.target.run([Row(slot, PROMPT, logits=0)])
        slot.commit(PROMPT)
        return slot


def row(slot: Slot, width: int) -> Row:
    return Row(slot, tuple(range(3, 3 + width)), logits=1)


@pytest.fixture(scope="module")
def device_package(drafting: Package, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return for_device(drafting, tmp_path_factory.mktemp("device") / "package")


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest, drafting: Package, device_package: Package) -> Place:
    device = request.param == "device"
    return Place(device_package if device else drafting, device=device)


def failure_of(work: Work) -> Exception | None:
    try:
        work()
    except Exception as error:  # ONNX Runtime has a class of its own for it
        return error
    return None


class Held:
    """Runs of ONNX Runtime that go on until they are told to end, while `on`; `begun` is set by
    each."""

    def __init__(self) -> None:
        self.on = False
        self.begun = threading.Event()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = onnxruntime.InferenceSession.run_with_iobinding

        def run(session: Any, binding: Any, options: Any) -> None:
            end = time.monotonic() + PATIENCE
            while self.on and not options.terminate and time.monotonic() < end:
                self.begun.set()
                time.sleep(0.001)  # a kernel that takes long
            real(session, binding, options)

        monkeypatch.setattr(onnxruntime.InferenceSession, "run_with_iobinding", run)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()
    held.install(monkeypatch)
    return held


@pytest.mark.parametrize(
    "kind",
    [
        *("one row", "two rows", "a chunk", "a tree", "moving a path"),
        *("draft-model in chains", "eagle3 in chains", "eagle3 in trees", "mtp in chains"),
        *("medusa in chains", "self-speculative in chains"),
    ],
)
def test_a_run_that_goes_on_is_ended_and_no_other_begins(
    place: Place, kind: str, held: Held
) -> None:
    work = place.work(kind)

    def interrupt() -> None:
        if held.begun.wait(PATIENCE):
            place.target.interrupt()

    # Captured runs belong to the thread that made them: this one. The interrupt comes from another.
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    held.on = True
    failure = failure_of(work)
    interrupting.join(PATIENCE)
    assert held.begun.is_set()
    assert "terminate flag" in str(failure)
    later = failure_of(work)
    assert isinstance(later, DeviceError)
    assert "interrupted" in str(later)


def test_a_replay_that_comes_after_the_interrupt_does_not_begin(device_package: Package) -> None:
    """ONNX Runtime itself would begin it: it looks at no options before it replays."""
    place = Place(device_package, device=True)
    work = place.work("one row")
    work()
    before = total(place.target.graph_counts)
    assert before.replayed == 1
    place.target.interrupt()
    assert isinstance(failure_of(work), DeviceError)


def test_other_runs_are_not_interrupted(drafting: Package) -> None:
    one, other = Place(drafting, device=False), Place(drafting, device=False)
    work = other.work("one row")
    one.target.interrupt()
    work()


def test_a_run_that_ended_is_forgotten() -> None:
    runs, options = Runs(), onnxruntime.RunOptions()

    class Session:
        def run_with_iobinding(self, binding: object, options: object) -> None:
            assert binding == "bound"

    runs.run(Session(), "bound", options)
    runs.interrupt()
    assert not options.terminate


def test_there_is_one_way_to_run_a_graph() -> None:
    callers = {
        path.relative_to(ROOT).as_posix()
        for part in ("models", "gateway")
        for path in (ROOT / part).rglob("*.py")
        if ".run_with_iobinding(" in path.read_text() or "_session.run(" in path.read_text()
    }
    assert callers == {"models/runs.py"}
