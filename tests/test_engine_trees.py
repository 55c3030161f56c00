"""Drafts that branch: the accepted path is committed, its K/V moved together, and nothing else."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from gateway.engine.policies.offers import make_row
from gateway.engine.requests import Finished, GenerationRequest, Speculation
from models.draft import Draft, Drafter
from models.errors import UserError
from models.sampling.parameters import Sampling
from models.slots import Slot
from tests.engine_support import (
    OFF,
    Reference,
    TestEngine,
    ask,
    is_idle,
    make_prompt,
    read,
    running,
    until,
)
from tests.patience import HOLD

PROMPT = make_prompt(30)
OTHER = make_prompt(25, seed=7)
TREE = Speculation(policy="fixed", length=12, branches=4)
HOT = Sampling(temperature=1.0, seed=3, presence_penalty=0.5)
GREEDY = Sampling()


class Bushy:
    """Proposes the right continuation among wrong siblings: at every depth of a draft `wrong`
    tokens come before the right one, each of them followed by one of its own."""

    name = "bushy"

    def __init__(self, continuation: Sequence[int], wrong: int, most: int = 12) -> None:
        self._script = list(continuation)
        self._wrong = wrong
        self._most = most
        self._at = 0
        self.sizes: list[int] = []

    def reset(self, tokens: Sequence[int]) -> None:
        self._at = 0

    def commit(self, tokens: Sequence[int]) -> None:
        self._at += len(tokens)

    def propose(self, budget: int) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        last = -1
        for right in self._script[self._at :]:
            for offset in range(1, self._wrong + 1):
                tokens += ((right + offset) % 250, 9)
                parents += (last, len(tokens) - 2)
            tokens.append(right)
            parents.append(last)
            last = len(tokens) - 1
            if len(tokens) >= min(budget, self._most):
                break
        # Beginnings of a tree are trees.
        size = min(budget, self._most, len(tokens))
        self.sizes.append(size)
        return Draft(tuple(tokens[:size]), tuple(parents[:size]), source=self.name)


def bushy(answer: Sequence[int], wrong: int = 1, most: int = 12) -> Callable[[], Drafter]:
    return lambda: Bushy(answer, wrong, most)


def assert_close_kv(slot: Slot, reference: Reference) -> None:
    """To rounding: sums of a tree's rows are ordered otherwise."""
    tokens = slot.tokens.tolist()
    for found, right in zip(kv_of(slot), reference.kv(tokens), strict=True):
        np.testing.assert_allclose(found, np.frombuffer(right, np.float32), rtol=0, atol=1e-4)


def kv_of(slot: Slot) -> list[np.ndarray]:
    length = slot.length
    return [buffer.numpy()[:, :, :length].ravel() for pair in slot.buffers for buffer in pair]


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "hot"])
@pytest.mark.parametrize(("wrong", "depth"), [(0, 12), (1, 4), (2, 2), (3, 1)])
async def test_the_right_path_among_wrong_ones(
    tiny_package: Path, reference: Reference, sampling: Sampling, wrong: int, depth: int
) -> None:
    """Greedy and sampled alike, the answer and the K/V behind it are those of plain decoding."""
    answer = reference.answer(PROMPT, 60, sampling)
    async with running(tiny_package, slots=1) as engine:
        engine.drafter_of = bushy(answer, wrong)
        said = await ask(engine, PROMPT, max_tokens=40, sampling=sampling, speculation=TREE)
        (slot,) = engine.pool_slots
        assert said.ids == answer[:40]
        assert_close_kv(slot, reference)
        again = await ask(engine, (*PROMPT, *said.ids), max_tokens=10, speculation=OFF)
    timings = said.finished.timings
    assert timings.tau is not None
    # Less than all of it: the last drafts are cut to what is left of the answer.
    assert 1 + depth / 2 < timings.tau <= 1 + depth
    assert timings.exact is (wrong == 0), "with nothing wrong it is a chain"
    assert (timings.lossless, timings.rule) == (True, "coupled")
    assert {"bushy", "target"} == set(said.sources)
    # A tree's K/V is exact up to rounding only: the next turn, which promises bits, begins where
    # the first tree did.
    assert again.finished.usage.cached_tokens == len(PROMPT) + (39 if wrong == 0 else 0)
    assert again.ids == reference.answer((*PROMPT, *said.ids), 10)


