"""The fields that all endpoints share: what they become, and what is wrong with them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gateway.engine.requests import GenerationRequest, Speculation
from gateway.http.fields import decode_object
from gateway.http.sampling import (
    LARGEST_ID,
    MOST_STOP_CHARACTERS,
    MOST_STOP_IDS,
    MOST_STOPS,
    Decoding,
    parse_decoding,
    parse_top_logprobs,
)
from gateway.settings import Settings
from models.errors import UserError
from models.sampling.parameters import LEAST_SEED, MOST_BIASED, MOST_SEED, Sampling

SETTINGS = Settings()

SAMPLINGS: list[tuple[dict[str, Any], Sampling]] = [
    ({}, Sampling()),
    ({"temperature": 0}, Sampling(temperature=0.0)),
    ({"temperature": 2}, Sampling(temperature=2.0)),
    ({"temperature": 0.7, "top_p": 0.9}, Sampling(temperature=0.7, top_p=0.9)),
    ({"top_p": 0}, Sampling(top_p=0.0)),
    ({"min_p": 1}, Sampling(min_p=1.0)),
    ({"top_k": 40}, Sampling(top_k=40)),
    ({"presence_penalty": -2}, Sampling(presence_penalty=-2.0)),
    ({"frequency_penalty": 1.5}, Sampling(frequency_penalty=1.5)),
    ({"repetition_penalty": 1.1}, Sampling(repetition_penalty=1.1)),
    ({"min_tokens": 3}, Sampling(min_tokens=3)),
    ({"seed": 0}, Sampling(seed=0)),
    ({"seed": LEAST_SEED}, Sampling(seed=LEAST_SEED)),
    ({"seed": MOST_SEED}, Sampling(seed=MOST_SEED)),
    (
        {"logit_bias": {"0": 1, "50": -100, "7": 0.5}},
        Sampling(logit_bias=((0, 1.0), (50, -100.0), (7, 0.5))),
    ),
    ({"logit_bias": {}}, Sampling()),
]


@pytest.mark.parametrize(("document", "expected"), SAMPLINGS)
def test_what_is_named_is_used_and_the_rest_is_neutral(
    document: dict[str, Any], expected: Sampling
) -> None:
    parsed = parse_decoding(document, SETTINGS)
    named = None if "temperature" in document else frozenset(document) - {"logit_bias"}
    assert parsed == Decoding(sampling=expected, named=named)
    for name in ("temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty"):
        assert type(getattr(parsed.sampling, name)) is float


def test_the_gateways_temperature_is_for_who_names_none() -> None:
    warm = Settings(temperature=0.8)
    assert parse_decoding({}, warm) == Decoding(sampling=Sampling(temperature=0.8))
    assert parse_decoding({"temperature": None}, warm).sampling == Sampling(temperature=0.8)
    assert parse_decoding({"temperature": 0}, warm).sampling == Sampling()


def test_without_a_temperature_the_package_says_the_rest() -> None:
    document = {"top_p": 0.5, "top_k": None, "seed": 3}
    request = parse_decoding(document, SETTINGS).request((1,), None)
    assert request.sampling == Sampling(top_p=0.5, seed=3)
    assert request.named == {"top_p", "seed"}
    assert parse_decoding({"temperature": 0, "top_p": 0.5}, SETTINGS).request((1,), 1).named is None
    assert parse_decoding({"top_p": 0.5}, Settings(temperature=0)).request((1,), 1).named is None


ENDINGS: list[tuple[dict[str, Any], Decoding]] = [
    ({"stop": "END"}, Decoding(stop=("END",))),
    ({"stop": []}, Decoding()),
    ({"stop": ["b", "a", "b"]}, Decoding(stop=("b", "a"))),
    ({"stop": ["é", "\n"]}, Decoding(stop=("é", "\n"))),
    ({"stop": list(map(str, range(MOST_STOPS)))}, Decoding(stop=tuple(map(str, range(16))))),
    ({"stop_token_ids": []}, Decoding()),
    ({"stop_token_ids": [5, 0, 5, LARGEST_ID]}, Decoding(stop_ids=(5, 0, LARGEST_ID))),
    ({"ignore_eos": True}, Decoding(ignore_eos=True)),
    ({"ignore_eos": False}, Decoding()),
    (
        {"stop": None, "stop_token_ids": None, "ignore_eos": None, "logit_bias": None},
        Decoding(),
    ),
    ({"speculation": {"length": 3}}, Decoding(speculation=Speculation(length=3))),
]


@pytest.mark.parametrize(("document", "expected"), ENDINGS)
def test_where_an_answer_ends(document: dict[str, Any], expected: Decoding) -> None:
    assert parse_decoding(document, SETTINGS) == replace(expected, named=frozenset())


NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
WRONG: list[tuple[dict[str, Any], str, str]] = [
    *(({name: value}, "invalid_type", name) for name in NUMBERS for value in ("1", True, [1])),
    *(
        ({name: value}, "invalid_value", name)
        for name in NUMBERS
        for value in (math.nan, math.inf, -math.inf, 10**400)
    ),
    *(
        ({name: value}, "invalid_type", name)
        for name in ("top_k", "min_tokens", "seed")
        for value in ("1", 1.0, 1.5, True, math.nan, 2.0**62, {})
    ),
    # What a decoder makes of integers beyond 64 bits.
    *(
        ({name: value}, "unsupported_value", name)
        for name in ("top_k", "min_tokens", "seed")
        for value in (2.0**63, 2.0**70, -(2.0**63), 1e300)
    ),
    ({"temperature": -0.1}, "unsupported_value", "temperature"),
    ({"temperature": 2.1}, "unsupported_value", "temperature"),
    ({"top_p": 1.01}, "unsupported_value", "top_p"),
    ({"top_p": -1}, "unsupported_value", "top_p"),
    ({"min_p": 1.5}, "unsupported_value", "min_p"),
    ({"presence_penalty": 2.5}, "unsupported_value", "presence_penalty"),
    ({"frequency_penalty": -3}, "unsupported_value", "frequency_penalty"),
    ({"repetition_penalty": 0}, "unsupported_value", "repetition_penalty"),
    ({"repetition_penalty": 11}, "unsupported_value", "repetition_penalty"),
    ({"top_k": -1}, "unsupported_value", "top_k"),
    ({"min_tokens": -1}, "unsupported_value", "min_tokens"),
    ({"seed": MOST_SEED + 1}, "unsupported_value", "seed"),
    ({"seed": LEAST_SEED - 1}, "unsupported_value", "seed"),
    ({"logit_bias": []}, "invalid_type", "logit_bias"),
    ({"logit_bias": [[1, 2]]}, "invalid_type", "logit_bias"),
    ({"logit_bias": {"5": "1"}}, "invalid_type", "logit_bias.5"),
    ({"logit_bias": {"5": True}}, "invalid_type", "logit_bias.5"),
    ({"logit_bias": {"5": None}}, "invalid_type", "logit_bias.5"),
    ({"logit_bias": {"5": math.nan}}, "invalid_value", "logit_bias.5"),
    *(
        ({"logit_bias": {key: 1}}, "invalid_value", "logit_bias")
        for key in ("", "the", "-1", "+1", "01", "1.0", " 1", "1e3", "²", "٣", "1" * 5000, "1_0")
    ),
    ({"logit_bias": {"2147483648": 1}}, "unsupported_value", "logit_bias"),
    ({"logit_bias": {"5": 101}}, "unsupported_value", "logit_bias"),
    ({"logit_bias": {"5": -100.5}}, "unsupported_value", "logit_bias"),
    (
        {"logit_bias": {str(token): 1 for token in range(MOST_BIASED + 1)}},
        "unsupported_value",
        "logit_bias",
    ),
    ({"stop": 7}, "invalid_type", "stop"),
    ({"stop": {"a": 1}}, "invalid_type", "stop"),
    ({"stop": ["a", 7]}, "invalid_type", "stop[1]"),
    ({"stop": ["a", None]}, "invalid_type", "stop[1]"),
    ({"stop": ""}, "invalid_value", "stop"),
    ({"stop": ["a", ""]}, "invalid_value", "stop[1]"),
    ({"stop": "x" * (MOST_STOP_CHARACTERS + 1)}, "invalid_value", "stop"),
    ({"stop": ["x"] * (MOST_STOPS + 1)}, "unsupported_value", "stop"),
    ({"stop_token_ids": 5}, "invalid_type", "stop_token_ids"),
    ({"stop_token_ids": ["5"]}, "invalid_type", "stop_token_ids[0]"),
    ({"stop_token_ids": [1, True]}, "invalid_type", "stop_token_ids[1]"),
    ({"stop_token_ids": [1.0]}, "invalid_type", "stop_token_ids[0]"),
    ({"stop_token_ids": [-1]}, "unsupported_value", "stop_token_ids[0]"),
    ({"stop_token_ids": [0, LARGEST_ID + 1]}, "unsupported_value", "stop_token_ids[1]"),
    ({"stop_token_ids": [1] * (MOST_STOP_IDS + 1)}, "unsupported_value", "stop_token_ids"),
    ({"ignore_eos": 1}, "invalid_type", "ignore_eos"),
    ({"speculation": {"rule": 1}}, "invalid_type", "speculation.rule"),
]


@pytest.mark.parametrize(("document", "code", "param"), WRONG, ids=lambda value: str(value)[:50])
def test_a_wrong_value_names_its_field(document: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_decoding(document, SETTINGS)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert param in caught.value.message
    assert len(caught.value.message) < 200


def test_a_wrong_value_is_told_with_what_is_right() -> None:
    with pytest.raises(UserError, match=r"^temperature must be from 0 to 2, not 2\.5\.$"):
        parse_decoding({"temperature": 2.5}, SETTINGS)
    with pytest.raises(UserError, match=r"^seed must be an integer, not a number\.$"):
        parse_decoding({"seed": 7.0}, SETTINGS)
    with pytest.raises(UserError, match=r"^top_k is out of range: 1e\+20 is no integer of 64 bits"):
        parse_decoding({"top_k": 1e20}, SETTINGS)
    with pytest.raises(UserError, match=r"^stop has 17 entries; at most 16 are taken\.$"):
        parse_decoding({"stop": ["x"] * 17}, SETTINGS)


@pytest.mark.parametrize("written", ["9223372036854775808", "-9223372036854775809", "9" * 30])
def test_a_seed_of_too_many_bits_is_out_of_range_however_it_is_decoded(written: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_decoding(decode_object(f'{{"seed": {written}}}'), SETTINGS)
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "seed")
    assert caught.value.message.startswith(
        "seed must be from -9223372036854775808 to 9223372036854775807, not "
    )


def test_top_logprobs() -> None:
    assert parse_top_logprobs({}) is None
    assert parse_top_logprobs({"top_logprobs": 0}) == 0
    assert parse_top_logprobs({"logprobs": 20}, "logprobs") == 20
    for value, code in (
        (21, "unsupported_value"),
        (-1, "unsupported_value"),
        (True, "invalid_type"),
    ):
        with pytest.raises(UserError) as caught:
            parse_top_logprobs({"logprobs": value}, "logprobs")
        assert (caught.value.code, caught.value.param) == (code, "logprobs")


def test_all_of_it_reaches_the_engine() -> None:
    decoding = Decoding(
        sampling=Sampling(temperature=1.0, seed=3),
        stop=("a",),
        stop_ids=(4,),
        ignore_eos=True,
        speculation=Speculation(length=2),
    )
    assert decoding.request((1, 2), 5, top_logprobs=0, prompt_logprobs=True) == GenerationRequest(
        prompt=(1, 2),
        max_tokens=5,
        ignore_eos=True,
        sampling=Sampling(temperature=1.0, seed=3),
        stop=("a",),
        stop_ids=(4,),
        top_logprobs=0,
        prompt_logprobs=True,
        speculation=Speculation(length=2),
    )
