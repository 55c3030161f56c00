"""Every point at which a device can fail, on a real engine behind a real gateway: who is told, who
goes on, and what is there afterwards.

`test_containment` has the stories; this is the matrix. Sessions raise what ONNX Runtime raises.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.engine.device_turns import DeviceTurns
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.fleet.terms import Source
from gateway.fleet.watch import Watch
from gateway.service_manager.watchdog import Watchdog
from models.memory import MemoryNeed
from models.package import Package, load_package
from models.providers import Provider
from models.workspace import Workspace
from tests.device_faults import FAILURES, SECRETS, Faults
from tests.device_support import for_device, played
from tests.engine_support import make_prompt
from tests.http_serving import Served, serving, until
from tests.test_http_guard import get

CONTEXT, COUNT, SLOTS = 200, 24, 2
PROMPTS = tuple(make_prompt(20, seed) for seed in range(SLOTS))
LEARNED = ("draft-model", "eagle3", "mtp", "medusa", "self-speculative")
TREES = {"drafter": "ngram", "policy": "fixed", "length": 6, "branches": 3}
OUT_OF_MEMORY = FAILURES["out of memory"]
Place = tuple[Package, Provider | None]


def is_target(name: str) -> bool:
    return name.startswith("target.r")


def is_tree(name: str) -> bool:
    return name.startswith("target.tree")


def drafts(kind: str, **fields: Any) -> dict[str, Any]:
    return {"drafter": kind, "policy": "fixed", "length": 3, **fields}


@dataclass(slots=True)
class Starts:
    """Starts engines as a gateway does, of one package under any name."""

    package: Package
    turns: DeviceTurns
    provider: Provider | None
    engines: list[Engine]

    async def __call__(self, source: Source) -> Engine:
        manifest = dataclasses.replace(self.package.manifest, name=source.name)
        options = EngineOptions(slots=SLOTS, context=CONTEXT, drafter="off")
        engine = await Engine.start(
            dataclasses.replace(self.package, manifest=manifest),
            options,
            turns=self.turns,
            provider=self.provider,
        )
        self.engines.append(engine)
        return engine

    def source(self, name: str) -> Source:
        manifest = dataclasses.replace(self.package.manifest, name=name)
        return Source(name, self.package.path, manifest, CONTEXT, MemoryNeed(1 << 20, 0, 0))


@dataclass(frozen=True, slots=True)
class Life:
    served: Served
    starts: Starts
    session: aiohttp.ClientSession

    async def complete(self, prompt: Sequence[int], **fields: Any) -> tuple[int, Any]:
        body = {
            "prompt": list(prompt),
            "max_tokens": COUNT,
            "ignore_eos": True,
            "temperature": 0,
            "speculation": {"off": True},
            **fields,
        }
        return await self.post("completions", body)

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        async with self.session.post(f"{self.served.base}/{path}", json=body) as response:
            return response.status, await response.json()

    async def texts(self, streams: int = 1, **fields: Any) -> list[str]:
        asked = (self.complete(prompt, **fields) for prompt in PROMPTS[:streams])
        answers = await asyncio.gather(*asked)
        assert [status for status, _ in answers] == [200] * streams, answers
        return [answer["choices"][0]["text"] for _, answer in answers]

    async def refused(self, streams: int = 1, **fields: Any) -> set[str]:
        """The codes of answers that all fail, and tell clients nothing of the device's words."""
        asked = (self.complete(prompt, **fields) for prompt in PROMPTS[:streams])
        answers = await asyncio.gather(*asked)
        for status, answer in answers:
            assert status == 503, answer
            told = answer["error"]["message"]
            assert not any(secret in told for secret in SECRETS), told
        return {answer["error"]["code"] for _, answer in answers}

    async def metrics(self) -> str:
        async with self.session.get(f"{self.served.url}/metrics") as response:
            return await response.text()

    async def require_whole(self, *, loads: int, failures: int) -> None:
        """It is ready, all slots are free, and the metrics say what was."""
        assert await get(self.served, "/ready") == (200, {"status": "ready"})
        assert await get(self.served, "/health") == (200, {"status": "ok"})
        _, status = await get(self.served, "/v1/status")
        assert status["state"] == "loaded"
        await until(lambda: self.served.gateway.engine.status().free_slots == SLOTS)  # type: ignore[union-attr]
        told = await self.metrics()
        assert f'outpace:package_loads_total{{model="tiny"}} {loads}.0' in told
        assert f'outpace:package_failures_total{{model="tiny"}} {failures}.0' in told


