"""The dashboard and the alert rules: everything they name is there, and Prometheus reads them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from models.locations import cache_directory
from tests.fake_engine import FakeEngine
from tests.http_serving import serving

MONITORING = Path(__file__).parent.parent / "docs" / "monitoring"
NAME = re.compile(r"outpace:\w+")
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*", "$model": ".*"}


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return board


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


async def exported() -> set[str]:
    """Every name that a loaded gateway's /metrics has samples of, or could."""
    async with (
        serving(FakeEngine()) as served,
        aiohttp.ClientSession() as session,
        session.get(f"{served.url}/metrics") as response,
    ):
        text = await response.text()
    names = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            names |= {name + end for end in ends}
    return names


async def test_every_metric_that_is_named_exists(dashboard: dict[str, Any]) -> None:
    known = await exported()
    assert "outpace:round_verify_seconds_bucket" in known
    queries = [each.get("query", "") for each in dashboard["templating"]["list"]]
    rules = (MONITORING / "alerts.yml").read_text()
    for source in (*expressions(dashboard), *queries, rules):
        assert set(NAME.findall(source)) <= known, source
    assert len(set(NAME.findall(rules))) >= 8
    # What is measured is shown: no metric is left out but the parts of histograms.
    shown = set(NAME.findall(" ".join(expressions(dashboard))))
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in known} == bases


def test_the_panels_are_where_nothing_else_is(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == 18
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def promtool(*arguments: str) -> str:
    tools = f"{os.environ['PATH']}:{cache_directory() / 'tools'}"
    found = shutil.which("promtool", path=tools)
    if found is None:
        pytest.fail("promtool is missing: .ci/systemd fetches it where apt can.")
    done = subprocess.run(
        [found, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_reads_the_rules_and_the_configuration() -> None:
    assert "10 rules found" in promtool("check", "rules", str(MONITORING / "alerts.yml"))
    promtool("check", "config", str(MONITORING / "prometheus.yml"))


def test_prometheus_reads_the_dashboard_s_expressions(
    dashboard: dict[str, Any], tmp_path: Path
) -> None:
    rules = []
    for number, expression in enumerate(expressions(dashboard)):
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        assert "$" not in expression
        rules.append({"record": f"panel:{number}", "expr": expression})
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def test_the_rules_alert_when_they_should(tmp_path: Path) -> None:
    labels = 'instance="a", job="outpace"'
    model = f'{labels}, model="m"'
    cases = {
        "OutpaceDown": ({f"up{{{labels}}}": "0x20"}, {}, "critical"),
        "OutpaceNotLoaded": ({f"up{{{labels}}}": "1x20"}, {}, "critical"),
        "OutpaceStuck": (
            {
                f"outpace:num_requests_running{{{model}}}": "1x20",
                f"outpace:generation_tokens_total{{{model}}}": "5x20",
                f"outpace:prompt_tokens_total{{{model}}}": "5x20",
            },
            {"model": "m"},
            "critical",
        ),
        "OutpacePackageFailing": (
            {f'outpace:package_state{{{model}, state="failed"}}': "1x20"},
            {"model": "m", "state": "failed"},
            "critical",
        ),
        "OutpaceQueueing": (
            {f"outpace:num_requests_waiting{{{model}}}": "2x20"},
            {"model": "m"},
            "info",
        ),
    }
    tests = []
    for name, (series, extra, severity) in cases.items():
        expected = {"instance": "a", "job": "outpace", "severity": severity, **extra}
        fired = [{"exp_labels": expected}]
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {"series": key, "values": f"{value}"} for key, value in series.items()
                ],
                "promql_expr_test": [],
                "alert_rule_test": [{"eval_time": "18m", "alertname": name, "exp_alerts": fired}],
            }
        )
    healthy = {
        f"up{{{labels}}}": "1x20",
        f"outpace:slots{{{model}}}": "4x20",
        f"outpace:num_requests_running{{{model}}}": "1x20",
        f"outpace:generation_tokens_total{{{model}}}": "0+60x20",
        f"outpace:prompt_tokens_total{{{model}}}": "5x20",
        f"outpace:num_requests_waiting{{{model}}}": "0x20",
        f"outpace:package_failures_total{{{model}}}": "1x20",
        f'outpace:package_state{{{model}, state="loaded"}}': "1x20",
    }
    tests.append(
        {
            "interval": "1m",
            "input_series": [{"series": key, "values": value} for key, value in healthy.items()],
            "alert_rule_test": [
                {"eval_time": "18m", "alertname": name, "exp_alerts": []} for name in cases
            ],
        }
    )
    # Annotations are compared as well: the rules are tested without them.
    rules = re.sub(r" {8}annotations:\n( {10}.*\n)+", "", (MONITORING / "alerts.yml").read_text())
    (tmp_path / "alerts.yml").write_text(rules)
    document = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": tests}
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps(document))
    assert "SUCCESS" in promtool("test", "rules", str(path))
