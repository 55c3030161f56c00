"""Learned drafters in the engine: on the worker, failing, cancelled, paying or not."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.engine.drafters import SUSPICIOUS
from gateway.engine.requests import Delta, DrafterTimings, Speculation
from gateway.engine.service import ModelService
from models.drafters.learned import LearnedModels
from models.errors import UserError
from models.package import Package
from models.sampling.parameters import Sampling
from tests.drafters_support import CPU
from tests.engine_support import (
    CONTEXT,
    Reference,
    ask,
    is_idle,
    make_prompt,
    read,
    running,
    until,
)
from tests.learned_support import COUNT, LONGEST, PLAIN_PROMPT, FakeLearned, Made, eagle, opened
from tests.patience import PATIENCE


@pytest.fixture(scope="module")
def answer(reference: Reference) -> list[int]:
    return reference.answer(PLAIN_PROMPT, COUNT + 8)


async def test_it_proposes_on_the_worker_and_the_answer_stays_the_targets(
    tiny_package: Path, answer: list[int]
) -> None:
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned) as engine:
        said = await ask(engine, PLAIN_PROMPT, max_tokens=COUNT, speculation=eagle(3))
        again = await ask(engine, PLAIN_PROMPT, max_tokens=COUNT, speculation=eagle(3))
    assert said.ids == again.ids == answer[:COUNT]
    assert threading.current_thread().name not in learned.threads
    assert learned.loads == ["eagle3"], "once"
    timings = said.finished.timings
    assert timings.drafter == "eagle3"
    assert timings.rounds == 6, "the first token, then four a round, the last round three"
    assert timings.by_drafter == {"eagle3": DrafterTimings(17, 17, 6)}
    assert set(said.sources) == {"target", "eagle3"}
    assert timings.draft_ms > 0


@pytest.mark.parametrize("wrong", [0, 1])
async def test_many_at_once_are_answered_as_alone(
    tiny_package: Path, reference: Reference, answer: list[int], wrong: int
) -> None:
    """Fewer runs than rounds: those that draft together are verified together."""
    learned = FakeLearned(script=answer, wrong=wrong)
    async with running(tiny_package, learned=learned) as engine:
        await ask(engine, PLAIN_PROMPT, max_tokens=1, speculation=eagle(3))
        engine.target.runs.clear()
        engine.target.seconds = 0.01  # in less than that one may be done before the others come
        calls = [
            ask(engine, PLAIN_PROMPT, max_tokens=COUNT, speculation=eagle(3)) for _ in range(4)
        ]
        answers = await asyncio.gather(*calls)
        assert is_idle(engine)
    assert [said.ids for said in answers] == [answer[:COUNT]] * 4
    rounds = sum(said.finished.timings.rounds for said in answers)
    assert len(engine.target.runs) < rounds / 2


@pytest.mark.parametrize("name", ["auto", "cascade", "ngram+eagle3", "eagle3+ngram"])
async def test_a_cascade_drafts_for_free_and_by_the_head(
    tiny_package: Path, reference: Reference, name: str
) -> None:
    prompt = tuple(range(3, 30)) * 2
    whole = reference.answer(prompt, 40)
    learned = FakeLearned(("medusa", "eagle3"), script=whole)
    speculation = Speculation(name, "fixed", 4)
    async with running(tiny_package, learned=learned) as engine:
        said = await ask(engine, prompt, max_tokens=32, speculation=speculation)
    timings = said.finished.timings
    assert said.ids == whole[:32]
    assert timings.drafter == "ngram+eagle3"
    assert learned.loads == ["eagle3"], "the preferred one alone"
    assert timings.by_drafter.keys() <= {"ngram", "eagle3"}
    assert timings.by_drafter["eagle3"].draft_n_accepted > 0
    assert sum(part.draft_n for part in timings.by_drafter.values()) == timings.draft_n
    accepted = sum(part.draft_n_accepted for part in timings.by_drafter.values())
    assert accepted == timings.draft_n_accepted
    for source, part in timings.by_drafter.items():
        assert said.sources.count(source) == part.draft_n_accepted


@pytest.mark.parametrize(
    ("name", "kinds", "told"),
    [
        ("mtp", ("eagle3",), "auto, cascade, ngram, prediction, eagle3, off"),
        ("eagle3", (), "auto, ngram, prediction, off"),
        ("cascade", (), "auto, ngram, prediction, off"),
        ("ngram+mtp", ("eagle3",), "auto, cascade, ngram, prediction, eagle3, off"),
    ],
)
async def test_a_drafter_that_the_package_has_not_is_refused(
    tiny_package: Path, name: str, kinds: tuple[str, ...], told: str
) -> None:
    async with running(tiny_package, learned=FakeLearned(kinds) if kinds else None) as engine:
        with pytest.raises(UserError) as refused:
            engine.open(opened(speculation=Speculation(name)))
    assert refused.value.code == "unknown_drafter"
    assert told in refused.value.message


async def test_off_runs_nothing(tiny_package: Path, answer: list[int]) -> None:
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned) as engine:
        for speculation in (Speculation("off"), Speculation("eagle3", "off")):
            said = await ask(engine, PLAIN_PROMPT, max_tokens=COUNT, speculation=speculation)
            assert said.ids == answer[:COUNT]
            assert said.finished.timings.drafter == "off"
    assert (learned.loads, learned.proposed) == ([], [])


RULES = [
    ({"temperature": 0.8, "seed": 1}, {"rule": "coupled"}, Made("eagle3", True, True, 1)),
    ({"temperature": 0.8, "seed": 1}, {"rule": "classic"}, Made("eagle3", True, False, 1)),
    ({"temperature": 0.8, "seed": 1}, {"rule": "adasd"}, Made("eagle3", True, False, 1)),
    ({"temperature": 0.8, "seed": 1}, {"rule": "typical"}, Made("eagle3", False, False, 1)),
    ({"temperature": 0.8, "seed": 1}, {"branches": 4}, Made("eagle3", False, True, 4)),
]


@pytest.mark.parametrize(("sampling", "fields", "made"), RULES)
async def test_it_is_made_for_how_its_drafts_are_verified(
    tiny_package: Path, sampling: dict[str, float], fields: dict[str, object], made: Made
) -> None:
    learned = FakeLearned()
    async with running(tiny_package, learned=learned) as engine:
        await ask(
            engine,
            PLAIN_PROMPT,
            max_tokens=3,
            sampling=Sampling(**sampling),  # type: ignore[arg-type]
            speculation=eagle(3, **fields),
        )
    assert learned.made[-1] == made


async def test_a_drafter_that_fails_is_gone_without(
    tiny_package: Path, answer: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Logged once, seen in the status; nobody's answer fails."""
    learned = FakeLearned(script=answer)

    def fail() -> None:
        if len(learned.proposed) % 3 == 0:
            raise RuntimeError("the kernel failed")

    learned.before = fail
    async with running(tiny_package, learned=learned) as engine:
        for speculation in (eagle(3), eagle(3), Speculation("cascade", "fixed", 3)):
            said = await ask(engine, PLAIN_PROMPT, max_tokens=COUNT, speculation=speculation)
            assert said.ids == answer[:COUNT]
        (_, status) = engine.status().drafters
        assert is_idle(engine)
    assert (status.failures, status.problem) == (3, "the kernel failed")
    assert len(learned.proposed) == 9, "three rounds of every answer"
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1


