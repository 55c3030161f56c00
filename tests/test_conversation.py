from __future__ import annotations

import pytest

from gateway.engine.conversation import Message, build_prompt
from models.errors import UserError
from tests.fake_engine import BracketTemplate, CharacterTokenizer


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def test_a_first_turn_is_rendered_and_encoded_whole() -> None:
    prompt = build_prompt(CharacterTokenizer(), BracketTemplate(), [Message("user", "Hi")])
    assert prompt.text == "<user>Hi</><assistant>"
    assert prompt.ids == ids(prompt.text)


def test_a_continuation_keeps_the_ids_the_target_saw_and_encodes_only_the_rest() -> None:
    tokenizer, template = CharacterTokenizer(), BracketTemplate()
    first = build_prompt(tokenizer, template, [Message("user", "Hi")])
    # The target said "yes" with other tokens than encoding would give.
    turn = first.answered("yes", [900, 901])
    tokenizer.encoded.clear()

    second = build_prompt(tokenizer, template, [Message("user", "Why?")], previous=turn)

    assert second.text == "<user>Hi</><assistant>yes</><user>Why?</><assistant>"
    assert second.ids == (*first.ids, 900, 901, *ids("</><user>Why?</><assistant>"))
    assert tokenizer.encoded == ["</><user>Why?</><assistant>"]
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]


def test_other_instructions_change_the_beginning_so_everything_is_encoded() -> None:
    tokenizer, template = CharacterTokenizer(), BracketTemplate()
    turn = build_prompt(tokenizer, template, [Message("user", "Hi")]).answered("yes", [900])

    second = build_prompt(
        tokenizer, template, [Message("user", "Why?")], instructions="Be brief.", previous=turn
    )

    expected = "<system>Be brief.</><user>Hi</><assistant>yes</><user>Why?</><assistant>"
    assert second.text == expected
    assert second.ids == ids(expected)


def test_instructions_are_not_carried_into_the_conversation() -> None:
    tokenizer, template = CharacterTokenizer(), BracketTemplate()
    first = build_prompt(tokenizer, template, [Message("user", "Hi")], instructions="Be brief.")
    turn = first.answered("yes", ids("yes"))
    assert [message.role for message in turn.messages] == ["user", "assistant"]
    same = build_prompt(
        tokenizer, template, [Message("user", "Why?")], instructions="Be brief.", previous=turn
    )
    assert same.text.startswith(turn.text)


def test_without_a_template_texts_are_joined() -> None:
    tokenizer = CharacterTokenizer()
    turn = build_prompt(tokenizer, None, [Message("user", "Once upon")]).answered(" a", [7])
    second = build_prompt(tokenizer, None, [Message("user", " time")], previous=turn)
    assert second.text == "Once upon a time"
    assert second.ids == (*ids("Once upon"), 7, *ids(" time"))


def test_nothing_to_continue_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        build_prompt(CharacterTokenizer(), None, [Message("user", "")])
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", "input")
