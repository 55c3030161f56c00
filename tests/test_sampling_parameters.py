"""What a request may ask of sampling, and what is refused."""

from __future__ import annotations

import math

import pytest

from models.errors import UserError
from models.sampling.parameters import SEED_BITS, Sampling


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", -0.01),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("min_p", 1.5),
        ("top_k", -1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 11.0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("min_tokens", -1),
        ("seed", 1 << 63),
        ("seed", -(1 << 63) - 1),
        ("logit_bias", ((1, 101.0),)),
        ("logit_bias", ((1, math.nan),)),
        ("logit_bias", tuple((token, 1.0) for token in range(1025))),
    ],
)
def test_values_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(UserError) as caught:
        Sampling(**{name: value})  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.param) == ("unsupported_value", name)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "seed",
            1 << 63,
            "seed must be from -9223372036854775808 to 9223372036854775807,"
            " not 9223372036854775808.",
        ),
        ("temperature", 2.5, "temperature must be from 0 to 2, not 2.5."),
        ("repetition_penalty", 0.001, "repetition_penalty must be from 0.01 to 10, not 0.001."),
        ("top_k", -1, "top_k must be at least 0, not -1."),
        ("logit_bias", ((1, 101.0),), "logit_bias must be from -100 to 100, not 101.0."),
    ],
)
def test_the_range_is_told_in_all_its_digits(name: str, value: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Sampling(**{name: value})  # type: ignore[arg-type]
    assert caught.value.message == message


def test_a_missing_seed_is_made_once_and_fits_every_json_reader() -> None:
    made = {Sampling().with_seed().seed for _ in range(50)}
    assert len(made) == 50
    assert all(seed is not None and 0 <= seed < 1 << SEED_BITS for seed in made)
    assert Sampling(seed=0).with_seed().seed == 0


def test_advice_fills_what_was_not_named() -> None:
    advice = {"temperature": 0.6, "top_k": 20.0, "top_p": 0.9, "min_p": 0.1}
    asked = Sampling(top_p=0.5, seed=7, presence_penalty=1.0)
    advised = asked.advised(advice, {"top_p", "seed", "presence_penalty"})
    assert advised == Sampling(
        temperature=0.6, top_k=20, top_p=0.5, min_p=0.1, seed=7, presence_penalty=1.0
    )
    assert type(advised.top_k) is int
    assert asked.advised({}, ()) == asked


def test_what_needs_no_processing() -> None:
    assert Sampling().plain
    assert Sampling(temperature=1e-6, top_p=0.5).plain
    assert not Sampling(temperature=0.1).plain
    assert not Sampling(frequency_penalty=0.1).plain
    assert not Sampling(logit_bias=((1, 1.0),)).plain
    assert not Sampling(min_tokens=1).plain