@asynccontextmanager
async def living(
    package: Package, provider: Provider | None = None, *, others: Sequence[str] = ()
) -> AsyncIterator[Life]:
    async with (
        aiohttp.ClientSession() as session,
        serving(None, drain_seconds=2.0, stuck_seconds=60.0, stuck_exit_seconds=30.0) as served,
    ):
        fleet = served.gateway.fleet
        fleet.terms = dataclasses.replace(fleet.terms, first_pause=0.01)
        starts = Starts(package, fleet.turns, provider, [])
        for name in ("tiny", *others):
            fleet.add(starts.source(name), starts)
        await fleet.start()
        try:
            yield Life(served, starts, session)
        finally:
            await fleet.close()


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults = Faults()
    faults.install(monkeypatch)
    return faults


@pytest.fixture(scope="module")
def device_package(drafting: Package, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return for_device(drafting, tmp_path_factory.mktemp("device") / "package")


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest, drafting: Package) -> Place:
    """The package where it runs: on the host, or on a device that the processor plays."""
    if request.param == "host":
        return drafting, None
    package: Package = request.getfixturevalue("device_package")
    return package, played()


@pytest.mark.parametrize("after", [0, 6], ids=["prefill", "decode"])
@pytest.mark.parametrize("streams", [1, SLOTS])
async def test_a_run_of_the_target(place: Place, faults: Faults, after: int, streams: int) -> None:
    await _fail_a_run(place, faults, after, streams, OUT_OF_MEMORY)


@pytest.mark.parametrize("failure", FAILURES)
async def test_whatever_a_run_fails_with(drafting: Package, faults: Faults, failure: str) -> None:
    await _fail_a_run((drafting, None), faults, 6, 1, FAILURES[failure])


async def _fail_a_run(
    place: Place, faults: Faults, after: int, streams: int, failure: Exception
) -> None:
    async with living(*place) as life:
        plain = await life.texts(streams)
        faults.arm(is_target, failure, after=after)
        assert await life.refused(streams) == {"device_error"}
        assert faults.struck
        faults.disarm()
        assert await life.texts(streams) == plain
        await life.require_whole(loads=2, failures=1)
        assert 'outpace:requests_refused_total{code="device_error"}' in await life.metrics()


async def test_a_lone_stream_whose_rounds_are_made_on_the_devices_thread(
    drafting: Package, faults: Faults
) -> None:
    async with living(drafting) as life:
        (plain,) = await life.texts()
        engine = life.starts.engines[0]
        alone: list[bool] = []

        def where(name: str) -> bool:
            alone.append(engine.service._solo is not None)
            return is_target(name)

        faults.arm(where, OUT_OF_MEMORY, after=8)
        assert await life.refused() == {"device_error"}
        assert alone[-1], "it failed within rounds that were made there"
        faults.disarm()
        assert await life.texts() == [plain]
        await life.require_whole(loads=2, failures=1)


@pytest.mark.parametrize(("kind", "streams"), [*((kind, 1) for kind in LEARNED), ("eagle3", SLOTS)])
async def test_a_draft_is_lost_to_its_answer_alone(
    place: Place, faults: Faults, kind: str, streams: int
) -> None:
    async with living(*place) as life:
        plain = await life.texts(streams)
        assert await life.texts(streams, speculation=drafts(kind)) == plain
        faults.arm(lambda name: name.startswith(kind), OUT_OF_MEMORY, after=2)
        assert await life.texts(streams, speculation=drafts(kind)) == plain
        assert faults.struck
        faults.disarm()
        _, status = await get(life.served, "/v1/status")
        (drafter,) = [each for each in status["drafters"] if each["name"] == kind]
        assert drafter["failures"] >= 1
        assert "Failed to allocate" in drafter["problem"]
        assert await life.texts(streams, speculation=drafts(kind)) == plain
        await life.require_whole(loads=1, failures=0)


@pytest.mark.parametrize("streams", [1, SLOTS])
async def test_a_run_of_a_tree(place: Place, faults: Faults, streams: int) -> None:
    async with living(*place) as life:
        plain = await life.texts(streams)
        await life.texts(streams, speculation=TREES)
        faults.arm(is_tree, OUT_OF_MEMORY)
        asked = (life.complete(prompt, speculation=TREES) for prompt in PROMPTS[:streams])
        answers = await asyncio.gather(*asked)
        faults.disarm()
        assert faults.struck
        codes = {answer["error"]["code"] for status, answer in answers if status != 200}
        assert codes == {"device_error"}
        assert await life.texts(streams) == plain
        await life.require_whole(loads=2, failures=1)


async def test_drafters_beside_a_tree(drafting: Package, faults: Faults) -> None:
    speculation = drafts("eagle3", branches=2)
    async with living(drafting) as life:
        plain = await life.texts()
        await life.texts(speculation=speculation)
        faults.arm(lambda name: name.startswith("eagle3.tree"), OUT_OF_MEMORY)
        assert await life.texts(speculation=speculation) == plain
        assert faults.struck
        await life.require_whole(loads=1, failures=0)