@pytest.mark.parametrize("by", ["leaving", "cancel"])
async def test_a_slot_is_nobody_elses_before_its_draft_has_ended(
    tiny_package: Path, answer: list[int], by: str
) -> None:
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned, slots=1) as engine:
        await ask(engine, PLAIN_PROMPT, max_tokens=1, speculation=eagle(3))
        learned.gate.clear()
        async with engine.open(opened(speculation=eagle(3))) as generation:
            await until(lambda: len(learned.proposed) == 1)
            if by == "cancel":
                generation.cancel()
                said = await asyncio.wait_for(read(generation), PATIENCE)
                assert said.finished.reason == "cancelled"
        assert engine.status().free_slots == 0, "the draft still runs"
        waiting = asyncio.ensure_future(
            ask(engine, (1, 2, 3), max_tokens=4, speculation=Speculation("off"))
        )
        await asyncio.sleep(0.02)
        length = engine.pool_slots[0].length
        assert length >= len(PLAIN_PROMPT), "and its slot is as it was"
        learned.gate.set()
        assert len((await waiting).ids) == 4
        assert is_idle(engine)


async def test_a_draft_that_waits_is_cancelled_at_once(
    tiny_package: Path, answer: list[int]
) -> None:
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned, slots=2) as engine:
        await ask(engine, PLAIN_PROMPT, max_tokens=1, speculation=eagle(3))
        learned.gate.clear()
        async with (
            engine.open(opened(speculation=eagle(3))) as first,
            engine.open(opened(speculation=eagle(3))) as second,
        ):
            reading = asyncio.ensure_future(read(first))
            await until(lambda: len(learned.proposed) == 1)
            # The second request's prompt or draft is behind the draft that runs.
            await asyncio.sleep(0.02)
            second.cancel()
            said = await asyncio.wait_for(read(second), PATIENCE)
            assert said.finished.reason == "cancelled"
            learned.gate.set()
            assert (await reading).ids == answer[:COUNT]
        assert is_idle(engine)


