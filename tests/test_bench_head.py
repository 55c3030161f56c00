"""What reports begin with."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from bench.head import Head, document, facts
from bench.run.schema import REASONS, Absent, RuntimeGroup, TargetGroup

TARGET = TargetGroup(
    name="tiny",
    checkpoint="some/checkpoint",
    revision="main",
    sha256="1" * 64,
    architecture="LlamaForCausalLM",
    weight_type="w8a8",
    kv_type="fp32",
    tokenizer="2" * 64,
    package="3" * 64,
)
RUNTIME = RuntimeGroup(
    versions={"python": "3"},
    provider="cpu",
    kernels={"row_independent": True},
    hardware={"processor": "some processor"},
    threads=2,
    slots=8,
)
HEAD = Head("2026-01-01T00:00:00+00:00", 61.2, "python -m bench serve", True, TARGET, RUNTIME)


@dataclass(frozen=True, slots=True)
class Report:
    head: Head
    figure: Absent


def test_the_first_lines_say_what_was_measured_on_what() -> None:
    assert facts(HEAD) == [
        ("command", "`python -m bench serve`"),
        ("measured", "2026-01-01T00:00:00+00:00, 61 s"),
        ("target", "some/checkpoint, LlamaForCausalLM, w8a8"),
        ("package", f"`{'3' * 16}`"),
        ("runtime", "cpu, 2 threads, 8 slots"),
        ("hardware", "some processor"),
    ]
    broken_off = dataclasses.replace(HEAD, whole=False)
    assert dict(facts(broken_off))["measured"].endswith("61 s; interrupted")


def test_the_fields_of_the_head_are_the_reports_own() -> None:
    made = document("some/1", Report(HEAD, Absent("failed", "so")))
    assert list(made)[:3] == ["schema", "reasons", "started"]
    assert (made["schema"], made["reasons"]) == ("some/1", dict(REASONS))
    assert (made["whole"], made["target"]["name"], made["runtime"]["slots"]) == (True, "tiny", 8)
    assert made["figure"] == {"absent": "failed", "why": "so"}
    assert "head" not in made