async def test_nothing_right_in_the_tree(tiny_package: Path, reference: Reference) -> None:
    answer = reference.answer(PROMPT, 20)
    async with running(tiny_package, slots=1) as engine:
        engine.drafter_of = bushy([(token + 5) % 250 for token in answer])
        said = await ask(engine, PROMPT, max_tokens=20, speculation=TREE)
        assert_close_kv(engine.pool_slots[0], reference)
    assert said.ids == answer
    assert said.finished.timings.draft_n_accepted == 0


async def test_trees_and_chains_in_one_run(tiny_package: Path, reference: Reference) -> None:
    """Each request drafts in its own way; only those with trees in them are not exact."""
    prompts = [make_prompt(length, seed=length) for length in (30, 12, 50, 41)]
    expected = [reference.answer(prompt, 30) for prompt in prompts]
    drafters = iter(
        [Bushy(expected[0], 1), Bushy(expected[1], 0), Bushy(expected[2], 2), Bushy(expected[3], 0)]
    )
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: next(drafters)
        answers = await asyncio.gather(
            *(ask(engine, prompt, max_tokens=30, speculation=TREE) for prompt in prompts)
        )
        assert is_idle(engine)
        packed = [run for run in engine.target.runs if any(row.parents for row in run)]
        assert max(map(len, packed)) > 1
    assert [said.ids for said in answers] == expected
    exact = {said.finished.timings.exact for said in answers}
    assert exact == {True, False}


async def test_penalties_and_log_probabilities_follow_the_path(
    tiny_package: Path, reference: Reference
) -> None:
    sampling = Sampling(
        temperature=0.9, seed=8, frequency_penalty=1.5, repetition_penalty=1.3, top_p=0.95
    )
    answer = reference.answer(PROMPT, 50, sampling)
    async with running(tiny_package) as engine:
        engine.drafter_of = bushy(answer)
        said = await ask(
            engine, PROMPT, max_tokens=40, sampling=sampling, speculation=TREE, top_logprobs=2
        )
    rows = reference.log_probabilities((*PROMPT, *said.ids))[len(PROMPT) - 1 : -1]
    assert said.ids == answer[:40]
    assert [entry.id for entry in said.logprobs] == said.ids
    for entry, row in zip(said.logprobs, rows, strict=True):
        assert entry.logprob == pytest.approx(row[entry.id], abs=1e-3)
        assert entry.top[0][1] == pytest.approx(row.max(), abs=1e-3)


async def test_a_stop_inside_the_path(tiny_package: Path, reference: Reference) -> None:
    answer = reference.answer(PROMPT, 60)
    at = next(index for index in range(3, 40) if answer[index] not in answer[:index])
    async with running(tiny_package) as engine:
        engine.drafter_of = bushy(answer)
        said = await ask(engine, PROMPT, max_tokens=60, stop_ids=(answer[at],), speculation=TREE)
    assert (said.ids, said.finished.reason, said.finished.stop) == (
        answer[:at],
        "stop",
        answer[at],
    )


@pytest.mark.parametrize("room", [1, 2, 3, 5, 12, 13])
async def test_a_tree_keeps_to_what_is_left_of_the_slot(
    tiny_package: Path, reference: Reference, room: int
) -> None:
    context = len(PROMPT) + room
    async with running(tiny_package, slots=1, context=context) as engine:
        engine.drafter_of = bushy(reference.answer(PROMPT, 30))
        await engine.load_trees()
        engine.target.runs.clear()
        said = await ask(engine, PROMPT, max_tokens=None, speculation=TREE)
        ends = [row.past + len(row.tokens) for run in engine.target.runs for row in run]
    assert (said.ids, said.finished.reason) == (reference.answer(PROMPT, room), "length")
    assert max(ends) <= context


