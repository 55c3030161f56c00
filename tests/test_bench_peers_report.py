"""A report of peers: its figures, its tables, its JSON."""

from __future__ import annotations

import json

from bench.machine import describe_machine
from bench.peers.agreement import Agreement
from bench.peers.contestants import Answer
from bench.peers.figures import Field, contestant_of
from bench.peers.markdown import markdown
from bench.peers.plots import plots_of
from bench.peers.schema import SCHEMA, PeersReport, TriedRow, document, json_schema
from bench.peers.tables import overall, problems, rows_of, together
from bench.peers.turns import Record, Turn
from bench.prompts import Question
from bench.run.schema import ALL, Absent, Interval, Quantity
from tests.bench_schema_support import (
    ZERO,
    assert_figures_are_told_apart,
    changed,
    validator,
    without,
)


def report() -> PeersReport:
    ours = Record("Outpace w8a8 default")
    theirs = Record("peer int4 plain")
    lost = Record("other peer", absent=Absent("failed", "could not be installed"))
    agreements: dict[tuple[str, str], Agreement] = {}
    for number, category in enumerate(("copy", "chat", "chat"), start=1):
        question = Question(str(number), category, ("text",))
        ours.turns.append(Turn(question, Answer((1, 2, 3, 4), 40.0, 10.0, 6, 3, 2), 0.0))
        theirs.turns.append(Turn(question, Answer((1, 2), 50.0, 20.0), 1.0))
        agreements[ours.name, question.id] = Agreement(4, 4, 4, 4, True)
        agreements[theirs.name, question.id] = Agreement(2, 1, 1, 4, False)
    records = [ours, theirs, lost]
    missing = Absent("missing", "was not measured")
    return PeersReport(
        started="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        command="python -m bench peers",
        whole=True,
        checkpoint="tiny",
        sha256="0" * 64,
        hardware=describe_machine(2),
        threads=2,
        source="built-in",
        max_tokens=4,
        selection_prompts=1,
        selection_max_tokens=4,
        exported={"w8a8": Quantity(0.97, "share")},
        bases=(ours.name,),
        contestants=tuple(contestant_of(one, one is ours) for one in records),
        rows=tuple(Field(records, agreements, (ours.name,)).rows()),
        tried=(TriedRow("peer int4 plain", {"form": "int4"}, missing, missing, False),),
    )


def test_who_was_not_asked_yet_has_no_figure() -> None:
    (row,) = [each for each in Field([Record("peer")], {}, ()).rows() if each.category == ALL]
    assert row.tokens == Absent("missing", "the run ended before")
    assert isinstance(row.time_per_token, Absent)


def test_rows_have_exact_figures() -> None:
    row = {(one.contestant, one.category): one for one in report().rows}
    ours = row["Outpace w8a8 default", ALL]
    assert ours.time_per_token == Quantity(10.0, "ms")
    assert ours.tpot == Quantity(10.0, "ms")
    assert ours.tau == Quantity(1.5, "tokens/run")
    assert ours.alpha == Quantity(0.5, "share")
    theirs = row["peer int4 plain", ALL]
    assert theirs.agreement == Quantity(0.5, "share")
    assert theirs.common == Quantity(0.25, "share")
    assert theirs.identical == Quantity(0.0, "share")
    assert theirs.against["Outpace w8a8 default"].ratio == Quantity(2.5, "times ours")
    found = theirs.against["Outpace w8a8 default"].interval
    assert isinstance(found, Interval)
    assert (found.low, found.high, found.prompts) == (2.5, 2.5, 3)
    assert row["peer int4 plain", "copy"].tokens == Quantity(2, "tokens")
    assert row["other peer", ALL].tpot == Absent("failed", "could not be installed")


def test_what_has_no_figure_is_a_word_and_every_column_is_defined() -> None:
    made = report()
    text = markdown(made, list(plots_of(made)))
    for column in overall(made.bases[0]):
        assert f"- **{column.header}**: {column.definition}" in text
    assert "| other peer | failed | failed |" in text
    assert "could not be installed" in text
    assert ("peer int4 plain", "missing", "was not measured") in problems(made)
    assert [row.contestant for row in together(made)] == [
        "Outpace w8a8 default",
        "peer int4 plain",
        "other peer",
    ]
    assert rows_of(overall(made.bases[0]), together(made))[1][:3] == (
        "peer int4 plain",
        "25.00",
        "2.50",
    )


def test_the_schema_tells_figures_and_words_apart() -> None:
    data = json.loads(json.dumps(document(report()), allow_nan=False))
    assert data["schema"] == SCHEMA
    found = validator(json_schema())
    found.validate(data)
    basis = data["bases"][0]
    for path in (("agreement",), ("time_per_token",), ("against", basis, "ratio")):
        assert_figures_are_told_apart(json_schema(), data, "rows", 0, *path)
    assert_figures_are_told_apart(json_schema(), data, "contestants", 0, "memory")
    assert_figures_are_told_apart(json_schema(), data, "tried", 0, "agreement")
    for path in (("rows", 0, "tpot"), ("rows", 0, "ttft"), ("tried", 0, "time_per_token")):
        assert not found.is_valid(changed(data, ZERO, *path))
    for path in (("hardware", "threads"), ("rows", 0, "against", basis, "interval"), ("command",)):
        assert not found.is_valid(without(data, *path))
    assert not found.is_valid({**data, "more": 1})
