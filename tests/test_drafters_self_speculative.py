"""Self-speculation: the target's K/V of the layers it keeps, and nothing left behind in it."""

from __future__ import annotations

import numpy as np
import pytest

from export.unroll import unroll
from models.drafters.learned import LearnedModels
from models.package import Package
from models.slots import Slot
from models.target import Target
from tests.drafters_support import (
    CPU,
    SELF_SIZES,
    Conversation,
    load,
    make_sampler,
)
from tests.engine_support import kv_bytes, make_prompt
from tests.step_graphs import Runner, chain_feeds, model_step

PROMPT = make_prompt(30)
KIND = "self-speculative"


@pytest.fixture(scope="module")
def target(drafting: Package) -> Target:
    return Target(drafting, CPU)


@pytest.fixture(scope="module")
def models(drafting: Package) -> LearnedModels:
    return load(drafting, KIND)


def expected(tokens: list[int], slot: Slot) -> list[int]:
    """The draft of the kept layer on a copy of its K/V."""
    runner = Runner(unroll(model_step(SELF_SIZES), 4), capacity=slot.context + 2)
    for name, buffer in zip(("0.0.key", "0.0.value"), slot.buffers[1], strict=True):
        runner.buffers[name][...] = buffer.numpy()
        runner.buffers[name][:, :, slot.length :] = np.nan
    found: list[int] = runner.run(
        chain_feeds(tokens[-1:], None, len(tokens) - 1, 4, SELF_SIZES.vocabulary)
    )["draft_ids"].tolist()
    return found


def test_the_last_token_is_fed_behind_the_targets_own_entries(
    models: LearnedModels, target: Target
) -> None:
    (slot,) = target.make_slots(1, 200)
    talk = Conversation(target, slot, PROMPT)
    drafter = talk.begin(models.drafter(KIND, slot, None, shared=False))
    for said in ((5,), (9, 8, 7), (3, 4)):
        draft = drafter.propose(4)
        assert list(draft.tokens) == expected(talk.tokens, slot)
        assert drafter.propose(2).tokens == draft.tokens[:2]
        talk.say(drafter, said)


def test_the_committed_kv_is_not_written(models: LearnedModels, target: Target) -> None:
    drafted, plain = target.make_slots(2, 200)
    talks = [Conversation(target, slot, PROMPT) for slot in (drafted, plain)]
    drafter = talks[0].begin(models.drafter(KIND, drafted, None, shared=False))
    for _ in range(4):
        draft = drafter.propose(4)
        said = talks[0].round(drafter, draft)
        for token in said:
            talks[1].say(_Nobody(), (token,))
    assert drafted.tokens.tolist() == plain.tokens.tolist()
    assert kv_bytes(drafted, drafted.length) == kv_bytes(plain, plain.length)
    assert drafted.drafters == {}


def test_a_draft_ends_with_the_slot(models: LearnedModels, target: Target) -> None:
    (slot,) = target.make_slots(1, 40)
    talk = Conversation(target, slot, make_prompt(36))
    drafter = talk.begin(models.drafter(KIND, slot, None, shared=False))
    lengths = []
    for _ in range(4):
        lengths.append(len(drafter.propose(4).tokens))
        talk.say(drafter, (5,))
    # With 37, 38, 39 and 40 tokens; the two places of the pad are free for drafts.
    assert lengths == [4, 4, 4, 2]


def test_drawn_drafts_come_with_q(models: LearnedModels, target: Target) -> None:
    (slot,) = target.make_slots(1, 200)
    talk = Conversation(target, slot, PROMPT)
    drafter = talk.begin(models.drafter(KIND, slot, make_sampler(seed=2), shared=False))
    draft = drafter.propose(3)
    assert draft.proposals is not None
    assert all(q.of(token) > 0 for token, q in zip(draft.tokens, draft.proposals, strict=True))
    assert [round(float(q.probabilities.sum()), 9) for q in draft.proposals] == [1.0] * 3


class _Nobody:
    """A drafter that only listens."""

    name = "nobody"

    def reset(self, tokens: object) -> None: ...

    def propose(self, budget: int) -> None: ...  # type: ignore[empty-body]

    def commit(self, tokens: object) -> None: ...
