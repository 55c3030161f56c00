"""How often a package's first choice is fp32's, and how far its distribution is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.prompts import spread
from bench.setup import Setup, progress
from bench.texts import Texts
from models.errors import UserError
from models.package import Package
from models.providers import select_provider
from models.session import Session
from models.slots import Slot, make_slot
from models.target import Row, Target

PROMPTS = 8
ANSWER_TOKENS = 64
LONGEST_PROMPT = 1024


@dataclass(frozen=True, slots=True)
class Agreement:
    """Share of equal argmax, mean KL(fp32 || package) in nats, over `tokens` positions."""

    agreement: float
    kl_mean: float
    tokens: int
    origin: str


def measure_agreement(setup: Setup, reference: Package) -> Agreement:
    """On greedy answers of `reference` to prompts of the setup."""
    own = setup.package
    if own.manifest.target.vocab_size != reference.manifest.target.vocab_size:
        raise UserError("--reference has another vocabulary.", code="usage", param="reference")
    texts = Texts(reference)
    fitting = [q for q in setup.questions if len(texts.ids(q.turns[0])) <= LONGEST_PROMPT]
    if not fitting:
        raise UserError(
            f"no prompt has at most {LONGEST_PROMPT} tokens to measure agreement on.",
            code="usage",
            param="prompts",
        )
    same, divergence = [], []
    provider = select_provider("auto", reference.manifest.target.device)
    target = Target(reference, provider, setup.threads)
    slot = target.make_slots(1, LONGEST_PROMPT + ANSWER_TOKENS)[0]
    judge, judged = _Scorer(reference, setup.threads), _Scorer(own, setup.threads)
    for question in spread(fitting, 2 if setup.quick else PROMPTS):
        prompt = texts.ids(question.turns[0])
        answer = _greedy(target, slot, prompt, ANSWER_TOKENS)
        scored = (*prompt, *answer[:-1])
        expected, found = (side.logits(scored, len(answer)) for side in (judge, judged))
        same.append(expected.argmax(axis=1) == found.argmax(axis=1))
        divergence.append(kl_divergence(expected, found))
        progress(f"cost: agreement on prompt {question.id}")
    return Agreement(
        agreement=float(np.concatenate(same).mean()),
        kl_mean=float(np.concatenate(divergence).mean()),
        tokens=sum(part.size for part in same),
        origin=f"this run ({setup.source} prompts)",
    )


def kl_divergence(expected: NDArray[np.float32], found: NDArray[np.float32]) -> NDArray[np.float64]:
    """KL(expected || found) in nats for each row of logits."""
    p, q = _log_softmax(expected), _log_softmax(found)
    divergence: NDArray[np.float64] = (np.exp(p) * (p - q)).sum(axis=1)
    return divergence


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    normalised: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normalised


def _greedy(target: Target, slot: Slot, prompt: Sequence[int], count: int) -> list[int]:
    slot.truncate(0)
    tokens, answer = tuple(prompt), list[int]()
    while len(answer) < count:
        answer += target.run([Row(slot, tokens, logits=1)])[0].greedy
        slot.commit(tokens)
        tokens = (answer[-1],)
    return answer


class _Scorer:
    """Whole rows of logits, of which `Target` gives only the largest."""

    def __init__(self, package: Package, threads: int | None) -> None:
        self._spec = package.manifest.target
        provider = select_provider("auto", self._spec.device)
        self._session = Session(package.file(self._spec.graphs["1"]), provider, threads)
        self._slot = make_slot(0, self._spec, LONGEST_PROMPT + ANSWER_TOKENS, provider)

    def logits(self, ids: Sequence[int], wanted: int) -> NDArray[np.float32]:
        """[wanted, V]: behind each of the last `wanted` of `ids`, from one run of one row."""
        spec, length = self._spec, len(ids)
        binding = self._session.binding()
        for layer, pair in enumerate(self._slot.buffers):
            for kind, value in zip(("key", "value"), pair, strict=True):
                name = f"{layer}.0.{kind}"
                binding.bind_in_place(f"past.{name}", f"present.{name}", value)
        binding.feed("input_ids", np.array([ids], dtype=np.int64))
        binding.feed("logits_index", np.arange(length - wanted, length))
        binding.feed("position_ids", np.arange(length)[None])
        binding.feed("seqlens_k.0", np.array([length - 1], dtype=np.int32))
        binding.feed("total_length.0", np.array(length, dtype=np.int32))
        logits = binding.collect("logits", (wanted, spec.vocab_size), np.float32)
        hidden = np.float32 if spec.kv_type == "fp32" else np.float16
        binding.collect("hidden", (length, spec.hidden_size), hidden)
        binding.collect("top_values", (wanted, spec.top_k), np.float32)
        binding.collect("top_ids", (wanted, spec.top_k), np.int64)
        binding.collect("logsumexp", (wanted,), np.float32)
        binding.run()
        return logits
