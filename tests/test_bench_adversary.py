"""Injected drafters that turn: how they draft, what counts as lost, a run on the tiny package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import adversary
from bench.__main__ import main
from bench.adversary import ADVERSARIES, PLAIN, AdversarialDrafter, Adversary, Timed, losses

ANSWER = tuple(range(100, 130))
TURNING = Adversary("turns wrong", 1 / 3, 1.0, 0.0)


def test_it_is_right_until_it_turns_and_as_sure_afterwards() -> None:
    drafter = AdversarialDrafter(TURNING, ANSWER, 1000, 0)
    drafter.reset((1, 2, 3))
    drafter.commit(ANSWER[:1])
    before = drafter.propose(4)
    assert before.tokens == ANSWER[1:5]
    drafter.commit(ANSWER[1:10])
    after = drafter.propose(4)
    assert all(token != right for token, right in zip(after.tokens, ANSWER[10:], strict=False))
    assert len(after.tokens) == 4
    assert before.confidence == after.confidence == (1.0,) * 4


def test_it_is_slow_where_it_runs_like_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(adversary.time, "sleep", slept.append)
    slow = Adversary("slow", 0.5, 1.0, 1.0, run_ms=2.0, then_ms=60.0)
    drafter = AdversarialDrafter(slow, ANSWER, 1000, 0)
    drafter.propose(2)
    drafter.commit(ANSWER[:15])
    drafter.propose(2)
    assert drafter.runs_graph
    assert slept == [0.002, 0.06]


def test_only_what_comes_behind_the_turn_counts() -> None:
    plain = Timed(tuple(range(4)), (0.0, 10.0, 20.0, 30.0))
    drafted = Timed(tuple(range(4)), (0.0, 0.0, 0.0, 12.0))
    way = Adversary("turns", 0.5, 1.0, 0.0)
    assert losses([{PLAIN: [plain], "turns": [drafted]}], way, 4) == [(2.0, 30.0)]


def test_a_run_says_what_every_adversary_cost(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    prompts = tmp_path / "prompts.jsonl"
    turns = [{"category": "a", "turns": [text]} for text in ("Say this.", "Say that.")]
    prompts.write_text("\n".join(json.dumps(turn) for turn in turns))
    files = ["--package", str(tiny_package), "--prompts", str(prompts), "--json", str(out)]
    status = main(["adversary", *files, "--quick", "--max-tokens", "40"])
    assert status in (0, 1), "a tiny model's rounds are too short to promise anything"
    report = json.loads(out.read_text())
    told = [each["adversary"] for each in report["figures"]["adversaries"]]
    assert told == [each.name for each in ADVERSARIES]
    assert "Behind the turn" in capsys.readouterr().out


def test_it_says_what_it_needs(tiny_package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adversary", "--package", str(tiny_package), "--max-tokens", "5"]) == 2
    assert "--max-tokens must be at least 30" in capsys.readouterr().err
