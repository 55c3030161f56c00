"""The speed suite under several rules, through a gateway on the tiny package."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.client import GatewayError, connected
from bench.drafting import parse_lengths, settings_for
from bench.setup import Setup
from bench.speed import _ask, _check_trees
from models.errors import UserError
from models.package import load_package
from models.sampling.parameters import Sampling
from tests.fake_engine import FakeEngine
from tests.http_serving import serving

TURNS = ("the cat and the hat and the cat and the hat", "to be or not to be or not to be")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"turns": [turn]}) + "\n" for turn in TURNS))
    return file


def speed(package: Path, prompts: Path, *more: str) -> dict[str, Any]:
    file = prompts.parent / "report.json"
    common = ["--package", str(package), "--prompts", str(prompts), "--json", str(file)]
    common += ["--threads", "1", "--repeats", "1", "--max-tokens", "24"]
    assert main(["speed", *common, *more]) in (0, 1)
    report: dict[str, Any] = json.loads(file.read_text())
    return report


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["status"] for item in report["promises"]}


def test_rules_are_asked_for_and_marked(
    tiny_package: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "coupled,classic,typical,adasd,synthetic"
    more = ("--lengths", "0,4", "--rules", rules, "--temperature", "0.9", "--seed", "7")
    report = speed(tiny_package, prompts, *more)
    cells = {cell["setting"]: cell for cell in report["figures"]["cells"]}
    assert {name: cell["mark"] for name, cell in cells.items()} == {
        "off": "",
        "4": "",
        "4 classic": "",
        "4 typical": "lossy",
        "4 adasd": "lossy",
        "4 synthetic": "meaningless",
    }
    samples = report["figures"]["samples"]
    assert {item["setting"] for item in samples if not item["lossless"]} == {
        "4 typical",
        "4 adasd",
        "4 synthetic",
    }
    assert statuses(report)["answers that differ between settings, same seed"] == "held"
    assert statuses(report)["classic: answers that differ from off"] == "not applicable"
    assert cells["4"]["identical"] == 1.0
    # seven in ten draft tokens are accepted, whatever they are: that answer is another one
    assert cells["4 synthetic"]["identical"] < 1.0
    assert cells["4 synthetic"]["alpha"] > cells["4"]["alpha"]
    assert report["settings"]["sampling"]["temperature"] == 0.9
    printed = capsys.readouterr().out
    assert "Sampling: temperature 0.9, seed 7" in printed
    assert "4 typical (lossy)" in printed
    assert "4 synthetic (meaningless)" in printed


def test_the_seed_reaches_the_gateway(tiny_package: Path, prompts: Path) -> None:
    def ids(seed: str) -> list[list[int]]:
        more = ("--lengths", "0", "--temperature", "0.9", "--seed", seed)
        return [item["ids"] for item in speed(tiny_package, prompts, *more)["figures"]["samples"]]

    assert ids("7") != ids("8")


def test_branches_make_trees(tiny_package: Path, prompts: Path) -> None:
    report = speed(tiny_package, prompts, "--lengths", "0,8", "--branches", "3")
    assert report["settings"]["branches"] == 3
    assert statuses(report) == {"coupled: answers that differ from off": "not applicable"}
    samples = report["figures"]["samples"]
    assert all(item["exact"] for item in samples if item["setting"] == "off")
    # an answer that a tree verified is not exact
    assert not all(item["exact"] for item in samples if item["setting"] == "8")


def test_trees_need_their_graphs(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    target = dataclasses.replace(package.manifest.target, tree_graphs={})
    manifest = dataclasses.replace(package.manifest, target=target)
    setup = Setup(dataclasses.replace(package, manifest=manifest), [])
    _check_trees(setup, 1)
    with pytest.raises(UserError, match="no graphs for trees; --branches must be 1"):
        _check_trees(setup, 2)


async def test_no_answer_is_taken_that_was_verified_otherwise() -> None:
    off, coupled, typical = settings_for(parse_lengths("0,auto"), ["coupled", "typical"])
    async with serving(FakeEngine("yes")) as served, connected(served.url) as client:
        for setting in (off, coupled):
            assert (await _ask(client, "one", setting, Sampling(seed=0), 4)).text == "yes"
        assert (await _ask(client, "one", typical, Sampling(seed=0), 4)).timings[
            "rule"
        ] == "typical"
        unheard = dataclasses.replace(typical, wire={"policy": "auto"})
        with pytest.raises(GatewayError, match="asked for the rule typical, it used coupled"):
            await _ask(client, "one", unheard, Sampling(seed=0), 4)


def test_an_unknown_rule_is_told_to_the_user(
    tiny_package: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--package", str(tiny_package), "--prompts", str(prompts)]
    assert main(["speed", *common, "--rules", "coupled,fast"]) == 2
    assert "--rules has 'fast'" in capsys.readouterr().err