async def test_closing_ends_whoever_drafts(tiny_package: Path, answer: list[int]) -> None:
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned) as engine:
        await ask(engine, PLAIN_PROMPT, max_tokens=1, speculation=eagle(3))
        learned.gate.clear()
        async with engine.open(opened(speculation=eagle(3))) as generation:
            reading = asyncio.ensure_future(read(generation))
            await until(lambda: len(learned.proposed) == 1)
            closing = asyncio.ensure_future(engine.close())
            await asyncio.sleep(0.01)
            learned.gate.set()
            await closing
            with pytest.raises(UserError) as error:
                await asyncio.wait_for(reading, PATIENCE)
    assert error.value.code == "draining"
    assert engine.status().drafters[1].failures == 0


async def test_the_status_lists_all_drafters(tiny_package: Path, answer: list[int]) -> None:
    learned = FakeLearned(("eagle3", "mtp"), script=answer)
    async with running(tiny_package, learned=learned) as engine:
        await ask(engine, PLAIN_PROMPT, max_tokens=COUNT, speculation=eagle(3))
        status = engine.status()
    ngram, eagle3, mtp = status.drafters
    assert status.drafter == "ngram+eagle3"
    assert (ngram.name, ngram.loaded) == ("ngram", True)
    assert (eagle3.name, eagle3.loaded, mtp.name, mtp.loaded) == ("eagle3", True, "mtp", False)
    assert (eagle3.checkpoint, eagle3.reads, eagle3.longest) == ("test", "taps", LONGEST)
    assert eagle3.survival[0] > mtp.survival[0], "its drafts were right"
    assert sorted(eagle3.run_ms) == [1, 2, 3, 4]
    assert mtp.run_ms == {}
    assert (eagle3.draft_n, eagle3.draft_n_accepted, mtp.draft_n) == (17, 17, 0)
    times = [eagle3.run_ms[length] for length in (1, 2, 3, 4)]
    assert times == sorted(times), "noise never makes a longer draft cheaper"


async def test_a_drafter_that_is_always_wrong_is_hardly_run(
    tiny_package: Path, reference: Reference
) -> None:
    whole = reference.answer(PLAIN_PROMPT, 130)
    learned = FakeLearned(script=whole, wrong=1)
    async with running(tiny_package, learned=learned) as engine:
        said = await ask(engine, PLAIN_PROMPT, max_tokens=130, speculation=eagle())
        warm = len(learned.proposed)
        await ask(engine, PLAIN_PROMPT, max_tokens=130, speculation=eagle())
    assert said.ids == whole
    assert said.finished.timings.rounds == 129
    assert len(learned.proposed) - warm <= warm


async def test_imposed_acceptance_teaches_nothing(tiny_package: Path, answer: list[int]) -> None:
    """The rule `synthetic` accepts what it is told to."""
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned) as engine:
        imposed = eagle(3, rule="synthetic", acceptance=0.0)
        before = tuple(engine.drafters.survival("eagle3").shares(4))
        said = await ask(engine, PLAIN_PROMPT, max_tokens=COUNT, speculation=imposed)
        assert said.finished.timings.draft_n_accepted == 0
        (_, status) = engine.status().drafters
    assert status.survival == before
    assert (status.draft_n, status.draft_n_accepted) == (0, 0)


async def test_a_drafter_that_is_always_right_raises_an_alarm(
    tiny_package: Path, reference: Reference, caplog: pytest.LogCaptureFixture
) -> None:
    """onnxruntime-genai#2460: a hidden tap off by one layer, and acceptance of exactly 1."""
    whole = reference.answer(PLAIN_PROMPT, 130)
    right, nearly = FakeLearned(script=whole), FakeLearned(script=[*whole[:62], 7, *whole[63:]])
    problems = []
    for learned in (right, nearly):
        async with running(tiny_package, learned=learned) as engine:
            while engine.status().drafters[1].draft_n < SUSPICIOUS:
                await ask(engine, PLAIN_PROMPT, max_tokens=130, speculation=eagle(4))
            problems.append(engine.status().drafters[1].problem)
    assert problems[0] is not None
    assert problems[0].endswith("tokens were accepted: is its export right?")
    assert problems[1] is None
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 1


