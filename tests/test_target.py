"""The target: packed rows, padded lone tokens, rollback by length; all of it to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.package import Package
from models.providers import select_provider
from models.session import Binding
from models.slots import Slot
from models.target import LEAST_WIDTH, Row, RowResult, Target
from tests.checkpoints import make_checkpoint
from tests.engine_support import kv_bytes, make_prompt

CONTEXT = 64
PROMPT = make_prompt(40)


@pytest.fixture(scope="module")
def target(package: Package) -> Target:
    return Target(package, select_provider("cpu", "cpu"))


@pytest.fixture
def slots(target: Target) -> list[Slot]:
    return target.make_slots(4, CONTEXT)


def whole(target: Target, tokens: Sequence[int]) -> tuple[RowResult, list[bytes]]:
    """Every token's result, and the K/V, of one run of all of them."""
    (slot,) = target.make_slots(1, CONTEXT)
    (result,) = target.run([Row(slot, tuple(tokens), logits=len(tokens))])
    return result, kv_bytes(slot, len(tokens))


def bits(result: RowResult, start: int = 0, end: int | None = None) -> tuple[bytes, bytes, bytes]:
    part = slice(start, end)
    return (
        result.top_values[part].tobytes(),
        result.top_ids[part].tobytes(),
        result.logsumexp[part].tobytes(),
    )


def prefill(target: Target, slot: Slot, tokens: Sequence[int]) -> None:
    target.run([Row(slot, tuple(tokens), logits=0)])
    slot.commit(tokens)


def test_results_are_the_largest_logits_in_falling_order(target: Target, package: Package) -> None:
    result, _ = whole(target, PROMPT)
    assert result.top_values.shape == (len(PROMPT), package.manifest.target.top_k)
    assert (np.diff(result.top_values, axis=1) <= 0).all()
    assert result.greedy == result.top_ids[:, 0].tolist()
    for ids in result.top_ids:
        assert len(set(ids.tolist())) == len(ids)
    known = np.exp(result.top_values - result.logsumexp[:, None]).sum(axis=1)
    assert (known > 0.1).all()
    assert (known < 1 + 1e-5).all()


@pytest.mark.parametrize("widths", [(1,), (2,), (3, 1), (7, 1, 16, 3), (39, 1), (1, 39)])
def test_chunks_give_the_bits_of_the_whole(
    target: Target, slots: list[Slot], widths: tuple[int, ...]
) -> None:
    expected, kv = whole(target, PROMPT)
    slot, turn = slots[0], itertools.cycle(widths)
    while slot.length < len(PROMPT):
        begin = slot.length
        chunk = PROMPT[begin : begin + next(turn)]
        (result,) = target.run([Row(slot, chunk, logits=len(chunk))])
        slot.commit(chunk)
        assert bits(result) == bits(expected, begin, slot.length)
    assert kv_bytes(slot, len(PROMPT)) == kv


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_packed_rows_give_the_bits_of_rows_alone(
    target: Target, slots: list[Slot], rows: int
) -> None:
    """Three rows run in the graph for four, beside the spare slot."""
    prompts = [make_prompt(30, seed) for seed in range(rows)]
    expected = [whole(target, prompt) for prompt in prompts]
    for index, (slot, prompt) in enumerate(zip(slots, prompts, strict=False)):
        prefill(target, slot, prompt[: 5 + index])
    for widths in ((1, 1, 1, 1), (1, 5, 2, 1), (4, 1, 1, 3), (17, 1, 2, 1)):
        packed = [
            Row(slot, prompt[slot.length : slot.length + width], logits=width)
            for slot, prompt, width in zip(slots, prompts, widths, strict=False)
        ]
        for row, result, (alone, _) in zip(packed, target.run(packed), expected, strict=True):
            begin = row.slot.length
            row.slot.commit(row.tokens)
            assert bits(result) == bits(alone, begin, row.slot.length)
    for slot, prompt, (_, kv) in zip(slots, prompts, expected, strict=False):
        count = slot.length
        assert kv_bytes(slot, count) == whole(target, prompt[:count])[1]
        assert len(kv) == len(kv_bytes(slot, count))


