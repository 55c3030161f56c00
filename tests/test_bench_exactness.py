"""Exactness on the tiny package: nothing differs, and what differs is found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import gateway.engine.answer as answers
from bench.__main__ import main
from bench.variants import (
    BESIDE_TREES,
    CONCURRENCY,
    MIXED,
    MOST_CHUNKS,
    REFERENCE,
    TREES,
    packs,
)
from models.draft import Draft
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import Outcome, Rows, Rule, accept

GREEDY = Sampling()
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
    """Chains alone, unless `more` says otherwise."""
    file = prompts.parent / "report.json"
    common = ["--package", str(package), "--prompts", str(prompts), "--json", str(file)]
    more = more if "--trees" in more else ("--no-trees", *more)
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
    def accept_all(draft: Draft, rows: Rows, sampler: Sampler, rule: Rule) -> Outcome:
        count = len(draft.tokens)
        return Outcome(tuple(range(count)), int(rows.row(count).ids[0]))

    monkeypatch.setattr(answers, "accept", accept_all)
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

    def wrong_once(draft: Draft, rows: Rows, sampler: Sampler, rule: Rule) -> Outcome:
        nonlocal calls
        calls += 1
        outcome = accept(draft, rows, sampler, rule)
        # The 6th of the first reference is its 6th token.
        return Outcome(outcome.path, outcome.bonus ^ 1) if calls == 6 else outcome

    monkeypatch.setattr(answers, "accept", wrong_once)
    _, report = exactness(tiny_package, prompts, "--limit", "1")
    mismatches = report["figures"]["mismatches"]
    assert len(mismatches) == report["figures"]["runs"]
    assert {item["position"] for item in mismatches} == {5}


SAMPLED = ("--temperature", "1.2", "--top-p", "0.95", "--seed", "7")
PENALISED = ("--repetition-penalty", "1.2", "--presence-penalty", "0.5")


@pytest.mark.parametrize("more", [SAMPLED, (*SAMPLED, *PENALISED)])
def test_sampled_answers_agree_as_well(
    tiny_package: Path, prompts: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    status, report = exactness(tiny_package, prompts, *more)
    assert status == 0
    assert report["figures"]["mismatches"] == []
    assert report["settings"]["temperature"] == 1.2
    assert report["settings"]["seed"] == 7
    assert report["settings"]["rule"] == "coupled"
    drafted = [item for item in report["figures"]["variants"] if item["drafted"]]
    assert len(drafted) > len(MIXED)
    printed = capsys.readouterr().out
    assert "temperature 1.2, top_p 0.95" in printed
    assert "seed 7" in printed
    assert ("repetition_penalty 1.2" in printed) is (more != SAMPLED)


def test_another_seed_gives_other_answers(tiny_package: Path, prompts: Path) -> None:
    drafted = []
    for seed in ("7", "8"):
        _, report = exactness(
            tiny_package, prompts, "--quick", "--temperature", "2", "--seed", seed
        )
        drafted.append([item["drafted"] for item in report["figures"]["variants"]])
    assert drafted[0] != drafted[1]


def test_noise_that_depends_on_the_draft_is_found(
    tiny_package: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shifted(draft: Draft, rows: Rows, sampler: Sampler, rule: Rule) -> Outcome:
        sampler.seed += len(draft.tokens)
        try:
            return accept(draft, rows, sampler, rule)
        finally:
            sampler.seed -= len(draft.tokens)

    monkeypatch.setattr(answers, "accept", shifted)
    status, report = exactness(tiny_package, prompts, "--quick", *SAMPLED)
    assert status == 1
    mismatches = report["figures"]["mismatches"]
    assert mismatches
    assert all(item["margin"] > 0 for item in mismatches)


def test_trees_are_a_part_of_their_own(tiny_package: Path, prompts: Path) -> None:
    status, report = exactness(tiny_package, prompts, "--trees", "--limit", "2")
    assert status == 0
    trees = report["figures"]["trees"]
    assert trees["near_tie_logits"] == 1e-3
    assert {item["variant"] for item in trees["variants"]} == {tree.name for tree in TREES}
    # alone, and two of each beside two chains
    assert trees["runs"] == 2 * 2 * len(TREES)
    assert all(item["drafted"] > 0 for item in trees["variants"])
    assert all(item["near_tie"] for item in trees["divergences"])
    chains = {item["variant"] for item in report["figures"]["variants"]}
    assert {chain.name for chain in BESIDE_TREES} <= chains
    names = [promise["name"] for promise in report["promises"]]
    assert "tree divergences that are defects" in names


def test_a_tree_verified_wrongly_is_a_defect(
    tiny_package: Path,
    prompts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """llama.cpp#25618, mlx-lm#1470: each divergence is classified as a near tie or a defect."""

    def wrong_in_trees(draft: Draft, rows: Rows, sampler: Sampler, rule: Rule) -> Outcome:
        outcome = accept(draft, rows, sampler, rule)
        unlikely = int(rows.row(0).ids[5])
        return outcome if draft.parents is None else Outcome((), unlikely)

    monkeypatch.setattr(answers, "accept", wrong_in_trees)
    status, report = exactness(tiny_package, prompts, "--trees", "--limit", "2")
    assert status == 1
    divergences = report["figures"]["trees"]["divergences"]
    assert divergences
    assert not any(item["near_tie"] for item in divergences)
    assert report["figures"]["mismatches"] == []
    assert "DEFECT" in capsys.readouterr().out


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
    assert narrow.request((1,) * 100, 8, GREEDY).prefill_chunk == 2
    assert narrow.request((1,) * 129, 8, GREEDY).prefill_chunk == 3
    chunk = narrow.request((1,) * 1000, 8, GREEDY).prefill_chunk
    assert chunk is not None
    assert chunk * MOST_CHUNKS >= 1000
    assert REFERENCE.request((1,) * 1000, 8, GREEDY).prefill_chunk == 1000
