"""What is kept of an answer for its continuation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType

import pytest

from gateway.engine.conversation import Message, Prompt, Turn
from gateway.engine.requests import Delta, Event, Finished, GenerationRequest, Usage
from gateway.http.responses.answer import Answer
from gateway.http.responses.events import ResponseEvents
from gateway.http.responses.schema import parse_create
from gateway.settings import Settings
from tests.fake_engine import MODEL, CharacterTokenizer, timings

WORDS = ("one", " two", " three")
PROMPT = Prompt(messages=(Message("user", "Hi"),), text="<Hi>", ids=(90, 91))


class WordTokenizer(CharacterTokenizer):
    """Ids are places in `WORDS`."""

    def token_bytes(self, token_id: int) -> bytes:
        return WORDS[token_id].encode()


class Scripted:
    def __init__(self, events: Sequence[Event]) -> None:
        self.request = GenerationRequest(PROMPT.ids)
        self._events = events

    async def __aenter__(self) -> Scripted:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def __aiter__(self) -> AsyncIterator[Event]:
        for event in self._events:
            yield event

    def cancel(self) -> None:
        return None


async def turn_of(text: str, ids: tuple[int, ...], stop: str | int | None) -> Turn:
    delta = Delta(text, ids, ("target",) * len(ids), 0)
    done = Finished("stop", Usage(2, 0, len(ids)), timings(len(ids), GenerationRequest((1,))), stop)
    generation = Scripted([delta, done])
    request = parse_create({"input": "Hi"}, Settings())
    events = ResponseEvents(request, generation.request, MODEL, WordTokenizer())
    kept: list[Turn | None] = []
    answer = Answer(
        generation, PROMPT, events, WordTokenizer(), lambda response_id, turn: kept.append(turn)
    )
    last = [event async for event in answer.events()][-1]
    assert last.type == "response.completed"
    assert last.fields["response"]["stop_reason"] == stop
    (turn,) = kept
    assert turn is not None
    assert turn.messages == (Message("user", "Hi"), Message("assistant", text))
    return turn


@pytest.mark.parametrize(
    ("text", "ids", "stop", "seen", "kept"),
    [
        # The stop began where a token does: all that was said was seen.
        ("one two", (0, 1), " three", "one two", (0, 1)),
        # It cut the last token: the target saw more of it than was said.
        ("one two thr", (0, 1, 2), "ee", "one two", (0, 1)),
        ("on", (0,), "e", "", ()),
        ("", (), "one", "", ()),
        # Other endings cut nothing; what special tokens say is not in the text.
        ("one", (0, 1), 5, "one", (0, 1)),
        ("one", (0, 1), None, "one", (0, 1)),
    ],
)
async def test_a_continuation_begins_with_tokens_whose_text_was_said(
    text: str, ids: tuple[int, ...], stop: str | int | None, seen: str, kept: tuple[int, ...]
) -> None:
    turn = await turn_of(text, ids, stop)
    assert turn.text == PROMPT.text + seen
    assert turn.ids == (*PROMPT.ids, *kept)
