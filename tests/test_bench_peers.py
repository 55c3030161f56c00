from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import shutil
import sys
import textwrap
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bench.peers import peer_process, turns
from bench.peers.agreement import Agreement, compared
from bench.peers.catalogue import PEERS, Configuration, Part, Peer, configurations
from bench.peers.checkpoint import Forms, once
from bench.peers.contestants import Answer, Prompt
from bench.peers.figures import interval, ratios
from bench.peers.peer_process import ADAPTERS, running_peer
from bench.peers.plan import plan_of
from bench.peers.selection import Tried, best, try_all
from bench.peers.turns import Entrant, Record, Turn, contest
from bench.prompts import Question
from bench.run.schema import Absent
from models.errors import UserError

FAKE = """
    import os, threading, time

    def spin():
        while True:
            pass

    class Peer:
        def load(self, weights, threads, settings):
            self.settings = settings
            if "cannot" in settings:
                raise NotImplementedError("not for this model")
            if settings.get("spins"):
                threading.Thread(target=spin, daemon=True).start()
            print("libraries print what they like")
            return {"versions": {"fake": "1", "threads": str(threads)}}

        def answer(self, ids, max_tokens):
            if self.settings.get("ends_at") == ids[0]:
                os._exit(3)
            time.sleep(self.settings.get("seconds", 0))
            new = [ids[0]] * (max_tokens - 1) + [99]
            return {"ids": new, "ms": 10.0 * max_tokens, "ttft_ms": 10.0, "rounds": 2}
"""
FORMS = Forms(Path("weights"), Path("target"), None, None, (99,))
PLAIN = Part("plain", {})


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ADAPTERS / "__main__.py", tmp_path)
    (tmp_path / "fake.py").write_text(textwrap.dedent(FAKE), encoding="utf-8")
    monkeypatch.setattr(peer_process, "ADAPTERS", tmp_path)


def configuration(name: str, **settings: Any) -> Configuration:
    peer = Peer("fake", "fake", (), (), ())
    return Configuration(peer, Part(name, settings), PLAIN)


def entrant(name: str, **settings: Any) -> Entrant:
    made = configuration(name, **settings)
    return Entrant(made.name, partial(running_peer, made, Path(sys.executable), FORMS, 2))


def prompt(number: int, category: str = "one") -> Prompt:
    return Prompt(Question(str(number), category, ("text",)), (number, 5))


def contested(*entrants: Entrant, count: int = 3) -> list[Record]:
    prompts = [prompt(number) for number in range(1, count + 1)]
    records = [Record(entrant.name) for entrant in entrants]
    asyncio.run(contest(entrants, records, prompt(0), prompts, 4))
    return records


@pytest.mark.usefixtures("fake")
def test_everyone_answers_every_prompt_in_a_process_of_its_own() -> None:
    one, two = contested(entrant("a"), entrant("b"))
    assert [turn.answer.ids for turn in one.turns] == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    assert [turn.question.id for turn in two.turns] == ["1", "2", "3"]
    assert one.turns[0].answer == Answer((1, 1, 1), 40.0, 10.0, rounds=2)
    assert one.versions == {"fake": "1", "threads": "2"}
    assert one.memory_bytes is not None
    assert one.memory_bytes > 1 << 20


@pytest.mark.usefixtures("fake")
def test_what_was_answered_before_an_interruption_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(line: str) -> None:
        if line == "peers: prompt 2 of 3":
            raise KeyboardInterrupt

    monkeypatch.setattr(turns, "progress", interrupt)
    entrants = [entrant("a"), entrant("b")]
    records = [Record(each.name) for each in entrants]
    prompts = [prompt(number) for number in (1, 2, 3)]
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(contest(entrants, records, prompt(0), prompts, 4))
    assert [len(record.turns) for record in records] == [1, 1]


@pytest.mark.usefixtures("fake")
def test_who_cannot_or_fails_is_named_and_leaves_the_others_alone() -> None:
    fine, cannot, ended = contested(
        entrant("fine"), entrant("cannot", cannot=True), entrant("ends", ends_at=2)
    )
    assert fine.absent is None
    assert len(fine.turns) == 3
    assert cannot.absent == Absent("unsupported", "not for this model")
    assert ended.absent is not None
    assert ended.absent.absent == "failed"
    assert "its process ended" in ended.absent.why


@pytest.mark.usefixtures("fake")
def test_a_peer_that_spins_gets_no_processor_while_it_waits() -> None:
    quiet, spinning = contested(
        entrant("quiet", seconds=0.3), entrant("spins", spins=True), count=2
    )
    assert quiet.absent is None
    assert spinning.absent is None
    # A tick of the clock that counts it may fall into a turn; 300 ms of spinning may not.
    assert all(turn.others_ms <= 40 for turn in quiet.turns)


def test_processes_of_peers_get_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPACE_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", "here")
    kept = peer_process._environment(os.environ, 3)
    assert "OUTPACE_THREADS" not in kept
    assert "PYTHONPATH" not in kept
    assert kept["OMP_NUM_THREADS"] == "3"


