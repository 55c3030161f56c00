"""Exactness on the tiny package: nothing differs, and what differs is found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gateway.engine.answer as answers
from bench.__main__ import main
from bench.variants import CONCURRENCY, MIXED, MOST_CHUNKS, REFERENCE, packs
from models.verification import Outcome, accept_greedy

QUESTIONS = (
    {"question_id": "one", "category": "a", "turns": ["the cat and the hat and the cat"]},
    {"question_id": "two", "category": "a", "turns": ["to be or not to be", "and then?"]},
    {"question_id": "six", "category": "b", "turns": ["over and over and over and over"]},
)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return file


def exactness(package: Path, prompts: Path, *more: str) -> tuple[int, dict[str, Any]]:
    file = prompts.parent / "report.json"
    common = ["--package", str(package), "--prompts", str(prompts), "--json", str(file)]
    status = main(["exactness", *common, "--max-tokens", "24", *more])
    return status, json.loads(file.read_text())


def test_every_variant_agrees_with_the_reference(tiny_package: Path, prompts: Path) -> None:
    status, report = exactness(tiny_package, prompts)
    figures = report["figures"]
    assert status == 0
    assert report["held"] is True
    assert figures["mismatches"] == []
    # warm, beside a copy, copied, and the mixed ones of each prompt; one next turn
    assert figures["runs"] == 3 * (3 + len(MIXED)) + 1
    assert figures["references"] == 4
    runs = Counter[str]()
    for item in figures["variants"]:
        runs[item["variant"]] += item["runs"]
    assert all(runs[variant.name] == 3 for variant in MIXED)
    at_once = Counter(item["concurrency"] for item in figures["variants"])
    assert at_once.keys() == {1, 2, CONCURRENCY}


def test_the_runs_are_not_empty(tiny_package: Path, prompts: Path) -> None:
    _, report = exactness(tiny_package, prompts)
    by_name = {item["variant"]: item for item in report["figures"]["variants"]}
    for length in range(1, 9):
        item = next(item for name, item in by_name.items() if name.startswith(f"length {length}"))
        assert item["drafted"] > 0, length
        assert item["rounds"] > 0
    assert sum(item["accepted"] for item in by_name.values()) > 0
    assert by_name["auto, prefix copied from a running slot"]["cached"] > 0
    assert by_name["auto, warm"]["cached"] > 0
    assert by_name["auto, next turn on its own K/V"]["cached"] > 0


def test_a_verifier_that_accepts_too_much_is_found(
    tiny_package: Path,
    prompts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def accept_all(draft: Sequence[int], target: Sequence[int]) -> Outcome:
        return Outcome(accepted=len(draft), bonus=target[len(draft)])

    monkeypatch.setattr(answers, "accept_greedy", accept_all)
    status, report = exactness(tiny_package, prompts)
    assert status == 1
    assert report["held"] is False
    mismatches = report["figures"]["mismatches"]
    assert mismatches
    assert {item["question"] for item in mismatches} <= {"one", "two", "six"}
    for item in mismatches:
        assert item["expected"][:1] != item["found"][:1]
        assert item["margin"] >= 0
    printed = capsys.readouterr().out
    assert "Mismatches" in printed
    assert "BROKEN" in printed


def test_an_answer_wrong_at_one_position_is_placed(
    tiny_package: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def wrong_once(draft: Sequence[int], target: Sequence[int]) -> Outcome:
        nonlocal calls
        calls += 1
        outcome = accept_greedy(draft, target)
        # The 5th round of the first reference is its 6th token.
        return Outcome(outcome.accepted, outcome.bonus ^ 1) if calls == 5 else outcome

    monkeypatch.setattr(answers, "accept_greedy", wrong_once)
    _, report = exactness(tiny_package, prompts, "--limit", "1")
    mismatches = report["figures"]["mismatches"]
    assert len(mismatches) == report["figures"]["runs"]
    assert {item["position"] for item in mismatches} == {5}


def test_a_prompt_longer_than_the_context_is_left_out_and_named(
    tiny_package: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    long = {"question_id": "long", "turns": ["word " * 5000]}
    file.write_text("".join(json.dumps(question) + "\n" for question in (*QUESTIONS[:1], long)))
    status, report = exactness(tiny_package, file, "--quick")
    assert status == 0
    assert report["figures"]["left_out"] == ["long"]
    assert report["figures"]["prompts"] == 1
    file.write_text(json.dumps(long) + "\n")
    assert main(["exactness", "--package", str(tiny_package), "--prompts", str(file)]) == 2


@pytest.mark.parametrize("prompts_at_once", [1, 2, 3, 4])
def test_packs_hold_every_variant_of_every_prompt_once(prompts_at_once: int) -> None:
    made = packs(prompts_at_once)
    counted = Counter((index, variant.name) for pack in made for index, variant in pack)
    assert set(counted.values()) == {1}
    assert len(counted) == prompts_at_once * len(MIXED)
    assert all(len(pack) == CONCURRENCY for pack in made[:-1])


def test_a_pack_mixes_prompts_and_opens_those_that_reuse_a_prefix_first() -> None:
    for pack in packs(4):
        assert {index for index, _ in pack} == {0, 1, 2, 3}
        assert len({variant.name for _, variant in pack}) == 4
        reused = [variant.reuse for _, variant in pack]
        assert reused[0]
        assert reused == sorted(reused, reverse=True)


def test_a_long_prompt_is_not_cut_into_too_many_chunks() -> None:
    narrow = next(variant for variant in MIXED if variant.chunk == 2)
    assert narrow.request((1,) * 100, 8).prefill_chunk == 2
    assert narrow.request((1,) * 129, 8).prefill_chunk == 3
    chunk = narrow.request((1,) * 1000, 8).prefill_chunk
    assert chunk is not None
    assert chunk * MOST_CHUNKS >= 1000
    assert REFERENCE.request((1,) * 1000, 8).prefill_chunk == 1000