async def test_the_n_gram_drafters_own_trees(tiny_package: Path, reference: Reference) -> None:
    prompt = (5, 6, 7, 8, 5, 6, 7, 9, 5, 6, 7, 10, 5, 6, 7) * 3
    answer = reference.answer(prompt, 60)
    trees = 0
    async with running(tiny_package) as engine:
        await engine.load_trees()
        engine.target.runs.clear()
        for speculation in (TREE, Speculation(branches=3)):
            said = await ask(engine, prompt, max_tokens=60, speculation=speculation)
            assert said.ids == answer
            assert said.finished.timings.draft_n > 0
        trees = sum(row.parents is not None for run in engine.target.runs for row in run)
    assert trees > 0


async def test_graphs_for_trees_are_loaded_by_the_first_who_needs_them(
    tiny_package: Path, reference: Reference
) -> None:
    answer = reference.answer(PROMPT, 24)
    async with running(tiny_package) as engine:
        await ask(engine, PROMPT, max_tokens=3)
        await ask(engine, PROMPT, max_tokens=3, speculation=Speculation("off", branches=2))
        assert not engine.target.trees_loaded
        engine.drafter_of = bushy(answer)
        both = await asyncio.gather(*(ask(engine, PROMPT, speculation=TREE) for _ in range(2)))
        assert engine.target.trees_loaded
    assert [said.ids for said in both] == [answer, answer]


