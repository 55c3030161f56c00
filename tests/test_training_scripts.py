from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest

from export.training.corpus import Conversation
from export.training.desk import GREEDY, Ask, Exchange
from export.training.given import GivenPrompts
from export.training.material import load_material
from export.training.prompts import Prompt
from export.training.scripts import SCRIPTS, chat, facts, maths, retrieval, summary, translation
from export.training.speech import Ids, Speech
from export.training.stage import Part, Stage
from models.package import Package
from models.tokenizer import Tokenizer
from tests.training_support import CONTEXT, END, Babbler, make_desk, perform, play

USER, ASSISTANT = "<|im_start|>user\n", "<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def speech(package: Package) -> Speech:
    return Speech(package)


def full_text(package: Package, ids: Any) -> str:
    """With special tokens."""
    tokenizer = Tokenizer.load(package.file(package.manifest.tokenizer))
    return tokenizer.decode([int(token) for token in ids])


def runs(conversation: Conversation) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], conversation.mask, [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def test_a_chat_of_two_turns_keeps_the_tokens_it_was_written_in(
    package: Package, speech: Speech
) -> None:
    """Odd tokens too: "then" tokenised anew would be other ids."""
    odd = (*speech.encode("t"), *speech.encode("h"), *speech.encode("e"))
    assert speech.encode("the") != odd
    for seed in range(40):
        desk = make_desk(speech, seed)
        replies = cycle([(*speech.encode(" is it?"), END), (*odd, END), (*speech.encode("Go on"),)])
        asks = perform(chat(desk), lambda _ask, replies=replies: next(replies))
        if len(asks) == 4:
            break
    else:
        pytest.fail("no chat had an invented second turn")
    (kept,) = desk.kept
    opened, first, more, second = asks
    assert full_text(package, opened.prompt).startswith(USER)
    assert not full_text(package, opened.prompt).endswith(ASSISTANT)
    assert full_text(package, first.prompt).endswith(f"is it?<|im_end|>\n{ASSISTANT}")
    assert more.prompt == (*first.prompt, *odd, END, *speech.encode(f"\n{USER}"))
    assert second.prompt == (
        *first.prompt,
        *odd,
        END,
        *speech.encode(f"\n{USER}Go on<|im_end|>\n{ASSISTANT}"),
    )
    assert kept.ids.tolist() == [*second.prompt, *speech.encode(" is it?"), END]
    assert runs(kept) == [
        (len(first.prompt), len(first.prompt) + 4),
        (len(second.prompt), len(kept.ids)),
    ]


def test_an_answer_that_was_cut_is_ended_before_the_next_turn(speech: Speech) -> None:
    answered = (*speech.encode("abc"),)
    following = speech.next_turn(answered, "Why?")
    assert following == answered + speech.encode(f"<|im_end|>\n{USER}Why?<|im_end|>\n{ASSISTANT}")
    ended = speech.next_turn((*answered, END), "Why?")
    assert ended == following


def test_summaries_are_of_articles_that_were_written_before(
    package: Package, speech: Speech
) -> None:
    desk = make_desk(speech, 5)
    asks = perform(summary(desk), Babbler(speech))
    article, *summaries = desk.kept
    assert article.kind == "article"
    assert {one.kind for one in summaries} == {"summary"}
    written = full_text(package, article.ids[runs(article)[0][0] : -1]).strip()
    for one in summaries:
        prompt = full_text(package, one.ids[: runs(one)[0][0]])
        assert written.split("? ")[1] in prompt
        assert prompt.endswith(ASSISTANT)
    assert asks[0].sampling.temperature == 1.0


def test_questions_about_passages_share_what_was_read(speech: Speech) -> None:
    for seed in range(20):
        desk = make_desk(speech, seed)
        asks = perform(retrieval(desk), Babbler(speech))
        answers = [one for one in desk.kept if one.kind == "retrieval"]
        prompts = [tuple(one.ids[: runs(one)[0][0]].tolist()) for one in answers]
        if len(answers) < 3:
            continue
        first, last = prompts[0], prompts[-1]
        shared = next(i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
        if shared > 0.8 * len(first):
            break
    else:
        pytest.fail("text comes first in most forms")
    asked = [ask for ask in asks if ask.most == 40]
    assert any(ask.prompt[: shared // 2] == first[: shared // 2] for ask in asked)


@pytest.mark.parametrize(
    ("script", "needle"), [(translation, " to English"), (facts, "?"), (maths, "?")]
)
def test_short_questions_look_like_use(
    package: Package, speech: Speech, script: Any, needle: str
) -> None:
    found = 0
    for seed in range(30):
        desk = make_desk(speech, seed)
        perform(script(desk), Babbler(speech, seed))
        for one in desk.kept:
            prompt = full_text(package, one.ids[: runs(one)[0][0]])
            turn = prompt.removeprefix(USER).removesuffix(f"<|im_end|>\n{ASSISTANT}")
            assert "<|" not in turn
            assert "{" not in turn
            found += needle in turn
    assert found >= 20


def test_what_breaks_a_turn_is_not_asked(speech: Speech) -> None:
    desk = make_desk(speech, 1)
    reply = (*speech.encode("Ignore <|im"), *speech.encode("_end|> this"), END)
    asks = perform(facts(desk), lambda _ask: reply)
    assert len(asks) == 2
    assert speech.decode(asks[1].prompt).count("Ignore") == 0, "a general question instead"


def test_answers_are_shortened_to_the_context_and_dropped_where_it_is_full(speech: Speech) -> None:
    def answered(prompt: Ids, context: int) -> tuple[list[Ask], Exchange | None]:
        desk = make_desk(speech, context=context)
        results: list[Exchange | None] = []

        def script() -> Any:
            results.append((yield from desk.answered(prompt, GREEDY)))

        return perform(script(), lambda ask: (5,) * ask.most), results[0]

    asks, exchange = answered((3,) * 60, 100)
    assert [ask.most for ask in asks] == [40]
    assert exchange == Exchange((3,) * 60 + (5,) * 40, ((60, 100),))
    assert answered((3,) * 85, 100) == ([], None)


def test_every_kind_gets_its_share_and_held_texts_stay_apart(
    package: Package, speech: Speech
) -> None:
    parts = {kind: Part(script) for kind, script in SCRIPTS.items()}
    stage = Stage(parts, speech, load_material(), (1,), CONTEXT)
    kept = play(stage, Babbler(speech), 1500)
    tokens = {kind: sum(one.answer_tokens for one in kept if one.kind == kind) for kind in SCRIPTS}
    total = sum(tokens.values())
    assert stage.answer_tokens == total
    for kind, found in tokens.items():
        assert found / total == pytest.approx(1 / 6, rel=0.2), kind
    held = [one for one in kept if one.held]
    assert 0.005 < len(held) / len(kept) < 0.08
    texts = [one for one in held if one.kind in ("article", "passage")]
    assert texts, "some texts are held"
    open_prompts = [full_text(package, one.ids) for one in kept if not one.held]
    for text in texts:
        words = full_text(package, text.ids[runs(text)[0][0] : -1]).split()
        needle = " ".join(words[12:22])
        assert not any(needle in prompt for prompt in open_prompts)


def test_weights_shift_the_shares(speech: Speech) -> None:
    parts = {"facts": Part(facts, 3.0), "maths": Part(maths, 1.0)}
    stage = Stage(parts, speech, load_material(), (1,), CONTEXT)
    kept = play(stage, Babbler(speech), 600)
    tokens = [sum(c.answer_tokens for c in kept if c.kind == kind) for kind in parts]
    assert tokens[0] / tokens[1] == pytest.approx(3, rel=0.15)


def test_given_prompts_come_in_turn_and_are_held_by_the_prompt(
    package: Package, speech: Speech
) -> None:
    prompts = [Prompt(({"role": "user", "content": f"Question {i}"},)) for i in range(200)]

    def asked(seed: int) -> dict[str, tuple[bool, float]]:
        given = GivenPrompts(prompts, (seed,), 0.1)
        found: dict[str, tuple[bool, float]] = {}
        for _ in range(200):
            desk = make_desk(speech, seed)
            (ask,) = perform(given(desk), lambda _ask: (5, END))
            text = full_text(package, ask.prompt)
            found[text] = desk.kept[0].held, ask.sampling.temperature
        return found

    first, other = asked(1), asked(2)
    assert len(first) == 200
    assert {text: held for text, (held, _) in first.items()} == {
        text: held for text, (held, _) in other.items()
    }
    assert 8 <= sum(held for held, _ in first.values()) <= 35
    assert list(first) != list(other)


def test_given_prompts_are_sampled_when_they_come_again(speech: Speech) -> None:
    given = GivenPrompts([Prompt(({"role": "user", "content": "Hi"},), ("More",))], (1,), 0.0)
    temperatures = []
    for seed in range(12):
        desk = make_desk(speech, seed)
        asks = perform(given(desk), lambda _ask: (5, END))
        temperatures.append(asks[0].sampling.temperature)
        assert len(asks) == 2, "both turns are answered"
        assert len(runs(desk.kept[0])) == 2
    assert all(temperature > 0 for temperature in temperatures[1:])
