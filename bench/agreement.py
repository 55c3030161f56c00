"""How often a package's first choice is fp32's, and how far its distribution is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.prompts import spread
from bench.scoring import Scorer
from bench.setup import Setup, progress
from bench.texts import Texts
from models.errors import UserError
from models.package import Package
from models.slots import Slot
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
    context = LONGEST_PROMPT + ANSWER_TOKENS
    judge, judged = (Scorer(side, setup.threads, context) for side in (reference, own))
    for question in spread(fitting, 2 if setup.quick else PROMPTS):
        prompt = texts.ids(question.turns[0])
        answer = _greedy(judge.target, judge.slots[0], prompt, ANSWER_TOKENS)
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