async def test_loading_the_graphs_for_trees(drafting: Package, faults: Faults) -> None:
    async with living(drafting) as life:
        plain = await life.texts()
        faults.arm(is_tree, OUT_OF_MEMORY, loading=True)
        assert await life.refused(speculation=TREES) == {"graph_invalid"}
        assert await life.texts() == plain
        faults.disarm()
        assert await life.texts(speculation=TREES) == plain
        await life.require_whole(loads=1, failures=0)


async def test_probing_the_graphs_for_trees(drafting: Package, faults: Faults) -> None:
    async with living(drafting) as life:
        plain = await life.texts()
        faults.arm(is_tree, OUT_OF_MEMORY)
        assert await life.refused(speculation=TREES) == {"device_error"}
        faults.disarm()
        assert await life.texts() == plain
        assert await life.texts(speculation=TREES) == plain
        await life.require_whole(loads=2, failures=1)


@pytest.mark.parametrize(
    ("kind", "failure"), [("eagle3", "out of memory"), ("draft-model", "invalid graph")]
)
async def test_loading_a_drafter(
    drafting: Package, faults: Faults, kind: str, failure: str
) -> None:
    async with living(drafting) as life:
        plain = await life.texts()
        faults.arm(lambda name: name.startswith(kind), FAILURES[failure], loading=True)
        assert await life.refused(speculation=drafts(kind)) == {"graph_invalid"}
        assert await life.texts() == plain
        faults.disarm()
        assert await life.texts(speculation=drafts(kind)) == plain
        await life.require_whole(loads=1, failures=0)


async def test_measuring_a_drafter(drafting: Package, faults: Faults) -> None:
    async with living(drafting) as life:
        plain = await life.texts()
        faults.arm(lambda name: name.startswith("eagle3"), OUT_OF_MEMORY)
        assert await life.texts(speculation=drafts("eagle3")) == plain
        assert faults.struck
        await life.require_whole(loads=1, failures=0)


