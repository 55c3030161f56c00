"""Log-probabilities are the target's, inside and outside the listed tokens."""

from __future__ import annotations

import numpy as np
import pytest

from models.sampling.logprobs import token_logprob
from tests.sampling_support import given


def test_logprobs_of_listed_and_other_tokens() -> None:
    """llama.cpp#27972, sglang#10660, vllm#17876: never 0.0 or missing."""
    p = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    row = given(np.log(p) + 3.0, listed=2)
    for token in range(5):
        logprob, top = token_logprob(row, token, top=2)
        assert logprob == pytest.approx(np.log(p[token]), abs=1e-6)
        assert [place for place, _ in top] == [0, 1]
        assert [value for _, value in top] == pytest.approx(np.log(p[:2]), abs=1e-6)
    assert token_logprob(row, 0, top=0)[1] == ()
