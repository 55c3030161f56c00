"""What of an answer is final: text, ids, sources and log-probabilities are trimmed together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.calls.reader import AnswerReader
from gateway.calls.scope import CallScope
from gateway.engine.requests import Delta, GenerationRequest, TokenLogprob
from gateway.engine.transcript import Said, TokenEnd, Transcript
from models.package import load_package
from models.sampling.parameters import Sampling
from models.tokenizer import StreamDecoder, Tokenizer
from tests.calls_support import HERMES

END = 2
"""End-of-sequence of the tiny model."""


@pytest.fixture(scope="module")
def tokenizer(tiny_package: Path) -> Tokenizer:
    package = load_package(tiny_package)
    return Tokenizer.load(package.file(package.manifest.tokenizer))


@dataclass(slots=True)
class Told:
    """A transcript and everything that it gave."""

    transcript: Transcript
    deltas: list[Delta] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def spelled(self) -> str:
        """The text as the tokens say it."""
        return "".join(mark.text for delta in self.deltas for mark in delta.marks)

    @property
    def ids(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.ids]


def said(tokens: Sequence[int]) -> list[Said]:
    return [Said(token, f"from {token}", TokenLogprob(token, -token)) for token in tokens]


def tell(
    tokenizer: Tokenizer,
    blocks: Sequence[Sequence[int]],
    *stops: str,
    least: int = 0,
    limit: int = 1000,
    stop_ids: tuple[int, ...] = (),
    endings: frozenset[int] = frozenset({END}),
) -> Told:
    """Add the blocks, one a round; in every delta tokens and what is said of them agree."""
    request = GenerationRequest(
        (1,), stop=stops, stop_ids=stop_ids, sampling=Sampling(min_tokens=least)
    )
    told = Told(Transcript(request, tokenizer, endings | set(stop_ids), limit))
    for round_, block in enumerate(blocks):
        if told.transcript.reason is not None:
            break
        told.transcript.add(said(block), 10.0 * round_)
        delta = told.transcript.take()
        if delta is not None:
            told.deltas.append(delta)
            assert delta.round == round_
            assert delta.sources == tuple(f"from {token}" for token in delta.ids)
            assert delta.logprobs == tuple(TokenLogprob(token, -token) for token in delta.ids)
            assert len(delta.marks) == len(delta.ids)
            for mark in delta.marks:
                assert mark.round <= round_
                assert mark.ms == 10.0 * mark.round
    assert told.transcript.count >= len(told.ids)
    if told.transcript.reason is not None:
        assert told.transcript.count == len(told.ids)
        assert told.transcript.take() is None, "everything final was given"
        # Stops hold tokens back until it is known what each adds to the text.
        assert not stops or told.spelled == told.text
    return told


def singly(tokens: Sequence[int]) -> list[list[int]]:
    return [[token] for token in tokens]


def end_reason(told: Told) -> tuple[str | None, str | int | None]:
    return told.transcript.reason, told.transcript.stop


def spelled(tokenizer: Tokenizer, *pieces: str) -> list[int]:
    """One token per piece."""
    ids = [tokenizer.token_id(piece.replace(" ", "Ġ")) for piece in pieces]
    assert None not in ids, "the tiny vocabulary has these tokens"
    return [token for token in ids if token is not None]


@pytest.mark.parametrize("whole", [False, True])
class TestStopStrings:
    """In one block and in blocks of one token the answer is the same."""

    def blocks(self, whole: bool, tokens: list[int]) -> list[list[int]]:
        return [tokens] if whole else singly(tokens)

    def test_a_stop_in_its_own_tokens(self, tokenizer: Tokenizer, whole: bool) -> None:
        tokens = spelled(tokenizer, " the", "x", "y", "re")
        told = tell(tokenizer, self.blocks(whole, tokens), "xy")
        assert (told.text, told.ids) == (" the", tokens[:1])
        assert end_reason(told) == ("stop", "xy")

    def test_a_token_that_the_stop_cuts_is_kept(self, tokenizer: Tokenizer, whole: bool) -> None:
        tokens = spelled(tokenizer, "a", " the", "re", "b")
        told = tell(tokenizer, self.blocks(whole, tokens), "her")
        assert (told.text, told.ids) == ("a t", tokens[:2])
        assert end_reason(told) == ("stop", "her")

    def test_nothing_is_left_of_a_token_that_is_the_stop(
        self, tokenizer: Tokenizer, whole: bool
    ) -> None:
        tokens = spelled(tokenizer, " the", "re")
        told = tell(tokenizer, self.blocks(whole, tokens), " the")
        assert (told.text, told.ids, told.transcript.count) == ("", [], 0)
        assert end_reason(told) == ("stop", " the")

    def test_of_several_the_first(self, tokenizer: Tokenizer, whole: bool) -> None:
        tokens = spelled(tokenizer, "a", "b", "c", "d", "e")
        told = tell(tokenizer, self.blocks(whole, tokens), "de", "cd", "zz", "abcde")
        assert (told.text, told.ids) == ("ab", tokens[:2])
        assert end_reason(told) == ("stop", "cd")

    def test_a_character_that_is_several_tokens(self, tokenizer: Tokenizer, whole: bool) -> None:
        tokens = tokenizer.encode("x 😀y")
        assert len(tokens) == 7
        told = tell(tokenizer, self.blocks(whole, tokens), "😀")
        assert (told.text, told.ids) == ("x ", tokens[:2])
        told = tell(tokenizer, self.blocks(whole, tokens), "y")
        assert (told.text, told.ids) == ("x 😀", tokens[:6])

    def test_the_end_of_sequence_comes_before_a_later_stop(
        self, tokenizer: Tokenizer, whole: bool
    ) -> None:
        tokens = [*spelled(tokenizer, "a", "b"), END, *spelled(tokenizer, "x", "y")]
        told = tell(tokenizer, self.blocks(whole, tokens), "xy", "bx")
        assert (told.text, told.ids) == ("ab", tokens[:2])
        assert end_reason(told) == ("stop", None)

    def test_the_limit_releases_what_was_held(self, tokenizer: Tokenizer, whole: bool) -> None:
        tokens = spelled(tokenizer, "a", "x", "y", "z")
        told = tell(tokenizer, self.blocks(whole, tokens), "xyz", limit=3)
        assert (told.text, told.ids) == ("axy", tokens[:3])
        assert end_reason(told) == ("length", None)
        told = tell(tokenizer, self.blocks(whole, tokens), "xyz", limit=4)
        assert (told.text, told.ids) == ("a", tokens[:1])
        assert end_reason(told) == ("stop", "xyz")

    def test_a_stop_id(self, tokenizer: Tokenizer, whole: bool) -> None:
        tokens = spelled(tokenizer, "a", "x", "y", "z")
        told = tell(
            tokenizer,
            self.blocks(whole, tokens),
            "xyz",
            stop_ids=(tokens[2], 77),
            endings=frozenset(),
        )
        assert (told.text, told.ids) == ("ax", tokens[:2])
        assert end_reason(told) == ("stop", tokens[2])

    def test_not_within_the_least_tokens(self, tokenizer: Tokenizer, whole: bool) -> None:
        """Neither a stop that ends there nor one that begins there."""
        tokens = spelled(tokenizer, "x", "y", "x", "y", "x", "y")
        for least, kept in ((0, 0), (1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (6, 6)):
            told = tell(tokenizer, self.blocks(whole, tokens), "xy", least=least)
            told.transcript.close()
            assert told.transcript.count == kept
            assert told.text == "xy" * (kept // 2)

    def test_an_ending_is_no_ending_within_the_least_tokens(
        self, tokenizer: Tokenizer, whole: bool
    ) -> None:
        tokens = [*spelled(tokenizer, "a"), END, *spelled(tokenizer, "b"), END]
        told = tell(tokenizer, self.blocks(whole, tokens), least=2)
        assert (told.text, told.ids) == ("ab", tokens[:3])
        assert end_reason(told) == ("stop", None)


def test_the_beginning_of_a_stop_is_held_back_until_it_is_known(tokenizer: Tokenizer) -> None:
    tokens = spelled(tokenizer, "a", "x", "y", "b", "x", "c")
    told = tell(tokenizer, singly(tokens), "xyz")
    assert [(delta.text, len(delta.ids)) for delta in told.deltas] == [
        ("a", 1),
        ("xyb", 3),
        ("xc", 2),
    ]


def test_only_as_much_is_held_back_as_must_be(tokenizer: Tokenizer) -> None:
    """The text goes out up to the stop's beginning, its token when it is all out."""
    tokens = spelled(tokenizer, " the", "re", "b")
    told = tell(tokenizer, singly(tokens), "ex")
    given = [(delta.text, len(delta.ids)) for delta in told.deltas]
    assert given == [(" th", 0), ("er", 1), ("eb", 2)]


