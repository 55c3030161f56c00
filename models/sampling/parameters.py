"""What a request may ask of sampling."""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from models.errors import UserError

SEED_BITS = 53
"""Seeds made here fit into the numbers of every JSON reader."""

LEAST_SEED, MOST_SEED = -(1 << 63), (1 << 63) - 1
MOST_BIASED = 1024
ADVISED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What the makers of a checkpoint may say of how it is best sampled (`generation_config.json`)."""

_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "temperature": (0.0, 2.0),
        "top_p": (0.0, 1.0),
        "min_p": (0.0, 1.0),
        "presence_penalty": (-2.0, 2.0),
        "frequency_penalty": (-2.0, 2.0),
        "repetition_penalty": (0.01, 10.0),
        "top_k": (0, math.inf),
        "min_tokens": (0, math.inf),
        "seed": (LEAST_SEED, MOST_SEED),
    }
)
_BIAS = 100.0
_LEAST_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target's distribution is processed and drawn from, in this order.

    `repetition_penalty` r divides positive logits by r and multiplies negative ones, once for
    every token of the prompt and the answer so far (CTRL, arXiv 1909.05858).
    `presence_penalty` and `frequency_penalty` are subtracted from the logits of the answer's own
    tokens: the one once, the other per occurrence (OpenAI API reference). `logit_bias` are pairs
    of (token id, number added). Until the answer has `min_tokens` tokens it cannot end.
    `temperature` 0 (anything below 1e-5) takes the most likely token and ignores what follows.
    `top_k` keeps the most likely k tokens (0: all), `top_p` the smallest set of most likely tokens
    that together have at least this probability, `min_p` those at least this fraction as likely
    as the most likely.

    `seed` None is replaced by a fresh one when the request is opened (`with_seed`).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise _out_of_range(name, value, least, most)
        if len(self.logit_bias) > MOST_BIASED:
            raise UserError(
                f"logit_bias has {len(self.logit_bias)} entries; at most {MOST_BIASED} are taken.",
                code="unsupported_value",
                param="logit_bias",
            )
        for _, bias in self.logit_bias:
            if not -_BIAS <= bias <= _BIAS:
                raise _out_of_range("logit_bias", bias, -_BIAS, _BIAS)

    @property
    def greedy(self) -> bool:
        """No draw is made: the most likely token after processing is the token."""
        return self.temperature < _LEAST_TEMPERATURE

    @property
    def penalised(self) -> bool:
        """Logits depend on the tokens so far."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    @property
    def plain(self) -> bool:
        """The most likely token of the target as it is."""
        return self.greedy and not (self.penalised or self.logit_bias or self.min_tokens)

    def advised(self, advice: Mapping[str, float], named: Collection[str]) -> Sampling:
        """Itself as `advice` has it (of the names in `ADVISED`), but for the fields in `named`."""
        said: dict[str, Any] = {
            name: int(value) if name == "top_k" else float(value) for name, value in advice.items()
        }
        return replace(self, **{name: said[name] for name in said.keys() - set(named)})

    def with_seed(self) -> Sampling:
        """Itself, with a fresh random seed where it has none."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(SEED_BITS))


def _out_of_range(name: str, value: float, least: float, most: float) -> UserError:
    low, high = _bound(least), _bound(most)
    bounds = f"at least {low}" if most == math.inf else f"from {low} to {high}"
    return UserError(f"{name} must be {bounds}, not {value}.", code="unsupported_value", param=name)


def _bound(value: float) -> str:
    """`:g` would round the long integers."""
    return str(value) if isinstance(value, int) else f"{value:g}"
