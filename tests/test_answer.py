"""One answer: rounds of propose, verify, commit; where it stops, and what it says about itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.engine.costs.shape import Load, RunShape
from gateway.engine.costs.streams import Stream
from gateway.engine.requests import Speculation
from models.draft import Draft
from models.package import Package
from models.tokenizer import StreamDecoder, Tokenizer
from tests.engine_support import (
    CONTEXT,
    OFF,
    Answered,
    Reference,
    ScriptedDrafter,
    SpellingTarget,
    TestEngine,
    ask,
    build_engine,
    kv_bytes,
    make_prompt,
    running,
)

PROMPT = make_prompt(30)
EIGHT = Speculation(policy="fixed", length=8)
BLOCK = 9
"""Tokens of a round whose eight draft tokens are all accepted."""


@pytest.fixture(scope="module")
def answer(reference: Reference) -> list[int]:
    return reference.answer(PROMPT, 40)


def scripted(package: Package, answer: Sequence[int], wrong: int = 0) -> ScriptedDrafter:
    return ScriptedDrafter(answer, package.manifest.target.vocab_size, wrong)


def unfinished(tokenizer: Tokenizer, tokens: Sequence[int]) -> bool:
    """Whether the text of `tokens` ends in half a character."""
    stream = StreamDecoder(tokenizer)
    stream.push(tokens)
    return stream.finish() != ""


def fresh_token(answer: Sequence[int], least: int, most: int) -> int:
    """An index in a range whose token does not occur before."""
    return next(index for index in range(least, most) if answer[index] not in answer[:index])


async def test_an_answer_is_right_whatever_was_drafted(
    tiny_package: Path, package: Package, answer: list[int]
) -> None:
    """Always right, always wrong by one id, and wrong now and then."""
    every_third = [token if index % 3 else token + 1 for index, token in enumerate(answer)]
    drafters = [
        scripted(package, answer),
        scripted(package, answer, wrong=1),
        scripted(package, every_third),
    ]
    async with running(tiny_package) as engine:
        for drafter in drafters:
            engine.drafter_of = lambda drafter=drafter: drafter
            said = await ask(engine, PROMPT, max_tokens=40, speculation=EIGHT)
            assert said.ids == answer
            assert drafter.committed[:40] == answer


async def test_a_drafter_that_is_always_right(
    tiny_package: Path, package: Package, answer: list[int]
) -> None:
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: scripted(package, answer)
        said = await ask(engine, PROMPT, max_tokens=1 + 3 * BLOCK, speculation=EIGHT)
    timings = said.finished.timings
    assert (timings.rounds, timings.draft_n, timings.draft_n_accepted) == (3, 24, 24)
    assert (timings.alpha, timings.tau) == (1.0, 9.0)
    assert said.sources == ["target"] + (["scripted"] * 8 + ["target"]) * 3
    assert [delta.round for delta in said.deltas] == sorted(delta.round for delta in said.deltas)
    assert (timings.drafter, timings.policy, timings.lossless) == ("ngram", "fixed", True)


async def test_every_token_says_its_text_its_round_and_when(
    tiny_package: Path, package: Package, answer: list[int]
) -> None:
    every_third = [token if index % 3 else token + 1 for index, token in enumerate(answer)]
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: scripted(package, every_third)
        for pacing in ("none", "even"):
            speculation = Speculation(policy="fixed", length=8, pacing=pacing)
            said = await ask(engine, PROMPT, max_tokens=40, speculation=speculation)
            marks = [mark for delta in said.deltas for mark in delta.marks]
            rounds = [trace for delta in said.deltas for trace in delta.rounds]
            timings = said.finished.timings
            assert "".join(mark.text for mark in marks) == said.text
            assert [trace.round for trace in rounds] == list(range(1, timings.rounds + 1))
            assert sum(trace.verified for trace in rounds) == timings.draft_n
            assert sum(trace.accepted for trace in rounds) == timings.draft_n_accepted
            assert sum(trace.verify_ms for trace in rounds) == pytest.approx(timings.verify_ms)
            assert sum(trace.draft_ms for trace in rounds) == pytest.approx(timings.draft_ms)
            for trace in rounds:
                own = [mark for mark in marks if mark.round == trace.round]
                drafted = [
                    source
                    for mark, source in zip(marks, said.sources, strict=True)
                    if mark.round == trace.round and source != "target"
                ]
                assert len(drafted) == trace.accepted == len(own) - 1
                assert all(0 < mark.ms <= trace.ms for mark in own)
            times = [mark.ms for mark in marks]
            assert times == sorted(times)
            assert times[0] == pytest.approx(timings.ttft_ms, abs=5)


async def test_a_drafter_that_is_always_wrong_costs_rounds_and_no_more(
    tiny_package: Path, package: Package, answer: list[int]
) -> None:
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: scripted(package, answer, wrong=1)
        said = await ask(engine, PROMPT, max_tokens=12, speculation=EIGHT)
    timings = said.finished.timings
    assert said.ids == answer[:12]
    assert said.sources == ["target"] * 12
    assert (timings.rounds, timings.draft_n_accepted, timings.alpha) == (11, 0, 0.0)
    assert timings.tau == 1.0
    # The last rounds draft less: 10 tokens are left before the 11th round's.
    assert timings.draft_n == 8 * 3 + sum(range(8))


@pytest.mark.parametrize("wrong", [0, 1])
async def test_rejected_tokens_leave_no_trace_in_the_slot(
    tiny_package: Path, package: Package, answer: list[int], reference: Reference, wrong: int
) -> None:
    """vllm#39273: the rollback was wrong while acceptance looked healthy."""
    async with running(tiny_package, slots=1) as engine:
        engine.drafter_of = lambda: scripted(package, answer, wrong)
        await ask(engine, PROMPT, max_tokens=20, speculation=EIGHT)
        (slot,) = engine.pool_slots
        committed = slot.tokens.tolist()
        assert committed == [*PROMPT, *answer][: len(committed)]
        assert len(committed) >= len(PROMPT) + 19
        assert kv_bytes(slot, len(committed)) == reference.kv(committed)


