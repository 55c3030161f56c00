"""Unrolled drafts against one run of the step graph per step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from export.heads.step import StepGraph
from export.unroll import unroll
from tests.step_graphs import Runner, Sizes, chain_feeds, head_step, lengths, model_step

SIZES = Sizes()
PROMPT = [1, 250, 31, 77, 140, 9, 201]
LATER = [62, 118, 5]


def features(count: int, seed: int = 3) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    return random.standard_normal((count, SIZES.features)).astype(np.float32)


class Stepper:
    """Runs a step graph one token at a time, as the unrolled graph should."""

    def __init__(self, step: StepGraph) -> None:
        self.step = step
        self.runner = Runner(step.model)
        self.entry = None if step.entry is None else Runner(step.entry)
        self.drafted = self.runner.outputs and step.model.graph.output[0]

    def run(
        self, ids: list[int], given: NDArray[Any] | None, past: int, steps: int
    ) -> tuple[list[int], list[NDArray[Any]]]:
        """Greedy tokens and the logits they are the best of."""
        states = given
        if self.entry is not None and given is not None:
            states = self.entry.run({"features": given})["states"]
        tokens, rows, count = [], [], len(ids)
        for k in range(steps):
            feeds = {
                "input_ids": np.array([ids], np.int64),
                "logits_index": np.array([len(ids) - 1]),
                **lengths("", past if k == 0 else past + count - 1 + k, len(ids)),
            }
            if states is not None:
                feeds["states"] = states
            found = self.runner.run(feeds)
            rows.append(found["logits"][0])
            states = None if states is None else found["next_states"][-1:]
            place = int(found["logits"][0].argmax())
            tokens.append(place if self.step.ids is None else int(self.step.ids[place]))
            ids = [tokens[-1]]
        return tokens, rows


def drafted_of(step: StepGraph) -> int:
    return SIZES.vocabulary if step.ids is None else len(step.ids)


@pytest.mark.parametrize("kind", ["head", "entryless", "layers", "model"])
def test_an_unrolled_draft_is_that_of_single_steps(kind: str) -> None:
    step = {
        "head": lambda: head_step(SIZES),
        "entryless": lambda: head_step(Sizes(features=SIZES.hidden), entry=False),
        "layers": lambda: head_step(Sizes(layers=3)),
        "model": model_step,
    }[kind]()
    width = SIZES.hidden if kind == "entryless" else SIZES.features
    given = None if kind == "model" else features(10)[:, :width]
    chain, single = Runner(unroll(step, 4)), Stepper(step)
    past = 0
    for ids in (PROMPT, LATER):
        own = None if given is None else given[past : past + len(ids)]
        expected, rows = single.run(ids, own, past, 4)
        found = chain.run(chain_feeds(ids, own, past, 4, drafted_of(step)))
        assert found["draft_ids"].tolist() == expected
        assert len(set(expected)) > 1
        for k, row in enumerate(rows):
            best = np.argsort(-row, kind="stable")[:64]
            assert np.array_equal(found["top_values"][k], row[best])
            ids_of = np.arange(len(row)) if step.ids is None else step.ids
            assert np.array_equal(found["top_ids"][k], ids_of[best])
            exact = np.log(np.exp(row.astype(np.float64)).sum())
            assert found["logsumexp"][k] == pytest.approx(exact, abs=1e-5)
        for name, buffer in chain.buffers.items():
            assert np.array_equal(buffer, single.runner.buffers[name]), name
            assert buffer[:, :, past + len(ids) + 2].any(), "the last step's entry is missing"
        past += len(ids)


def test_every_length_drafts_the_same_tokens() -> None:
    step = head_step(SIZES)
    longest = Runner(unroll(step, 6)).run(chain_feeds(PROMPT, features(7), 0, 6, SIZES.drafted))
    for steps in (1, 2, 5):
        found = Runner(unroll(step, steps)).run(
            chain_feeds(PROMPT, features(7), 0, steps, SIZES.drafted)
        )
        for name, values in found.items():
            assert np.array_equal(values, longest[name][:steps]), name


def softmax(values: NDArray[Any]) -> NDArray[np.float64]:
    weights = np.exp(values.astype(np.float64) - values.max())
    result: NDArray[np.float64] = weights / weights.sum()
    return result


def test_the_noise_that_is_fed_draws_the_tokens() -> None:
    step = head_step(SIZES)
    chain = Runner(unroll(step, 3))
    random = np.random.default_rng(11)
    drawn = set()
    for _ in range(8):
        feeds = chain_feeds(PROMPT, features(7), 0, 3, SIZES.drafted)
        feeds["noise"] = random.gumbel(size=(3, SIZES.drafted)).astype(np.float32)
        feeds["inverse_temperature"] = np.array([0.5], np.float32)
        found = chain.run(feeds)
        assert step.ids is not None
        for k in range(3):
            places = np.searchsorted(step.ids, found["top_ids"][k])
            score = found["top_values"][k] * np.float32(0.5) + feeds["noise"][k][places]
            assert found["draft_ids"][k] == found["top_ids"][k][score.argmax()]
        drawn.add(tuple(found["draft_ids"].tolist()))
    assert len(drawn) > 3


def test_weights_are_the_distribution_that_tokens_are_drawn_from() -> None:
    feeds = chain_feeds(PROMPT, features(7), 0, 2, SIZES.drafted)
    feeds["inverse_temperature"] = np.array([0.7], np.float32)
    found = Runner(unroll(head_step(SIZES), 2)).run(feeds)
    for values, weights in zip(found["top_values"], found["weights"], strict=True):
        assert np.allclose(weights, softmax(values * np.float32(0.7)), atol=1e-6)


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (90, 0.3), (8, 0.6), (1, 1.0), (90, 1e-6)])
def test_top_k_and_top_p_restrict_what_is_drawn(top_k: int, top_p: float) -> None:
    chain = Runner(unroll(head_step(SIZES), 2))
    feeds = chain_feeds(PROMPT, features(7), 0, 2, SIZES.drafted)
    feeds |= {"top_k": np.array([top_k]), "top_p": np.array([top_p], np.float32)}
    feeds["inverse_temperature"] = np.array([0.3], np.float32)
    kept = set()
    for draw in range(40):
        noise = np.random.default_rng(draw).gumbel(size=(2, SIZES.drafted)) * 3
        feeds["noise"] = noise.astype(np.float32)
        found = chain.run(feeds)
        for k in range(2):
            share = softmax(found["top_values"][k][:top_k] * 0.3)
            allowed = int((np.cumsum(share) - share < top_p).sum())
            place = found["top_ids"][k].tolist().index(found["draft_ids"][k])
            assert place < allowed
            assert np.count_nonzero(found["weights"][k]) == allowed
            kept.add((k, place, allowed))
    assert any(place == allowed - 1 for _, place, allowed in kept), "the last one never came"


def test_modules_of_their_own_see_every_token() -> None:
    """As `StepGraph` says: step k runs module k over the same entries, one token further on."""
    step = head_step(SIZES, modules=3)
    models = [step.model, *step.later]
    runners = [Runner(model) for model in models]
    assert step.entry is not None
    assert step.ids is not None
    states = Runner(step.entry).run({"features": features(7)})["states"]
    ids, expected, count = list(PROMPT), [], len(PROMPT)
    for k in range(5):
        last = min(k, 2)
        past = 0 if k <= 2 else count + k - 3
        found = runners[last].run(
            {
                "input_ids": np.array([ids]),
                "states": states,
                "logits_index": np.array([len(ids) - 1]),
                **lengths("", past, len(ids)),
            }
        )
        expected.append(int(step.ids[found["logits"][0].argmax()]))
        ids = [*ids[1:], expected[-1]] if k < 2 else [expected[-1]]
        states = found["next_states"] if k < 2 else found["next_states"][-1:]
    chain = Runner(unroll(step, 5))
    found = chain.run(chain_feeds(PROMPT, features(7), 0, 5, SIZES.drafted))
    assert found["draft_ids"].tolist() == expected
    for layer, runner in enumerate(runners):
        for part in ("key", "value"):
            assert np.array_equal(
                chain.buffers[f"{layer}.0.{part}"], runner.buffers[f"{layer}.0.{part}"]
            )
    short = Runner(unroll(step, 1))
    found = short.run(chain_feeds(PROMPT, features(7), 0, 1, SIZES.drafted))
    assert found["draft_ids"].tolist() == expected[:1]
    for name, buffer in short.buffers.items():
        assert np.array_equal(buffer[:, :, :count], chain.buffers[name][:, :, :count]), name