async def test_making_a_drafter_s_state(drafting: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its K/V is allocated when a slot first wants it."""
    async with living(drafting) as life:
        plain = await life.texts()
        await life.starts.engines[0].drafters.load("eagle3")

        def fail(*_: object) -> None:
            raise OUT_OF_MEMORY

        with monkeypatch.context() as patch:
            patch.setattr("models.drafters.recurrent._state_of", fail)
            assert await life.texts(speculation=drafts("eagle3")) == plain
        _, status = await get(life.served, "/v1/status")
        (drafter,) = [each for each in status["drafters"] if each["name"] == "eagle3"]
        assert drafter["failures"] == 1
        assert await life.texts(speculation=drafts("eagle3")) == plain
        await life.require_whole(loads=1, failures=0)


async def test_fetching_whole_rows(
    device_package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are copied from the device when sampling needs them, behind the run."""
    sampled = {"temperature": 1.0, "seed": 3, "top_p": 1.0}
    async with living(device_package, played()) as life:
        plain = await life.texts(**sampled)
        rows, struck = Workspace.rows, list[bool]()

        def fail(*_: object) -> None:
            struck.append(True)
            raise OUT_OF_MEMORY

        with monkeypatch.context() as patch:
            patch.setattr("models.device_binding.DeviceBinding.copy_of", fail)
            assert await life.refused(**sampled) == {"device_error"}
        assert struck
        assert Workspace.rows is rows
        assert await life.texts(**sampled) == plain
        await life.require_whole(loads=2, failures=1)


@pytest.mark.parametrize("after", [0, 40], ids=["first", "later"])
async def test_a_run_while_another_package_is_loaded(
    place: Place, faults: Faults, after: int
) -> None:
    """On the host the probe comes first, later the calibration; on a device shapes are captured."""
    await _fail_while_loading(place, faults, after, OUT_OF_MEMORY)


@pytest.mark.parametrize("failure", FAILURES)
async def test_whatever_loading_fails_with(drafting: Package, faults: Faults, failure: str) -> None:
    await _fail_while_loading((drafting, None), faults, 40, FAILURES[failure])


async def _fail_while_loading(place: Place, faults: Faults, after: int, failure: Exception) -> None:
    async with living(*place, others=("other",)) as life:
        plain = await life.texts()
        faults.arm(is_target, failure, after=after)
        assert await life.refused(model="other") == {"device_error"}
        assert faults.struck
        faults.disarm()
        assert await life.texts(model="tiny") == plain
        assert await life.texts(model="other") == plain
        await life.require_whole(loads=1, failures=0)


async def test_a_graph_of_another_package_that_does_not_load(place: Place, faults: Faults) -> None:
    async with living(*place, others=("other",)) as life:
        plain = await life.texts()
        # On a device a graph is tried in plainer ways, too.
        faults.arm(lambda name: name == "target.r2.onnx", OUT_OF_MEMORY, loading=True)
        assert await life.refused(model="other") == {"package_failed"}
        assert faults.struck
        faults.disarm()
        assert await life.texts(model="tiny") == plain
        assert await life.texts(model="other") == plain
        await life.require_whole(loads=1, failures=0)


@pytest.mark.parametrize("name", ["other", "tiny"], ids=["another", "itself anew"])
@pytest.mark.parametrize("loading", [True, False], ids=["load", "run"])
async def test_a_switch_that_fails_changes_nothing(
    drafting: Package, faults: Faults, name: str, loading: bool
) -> None:
    async with living(drafting, others=("other",)) as life:
        plain = await life.texts()
        faults.arm(is_target, OUT_OF_MEMORY, loading=loading)
        status, answer = await life.post("packages/switch", {"model": name})
        assert status == 503, answer
        assert not any(secret in answer["error"]["message"] for secret in SECRETS)
        faults.disarm()
        assert life.served.gateway.fleet.default is life.served.gateway.fleet.member("tiny")
        assert await life.texts() == plain
        assert (await life.post("packages/switch", {"model": name}))[0] == 200
        assert await life.texts() == plain


async def test_a_package_whose_loading_fails_again_is_tried_again(
    drafting: Package, faults: Faults
) -> None:
    async with living(drafting) as life:
        plain = await life.texts()
        faults.arm(is_target, OUT_OF_MEMORY)
        assert await life.refused() == {"device_error"}
        await until(lambda: life.served.gateway.fleet.member("tiny").failures.total == 2)
        assert (await get(life.served, "/ready"))[0] == 503
        assert (await get(life.served, "/health"))[0] == 200
        faults.disarm()
        assert await life.texts() == plain
        await life.require_whole(loads=2, failures=2)


@pytest.mark.parametrize(
    ("graph", "after", "speculation"),
    [
        ("target.r", 0, {"off": True}),
        ("target.r", 8, {"off": True}),
        ("eagle3", 1, drafts("eagle3")),
        ("self-speculative", 1, drafts("self-speculative")),
        ("target.tree", 0, TREES),
    ],
    ids=["prefill", "a lone round", "draft", "self-speculation", "tree"],
)
async def test_a_run_that_hangs(
    drafting: Package,
    faults: Faults,
    graph: str,
    after: int,
    speculation: dict[str, Any],
) -> None:
    left: list[str] = []
    async with living(drafting) as life:
        plain = await life.texts()
        assert await life.texts(speculation=speculation) == plain
        fleet, ahead, fed = life.served.gateway.fleet, [0.0], list[float]()
        now = lambda: time.monotonic() + ahead[0]  # noqa: E731
        watch = Watch(fleet, left.append, now)
        watchdog = Watchdog(100.0, lambda: fed.append(0.0), fleet.running_for, now)
        faults.arm(lambda name: name.startswith(graph), None, after=after)
        asked = asyncio.create_task(life.complete(PROMPTS[0], speculation=speculation))
        await until(faults.hanging.is_set)
        assert watchdog.tick(), "it has hung for no time yet"
        ahead[0] = 61.0
        assert not watchdog.tick(), "the service manager is not to be told that all is well"
        assert len(fed) == 1
        watch.look()
        status, answer = await asked
        assert (status, answer["error"]["code"]) == (503, "device_error")
        assert left == []
        # It was told to leave the run, and did: so it is loaded again.
        faults.disarm()
        await until(lambda: not fleet.stuck)
        assert await life.texts() == plain
        assert await life.texts(speculation=speculation) == plain
        await life.require_whole(loads=2, failures=1)
        assert watchdog.tick()


async def test_beside_a_hang_another_package_goes_on(drafting: Package, faults: Faults) -> None:
    async with living(drafting, others=("other",)) as life:
        plain = await life.texts(model="other")
        fleet, ahead = life.served.gateway.fleet, [0.0]
        watch = Watch(fleet, lambda reason: None, lambda: time.monotonic() + ahead[0])
        faults.arm(is_target, None)
        asked = asyncio.create_task(life.complete(PROMPTS[0], model="tiny"))
        await until(faults.hanging.is_set)
        ahead[0] = 61.0
        watch.look()
        assert (await asked)[0] == 503
        faults.disarm()
        assert await life.texts(model="other") == plain
        assert len(life.starts.engines) <= 3


def test_the_package_is_the_one_that_others_test(drafting: Package) -> None:
    assert set(LEARNED) == {spec.kind for spec in drafting.manifest.drafters}
    assert load_package(Path(drafting.path)).manifest.target.tree_graphs