async def test_the_answer_stops_at_the_first_end_of_sequence_inside_an_accepted_block(
    tiny_package: Path, package: Package, answer: list[int]
) -> None:
    """transformers#47912, koboldcpp#1276: nothing behind it is streamed."""
    stop = fresh_token(answer, 3, 8)
    async with running(tiny_package) as engine:
        engine.eos_ids = frozenset({answer[stop], *answer[stop + 1 : stop + 4]})
        engine.drafter_of = lambda: scripted(package, answer)
        said = await ask(engine, PROMPT, ignore_eos=False, max_tokens=40, speculation=EIGHT)
        engine.eos_ids = frozenset({answer[stop]})
        plain = await ask(engine, PROMPT, ignore_eos=False, max_tokens=40, speculation=OFF)
        text = engine.tokenizer.decode(answer[:stop], skip_special_tokens=True)
    first = min(answer.index(token) for token in {answer[stop], *answer[stop + 1 : stop + 4]})
    assert said.ids == answer[:first]
    assert said.finished.reason == "stop"
    assert said.finished.usage.completion_tokens == len(said.ids)
    assert len(said.sources) == len(said.ids)
    assert (plain.ids, plain.text, plain.finished.reason) == (answer[:stop], text, "stop")


@pytest.mark.parametrize("length", [3, 7, 20])
async def test_what_is_accepted_behind_the_end_counts_for_nothing(
    tiny_package: Path, package: Package, answer: list[int], length: int
) -> None:
    """llama.cpp#14104, sglang#13212: `tau` and what was accepted are of the answer alone."""
    end = fresh_token(answer, 3, 8)
    async with running(tiny_package) as engine:
        engine.eos_ids = frozenset({answer[end]})
        engine.drafter_of = lambda: scripted(package, answer)
        fixed = Speculation(policy="fixed", length=length)
        said = await ask(engine, PROMPT, ignore_eos=False, max_tokens=40, speculation=fixed)
        timings = said.finished.timings
    assert said.ids == answer[:end]
    # The first token is the prefill's; the end itself is the last that a round gave.
    assert timings.tau == end / timings.rounds
    assert timings.rounds == -(-end // (length + 1))
    bonus = end // (length + 1)
    assert timings.draft_n_accepted == end - bonus
    assert timings.alpha == 1, "a draft that is always right is never wrong behind the end"


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("least", [1, 9])
async def test_end_of_sequence_as_the_bonus_token(
    tiny_package: Path, package: Package, answer: list[int], wrong: int, least: int
) -> None:
    stop = fresh_token(answer, least, 40)
    async with running(tiny_package) as engine:
        engine.eos_ids = frozenset({answer[stop]})
        engine.drafter_of = lambda: scripted(package, answer, wrong)
        speculation = Speculation(policy="fixed", length=max(1, stop - 1))
        said = await ask(engine, PROMPT, ignore_eos=False, max_tokens=40, speculation=speculation)
    assert (said.ids, said.finished.reason) == (answer[:stop], "stop")


async def test_an_answer_that_begins_with_end_of_sequence_is_empty(
    tiny_package: Path, answer: list[int]
) -> None:
    async with running(tiny_package) as engine:
        engine.eos_ids = frozenset({answer[0]})
        said = await ask(engine, PROMPT, ignore_eos=False)
        assert engine.status().free_slots == 4
    assert (said.deltas, said.finished.reason) == ((), "stop")
    assert said.finished.usage.completion_tokens == 0
    assert said.finished.timings.ttft_ms is None


STOP_TEXT = "one two, three four; five six. Zoë 😀 ends here"


@pytest.mark.parametrize("length", [0, 1, 3, 8])
@pytest.mark.parametrize(
    ("stops", "kept", "stop"),
    [
        ((", thr",), "one two", ", thr"),
        (("zzz", "ve s", "four; "), "one two, three ", "four; "),
        (("ë 😀",), "one two, three four; five six. Zo", "ë 😀"),
        (("😀",), "one two, three four; five six. Zoë ", "😀"),
        (("one",), "", "one"),
        (("here", "ends"), "one two, three four; five six. Zoë 😀 ", "ends"),
    ],
)
async def test_a_stop_trims_text_ids_and_log_probabilities_together(
    package: Package, length: int, stops: tuple[str, ...], kept: str, stop: str
) -> None:
    """vllm#47616; koboldcpp#1276, openvino.genai#1951: nothing behind it is ever given."""
    said = await spell(
        package,
        STOP_TEXT,
        stop=stops,
        top_logprobs=1,
        speculation=Speculation(policy="fixed", length=length),
    )
    tokenizer = Tokenizer.load(package.file(package.manifest.tokenizer))
    script = tokenizer.encode(STOP_TEXT)
    assert said.text == kept
    assert said.ids == script[: len(said.ids)]
    assert tokenizer.decode(said.ids).startswith(kept)
    assert len(tokenizer.decode(said.ids[:-1])) < max(len(kept), 1)
    assert [entry.id for entry in said.logprobs] == said.ids
    assert len(said.sources) == len(said.ids)
    finished = said.finished
    assert (finished.reason, finished.stop) == ("stop", stop)
    assert finished.usage.completion_tokens == len(said.ids)


async def test_a_stop_id_inside_an_accepted_block(
    tiny_package: Path, package: Package, answer: list[int]
) -> None:
    """Also with end-of-sequence ignored; it is told which it was."""
    at = fresh_token(answer, 3, 8)
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: scripted(package, answer)
        said = await ask(engine, PROMPT, stop_ids=(answer[at], 299), speculation=EIGHT)
    assert (said.ids, said.finished.reason, said.finished.stop) == (
        answer[:at],
        "stop",
        answer[at],
    )


async def test_an_end_of_sequence_is_no_stop_that_was_asked_for(
    tiny_package: Path, answer: list[int]
) -> None:
    async with running(tiny_package) as engine:
        engine.eos_ids = frozenset({answer[5]})
        said = await ask(engine, PROMPT, ignore_eos=False)
    assert (said.finished.reason, said.finished.stop) == ("stop", None)


async def test_end_of_sequence_can_be_ignored(tiny_package: Path, answer: list[int]) -> None:
    async with running(tiny_package) as engine:
        engine.eos_ids = frozenset(answer)
        said = await ask(engine, PROMPT, ignore_eos=True, max_tokens=20)
    assert (said.ids, said.finished.reason) == (answer[:20], "length")


async def test_a_character_that_the_limit_cuts_is_left_out(
    tiny_package: Path, package: Package, answer: list[int]
) -> None:
    tokenizer = Tokenizer.load(package.file(package.manifest.tokenizer))
    cut = next(end for end in range(1, 40) if unfinished(tokenizer, answer[:end]))
    async with running(tiny_package) as engine:
        said = await ask(engine, PROMPT, max_tokens=cut)
    assert said.ids == answer[:cut]
    assert said.text == StreamDecoder(tokenizer).push(answer[:cut])
    assert said.text + "\ufffd" == tokenizer.decode(answer[:cut], skip_special_tokens=True)


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("most", [1, 2, 3, 8, 9, 10, 11, 18, 19, 20])
async def test_the_limit_is_reached_exactly(
    tiny_package: Path, package: Package, answer: list[int], most: int, wrong: int
) -> None:
    drafter = scripted(package, answer, wrong)
    async with running(tiny_package, slots=1) as engine:
        engine.drafter_of = lambda: drafter
        said = await ask(engine, PROMPT, max_tokens=most, speculation=EIGHT)
    assert (said.ids, said.finished.reason) == (answer[:most], "length")
    assert said.finished.usage.completion_tokens == most
    assert all(budget < most for budget in drafter.budgets)


async def test_no_tokens_wanted_only_prefills(tiny_package: Path, answer: list[int]) -> None:
    async with running(tiny_package, slots=1) as engine:
        said = await ask(engine, PROMPT, max_tokens=0)
        assert engine.pool_slots[0].tokens.tolist() == list(PROMPT)
        after = await ask(engine, PROMPT, max_tokens=5)
    assert (said.deltas, said.finished.reason) == ((), "length")
    assert said.finished.usage.completion_tokens == 0
    assert after.ids == answer[:5]
    assert after.finished.usage.cached_tokens == len(PROMPT) - 1


@pytest.mark.parametrize("speculation", [OFF, EIGHT, Speculation()], ids=["off", "8", "auto"])
async def test_a_full_context_ends_the_answer_and_loses_nothing(
    tiny_package: Path, package: Package, answer: list[int], speculation: Speculation
) -> None:
    """mlx-lm#1423, exllamav2#274: drafts are clamped to what is left of the slot."""
    context = len(PROMPT) + 12
    async with running(tiny_package, slots=1, context=context) as engine:
        engine.drafter_of = lambda: scripted(package, answer)
        for limit in (None, 1000):
            said = await ask(engine, PROMPT, max_tokens=limit, speculation=speculation)
            assert (said.ids, said.finished.reason) == (answer[:12], "length")
        ends = [row.past + len(row.tokens) for run in engine.target.runs for row in run]
        assert max(ends) <= context


async def test_the_longest_prompt_gets_one_token(tiny_package: Path, reference: Reference) -> None:
    prompt = make_prompt(CONTEXT - 1)
    async with running(tiny_package) as engine:
        said = await ask(engine, prompt, max_tokens=None, speculation=EIGHT)
    assert (said.ids, said.finished.reason) == (reference.answer(prompt, 1), "length")


class Doubtful(ScriptedDrafter):
    """Believes in none of its tokens."""

    def propose(self, budget: int) -> Draft:
        draft = super().propose(budget)
        return Draft(tokens=draft.tokens, confidence=(0.0,) * len(draft.tokens), source=self.name)


async def test_a_draft_that_does_not_pay_is_not_verified(
    tiny_package: Path, package: Package, answer: list[int]
) -> None:
    async with running(tiny_package) as engine:
        engine.drafter_of = lambda: Doubtful(answer, package.manifest.target.vocab_size)
        said = await ask(engine, PROMPT, max_tokens=10, speculation=Speculation())
    timings = said.finished.timings
    assert said.ids == answer[:10]
    assert (timings.draft_n, timings.alpha, timings.tau, timings.rounds) == (0, None, 1.0, 9)


@pytest.mark.parametrize("speculation", [OFF, Speculation("off"), Speculation(policy="off")])
async def test_off_never_asks_for_a_drafter(
    tiny_package: Path, answer: list[int], speculation: Speculation
) -> None:
    def refuse() -> ScriptedDrafter:
        raise AssertionError("a drafter was made")

    async with running(tiny_package) as engine:
        engine.drafter_of = refuse
        said = await ask(engine, PROMPT, max_tokens=10, speculation=speculation)
    timings = said.finished.timings
    assert said.ids == answer[:10]
    assert (timings.drafter, timings.policy, timings.draft_n) == ("off", "off", 0)


async def test_ngrams_are_the_requests_own(tiny_package: Path) -> None:
    """sglang#24175: what another request said is never proposed."""
    prompt = tuple(range(3, 40))
    async with running(tiny_package) as engine:
        first = (await ask(engine, prompt, max_tokens=3, speculation=OFF)).ids
        speculation = Speculation(policy="fixed", length=8)
        for _ in range(2):
            await ask(engine, (*prompt, *first, *prompt), max_tokens=3, speculation=speculation)
        again = await ask(engine, prompt, max_tokens=3, speculation=speculation)
        found = await ask(engine, PROMPT, max_tokens=60, speculation=speculation)
    assert again.ids == first
    assert again.finished.timings.draft_n == 0, "all tokens of this prompt are different"
    assert found.finished.timings.draft_n > 0


TEXT = "Zoë pays 5 € for 😀👩‍🚀 in 東京."


def say(engine: TestEngine, script: Sequence[int]) -> None:
    """Have the target say `script`, whatever it is asked."""
    target = SpellingTarget(len(PROMPT), script, engine.package.manifest.target.vocab_size)
    engine.service._run = target.run


async def spell(package: Package, text: str, **fields: object) -> Answered:
    """An answer that is `text`, drafted in part."""
    engine = build_engine(package)
    script = engine.tokenizer.encode(text)
    say(engine, script)
    drafted = [token if index % 5 else 0 for index, token in enumerate(script)]
    engine.drafter_of = lambda: scripted(package, drafted)
    try:
        return await ask(engine, PROMPT, max_tokens=len(script), **fields)
    finally:
        await engine.close()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 8])