def test_agreement_is_judged_where_the_answer_stands_and_against_the_reference() -> None:
    assert compared([1, 2, 3, 4], [1, 2, 9, 4], [1, 2, 7]) == Agreement(4, 3, 2, 3, False)
    assert compared([1, 2], [1, 2], [1, 2]) == Agreement(2, 2, 2, 2, True)
    assert compared([], [], [1]) == Agreement(0, 0, 0, 1, False)


def test_ratios_are_of_all_time_over_all_tokens() -> None:
    table = np.array([[100.0, 10, 40, 8], [50, 5, 10, 2]])
    assert ratios(table[None]).tolist() == [pytest.approx((150 / 15) / (50 / 10))]
    low, high = interval(table)
    assert (low, high) == interval(table)
    assert low <= 2.0 <= high


def tried(name: str, ms: float | None, agreement: float | None, mode: str = "plain") -> Tried:
    peer = Peer("fake", "fake", (), (), ())
    made = Configuration(peer, Part(name, {}), Part(mode, {}))
    return Tried(made, Record(made.name), ms, agreement)


def test_the_best_are_the_fastest_and_the_fastest_that_agrees() -> None:
    fast, close, slow = tried("a", 5.0, 0.8), tried("b", 7.0, 0.97), tried("c", 9.0, 0.99)
    failed = tried("d", None, None)
    assert best([slow, failed, close, fast], 0.96) == [fast, close]
    assert best([slow, close], 0.96) == [close]
    assert best([fast], 0.96) == [fast]
    assert best([failed], 0.96) == []


async def test_ways_to_draft_are_tried_on_the_best_weights_alone() -> None:
    weights = tuple(Part(name, {}) for name in ("fast", "slow", "close"))
    peer = Peer("fake", "fake", (), weights, (PLAIN, Part("draft", {})))
    times = {"fast": 10.0, "slow": 40.0, "close": 20.0}
    asked: list[list[str]] = []

    async def measure(members: Any) -> Any:
        asked.append([one.name for one in members])
        records = []
        agreements = {}
        for one in members:
            record = Record(one.name)
            answer = Answer((1, 2), 2 * times[one.weights.name], 1.0)
            record.turns.append(Turn(Question("1", "one", ("t",)), answer, 0.0))
            agreed = 1 if one.weights.name == "fast" else 2
            agreements[one.name, "1"] = Agreement(2, agreed, 1, 2, False)
            records.append(record)
        return records, agreements

    found = await try_all(peer, measure, 0.9)
    assert asked == [
        ["fake fast plain", "fake slow plain", "fake close plain"],
        ["fake fast draft", "fake close draft"],
    ]
    assert [one.ms for one in found] == [10.0, 40.0, 20.0, 10.0, 20.0]


def options(**given: Any) -> argparse.Namespace:
    known = {
        "peers": "all",
        "configurations": "best",
        "max_tokens": 8,
        "selection_prompts": 2,
        "selection_max_tokens": 8,
        "checkpoint": None,
        "draft": None,
    }
    return argparse.Namespace(**known | given)


class NoSetup:
    threads = 2


def test_the_command_line_names_peers_and_configurations() -> None:
    setup: Any = NoSetup()
    plan = plan_of(options(peers="LLAMA.CPP", configurations="llama.cpp Q8_0 plain"), setup)
    assert [peer.name for peer in plan.peers] == ["llama.cpp"]
    assert plan.wanted is not None
    assert [one.name for one in plan.wanted] == ["llama.cpp Q8_0 plain"]
    assert plan_of(options(), setup).wanted is None
    for wrong in ({"peers": "vllm"}, {"configurations": "fast"}, {"max_tokens": 0}):
        with pytest.raises(UserError) as error:
            plan_of(options(**wrong), setup)
        assert error.value.code == "usage"


def test_configurations_have_names_of_their_own_and_adapters() -> None:
    names = [one.name for peer in PEERS for one in configurations(peer)]
    assert len(set(names)) == len(names)
    assert all((ADAPTERS / f"{peer.adapter}.py").is_file() for peer in PEERS)


def adapter_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"adapters_{name}", ADAPTERS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_form_of_the_weights_is_written_once(tmp_path: Path) -> None:
    weights = adapter_module("__main__").Weights(str(tmp_path), "t", None, None, [2])
    writes: list[str] = []

    def write(into: str) -> None:
        writes.append(into)
        Path(into).write_text("whole", encoding="utf-8")

    assert weights.made("a/target", "int4", write) == str(tmp_path / "target-int4")
    assert weights.made("a/target", "int4", write) == str(tmp_path / "target-int4")
    assert len(writes) == 1
    with pytest.raises(NotImplementedError):
        _ = weights.draft
    once(tmp_path / "made", lambda into: None)
    assert (tmp_path / "made").is_dir()


def test_rows_of_a_head_are_interleaved_as_llama_cpp_rotates_them() -> None:
    pytest.importorskip("gguf")
    turned = adapter_module("gguf_files")._interleaved(np.arange(16.0).reshape(8, 2), 2)
    assert (turned[:, 0] / 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
