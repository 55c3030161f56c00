"""A vocabulary of words for tests of predictions, and answers as drafters see them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load, RunShape
from gateway.engine.policies.allocation import allocate
from gateway.engine.policies.cost import CostPolicy
from models.draft import Drafter
from models.drafters.predicted import PredictedText
from models.drafters.prediction import PredictionDrafter
from models.tokenizer import Tokenizer
from tests.policy_simulation import RUNS

_PIECE = re.compile(r" ?\w+|\s+|.", re.DOTALL)


class Words:
    """Words with the space before them, runs of blanks, and all other characters are tokens."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._pieces: list[bytes] = []

    def encode(self, text: str) -> list[int]:
        return [self.token(piece.encode()) for piece in _PIECE.findall(text)]

    def token(self, piece: bytes) -> int:
        """The id of `piece`, which is made a token if it was none."""
        if piece not in self._ids:
            self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._ids[piece]

    def token_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def text(self, ids: Sequence[int]) -> str:
        return b"".join(self._pieces[token] for token in ids).decode()


@dataclass
class Followed:
    """An answer by rounds: of each the tokens that were proposed, and how many were right."""

    proposed: list[int]
    right: list[int]

    @property
    def rounds(self) -> int:
        return len(self.right)

    @property
    def wrong(self) -> int:
        return sum(self.proposed) - sum(self.right)


def drafter_of(words: Words, prediction: str, prompt: str = "Say it.") -> PredictionDrafter:
    drafter = PredictionDrafter(PredictedText(prediction, words))
    drafter.reset(words.encode(prompt))
    return drafter


def follow(drafter: Drafter, answer: Sequence[int], budget: int = 8) -> Followed:
    """Rounds as the engine has them: the first token is the prompt's, each round adds one more
    than was right of its draft."""
    done = Followed([], [])
    drafter.commit(answer[:1])
    at = 1
    while at < len(answer):
        room = min(budget, len(answer) - at - 1)
        draft = drafter.propose(room)
        assert len(draft.tokens) <= room
        right = matching(draft.tokens, answer[at:])
        done.proposed.append(len(draft.tokens))
        done.right.append(right)
        drafter.commit(answer[at : at + right + 1])
        at += right + 1
    return done


def matching(draft: Sequence[int], answer: Sequence[int]) -> int:
    count = 0
    while count < min(len(draft), len(answer)) and draft[count] == answer[count]:
        count += 1
    return count


def time_of(drafter: Drafter, answer: Sequence[int], budget: int = 31) -> float:
    """Simulated milliseconds of the answer under policy `cost`, as a share of plain decoding."""
    costs = RunCosts.by_width(RUNS)
    policy, load = CostPolicy(budget, costs), Load()
    drafter.commit(answer[:1])
    at, spent = 1, 0.0
    while at < len(answer):
        draft = drafter.propose(policy.budget(len(answer) - at - 1))
        offer = policy.offer(draft, load)
        (count,) = allocate([offer], [0], load.others, costs)
        verified = draft.first(count)
        right = matching(verified.tokens, answer[at:])
        spent += costs.predict(RunShape(1, 1 + count))
        said = answer[at : at + right + 1]
        policy.observe(draft, said)
        drafter.commit(said)
        at += right + 1
    return spent / ((len(answer) - 1) * costs.predict(RunShape(1, 1)))


PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def biased(tokenizer: Tokenizer) -> tuple[tuple[int, float], ...]:
    """A bias towards these characters alone, each of them a token: what a model of random weights
    says is then a text that encodes to the same tokens."""
    ids = [tokenizer.encode(character) for character in PLAIN]
    assert all(len(each) == 1 for each in ids), "every one of them is a token"
    assert len(tokenizer.encode(PLAIN + PLAIN[::-1])) == 2 * len(PLAIN), "and no two of them are"
    return tuple((each[0], 100.0) for each in ids)