async def test_deltas_hold_whole_characters(package: Package, length: int) -> None:
    said = await spell(package, TEXT, speculation=Speculation(policy="fixed", length=length))
    assert said.text == TEXT
    assert all("�" not in delta.text for delta in said.deltas)
    assert len(said.deltas) > 1


async def test_a_character_of_several_tokens_is_whole_or_left_out(package: Package) -> None:
    tokenizer = Tokenizer.load(package.file(package.manifest.tokenizer))
    script = tokenizer.encode("ok 😀")
    assert len(script) > 4, "the emoji is several tokens here"
    engine = build_engine(package)
    say(engine, script)
    try:
        cut = await ask(engine, PROMPT, max_tokens=len(script) - 1, speculation=OFF)
        whole = await ask(engine, PROMPT, max_tokens=len(script), speculation=OFF)
    finally:
        await engine.close()
    assert (cut.text, cut.ids) == ("ok ", script[:-1])
    assert (whole.text, whole.ids) == ("ok 😀", script)


@pytest.mark.parametrize("prompt", [make_prompt(9, 3), make_prompt(50, 4)])
async def test_text_is_the_decoded_answer(tiny_package: Path, prompt: tuple[int, ...]) -> None:
    """A random model's bytes are rarely UTF-8: every replacement character is in its place, but
    for the one of a character that the limit cut."""
    async with running(tiny_package) as engine:
        for speculation in (OFF, EIGHT):
            said = await ask(engine, prompt, max_tokens=100, speculation=speculation)
            assert said.text == StreamDecoder(engine.tokenizer).push(said.ids)
            assert len(said.ids) == 100


