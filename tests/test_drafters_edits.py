"""How sure a prediction is: by the stage that the answer is in, and by what became of it."""

from __future__ import annotations

import pytest

from models.drafters.edits import EARLY, OPENING, RUNNING, EditConfidence, stage


def estimate(confidence: EditConfidence, reached: int) -> float:
    (found,) = confidence.estimates((reached,))
    return found


def test_the_longer_it_was_right_the_surer() -> None:
    for found in (0, 1, 2, 3):
        stages = [stage(since, found, disputed=False) for since in range(9)]
        estimates = EditConfidence().estimates(stages)
        assert all(0 < each < 1 for each in estimates)
        if found < 3:
            assert list(estimates) == sorted(estimates)
        assert stages[5:] == [RUNNING] * 4
        assert stages[2:5] == [EARLY] * 3


def test_a_place_is_surer_by_its_match_and_less_sure_where_matches_disagree() -> None:
    confidence = EditConfidence()
    alone = [estimate(confidence, stage(0, found, disputed=False)) for found in (1, 2, 3)]
    disputed = [estimate(confidence, stage(0, found, disputed=True)) for found in (1, 2, 3)]
    assert alone == sorted(alone)
    assert all(less < more for less, more in zip(disputed, alone, strict=True))
    assert stage(0, 16, disputed=False) == stage(0, 3, disputed=False)
    assert stage(0, 0, disputed=False) == stage(1, 0, disputed=False) == OPENING


@pytest.mark.parametrize("reached", range(10))
def test_outcomes_are_believed_soon_and_for_their_stage_alone(reached: int) -> None:
    confidence = EditConfidence()
    before = confidence.estimates(range(10))
    for _ in range(12):
        confidence.observe(reached, False)
    assert estimate(confidence, reached) < 0.55 * before[reached]
    for _ in range(60):
        confidence.observe(reached, True)
    assert estimate(confidence, reached) > 0.85
    others = [each for each in range(10) if each != reached]
    assert confidence.estimates(others) == tuple(before[each] for each in others)


def test_edits_at_a_distance_are_learnt() -> None:
    """One token in twenty is an edit."""
    confidence = EditConfidence()
    for token in range(400):
        confidence.observe(RUNNING, token % 20 != 19)
    assert estimate(confidence, RUNNING) == pytest.approx(0.95, abs=0.03)