@pytest.mark.parametrize("reach", [0, 1, 60, 70])
async def test_a_drafter_of_a_shorter_context_stops_and_decoding_goes_on(
    tiny_package: Path, answer: list[int], reach: int
) -> None:
    """vllm#57941, #5342: the drafter's context is shorter than the target's, and it crashes."""
    learned = FakeLearned(script=answer[: max(0, reach - len(PLAIN_PROMPT))])
    async with running(tiny_package, learned=learned) as engine:
        said = await ask(engine, PLAIN_PROMPT, max_tokens=COUNT, speculation=eagle(3))
        (_, status) = engine.status().drafters
    assert said.ids == answer[:COUNT]
    assert status.failures == 0
    drafted = said.finished.timings.draft_n
    assert drafted <= max(0, reach - len(PLAIN_PROMPT))
    assert (drafted > 0) == (reach > len(PLAIN_PROMPT) + 1)


async def test_no_draft_goes_past_the_end_of_the_context(
    tiny_package: Path, reference: Reference
) -> None:
    """exllamav2#274; mlx-lm#1423: the cache is full, the answer whole and its end `length`."""
    room = CONTEXT - len(PLAIN_PROMPT)
    whole = reference.answer(PLAIN_PROMPT, room)
    learned = FakeLearned(script=[*whole, 1, 2, 3, 4, 5])
    async with running(tiny_package, learned=learned) as engine:
        said = await ask(engine, PLAIN_PROMPT, max_tokens=None, speculation=eagle(4))
        assert engine.pool_slots[0].room >= 0
    assert said.ids == whole
    assert said.finished.reason == "length"
    assert learned.proposed[-1] <= 3, "what was left"


async def test_answers_that_end_within_a_draft_stop_there(
    tiny_package: Path, answer: list[int]
) -> None:
    """transformers#47912, koboldcpp#1276: accepted past the stop, and sent."""
    learned = FakeLearned(script=answer)
    stop = next(index for index in range(6, 20) if answer[index] not in answer[:index])
    async with running(tiny_package, learned=learned) as engine:
        said = await ask(
            engine,
            PLAIN_PROMPT,
            max_tokens=COUNT,
            stop_ids=(answer[stop],),
            speculation=eagle(4),
        )
    assert said.ids == answer[:stop]
    assert said.finished.stop == answer[stop]


async def test_delta_sources_name_the_drafter_of_every_token(
    tiny_package: Path, answer: list[int]
) -> None:
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned) as engine:
        said = await ask(engine, PLAIN_PROMPT, max_tokens=9, speculation=eagle(3))
    assert all(isinstance(delta, Delta) for delta in said.deltas)
    assert said.sources == ["target", *(["eagle3"] * 3 + ["target"]) * 2]


@pytest.mark.parametrize("branches", [1, 3])
async def test_drafts_beside_target_runs_change_nothing(
    drafting: Package,
    reference: Reference,
    monkeypatch: pytest.MonkeyPatch,
    branches: int,
) -> None:
    """As on a device of its own: drafts have a thread, and what trees moved is in place first."""
    monkeypatch.setattr(
        "gateway.engine.engine.ModelService",
        lambda run, rows, **options: ModelService(run, rows, **{**options, "overlap": True}),
    )
    names = ("eagle3", "ngram+mtp", "draft-model", "ngram+medusa", "eagle3")
    prompts = [make_prompt(20 + 7 * seed, seed=seed) for seed in range(len(names))]
    learned = LearnedModels(drafting, CPU)
    async with running(drafting.path, learned=learned, slots=3) as engine:
        assert engine.service.overlaps
        calls = [
            ask(
                engine,
                prompt,
                max_tokens=40,
                speculation=Speculation(name, "fixed", 6, branches=branches),
            )
            for name, prompt in zip(names, prompts, strict=True)
        ]
        answers = await asyncio.gather(*calls)
        assert is_idle(engine)
        assert [drafter.failures for drafter in engine.status().drafters] == [0] * 6
    for prompt, said in zip(prompts, answers, strict=True):
        assert said.ids == reference.answer(prompt, 40)
        assert said.finished.timings.draft_n > 0
