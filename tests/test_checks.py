"""What a request may not ask is refused when it is opened, and named."""

from __future__ import annotations

import math

import pytest

from gateway.engine.checks import check_request
from gateway.engine.requests import GenerationRequest, Speculation
from models.errors import UserError
from models.sampling.parameters import Sampling

VOCABULARY, CONTEXT = 300, 50


def check(prompt: tuple[int, ...] = (1, 2), has_trees: bool = True, **fields: object) -> None:
    request = GenerationRequest(prompt, **fields)  # type: ignore[arg-type]
    check_request(request, vocab_size=VOCABULARY, context=CONTEXT, has_trees=has_trees)


def refusal(**fields: object) -> UserError:
    with pytest.raises(UserError) as error:
        check(**fields)  # type: ignore[arg-type]
    return error.value


def speculation(**fields: object) -> dict[str, object]:
    return {"speculation": Speculation(**fields)}  # type: ignore[arg-type]


def biased(*ids: int) -> dict[str, object]:
    return {"sampling": Sampling(logit_bias=tuple((token, 1.0) for token in ids))}


@pytest.mark.parametrize(
    ("param", "fields", "told"),
    [
        ("max_tokens", {"max_tokens": -1}, "at least 0, not -1"),
        ("prefill_chunk", {"prefill_chunk": 0}, "at least 1, not 0"),
        ("top_logprobs", {"top_logprobs": -1}, "from 0 to 20, not -1"),
        ("top_logprobs", {"top_logprobs": 21}, "from 0 to 20, not 21"),
        ("logit_bias", biased(5, 300), "id 300; ids go from 0 to 299"),
        ("logit_bias", biased(-1), "id -1"),
        ("stop_token_ids", {"stop_ids": (7, 300)}, "id 300; ids go from 0 to 299"),
        ("stop_token_ids", {"stop_ids": (-1,)}, "id -1"),
        ("stop", {"stop": ("a", "")}, "at least one character"),
        (
            "min_tokens",
            {"max_tokens": 4, "sampling": Sampling(min_tokens=5)},
            "min_tokens is 5, but the answer may have 4",
        ),
        ("speculation.length", speculation(length=-1), "at least 0, not -1"),
        ("speculation.branches", speculation(branches=0), "from 1 to 8, not 0"),
        ("speculation.branches", speculation(branches=9), "from 1 to 8, not 9"),
        ("speculation.acceptance", speculation(acceptance=1.01), "from 0 to 1, not 1.01"),
        ("speculation.acceptance", speculation(acceptance=math.nan), "from 0 to 1, not nan"),
        ("speculation.epsilon", speculation(epsilon=-0.1), "from 0 to 1, not -0.1"),
        ("speculation.delta", speculation(delta=2.0), "from 0 to 1, not 2.0"),
        ("speculation.rule", speculation(rule="greedy"), "coupled, classic, typical, adasd"),
    ],
)
def test_refused_by_name(param: str, fields: dict[str, object], told: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == ("unsupported_value", param)
    assert told in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"top_logprobs": 0},
        {"top_logprobs": 20},
        {"stop": ("a", " "), "stop_ids": (0, 299)},
        {"max_tokens": 5, "sampling": Sampling(min_tokens=5)},
        {"sampling": Sampling(min_tokens=500)},
        biased(0, 299),
        speculation(length=0, branches=8, acceptance=0.0, epsilon=0.0, delta=0.0),
        speculation(branches=1, acceptance=1.0, epsilon=1.0, delta=1.0, rule="synthetic"),
    ],
)
def test_taken(fields: dict[str, object]) -> None:
    check(**fields)  # type: ignore[arg-type]


def test_trees_need_their_graphs() -> None:
    error = refusal(has_trees=False, **speculation(branches=2))
    assert (error.code, error.param) == ("unsupported_value", "speculation.branches")
    assert "no graphs for trees" in error.message
    check(has_trees=False, **speculation(branches=1))  # type: ignore[arg-type]


def test_prompts() -> None:
    assert refusal(prompt=()).code == "invalid_prompt"
    for prompt, told in (
        ((1, 300, -1), "token id 300 at place 1; ids go from 0 to 299."),
        ((-1, 3, 300), "token id -1 at place 0; ids go from 0 to 299."),
    ):
        error = refusal(prompt=prompt)
        assert error.code == "invalid_prompt"
        assert error.message == f"the prompt has {told}"
    error = refusal(prompt=(1,) * CONTEXT)
    assert (error.code, error.param) == ("context_length_exceeded", "input")
    assert "has 50 tokens; the context holds 50" in error.message
    check(prompt=(1,) * (CONTEXT - 1))


def test_unknown_drafters() -> None:
    error = refusal(**speculation(drafter="medusa"))
    assert (error.code, error.param) == ("unknown_drafter", "speculation.drafter")
    assert (
        error.message == "unknown drafter 'medusa'; this package has: auto, ngram, prediction, off."
    )
