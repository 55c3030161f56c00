"""Answers, outcomes and a package with a broken drafter, for tests of `bench run`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from bench.run.observed import Observed, Outcome, Wave
from bench.run.plan import BASELINE, Condition, RunSetting
from models.package import Package, file_entry, load_package, write_manifest
from models.sampling.parameters import Sampling
from tests.drafters_support import DRAFT_MODEL

GREEDY = Sampling()
NGRAM4 = RunSetting("ngram", "fixed", 4, "coupled")
TYPICAL4 = RunSetting("ngram", "fixed", 4, "typical")

PLAIN: dict[str, Any] = {
    "rounds": 9,
    "tau": 1.0,
    "draft_n": 0,
    "draft_n_accepted": 0,
    "draft_ms": 0.0,
    "verify_ms": 81.0,
    "tpot_ms": 10.0,
    "depths": [],
    "lossless": True,
}
DRAFTED: dict[str, Any] = PLAIN | {
    "rounds": 4,
    "tau": 2.25,
    "draft_n": 8,
    "draft_n_accepted": 5,
    "draft_ms": 2.0,
    "verify_ms": 40.0,
    "tpot_ms": 5.0,
    "depths": [[4, 3], [4, 2]],
}


def answer(question: str, tpot_ms: float | None, **changes: Any) -> Observed:
    """Ten tokens of category `copy` without drafts, but for `changes`."""
    known: dict[str, Any] = {
        "question": question,
        "category": "copy",
        "repeat": 0,
        "ids": tuple(range(10)),
        "prompt_tokens": 20,
        "cached_tokens": 0,
        "ttft_ms": 30.0,
        "tpot_ms": tpot_ms,
        "gaps_ms": (10.0, 20.0),
        "timings": PLAIN,
    }
    return Observed(**{**known, **changes})


def outcome(setting: RunSetting, *waves: Wave, streams: int = 1) -> Outcome:
    return Outcome(Condition(setting, GREEDY, streams), list(waves))


def plain_outcome(*answers: Observed) -> Outcome:
    return outcome(BASELINE, *(Wave(1.0, (each,)) for each in answers))


def with_broken_drafter(package: Package, directory: Path) -> Package:
    """`package` with a draft model whose graph no session can be made of."""
    directory.mkdir()
    for name in package.manifest.files:
        os.link(package.file(name), directory / name)
    (graph,) = DRAFT_MODEL.graphs.values()
    (directory / graph).write_bytes(b"no graph")
    manifest = dataclasses.replace(
        package.manifest,
        drafters=(dataclasses.replace(DRAFT_MODEL, longest=6, sha256="ab" * 32),),
        files={path.name: file_entry(path) for path in sorted(directory.iterdir())},
    )
    write_manifest(directory, manifest)
    return load_package(directory)