def test_half_a_character_waits_where_it_may_begin_a_stop(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("😀")
    assert len(tokens) == 4
    without = tell(tokenizer, singly(tokens))
    assert [len(delta.ids) for delta in without.deltas] == [1, 1, 1, 1]
    told = tell(tokenizer, singly(tokens), "zzz")
    assert [(delta.text, len(delta.ids)) for delta in told.deltas] == [("😀", 4)]


def test_a_broken_character_and_the_stop_that_broke_it(tokenizer: Tokenizer) -> None:
    """The replacement character is the broken one's; nothing of the stop's token is left."""
    half = tokenizer.encode("😀")[:2]
    stop = spelled(tokenizer, "x", "y")
    told = tell(tokenizer, singly([*half, *stop]), "xy")
    assert (told.text, told.ids) == ("\ufffd", half)
    told = tell(tokenizer, singly([*half, *stop]), "\ufffdx")
    assert (told.text, told.ids) == ("", [])


def test_what_the_model_leaves_unfinished_can_end_in_a_stop(tokenizer: Tokenizer) -> None:
    half = tokenizer.encode("😀")[:2]
    told = tell(tokenizer, [[*spelled(tokenizer, "a"), *half, END]])
    assert (told.text, told.ids) == ("a\ufffd", [*spelled(tokenizer, "a"), *half])
    told = tell(tokenizer, [[*spelled(tokenizer, "a"), *half, END]], "\ufffd")
    assert (told.text, told.ids) == ("a", spelled(tokenizer, "a"))
    assert end_reason(told) == ("stop", "\ufffd")


def test_special_tokens_are_no_text(tokenizer: Tokenizer) -> None:
    """They cannot complete a stop, and do not come between its halves."""
    x, y = spelled(tokenizer, "x", "y")
    assert tokenizer.token_bytes(1) == b"<|im_start|>"
    told = tell(tokenizer, [[x, 1, y]], "xy")
    assert (told.text, told.ids) == ("", [])
    told = tell(tokenizer, [[x, 1, y]], "<|im_start|>", limit=3)
    assert (told.text, told.ids) == ("xy", [x, 1, y])


def test_closing_gives_what_was_held(tokenizer: Tokenizer) -> None:
    tokens = spelled(tokenizer, "a", "x", "y")
    told = tell(tokenizer, [tokens], "xyz")
    assert (told.text, told.ids) == ("a", tokens[:1])
    told.transcript.close()
    rest = told.transcript.take()
    assert rest is not None
    assert (rest.text, list(rest.ids)) == ("xy", tokens[1:])
    assert told.transcript.reason == "cancelled"


def test_no_room_for_a_token(tokenizer: Tokenizer) -> None:
    transcript = tell(tokenizer, [], limit=0).transcript
    assert transcript.reason == "length"
    transcript.close()
    assert transcript.reason == "cancelled", "its prompt was not read yet"


@pytest.mark.parametrize("seed", range(30))
def test_random_answers_end_where_their_text_says(tokenizer: Tokenizer, seed: int) -> None:
    """Against the whole text, searched at once; the blocks are random, so are the bytes."""
    draw = random.Random(seed)
    text = "".join(draw.choices("ab é€😀 ", k=30))
    tokens = tokenizer.encode(text) if seed % 2 else draw.choices(range(3, 300), k=60)
    whole = StreamDecoder(tokenizer).push(tokens)
    begin = draw.randrange(len(whole) - 3)
    stops = [whole[begin : begin + draw.randint(1, 3)], "zzzz", whole[-2:]]
    blocks, at = [], 0
    while at < len(tokens):
        size = draw.randint(1, 6)
        blocks.append(tokens[at : at + size])
        at += size
    told = tell(tokenizer, blocks, *stops, endings=frozenset())
    end = min((whole.find(stop) + len(stop), -len(stop)) for stop in stops if whole.find(stop) >= 0)
    cut = end[0] + end[1]
    assert told.text == whole[:cut]
    assert told.ids == tokens[: len(told.ids)]
    # All of these add a character to it, and none is missing.
    assert len(tokenizer.decode(told.ids, skip_special_tokens=True)) >= cut
    assert not told.ids or len(StreamDecoder(tokenizer).push(told.ids[:-1])) < cut


def test_a_long_answer_costs_as_much_per_token_as_a_short_one(tokenizer: Tokenizer) -> None:
    """Nothing keeps what was given: the state is bounded by the longest stop."""
    told = tell(tokenizer, singly(tokenizer.encode("ab" * 5000)), "abc" * 30, limit=100_000)
    transcript = told.transcript
    assert told.text == ("ab" * 5000)[: len(told.text)]
    assert len(transcript._unsent) < 90
    assert len(transcript._waiting) < 90


def marks_of(told: Told) -> list[tuple[str, int]]:
    return [(mark.text, mark.round) for delta in told.deltas for mark in delta.marks]


def test_tokens_say_what_they_add_and_which_round_accepted_them(tokenizer: Tokenizer) -> None:
    tokens = spelled(tokenizer, "a", "x", "y", "b", "c")
    told = tell(tokenizer, [tokens[:1], tokens[1:3], tokens[3:]], "xyz")
    # "xy" was held back for a round: it is still the second one's.
    assert [delta.round for delta in told.deltas] == [0, 2]
    assert marks_of(told) == [("a", 0), ("x", 1), ("y", 1), ("b", 2), ("c", 2)]


def test_a_character_of_several_tokens_is_said_by_the_last(tokenizer: Tokenizer) -> None:
    told = tell(tokenizer, singly(tokenizer.encode("😀")))
    assert marks_of(told) == [("", 0), ("", 1), ("", 2), ("😀", 3)]


def test_a_stop_cuts_the_text_of_the_token_that_it_begins_in(tokenizer: Tokenizer) -> None:
    told = tell(tokenizer, [spelled(tokenizer, "a", " the", "re", "b")], "her")
    assert marks_of(told) == [("a", 0), (" t", 0)]


def test_a_broken_character_is_said_by_its_own_token(tokenizer: Tokenizer) -> None:
    half = tokenizer.encode("😀")[:2]
    (letter,) = spelled(tokenizer, "x")
    told = tell(tokenizer, [[*half, letter]])
    assert marks_of(told) == [("", 0), ("\ufffd", 0), ("x", 0)]
    # Given already, it can say no more: who broke it does.
    told = tell(tokenizer, singly([*half, letter]))
    assert marks_of(told) == [("", 0), ("", 1), ("\ufffdx", 2)]


def test_what_the_model_leaves_unfinished_is_said_by_its_last_token(tokenizer: Tokenizer) -> None:
    half = tokenizer.encode("😀")[:2]
    told = tell(tokenizer, [[*half, END]])
    assert marks_of(told) == [("", 0), ("\ufffd", 0)]
    told = tell(tokenizer, singly([*half, END]))
    assert (told.spelled, told.text) == ("", "\ufffd")


def scoped(tokenizer: Tokenizer, text: str, *, single: bool = False, **stops: Any) -> Told:
    """`text` told token by token; stops act outside its calls, of which it has one if `single`."""
    scope = lambda: CallScope(AnswerReader(HERMES, calls=True, single=single))  # noqa: E731
    request = GenerationRequest((1,), stop_scope=scope, **stops)
    endings = frozenset({END, *request.stop_ids})
    told = Told(Transcript(request, tokenizer, endings, 1000))
    for token in tokenizer.encode(text):
        told.transcript.add(said([token]))
        delta = told.transcript.take()
        if delta is not None:
            told.deltas.append(delta)
        if told.transcript.reason is not None:
            return told
    told.transcript.end_at(END)
    delta = told.transcript.take()
    return told if delta is None else Told(told.transcript, [*told.deltas, delta])


CALLING = 'Well <tool_call>{"name": "f", "arguments": {"a": "in the end"}}</tool_call> '


def test_stop_strings_act_within_their_scope(tokenizer: Tokenizer) -> None:
    told = scoped(tokenizer, f"{CALLING}in the middle", stop=("the",))
    assert (told.text, told.transcript.stop) == (f"{CALLING}in ", "the")
    assert told.transcript.reason == "stop"
    told = scoped(tokenizer, "Well <tool", stop=("<to",))
    assert (told.text, told.transcript.stop) == ("Well ", "<to")
    told = scoped(tokenizer, CALLING[:-20], stop=("end",))
    assert (told.text, told.transcript.stop) == (CALLING[:-20], None)


def test_stop_tokens_act_within_their_scope(tokenizer: Tokenizer) -> None:
    tokens, length = tokenizer.encode(f"{CALLING}in the middle"), 0
    places: dict[bool, set[int]] = {False: set(), True: set()}
    for token in tokens:
        length += len(tokenizer.token_bytes(token))
        if length > len("Well <tool_call>"):
            places[length > len(CALLING)].add(token)
    stop = max(places[False] & places[True])
    told = scoped(tokenizer, f"{CALLING}in the middle", stop_ids=(stop,))
    assert told.text.startswith(CALLING[:-1])
    assert told.transcript.stop == stop
    assert told.text != f"{CALLING}in the middle"


def test_an_answer_of_one_call_is_over_behind_it(tokenizer: Tokenizer) -> None:
    told = scoped(tokenizer, CALLING + CALLING, single=True)
    assert (told.text, told.transcript.reason) == (CALLING.rstrip(), "stop")
    assert told.transcript.stop is None
    assert told.spelled == told.text
    assert told.transcript.count == len(told.ids)
    told = scoped(tokenizer, CALLING + CALLING)
    assert told.text == CALLING + CALLING
    least = len(tokenizer.encode(CALLING + "and more"))
    told = scoped(
        tokenizer, f"{CALLING}and more of it", single=True, sampling=Sampling(min_tokens=least)
    )
    assert told.transcript.count == least, "as soon as it may"
    assert (told.transcript.reason, told.transcript.stop) == ("stop", None)


def test_where_tokens_alone_end_it_is_known_before_it_is_written(tokenizer: Tokenizer) -> None:
    rng = random.Random(7)
    ended = {"stop": 0, "length": 0, None: 0}
    for _ in range(300):
        least, limit = rng.choice((0, 0, 3, 8)), rng.choice((0, 1, 5, 9, 100))
        request = GenerationRequest((1,), sampling=Sampling(min_tokens=least))
        transcript = Transcript(request, tokenizer, {END, 77}, limit)
        ahead = TokenEnd({END, 77}, least, limit)
        assert not transcript.reads
        for _ in range(6):
            assert ahead.over == (transcript.reason is not None)
            if ahead.over:
                break
            block = rng.choices([END, 77, *range(300, 330)], k=rng.randint(1, 4))
            assert ahead.take(block) == transcript.add(said(block))
            assert ahead.count == transcript.count
        ended[transcript.reason] += 1  # type: ignore[index]
    assert min(ended.values()) > 20, "all of them came to pass"
