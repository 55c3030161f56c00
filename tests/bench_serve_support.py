"""Plans, windows and arrivals for tests of `bench serve` and `bench synthetic`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.client import Arrival
from bench.prompts import Question
from bench.serve.decoding import Decoded
from bench.serve.plan import Load, Plan, Policy
from bench.serve.requests import Request
from bench.serve.windows import Window
from models.sampling.parameters import Sampling

OFF_POLICY = Policy("off", "ngram")
FIXED4 = Policy("fixed", "ngram", 4)
TWO_STREAMS = Load(streams=2)
QUESTIONS = [Question(str(n), "all", (f"say {n}",)) for n in range(5)]


def plan(**changes: Any) -> Plan:
    known: dict[str, Any] = {
        "policies": (OFF_POLICY, FIXED4),
        "loads": (TWO_STREAMS,),
        "phases": (),
        "answers": 2,
        "requests": 6,
        "seconds": 2.0,
        "repeats": 2,
        "max_tokens": 32,
        "slots": 4,
        "queue": 64,
        "ttft_ms": None,
        "tpot_ms": None,
        "sampling": Sampling(seed=0),
        "seed": 0,
    }
    return Plan(**{**known, **changes})


def answered(ttft_ms: float, tpot_ms: float | None, **changes: Any) -> Request:
    """Ten tokens in four rounds, of which eight draft tokens were verified and five accepted."""
    known: dict[str, Any] = {
        "due": 0.0,
        "ended": 1.0,
        "ending": "answered",
        "tokens": 10,
        "prompt_tokens": 20,
        "cached_tokens": 5,
        "ttft_ms": ttft_ms,
        "tpot_ms": tpot_ms,
        "queue_ms": 1.0,
        "rounds": 4,
        "verified": 8,
        "accepted": 5,
    }
    return Request(**{**known, **changes})


def window(seconds: float, *requests: Request) -> Window:
    return Window(requests, seconds)


def arrivals(*deltas: tuple[float, int, int, int]) -> list[Arrival]:
    """From (second, tokens, round, verified)."""
    return [Arrival(*delta) for delta in deltas]


def decoded(question: str, tpot_ms: float) -> Decoded:
    """Of twenty tokens of the prompt five were in the cache."""
    return Decoded(question, tpot_ms, prompt_tokens=20, cached_tokens=5)


def write_prompts(path: Path, texts: Sequence[str]) -> Path:
    path.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in texts))
    return path
