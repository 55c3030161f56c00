"""How drafts are drawn: q from the largest logits, and noise that is the target's own."""

from __future__ import annotations

import numpy as np
import pytest

from models.drafters.drawing import Drawing, NoiseRows
from models.sampling.noise import Purpose, counters, exponentials, gumbels
from models.sampling.parameters import Sampling

IDS = np.array([40, 7, 19, 3])
VALUES = np.log(np.array([0.5, 0.25, 0.15, 0.1])).astype(np.float32) + 3


def drawing(shared: bool = True, **fields: float) -> Drawing:
    sampling = Sampling(**{"temperature": 1.0, "seed": 5, **fields})  # type: ignore[arg-type]
    return Drawing(sampling, 5, shared=shared, listed=4)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, [0.5, 0.25, 0.15, 0.1]),
        ({"top_k": 2}, [2 / 3, 1 / 3]),
        ({"top_k": 100}, [0.5, 0.25, 0.15, 0.1]),
        ({"top_p": 0.74}, [2 / 3, 1 / 3]),
        ({"top_p": 0.76}, [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9]),
        ({"top_p": 0.0}, [1.0]),
        # Of the three that top-k leaves 0.76 are 0.68 of the four.
        ({"top_k": 3, "top_p": 0.8}, [2 / 3, 1 / 3]),
        ({"temperature": 0.5}, list(np.array([25, 6.25, 2.25, 1]) / 34.5)),
        # Least shares and penalties are the target's to judge.
        ({"min_p": 0.4, "presence_penalty": 1.0}, [0.5, 0.25, 0.15, 0.1]),
    ],
)
def test_q_follows_temperature_then_top_k_then_top_p(
    fields: dict[str, float], wanted: list[float]
) -> None:
    q = drawing(**fields).proposal(VALUES, IDS)
    assert q.ids.tolist() == IDS.tolist()[: len(wanted)]
    assert q.probabilities == pytest.approx(wanted, abs=1e-6)


def test_a_proposal_outlives_the_lists_it_was_made_of() -> None:
    ids = IDS.copy()
    q = drawing().proposal(VALUES, ids)
    ids[:] = 0
    assert q.ids.tolist() == IDS.tolist()


def test_gumbels_are_the_exponentials_of_the_same_tokens() -> None:
    tokens = np.random.default_rng(0).permutation(50_000)[:20_000].astype(np.int64)
    out = np.empty(20_000, dtype=np.float32)
    for purpose in (Purpose.TOKEN, Purpose.DRAFT):
        gumbels(9, 33, purpose, counters(tokens), out)
        assert np.allclose(out, -np.log(exponentials(9, 33, purpose, tokens)), atol=2e-6)
    assert np.isfinite(out).all()


def test_every_position_has_its_own_row() -> None:
    tokens = np.arange(50)
    rows = NoiseRows(drawing(shared=False), counters(tokens), most=4)
    value = rows.first(3)
    for position, count in ((7, 3), (7, 3), (9, 3), (30, 1), (31, 3), (4, 2)):
        rows.place(position, count)
        assert rows.first(3) is value
        for row in range(count):
            times = exponentials(5, position + row, Purpose.DRAFT, tokens)
            assert np.allclose(value[row], -np.log(times), atol=2e-6)
    assert rows.computed == 3 + 0 + 2 + 1 + 3 + 2
