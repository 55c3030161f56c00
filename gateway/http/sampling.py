"""What requests say about how an answer is drawn and where it ends, the same on every endpoint.

What is absent is neutral where a temperature is given, by the request or else by the gateway's
settings. Where none is, the package says how its model is best sampled (as vLLM has it with a
checkpoint's generation config), and what the request does give stands. A package that says nothing
takes the most likely token: that needs no seed to be repeated, and accepts the most drafts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.engine.requests import (
    MOST_TOP_LOGPROBS,
    GenerationRequest,
    Prediction,
    Speculation,
)
from gateway.engine.stops import Scope
from gateway.http.fields import (
    beyond_integers,
    few,
    in_range,
    invalid,
    number,
    optional,
    out_of_range,
    typed,
    wrong_type,
)
from gateway.http.prediction import parse_prediction
from gateway.http.speculation import parse_speculation
from gateway.http.users import user_of
from gateway.settings import Settings
from models.constraints.source import ConstraintSource
from models.sampling.parameters import LEAST_SEED, MOST_BIASED, MOST_SEED, Sampling

MOST_STOPS = 16
MOST_STOP_CHARACTERS = 1024
MOST_STOP_IDS = 1024
LARGEST_ID = (1 << 31) - 1
NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
INTEGERS = ("top_k", "min_tokens", "seed")
# One way to write an id: the same id cannot come twice.
DECIMAL = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How an answer is drawn, where it ends, its form, how it is speculated, what it is predicted
    to be (one prediction for all prompts and choices), for whom, and by whose key."""

    sampling: Sampling = field(default_factory=Sampling)
    named: frozenset[str] | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    stop_scope: Callable[[], Scope] | None = field(default=None, compare=False)
    constraint: ConstraintSource | None = None
    shown_ids: frozenset[int] = frozenset()
    speculation: Speculation = field(default_factory=Speculation)
    prediction: Prediction | None = None
    user: str | None = None
    key: str | None = None

    def unused(self) -> Decoding:
        """Of a request that is to say nothing: what only an answer could have is left out."""
        sampling = replace(self.sampling, min_tokens=0)
        return replace(self, sampling=sampling, constraint=None, prediction=None)

    def request(
        self,
        prompt: tuple[int, ...],
        max_tokens: int | None,
        *,
        top_logprobs: int | None = None,
        prompt_logprobs: bool = False,
    ) -> GenerationRequest:
        return GenerationRequest(
            prompt=prompt,
            max_tokens=max_tokens,
            ignore_eos=self.ignore_eos,
            sampling=self.sampling,
            named=self.named,
            stop=self.stop,
            stop_ids=self.stop_ids,
            stop_scope=self.stop_scope,
            top_logprobs=top_logprobs,
            prompt_logprobs=prompt_logprobs,
            constraint=self.constraint,
            shown_ids=self.shown_ids,
            speculation=self.speculation,
            prediction=self.prediction,
            user=self.user,
            key=self.key,
        )


def parse_decoding(
    document: Mapping[str, Any], settings: Settings, api_key: str | None = None
) -> Decoding:
    """The fields that all endpoints name alike; null is absent. `api_key` names whose key was used.

    Raises `UserError` that names the field: `invalid_type`, `invalid_value`,
    `unsupported_value`, `missing_required_parameter`.
    """
    sampling, named = parse_sampling(document, settings.temperature)
    return Decoding(
        sampling=sampling,
        named=named,
        stop=parse_stop(document),
        stop_ids=parse_stop_ids(document),
        ignore_eos=optional(document, "ignore_eos", bool) or False,
        speculation=parse_speculation(document.get("speculation"), settings.speculation),
        prediction=parse_prediction(document),
        user=user_of(document, api_key),
        key=api_key,
    )


def parse_sampling(
    document: Mapping[str, Any], temperature: float | None
) -> tuple[Sampling, frozenset[str] | None]:
    """`temperature` is that of a document that names none (None: the package's). With what is
    asked for come the names of what was given where the package says the rest (None: it does
    not)."""
    given: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    seed = document.get("seed")
    if beyond_integers(seed):
        raise out_of_range(seed, LEAST_SEED, MOST_SEED, "seed")
    for name in NUMBERS:
        if document.get(name) is not None:
            given[name] = number(document[name], name)
    for name in INTEGERS:
        if document.get(name) is not None:
            given[name] = typed(document[name], int, name)
    named = None if "temperature" in given else frozenset(given)
    return Sampling(**given, logit_bias=parse_logit_bias(document)), named


def parse_logit_bias(document: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """An object of numbers by token id, which JSON writes as a decimal string."""
    bias = optional(document, "logit_bias", dict)
    if bias is None:
        return ()
    few(bias, MOST_BIASED, "logit_bias")
    return tuple(_bias(key, value) for key, value in bias.items())


def parse_stop(document: Mapping[str, Any]) -> tuple[str, ...]:
    """A string or an array of them; one that comes twice is taken once."""
    value = document.get("stop")
    if value is None:
        return ()
    if isinstance(value, str):
        return (_stop(value, "stop"),)
    if not isinstance(value, list):
        raise wrong_type("stop", "a string or an array", value)
    few(value, MOST_STOPS, "stop")
    return tuple(dict.fromkeys(_stop(text, f"stop[{i}]") for i, text in enumerate(value)))


def parse_stop_ids(document: Mapping[str, Any]) -> tuple[int, ...]:
    """An array of token ids; one that comes twice is taken once."""
    value = optional(document, "stop_token_ids", list)
    if value is None:
        return ()
    few(value, MOST_STOP_IDS, "stop_token_ids")
    return tuple(dict.fromkeys(_id(token, f"stop_token_ids[{i}]") for i, token in enumerate(value)))


def parse_top_logprobs(document: Mapping[str, Any], name: str = "top_logprobs") -> int | None:
    """How many of the most likely tokens to tell with each token; None where absent."""
    value = optional(document, name, int)
    return None if value is None else in_range(value, 0, MOST_TOP_LOGPROBS, name)


def _stop(value: Any, param: str) -> str:
    text = typed(value, str, param)
    if not 1 <= len(text) <= MOST_STOP_CHARACTERS:
        raise invalid(param, f"must have 1 to {MOST_STOP_CHARACTERS} characters, not {len(text)}")
    return text


def _bias(key: str, value: Any) -> tuple[int, float]:
    if not DECIMAL.fullmatch(key):
        raise invalid("logit_bias", f"has the key {key[:40]!r}, which is no token id in decimals")
    return _id(int(key), "logit_bias"), number(value, f"logit_bias.{key}")


def _id(value: Any, param: str) -> int:
    return in_range(typed(value, int, param), 0, LARGEST_ID, param)
