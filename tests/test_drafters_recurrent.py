"""Drafters with K/V of their own: what they are fed, what they keep, what they propose."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from export.heads.step import StepGraph
from export.unroll import unroll
from models.draft import Drafter
from models.drafters import recurrent
from models.drafters.bound import ChainGraph, Entries, TreeGraph
from models.drafters.drawing import Drawing
from models.drafters.learned import LearnedModels
from models.drafters.recurrent import RecurrentDrafter
from models.memory import PAD_TOKENS, drafter_state_bytes
from models.package import Package
from models.sampling.noise import Purpose
from models.slots import Slot, SlotPool, adopt_drafters, copy_prefix
from models.target import Target
from tests.drafters_support import (
    CPU,
    MODEL_SIZES,
    Conversation,
    head,
    load,
    make_sampler,
    modules,
)
from tests.engine_support import make_prompt
from tests.step_graphs import Runner, chain_feeds, model_step

CONTEXT = 200
PROMPT = make_prompt(30)
KINDS = ("eagle3", "mtp", "draft-model")
AHEAD = {"eagle3": 1, "mtp": 1, "draft-model": 0}
LOOKAHEAD = {"eagle3": 1, "mtp": 2, "draft-model": 0}


@pytest.fixture(scope="module")
def target(drafting: Package) -> Target:
    return Target(drafting, CPU)


@pytest.fixture(scope="module")
def models(drafting: Package) -> LearnedModels:
    return load(drafting)


@pytest.fixture
def slot(target: Target) -> Slot:
    return target.make_slots(1, CONTEXT)[0]


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(first entry, entries) of every run of a drafter."""
    runs: list[tuple[int, int]] = []
    for graph in (ChainGraph, TreeGraph):
        real = graph.run

        def run(self: ChainGraph, slot: Slot, entries: Entries, real: object = real) -> None:
            runs.append((entries.start, entries.ids.size))
            real(self, slot, entries)  # type: ignore[operator]

        monkeypatch.setattr(graph, "run", run)
    return runs


def greedy(models: LearnedModels, kind: str, talk: Conversation) -> Drafter:
    return talk.begin(models.drafter(kind, talk.slot, None, shared=False))


def expected(kind: str, tokens: list[int], slot: Slot, steps: int) -> list[int]:
    """The draft of a graph that is given all entries at once."""
    step: StepGraph = {"eagle3": head, "mtp": modules}.get(kind, lambda: model_step(MODEL_SIZES))()
    features: NDArray[np.float32] | None = None
    count = len(tokens) - AHEAD[kind]
    if kind != "draft-model":
        name = "taps" if kind == "eagle3" else "hidden"
        features = slot.features[name].numpy()[:count]
    runner = Runner(unroll(step, steps), capacity=270)
    drafted = 300 if step.ids is None else len(step.ids)
    feeds = chain_feeds(tokens[AHEAD[kind] :], features, 0, steps, drafted)
    found: list[int] = runner.run(feeds)["draft_ids"].tolist()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_round_drafts_as_if_all_tokens_were_new(
    kind: str, models: LearnedModels, target: Target, slot: Slot
) -> None:
    """Whatever was accepted of what was drafted before, and however much the target said itself."""
    talk = Conversation(target, slot, PROMPT)
    drafter = greedy(models, kind, talk)
    for accepted, more in ((0, 0), (2, 0), (4, 0), (1, 3), (3, 0), (0, 5)):
        draft = drafter.propose(4)
        assert list(draft.tokens) == expected(kind, talk.tokens, slot, 4)
        assert (draft.source, draft.parents, draft.proposals) == (kind, None, None)
        said = (*draft.tokens[:accepted], (draft.tokens[-1] + 1) % 300, *range(7, 7 + more))
        talk.say(drafter, said)


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_feeds_only_what_is_new(
    kind: str, models: LearnedModels, target: Target, slot: Slot, fed: list[tuple[int, int]]
) -> None:
    talk = Conversation(target, slot, PROMPT)
    drafter = greedy(models, kind, talk)
    known = len(talk.tokens)
    draft = drafter.propose(4)
    assert fed == [(0, known - AHEAD[kind])]
    talk.say(drafter, (*draft.tokens[:2], 5))
    drafter.propose(4)
    start, count = fed[-1]
    assert start + count == known + 3 - AHEAD[kind]
    # The accepted two of a draft model's are in its K/V; a head's were made of guesses.
    assert count == {"eagle3": 3, "mtp": 4, "draft-model": 1}[kind]
    assert slot.drafters[kind].length == known + {"eagle3": -1, "mtp": -2, "draft-model": 2}[kind]