@pytest.mark.parametrize(("busy", "widths"), [(False, [20, 10]), (True, [6, 6, 6, 6, 6])])
async def test_prompts_come_in_smaller_chunks_while_others_stream(
    tiny_package: Path, busy: bool, widths: list[int]
) -> None:
    async with running(tiny_package, prefill_chunk=20, busy_chunk=6) as engine:
        if busy:
            engine.streams.enter(engine.pool_slots[0])
        await ask(engine, PROMPT, max_tokens=0)
        assert prefill_widths(engine) == widths
        await ask(engine, PROMPT, max_tokens=0, reuse_prefix=False, prefill_chunk=11)
        assert prefill_widths(engine)[len(widths) :] == [11, 11, 8]


async def test_chunks_grow_with_the_prompts_that_wait(tiny_package: Path) -> None:
    """The three queue one after another, so their first chunks differ; behind the first prompt's
    two others wait, behind the second's one, behind the last one's nobody."""
    async with running(tiny_package, slots=4, prefill_chunk=20, busy_chunk=6) as engine:
        engine.streams.enter(engine.pool_slots[0])
        prompts = [make_prompt(30, seed) for seed in range(3)]
        await asyncio.gather(*(ask(engine, prompt, max_tokens=0) for prompt in prompts))
        assert prefill_widths(engine) == [6, 18, 6, 12, 12, 6, 18, 6, 6]


