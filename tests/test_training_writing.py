from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from export.training import writing
from export.training.writing import Job, Writer, Written, choose, load_packed_target
from models.package import Package
from models.sampling.parameters import Sampling
from models.target import Target
from tests.engine_support import Reference

CONTEXT = 120
NO_ENDINGS: tuple[int, ...] = ()


@pytest.fixture(scope="module")
def target(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Target:
    scratch = tmp_path_factory.mktemp("packed")
    return load_packed_target(package, 8, CONTEXT, scratch, 1)


def prompt(seed: int, length: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(3, 300, length).tolist())


def jobs_of(count: int, sampling: Sampling | None = None) -> list[Job[int]]:
    """Prompts of 3 to 100 tokens; each with a seed of its own where they are sampled."""
    lengths = [3, 17, 64, 65, 40, 100, 5, 66, 31, 80]
    return [
        Job(
            prompt(index, lengths[index % 10]),
            20 - index % 7,
            sampling or Sampling(temperature=0.9, top_k=40, top_p=0.95, seed=index),
            index,
        )
        for index in range(count)
    ]


def write_all(
    target: Target, jobs: Sequence[Job[int]], endings: Sequence[int] = NO_ENDINGS
) -> dict[int, tuple[int, ...]]:
    writer = Writer(target, CONTEXT, endings)
    return {written.job.purpose: written.ids for written in writer.write(jobs)}


def test_greedy_text_is_what_the_target_writes_alone(target: Target, reference: Reference) -> None:
    jobs = jobs_of(20, Sampling())
    texts = write_all(target, jobs)
    assert len(texts) == 20
    for job in jobs:
        expected = reference.answer(list(job.prompt), job.most)
        assert list(texts[job.purpose]) == expected, f"job {job.purpose}"


def test_a_package_with_drafters_writes_the_same(
    target: Target, drafting: Package, tmp_path: Path
) -> None:
    """Its graphs have features, whose weights are in a file of their own."""
    assert drafting.manifest.target.features
    featured = load_packed_target(drafting, 8, CONTEXT, tmp_path, 1)
    jobs = jobs_of(10)
    assert write_all(featured, jobs) == write_all(target, jobs)


def test_sampled_text_does_not_depend_on_company_or_order(target: Target) -> None:
    jobs = jobs_of(20)
    together = write_all(target, jobs)
    backwards = write_all(target, jobs[::-1])
    alone = {job.purpose: write_all(target, [job])[job.purpose] for job in jobs[:5]}
    assert together == backwards
    assert alone == {index: together[index] for index in range(5)}
    other_seed = Job(jobs[0].prompt, 20, Sampling(temperature=0.9, top_k=40, seed=99), 0)
    assert write_all(target, [other_seed])[0] != together[0]


def test_rows_end_at_an_ending_and_at_their_most(target: Target) -> None:
    jobs = jobs_of(12, Sampling())
    free = write_all(target, jobs)
    ending = free[3][4]
    ended = write_all(target, jobs, [ending])
    for job in jobs:
        whole = free[job.purpose]
        end = whole.index(ending) + 1 if ending in whole else job.most
        assert ended[job.purpose] == whole[:end]
    assert ended[3][-1] == ending
    assert any(len(ids) == job.most for job, ids in zip(jobs, ended.values(), strict=True))


def test_a_row_that_ended_is_refilled_while_others_write(target: Target) -> None:
    """Later jobs may come of earlier results: the queue is asked only after these were taken."""
    results: list[Written[int]] = []
    pulled: list[tuple[int, int]] = []

    def queue() -> Iterator[Job[int]]:
        for index in range(24):
            pulled.append((index, len(results)))
            yield Job(prompt(index, 10), 4 if index % 8 else 40, Sampling(), index)

    writer = Writer(target, CONTEXT, NO_ENDINGS)
    for written in writer.write(queue()):
        results.append(written)
    assert len(results) == 24
    assert [index for index, known in pulled if known == 0] == list(range(8))
    assert dict(pulled)[8] == 7, "seven short ones ended together, and were all taken before"
    order = [written.job.purpose for written in results]
    assert order.index(9) < order.index(0), "the first, long one still wrote"
    assert writer.written_tokens == sum(len(written.ids) for written in results)


def test_a_prompt_that_a_slot_knows_is_not_read_again(target: Target) -> None:
    text = prompt(1, 80)
    writer = Writer(target, CONTEXT, NO_ENDINGS)
    list(writer.write([Job(text, 2, Sampling(), 0)]))
    begun = writer.read_tokens
    again = next(writer.write([Job((*text, 7, 8, 9), 3, Sampling(), 1)]))
    assert writer.read_tokens - begun == 3 + 2, "three new tokens, and two that were written"
    assert again.ids == write_all(target, [Job((*text, 7, 8, 9), 3, Sampling(), 1)])[1]


def test_choose_draws_from_the_truncated_distribution() -> None:
    values = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], dtype=np.float32))
    ids = np.array([[11, 5, 42, 7]])
    noise = np.random.default_rng(0).exponential(size=(20_000, 1, 4))

    def shares(sampling: Sampling) -> dict[int, float]:
        drawn = [choose(values, ids, [sampling], row)[0] for row in noise]
        return {int(i): drawn.count(i) / len(drawn) for i in ids[0]}

    assert shares(Sampling()) == {11: 1, 5: 0, 42: 0, 7: 0}
    for sampling, expected in (
        (Sampling(temperature=1.0), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(temperature=1.0, top_k=2), [0.625, 0.375, 0, 0]),
        (Sampling(temperature=1.0, top_p=0.81), [0.526, 0.316, 0.158, 0]),
        (Sampling(temperature=0.5), [0.685, 0.247, 0.062, 0.007]),
    ):
        found = shares(sampling)
        assert list(found.values()) == pytest.approx(expected, abs=0.012), sampling
        assert all(found[i] == 0 for i, p in zip(found, expected, strict=True) if p == 0)


def test_rows_of_one_choice_have_their_own_settings() -> None:
    values = np.log(np.array([[0.6, 0.4], [0.6, 0.4], [0.6, 0.4]], dtype=np.float32))
    ids = np.array([[1, 2], [3, 4], [5, 6]])
    noise = np.tile([100.0, 0.01], (3, 1))
    samplings = [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=1)]
    assert choose(values, ids, samplings, noise) == [1, 4, 5]


def test_weights_are_copied_where_they_cannot_be_linked(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError("another device")

    monkeypatch.setattr(writing.Path, "hardlink_to", refuse)
    target = load_packed_target(package, 2, CONTEXT, tmp_path, 1)
    weights = package.manifest.target.weights
    assert (tmp_path / weights).read_bytes() == package.file(weights).read_bytes()
    job = Job(prompt(0, 5), 3, Sampling(), 0)
    assert len(write_all(target, [job])[0]) == 3