async def test_probing_trees_leaves_rows_that_are_yet_to_be_read(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run overwrites the last one's: `call` does not wait until those were read."""
    async with running(tiny_package) as engine:
        monkeypatch.setattr(engine.service, "call", failing("it runs the target"))
        await engine.load_trees()
        assert engine.target.trees_loaded


async def test_graphs_that_do_not_fit_fail_the_request_that_needs_them(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tiny_package) as engine:
        monkeypatch.setattr(engine.target, "load_trees", failing("no room for trees"))
        with pytest.raises(RuntimeError, match="no room for trees"):
            await ask(engine, PROMPT, speculation=TREE)
        assert is_idle(engine)
        assert engine._queue._entering == 0
        assert len((await ask(engine, PROMPT)).ids) == 24


async def test_graphs_whose_load_hangs_are_given_up(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    async with running(tiny_package) as engine:
        engine._loads.limit(0.05)
        monkeypatch.setattr(engine.target, "load_trees", lambda: gate.wait(HOLD))
        for told in ("loading the graphs for trees does not get on", "for trees still hangs"):
            with pytest.raises(UserError, match=told):
                await ask(engine, PROMPT, speculation=TREE)
            assert is_idle(engine)
        assert len((await ask(engine, PROMPT)).ids) == 24
        gate.set()


class TestMovesThatFail:
    """What a move of K/V should have kept is forgotten, and never taken for right."""

    async def test_the_request_fails_and_the_slot_goes_on(
        self, tiny_package: Path, reference: Reference
    ) -> None:
        answer = reference.answer(PROMPT, 40)
        async with running(tiny_package, slots=1) as engine:
            engine.drafter_of = bushy(answer)
            break_moves(engine, after=2)
            with pytest.raises(RuntimeError, match="scatter failed"):
                await ask(engine, PROMPT, max_tokens=40, speculation=TREE)
            assert is_idle(engine)
            (slot,) = engine.pool_slots
            assert slot.length > len(PROMPT)
            assert_close_kv(slot, reference)
            assert (await ask(engine, PROMPT, speculation=OFF)).ids == answer[:24]

    async def test_the_last_move_of_an_answer(
        self, tiny_package: Path, reference: Reference
    ) -> None:
        """The answer is right; only what the next turn finds is shorter."""
        answer = reference.answer(PROMPT, 40)
        async with running(tiny_package, slots=1) as engine:
            engine.drafter_of = bushy(answer)
            break_moves(engine, after=0)
            said = await ask(engine, PROMPT, stop_ids=(answer[3],), speculation=TREE)
            assert said.ids == answer[:3]
            assert said.finished.timings.rounds == 1, "its move is the last"
            await until(lambda: not engine._queue._moves)
            (slot,) = engine.pool_slots
            assert slot.tokens.tolist() == [*PROMPT, answer[0]]
            assert_close_kv(slot, reference)

    async def test_who_takes_the_slot_over_fails_too(
        self, tiny_package: Path, reference: Reference
    ) -> None:
        """The move is still queued when the next request finds its prefix in the slot."""
        answer = reference.answer(PROMPT, 40)
        async with running(tiny_package, slots=1) as engine:
            engine.drafter_of = bushy(answer)
            break_moves(engine, after=0)
            request = GenerationRequest(PROMPT, stop_ids=(answer[3],), speculation=TREE)
            next_prompt = (*PROMPT, *answer[:3], 5)
            await engine.load_trees()
            engine.target.runs.clear()
            engine.target.gate.clear()
            async with engine.open(request) as generation:
                await until(lambda: len(engine.target.runs) == 1)
                following = asyncio.create_task(ask(engine, next_prompt, speculation=OFF))
                await until(lambda: engine.status().waiting == 1)
                engine.target.gate.set()
                assert (await read(generation)).ids == answer[:3]
            with pytest.raises(RuntimeError, match="scatter failed"):
                await following
            assert is_idle(engine)
            again = await ask(engine, next_prompt, speculation=OFF)
        assert again.ids == reference.answer(next_prompt, 24)


def failing(message: str) -> Callable[..., None]:
    def fail(*arguments: object) -> None:
        raise RuntimeError(message)

    return fail


def break_moves(engine: TestEngine, after: int) -> None:
    """Have every move behind the first `after` fail."""
    move, moves = engine._queue._compact, 0

    def move_or_fail(slot: Slot, start: int, path: Sequence[int]) -> None:
        nonlocal moves
        moves += 1
        if moves > after:
            raise RuntimeError("scatter failed")
        move(slot, start, path)

    engine._queue._compact = move_or_fail


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_seeded_mixture_leaves_every_slot_right(
    tiny_package: Path, reference: Reference, seed: int
) -> None:
    """Trees, chains and plain decoding, left and cancelled half-way, copied and continued."""
    draw = random.Random(seed)
    bases = [make_prompt(length, seed=length) for length in (30, 12, 44)]
    known = {base: reference.answer(base, 40) for base in bases}

    async with running(tiny_package, slots=3, prefill_chunk=20, busy_chunk=5) as engine:
        turns = asyncio.Semaphore(5)

        async def one(base: tuple[int, ...], said: int, events: int, cancels: bool) -> None:
            prompt = (*base, *known[base][:said])
            request = GenerationRequest(
                prompt, max_tokens=40 - said, ignore_eos=True, speculation=TREE
            )
            async with turns:
                engine.drafter_of = bushy(known[base][said:], wrong=draw.randrange(3))
                async with engine.open(request) as generation:
                    ids: list[int] = []
                    for _ in range(events):
                        event = await anext(generation)
                        if isinstance(event, Finished):
                            break
                        ids += getattr(event, "ids", ())
                    else:
                        if cancels:
                            generation.cancel()
                            ids += (await read(generation)).ids
            assert ids == known[base][said : said + len(ids)]

        async with asyncio.timeout(60):
            await asyncio.gather(
                *(
                    one(
                        draw.choice(bases),
                        draw.randrange(20),
                        draw.choice([0, 1, 2, 100]),
                        draw.random() < 0.3,
                    )
                    for _ in range(40)
                )
            )
        await until(lambda: not engine._queue._moves)
        assert is_idle(engine)
        for slot in engine.pool_slots:
            assert slot.length > 0
            assert_close_kv(slot, reference)


def test_the_last_committed_token_is_the_root_of_the_row() -> None:
    slot = Slot(0, 100, ())
    slot.commit((5,))
    row = make_row(slot, 7, Draft((1, 2, 3), (-1, -1, 1)))
    assert (row.tokens, row.parents, row.logits) == ((7, 1, 2, 3), (-1, 0, 0, 2), 4)
    assert make_row(slot, 7, Draft((1, 2))).parents is None


async def test_trees_are_probed_once_when_they_are_loaded(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        probed = []
        for _ in range(2):
            await ask(engine, PROMPT, max_tokens=4, speculation=TREE)
            probed.append(engine.probed.tokens)
        assert engine.exact
        assert probed[0] == probed[1] > 0