def test_all_of_a_draft_accepted_leaves_its_last_token_to_feed(
    models: LearnedModels, target: Target, slot: Slot, fed: list[tuple[int, int]]
) -> None:
    talk = Conversation(target, slot, PROMPT)
    drafter = greedy(models, "draft-model", talk)
    draft = drafter.propose(4)
    talk.say(drafter, (*draft.tokens, 5))
    drafter.propose(4)
    assert fed[-1][1] == 2
    # Cut to what paid, and said by the target itself.
    draft = drafter.propose(4)
    talk.say(drafter, draft.tokens[:2])
    drafter.propose(4)
    assert fed[-1][1] == 1


@pytest.mark.parametrize(("budget", "count"), [(1, 1), (2, 2), (3, 3), (4, 4), (9, 4)])
def test_a_draft_keeps_to_the_budget_and_to_the_graphs(
    budget: int, count: int, models: LearnedModels, target: Target, slot: Slot
) -> None:
    talk = Conversation(target, slot, PROMPT)
    drafter = greedy(models, "eagle3", talk)
    longest = drafter.propose(4).tokens
    draft = drafter.propose(budget)
    assert draft.tokens == longest[:count]
    assert draft.confidence is not None
    assert len(draft.confidence) == count
    assert all(0 < value < 1 for value in draft.confidence)
    assert drafter.propose(0).tokens == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_prompt_is_caught_up_in_chunks(
    kind: str,
    models: LearnedModels,
    target: Target,
    slot: Slot,
    fed: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = Conversation(target, slot, make_prompt(60))
    wanted = greedy(models, kind, talk).propose(4).tokens
    assert len(fed) == 1
    monkeypatch.setattr(recurrent, "CHUNK", 16)
    slot.drafters.clear()
    fed.clear()
    assert greedy(models, kind, talk).propose(4).tokens == wanted
    assert {count for _, count in fed[:-1]} == {16}
    assert len(fed) >= 4
    assert fed[-1][1] <= 16
    for (start, count), (following, _) in itertools.pairwise(fed):
        # A second module's last entry of a chunk wants a token that the chunk does not have.
        assert following == start + count - (kind == "mtp")


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_end_with_the_context(kind: str, models: LearnedModels, target: Target) -> None:
    """exllamav2#274, vllm#57941: rotary tables and K/V go as far as the target's, no further."""
    (slot,) = target.make_slots(1, 254)
    talk = Conversation(target, slot, make_prompt(248))
    lengths = []
    while len(talk.tokens) <= slot.context:
        drafter = talk.begin(models.drafter(kind, slot, None, shared=False, branches=4))
        branching = drafter.propose(4)
        assert len(branching.tokens) <= 4
        drafter = greedy(models, kind, talk)
        draft = drafter.propose(4)
        lengths.append(len(draft.tokens))
        assert list(draft.tokens) == expected(kind, talk.tokens, slot, 4)[: lengths[-1]]
        if talk.slot.room == 1:
            break
        talk.say(drafter, (5,))
    # The two places of the pad take what is drafted; entry p of a head is one behind token p + 1.
    assert lengths == [4] * 5 + ([2] if kind == "draft-model" else [4])
    drafter.reset([*talk.tokens, 1])
    assert drafter.propose(4).tokens == ()


def test_a_drafter_of_a_shorter_context_stops_there(
    models: LearnedModels, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm#57941: drafting stops, decoding goes on."""
    model = models._models["draft-model"]
    shorter = dataclasses.replace(model.spec, context_length=34)
    monkeypatch.setitem(models._models, "draft-model", dataclasses.replace(model, spec=shorter))
    (slot,) = target.make_slots(1, 64)
    talk = Conversation(target, slot, PROMPT)
    drafter = greedy(models, "draft-model", talk)
    assert slot.drafters["draft-model"].buffers[0][0].shape()[2] == 34 + PAD_TOKENS
    assert drafter_state_bytes(shorter, "fp32", 64) == drafter_state_bytes(shorter, "fp32", 34)
    lengths = []
    for _ in range(6):
        lengths.append(len(drafter.propose(4).tokens))
        talk.say(drafter, (5,))
    assert lengths == [4, 4, 4, 2, 0, 0]
    assert slot.drafters["draft-model"].length == 34


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [True, False])
def test_a_drawn_token_is_the_hosts_draw_from_the_same_numbers(
    kind: str, shared: bool, models: LearnedModels, target: Target, slot: Slot
) -> None:
    """With shared noise the target's own; and q is what the draft was drawn from."""
    talk = Conversation(target, slot, PROMPT)
    law = {"temperature": 1.3, "top_k": 12, "top_p": 0.8}
    for seed in range(8):
        sampler = make_sampler(seed=seed, **law)
        drafter = talk.begin(models.drafter(kind, slot, sampler, shared=shared))
        draft = drafter.propose(4)
        assert draft.proposals is not None
        drawing = Drawing(sampler.sampling, seed, shared=shared, listed=64)
        assert drawing.purpose == (Purpose.TOKEN if shared else Purpose.DRAFT)
        graph = models._models[kind].graphs.chain(slot, slot.drafters[kind].buffers, 4)
        for place, (token, q) in enumerate(zip(draft.tokens, draft.proposals, strict=True)):
            own = drawing.proposal(graph.values[place], graph.listed[place])
            assert q.ids.tolist() == own.ids.tolist()
            assert q.ids.size <= 12
            assert np.allclose(q.probabilities, own.probabilities, atol=1e-6)
            assert token == drawing.draw(len(talk.tokens) + place, q)


def test_drafts_are_distributed_as_q(models: LearnedModels, target: Target, slot: Slot) -> None:
    talk = Conversation(target, slot, PROMPT)
    counts: Counter[int] = Counter()
    rounds = 1500
    for seed in range(rounds):
        sampler = make_sampler(1.5, seed=seed, top_k=6)
        drafter = talk.begin(models.drafter("eagle3", slot, sampler, shared=False))
        draft = drafter.propose(1)
        drafter.commit((0,))
        assert draft.proposals is not None
        counts[draft.tokens[0]] += 1
    q = draft.proposals[0]
    wanted = rounds * q.probabilities
    found = np.array([counts[token] for token in q.ids.tolist()])
    assert found.sum() == rounds
    # 5 degrees of freedom: 20.5 is exceeded once in a thousand.
    assert ((found - wanted) ** 2 / wanted).sum() < 20.5


def test_noise_of_positions_that_come_again_is_kept(
    models: LearnedModels, target: Target, slot: Slot
) -> None:
    talk = Conversation(target, slot, PROMPT)
    drafter = models.drafter("eagle3", slot, make_sampler(), shared=True)
    assert isinstance(drafter, RecurrentDrafter)
    talk.begin(drafter)
    drafter.propose(4)
    assert drafter._noise is not None
    assert drafter._noise.computed == 4
    talk.say(drafter, (5,))
    drafter.propose(4)
    assert drafter._noise.computed == 5
    talk.say(drafter, (5, 6))
    drafter.propose(2)
    assert drafter._noise.computed == 5
    drafter.propose(4)
    assert drafter._noise.computed == 7
    talk.say(drafter, tuple(range(9)))
    drafter.propose(3)
    assert drafter._noise.computed == 10


@pytest.mark.parametrize("shared", [True, False])
def test_confidence_says_nothing_about_which_token_was_drawn(
    shared: bool, models: LearnedModels, target: Target, slot: Slot
) -> None:
    talk = Conversation(target, slot, PROMPT)
    tokens, confidences = set(), set()
    for seed in range(20):
        sampler = make_sampler(2.0, seed=seed)
        drafter = talk.begin(models.drafter("eagle3", slot, sampler, shared=shared))
        draft = drafter.propose(1)
        tokens.add(draft.tokens)
        confidences.add(draft.confidence)
    assert len(tokens) > 3
    assert len(confidences) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_prefix_costs_the_drafter_nothing(
    kind: str, models: LearnedModels, target: Target, slot: Slot, fed: list[tuple[int, int]]
) -> None:
    """vllm#53670, #54360: prefix hits lost for drafters that read target features."""
    pool = SlotPool([slot], can_copy=True)
    lease = pool.acquire(PROMPT)
    assert lease is not None
    talk = Conversation(target, slot, PROMPT)
    drafter = greedy(models, kind, talk)
    for _ in range(3):
        talk.round(drafter, drafter.propose(4))
    pool.release(slot)
    following = (*slot.tokens.tolist(), 7, 8, 9)
    lease = pool.acquire(following)
    assert lease is not None
    assert lease.shared == len(following) - 3
    talk = Conversation(target, slot, following)
    fed.clear()
    draft = greedy(models, kind, talk).propose(4)
    assert list(draft.tokens) == expected(kind, talk.tokens, slot, 4)
    assert len(fed) == 1
    assert fed[0][1] <= 3 + 4 + LOOKAHEAD[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copied_prefix_costs_the_drafter_nothing(
    kind: str, models: LearnedModels, target: Target, fed: list[tuple[int, int]]
) -> None:
    source, slot = target.make_slots(2, CONTEXT)
    talk = Conversation(target, source, PROMPT)
    drafter = greedy(models, kind, talk)
    talk.round(drafter, drafter.propose(4))
    slot.commit(PROMPT[:25])
    adopt_drafters(source, slot, 25)
    copy_prefix(source, slot, 25)
    talk = Conversation(target, slot, (*PROMPT[:25], 90, 91))
    fed.clear()
    draft = greedy(models, kind, talk).propose(4)
    assert list(draft.tokens) == expected(kind, talk.tokens, slot, 4)
    assert fed == [(25 - LOOKAHEAD[kind], 28 - AHEAD[kind] - 25 + LOOKAHEAD[kind])]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_requests_proposal_leaves_the_next_owner_alone(
    kind: str, models: LearnedModels, target: Target, slot: Slot
) -> None:
    talk = Conversation(target, slot, PROMPT)
    stale = greedy(models, kind, talk)
    talk.round(stale, stale.propose(4))
    slot.truncate(4)
    other = (*PROMPT[:4], *make_prompt(12, seed=3))
    stale.propose(4)  # queued before its request was cancelled, run behind that
    assert slot.drafters[kind].length == 4 - LOOKAHEAD[kind]
    talk = Conversation(target, slot, other)
    stale.propose(4)
    draft = greedy(models, kind, talk).propose(4)
    assert list(draft.tokens) == expected(kind, talk.tokens, slot, 4)


def test_requests_of_other_slots_do_not_meet(models: LearnedModels, target: Target) -> None:
    talks = [
        Conversation(target, slot, make_prompt(20 + seed, seed=seed))
        for seed, slot in enumerate(target.make_slots(3, CONTEXT))
    ]
    drafters = [greedy(models, "eagle3", talk) for talk in talks]
    for _ in range(3):
        drafts = [drafter.propose(4) for drafter in drafters]
        for talk, drafter, draft in zip(talks, drafters, drafts, strict=True):
            assert list(draft.tokens) == expected("eagle3", talk.tokens, talk.slot, 4)
            talk.round(drafter, draft)


def test_bindings_are_bounded(
    drafting: Package, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.drafters.graphs._KEPT_BINDINGS", 3)
    models = load(drafting, "eagle3")
    for slot in target.make_slots(5, CONTEXT):
        talk = Conversation(target, slot, PROMPT)
        wanted = expected("eagle3", talk.tokens, slot, 4)
        assert list(greedy(models, "eagle3", talk).propose(4).tokens) == wanted
    assert len(models._models["eagle3"].graphs._bound) == 3
