"""Widths, agreement, KL: the arithmetic, and a run on the tiny package."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from bench import cost
from bench.__main__ import main
from bench.agreement import Agreement, kl_divergence
from bench.cost import Cost
from models.package import Package, load_package


def w8a8(tiny_package: Path) -> Package:
    package = load_package(tiny_package)
    target = dataclasses.replace(package.manifest.target, weight_type="w8a8")
    return dataclasses.replace(
        package, manifest=dataclasses.replace(package.manifest, target=target)
    )


def costs(width_8: float) -> list[Cost]:
    shapes = [(rows, width) for rows in cost.ROWS for width in cost.WIDTHS]
    return [Cost(44, rows, width, width_8 if width == 8 else 10.0, 9.0) for rows, width in shapes]


@pytest.mark.parametrize(
    ("fast", "width_8", "held"),
    [(True, 14.0, True), (True, 14.1, False), (False, 17.0, True), (False, 17.1, False)],
)
def test_the_bound_on_width_depends_on_the_processor(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch, fast: bool, width_8: float, held: bool
) -> None:
    monkeypatch.setattr(cost, "has_integer_dot_product", lambda: fast)
    found = Agreement(0.97, 0.008, 512, "export")
    findings = cost._findings(w8a8(tiny_package), costs(width_8), found, {"past": [44]})
    assert findings.promises[0].held is held
    assert findings.held is held


@pytest.mark.parametrize(
    ("found", "statuses"),
    [
        (Agreement(0.96, 0.011, 512, "export"), ["held", "held"]),
        (Agreement(0.959, 0.0111, 512, "export"), ["BROKEN", "BROKEN"]),
        (None, ["missing", "missing"]),
    ],
)
def test_agreement_and_kl_are_promised_of_w8a8(
    tiny_package: Path, found: Agreement | None, statuses: list[str]
) -> None:
    findings = cost._findings(w8a8(tiny_package), costs(10.0), found, {"past": [44]})
    assert [promise.status for promise in findings.promises[1:]] == statuses


def test_kl_is_zero_for_equal_rows_and_right_for_others() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    logits = np.log(np.array([p, p], dtype=np.float32))
    others = np.log(np.array([p, q], dtype=np.float32)) + np.float32(3)
    expected = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert kl_divergence(logits, others) == pytest.approx([0, expected], abs=1e-6)


def test_a_run_measures_every_shape_and_agrees_with_itself(
    tiny_package: Path, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    package = str(tiny_package)
    arguments = ["--package", package, "--reference", package, "--past", "8,40", "--quick"]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"turns": ["a b c"]}\n{"turns": ["the end"]}\n')
    more = ["--repeats", "2", "--prompts", str(prompts), "--json", str(file)]
    assert main(["cost", *arguments, *more]) == 0
    report = json.loads(file.read_text())
    measured = report["figures"]["costs"]
    shapes = {(item["past"], item["rows"], item["width"]) for item in measured}
    assert shapes == {
        (past, rows, width) for past in (8, 40) for rows in cost.ROWS for width in cost.WIDTHS
    }
    assert all(0 < item["least_ms"] <= item["median_ms"] for item in measured)
    agreement = report["figures"]["agreement"]
    assert agreement["agreement"] == 1.0
    assert agreement["kl_mean"] == pytest.approx(0.0, abs=1e-9)
    assert agreement["origin"] == f"this run ({prompts} prompts)"
    assert agreement["tokens"] == 2 * 64
    assert {promise["status"] for promise in report["promises"]} == {"not applicable"}


def test_a_context_too_short_for_what_is_asked_is_a_usage_error(tiny_package: Path) -> None:
    assert main(["cost", "--package", str(tiny_package), "--past", "250"]) == 2
    assert main(["cost", "--package", str(tiny_package), "--past", "x"]) == 2