def prefill_widths(engine: TestEngine) -> list[int]:
    return [len(row.tokens) for run in engine.target.runs for row in run]


async def test_times_are_measured(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        said = await ask(engine, PROMPT, max_tokens=6, speculation=OFF)
    timings = said.finished.timings
    assert (timings.rounds, timings.tau, timings.alpha) == (5, 1.0, None)
    assert timings.ttft_ms is not None
    assert timings.ttft_ms >= timings.prefill_ms > 0
    assert timings.tpot_ms is not None
    assert timings.verify_ms > 0
    assert timings.tpot_ms > 0


async def test_a_stream_sees_what_others_bring(tiny_package: Path) -> None:
    """Their rows, what they have cached and their tokens of late, not a token each."""
    async with running(tiny_package) as engine:
        loads: list[Load] = []
        load = engine.streams.load

        def recorded(stream: Stream) -> Load:
            loads.append(load(stream))
            return loads[-1]

        engine.streams.load = recorded  # type: ignore[method-assign]
        fixed = Speculation(drafter="ngram", policy="fixed", length=4)
        await asyncio.gather(*(ask(engine, PROMPT, speculation=fixed) for _ in range(2)))
        assert len(engine.streams) == 0
    shared = [load for load in loads if load.others.rows == 1]
    assert shared
    assert all(load.cached >= len(PROMPT) for load in loads)
    assert all(load.others.past >= len(PROMPT) for load in shared)
    assert max(load.others.tokens for load in shared) > 1


async def test_rounds_in_company_teach_no_overhead(tiny_package: Path) -> None:
    async with running(tiny_package) as engine:
        company = engine.streams.enter(engine.pool_slots[3])
        await ask(engine, PROMPT, max_tokens=8)
        assert engine.costs.overhead.ms == 0
        assert engine.costs.corrections().residuals, "but what their runs cost"
        engine.streams.leave(company)
        await ask(engine, PROMPT, max_tokens=8)
        assert engine.costs.overhead.ms > 0


async def test_runs_that_a_chunk_rides_along_in_teach_nothing(tiny_package: Path) -> None:
    async with running(tiny_package, prefill_chunk=6, busy_chunk=6) as engine:
        observed: list[RunShape] = []

        def record(shape: RunShape, milliseconds: float) -> None:
            observed.append(shape)

        engine.costs.observe = record  # type: ignore[method-assign]
        prompts = [make_prompt(100, seed) for seed in range(2)]
        await asyncio.gather(
            *(ask(engine, each, max_tokens=60, speculation=OFF) for each in prompts)
        )
        mixed = [run for run in engine.target.runs if {1, 6} <= {len(row.tokens) for row in run}]
    assert mixed, "a chunk rode along"
    assert observed
    assert all(shape.tokens == shape.rows for shape in observed)