def test_rows_may_come_in_any_order(target: Target, slots: list[Slot]) -> None:
    prompts = [make_prompt(6 + seed, seed) for seed in range(3)]
    expected = [bits(whole(target, prompt)[0]) for prompt in prompts]
    for order in itertools.permutations(range(3)):
        rows = [Row(slots[index], prompts[index], len(prompts[index])) for index in order]
        results = target.run(rows)
        assert [bits(result) for result in results] == [expected[index] for index in order]


def test_each_row_gets_the_logits_it_wants(target: Target, slots: list[Slot]) -> None:
    rows = [Row(slots[0], PROMPT[:5], 0), Row(slots[1], PROMPT[:4], 1), Row(slots[2], PROMPT, 3)]
    none, one, three = target.run(rows)
    expected, _ = whole(target, PROMPT)
    assert none.greedy == []
    assert bits(one) == bits(expected, 3, 4)
    assert bits(three) == bits(expected, len(PROMPT) - 3)


def test_no_run_and_no_row_is_narrower_than_two(
    target: Target, slots: list[Slot], monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: dict[str, int] = {}
    real = Binding.feed

    def feed(self: Binding, name: str, values: NDArray[np.int64]) -> None:
        if name.split(".")[0] in ("input_ids", "row_index", "position_ids"):
            fed[name] = min(values.size, fed.get(name, values.size))
        elif name == "logits_index":
            assert values.size != 1, "the LM head changes its kernel too"
        real(self, name, values)

    monkeypatch.setattr(Binding, "feed", feed)
    for rows in range(1, 5):
        target.run([Row(slot, (7,), logits=1) for slot in slots[:rows]])
    assert fed["input_ids"] == LEAST_WIDTH
    assert {name for name in fed if "." in name} >= {"row_index.3", "position_ids.3"}
    assert set(fed.values()) == {LEAST_WIDTH}


@pytest.mark.parametrize(
    ("width", "run"), [(1, 2), (2, 2), (3, 3), (15, 15), (16, 16), (17, 18), (18, 18), (129, 130)]
)
@pytest.mark.parametrize("rows", [1, 2])
def test_a_wide_row_is_even(
    target: Target, width: int, run: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention works in blocks of queries, and a last block of one is a lone token again."""
    fed: dict[str, int] = {}
    real = Binding.feed

    def feed(self: Binding, name: str, values: NDArray[np.int64]) -> None:
        fed[name] = values.size
        real(self, name, values)

    monkeypatch.setattr(Binding, "feed", feed)
    slots = target.make_slots(2, width)
    target.run([Row(slot, make_prompt(width), logits=1) for slot in slots[:rows]])
    if rows == 1:
        assert (fed["position_ids"], fed["input_ids"]) == (run, run)
    else:
        assert {
            fed[f"{name}.{row}"] for name in ("position_ids", "row_index") for row in (0, 1)
        } == {run}
        assert fed["input_ids"] == 2 * width


def test_rejected_tokens_leave_no_trace(target: Target, slots: list[Slot]) -> None:
    slot = slots[0]
    prefill(target, slot, PROMPT[:20])
    target.run([Row(slot, (PROMPT[20], 3, 1, 4, 1, 5, 9), logits=7)])
    slot.commit(PROMPT[20:21])  # the rest is rejected
    (result,) = target.run([Row(slot, PROMPT[21:], logits=len(PROMPT) - 21)])
    slot.commit(PROMPT[21:])
    expected, kv = whole(target, PROMPT)
    assert bits(result) == bits(expected, 21)
    assert kv_bytes(slot, len(PROMPT)) == kv


def test_a_run_commits_nothing(target: Target, slots: list[Slot]) -> None:
    prefill(target, slots[0], PROMPT[:10])
    for _ in range(2):
        (result,) = target.run([Row(slots[0], PROMPT[10:14], logits=4)])
        assert slots[0].length == 10
    assert bits(result) == bits(whole(target, PROMPT)[0], 10, 14)


def test_a_row_runs_where_it_was_made_for(target: Target, slots: list[Slot]) -> None:
    """Its request may be cancelled, and its slot another's, before it runs."""
    slot = slots[0]
    prefill(target, slot, PROMPT[:20])
    row = Row(slot, PROMPT[20:24], logits=4)
    kept = kv_bytes(slot, 20)
    slot.truncate(5)
    (result,) = target.run([row])
    assert bits(result) == bits(whole(target, PROMPT)[0], 20, 24)
    assert kv_bytes(slot, 20) == kept


def test_a_slot_can_be_filled_to_its_last_token(target: Target, slots: list[Slot]) -> None:
    tokens = make_prompt(CONTEXT)
    prefill(target, slots[0], tokens[:-1])
    (result,) = target.run([Row(slots[0], tokens[-1:], logits=1)])
    slots[0].commit(tokens[-1:])
    expected, kv = whole(target, tokens)
    assert slots[0].room == 0
    assert bits(result) == bits(expected, CONTEXT - 1)
    assert kv_bytes(slots[0], CONTEXT) == kv


def test_the_longest_context_can_be_filled_too(target: Target, package: Package) -> None:
    """The pad of a lone last token stands one position behind the checkpoint's last."""
    longest = package.manifest.target.context_length
    tokens = make_prompt(longest)
    first, second = target.make_slots(2, longest)
    prefill(target, first, tokens[:-1])
    (result,) = target.run([Row(first, tokens[-1:], logits=1)])
    (expected,) = target.run([Row(second, tokens, logits=1)])
    assert bits(result) == bits(expected)


def test_more_rows_than_the_largest_graph_are_our_own_mistake(
    target: Target, slots: list[Slot]
) -> None:
    extra = target.make_slots(5, CONTEXT)
    with pytest.raises(AssertionError, match="largest graph"):
        target.run([Row(slot, (1, 2), 0) for slot in extra])
    with pytest.raises(AssertionError, match="largest graph"):
        target.run([])


def test_bindings_are_bounded_and_made_again_when_needed(package: Package) -> None:
    target = Target(package, select_provider("cpu", "cpu"))
    slots = target.make_slots(8, 16)
    chosen = [pair for size in (1, 2, 3) for pair in itertools.combinations(slots, size)]
    assert len(chosen) > 64
    expected = bits(whole(target, PROMPT[:3])[0])
    for rows in (*chosen, chosen[0]):
        for result in target.run([Row(slot, PROMPT[:3], logits=3) for slot in rows]):
            assert bits(result) == expected
    assert len(target._bindings) == 64


def test_arrays_that_a_binding_keeps_are_bounded(
    target: Target, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.binding._MOST_MADE", 5)
    bounded = Target(package, select_provider("cpu", "cpu"))
    pairs = bounded.make_slots(2, CONTEXT)
    for width in (*range(1, 12), *range(11, 0, -1)):
        expected = bits(whole(target, PROMPT[:width])[0])
        for result in bounded.run([Row(slot, PROMPT[:width], logits=width) for slot in pairs]):
            assert bits(result) == expected
        for binding in bounded._bindings.values():
            assert len(binding._made) <= 5


def test_bindings_keep_no_whole_rows_of_logits(package: Package) -> None:
    """There is one binding per set of slots: what each keeps must not grow with the vocabulary."""
    target = Target(package, select_provider("cpu", "cpu"))
    (slot,) = target.make_slots(1, CONTEXT)
    target.run([Row(slot, PROMPT, logits=len(PROMPT))])
    (binding,) = target._bindings.values()
    widths = {array.shape[-1] for array in binding._arrays.values() if array.ndim == 2}
    assert package.manifest.target.vocab_size not in widths
    assert widths == {len(PROMPT), package.manifest.target.top_k}


def test_a_result_shows_its_rows(target: Target, slots: list[Slot]) -> None:
    """`row(i)` is what was kept of a wanted token, `whole` all logits of it."""
    results = target.run([Row(slots[0], PROMPT[:6], 2), Row(slots[1], PROMPT[:9], 3)])
    for result, wanted in zip(results, (2, 3), strict=True):
        for index in range(wanted):
            row = result.row(index)
            logits = row.whole()
            assert logits.tobytes() == result.whole(index).tobytes()
            assert row.values.tobytes() == result.top_values[index].tobytes()
            assert row.ids.tolist() == result.top_ids[index].tolist()
            assert row.values.tolist() == logits[row.ids].tolist()
            assert row.values.tolist() == np.sort(logits)[::-1][: len(row.values)].tolist()
            assert row.logsumexp == pytest.approx(np.logaddexp.reduce(logits), abs=1e-5)
    alone, _ = whole(target, PROMPT[:9])
    expected = alone.whole(7).tobytes()
    (_, again) = target.run([Row(slots[0], PROMPT[:6], 0), Row(slots[1], PROMPT[:9], 3)])
    assert again.whole(1).tobytes() == expected


def test_whole_rows_are_those_of_transformers(target: Target, tmp_path: Path) -> None:
    import torch
    import transformers

    load: Any = transformers.LlamaForCausalLM.from_pretrained
    model = load(make_checkpoint(tmp_path)).eval()
    with torch.no_grad():
        expected = model(torch.tensor([PROMPT])).logits[0].numpy()
    result, _ = whole(target, PROMPT)
    found = np.stack([result.whole(index) for index in range(len(PROMPT))])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_whole_rows_of_an_earlier_run_are_not_shown(target: Target, slots: list[Slot]) -> None:
    (result,) = target.run([Row(slots[0], PROMPT[:4], 4)])
    row = result.row(3)
    assert row.whole().shape == (target.vocab_size,)
    target.run([Row(slots[1], PROMPT[:4], 0)])
    for read in (row.whole, lambda: result.whole(0)):
        with pytest.raises(AssertionError, match="gone with the next run"):
            read()
    with pytest.raises(AssertionError, match="of this row only"):
        result.whole(4)


def test_the_workspace_grows_once_for_all_bindings(package: Package) -> None:
    """A binding made before it grew writes to the new one."""
    target = Target(package, select_provider("cpu", "cpu"))
    first, second = target.make_slots(2, 200)
    prompt = make_prompt(150)
    (before,) = target.run([Row(first, prompt[:3], 3)])
    kept = before.whole(2).tobytes()
    (wide,) = target.run([Row(second, prompt, 150)])
    assert wide.whole(2).tobytes() == kept
    assert len({wide.whole(index).tobytes() for index in range(150)}) == 150
    (after,) = target.run([Row(first, prompt[:3], 3)])
    assert after.whole(2).tobytes() == kept
    buffer = target._workspace._wide
    for slot in (first, second):
        target.run([Row(slot, prompt, 150)])
    assert target._workspace._wide is buffer


def test_rows_on_a_device_are_copied_once_a_run(package: Package) -> None:
    """As where the provider's memory is not the host's: `numpy()` is a copy there."""
    provider = select_provider("cpu", "cpu")
    target = Target(package, provider)
    (slot,) = target.make_slots(1, CONTEXT)
    target.run([Row(slot, PROMPT[:9], 9)])
    (result,) = target.run([Row(slot, PROMPT[:5], 4)])
    expected = [result.whole(index).tobytes() for index in range(4)]
    target._workspace._host = None
    copied = [result.whole(index) for index in range(4)]
    assert [row.tobytes() for row in copied] == expected
    assert copied[0].base is copied[3].base
