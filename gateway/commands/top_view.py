"""One frame of `outpace top`, drawn from the answer of /v1/status.

No line is wrapped: what has no room ends in an ellipsis, numbers last of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.commands.chat import CONTROLS
from models.memory import format_bytes

MOST_STREAMS = 20
MOST_COSTS = 12
BAR_WIDTH = 30
BAD = frozenset({"failed", "stuck"})


def plain(value: object, style: str = "") -> Text:
    """What a gateway says is text, and moves no cursor."""
    return _line(str(value).translate(CONTROLS).replace("\n", " "), style)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def frame(status: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float) -> Group:
    """`before` is the status of `seconds` ago, where there was one: rates are taken from it."""
    return Group(
        _head(status),
        *_packages(status.get("packages", ())),
        _slots(status),
        Text(),
        _streams(status.get("requests", ()), _tokens(before), seconds),
        Text(),
        _drafters(status.get("drafters", ())),
        Text(),
        _costs(status),
    )


def _head(status: Mapping[str, Any]) -> Text:
    exact = "exact" if status.get("exact") else "not exact"
    parts = [
        str(status.get("model", "?")),
        str(status.get("device", "?")),
        exact,
        f"policy {status.get('policy', '?')}",
        f"drafter {status.get('drafter', '?')}",
        format_bytes(int(status.get("memory_bytes", 0))),
    ]
    return plain(" | ".join(parts), "bold")


def _packages(packages: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Where there are several: what is above and below is said of the default one."""
    return [] if len(packages) < 2 else [packages_table(packages), Text()]


def packages_table(packages: Sequence[Mapping[str, Any]]) -> Table:
    table = _table()
    for name in ("package", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("memory", "needs", "requests", "waiting", "idle", "keeps", "failures"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in packages:
        idle, keeps = each.get("idle_seconds"), float(each.get("keep_alive", -1))
        table.add_row(
            plain(f"{each.get('id', '?')}{' (default)' if each.get('default') else ''}"),
            plain(each.get("state", "?"), "red" if each.get("state") in BAD else ""),
            Text(format_bytes(int(each.get("memory_bytes", 0)))),
            Text(format_bytes(int(each.get("needs_bytes", 0)))),
            Text(str(each.get("requests", 0))),
            Text(str(each.get("waiting", 0))),
            Text("-" if idle is None else f"{idle:.0f} s"),
            Text("always" if keeps < 0 else f"{keeps:g} s"),
            Text(str(each.get("failures", 0))),
            plain(each.get("problem") or "", "red"),
        )
    return table


def _slots(status: Mapping[str, Any]) -> Table:
    slots, running = int(status.get("slots", 0)), int(status.get("running", 0))
    capacity = slots * int(status.get("context_length", 0))
    held = int(status.get("kv_tokens", 0))
    grid = Table.grid(padding=(0, 1))
    share = f"{held} of {capacity} tokens, {held / max(capacity, 1):.0%}"
    waiting = f"{status.get('waiting', 0)} waiting"
    grid.add_row(_line("slots"), _bar(running, slots), _line(f"{running} of {slots}, {waiting}"))
    grid.add_row(_line("K/V"), _bar(held, capacity), _line(share))
    return grid


def _streams(
    requests: Sequence[Mapping[str, Any]], before: Mapping[str, int], seconds: float
) -> RenderableType:
    if not requests:
        return _line("no requests", "dim")
    named = (("request", "<"), ("key", "<"), ("path", "<"))
    table = _table(*named, *_right("s", "tokens", "/s", "tau"))
    table.add_column(_line("drafter"))
    for each in requests[:MOST_STREAMS]:
        tokens = int(each.get("tokens", 0))
        name = str(each.get("request_id", ""))
        rate = (tokens - before[name]) / seconds if name in before and seconds > 0 else None
        table.add_row(
            plain(name),
            plain(each.get("key", "-")),
            plain(each.get("path", "")),
            _line(f"{each.get('ms', 0) / 1e3:.1f}"),
            _line(str(tokens)),
            _line(_figure(rate, ".1f")),
            _line(_figure(each.get("tau"), ".2f")),
            plain(each.get("drafter", "-")),
        )
    if len(requests) <= MOST_STREAMS:
        return table
    return Group(table, _line(f"and {len(requests) - MOST_STREAMS} more", "dim"))


def _drafters(drafters: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(("drafter", "<"), *_right("drafted", "accepted", "alpha"))
    table.add_column(_line("survival by depth"))
    table.add_column(_line("ms by length"))
    table.add_column("")
    for each in drafters:
        drafted, accepted = int(each.get("draft_n", 0)), int(each.get("draft_n_accepted", 0))
        failures = int(each.get("failures", 0))
        state = [] if each.get("loaded") else ["not loaded"]
        state += [f"{failures} failures: {each.get('problem')}"] if failures else []
        table.add_row(
            plain(each.get("name", "?")),
            _line(str(drafted)),
            _line(str(accepted)),
            _line(_figure(accepted / drafted if drafted else None, ".2f")),
            _line(" ".join(f"{share:.2f}" for share in each.get("survival", ()))),
            plain(" ".join(f"{n}:{ms:.1f}" for n, ms in each.get("run_ms", {}).items())),
            plain(", ".join(state), "red" if failures else "dim"),
        )
    return table


def _costs(status: Mapping[str, Any]) -> RenderableType:
    """What a run of one row costs by its tokens: what a draft of that many has to earn."""
    points = [(int(tokens), float(ms)) for tokens, ms in status.get("run_ms", {}).items()]
    if not points:
        return _line("no run was measured", "dim")
    points.sort()
    most, least = max(ms for _, ms in points), points[0][1]
    table = _table(*_right("tokens", "ms", "x"))
    table.add_column(_line("a run of one row"))
    for tokens, ms in _spread(points):
        times = _line(f"{ms / least:.2f}" if least else "-")
        table.add_row(_line(str(tokens)), _line(f"{ms:.2f}"), times, _bar(ms, most))
    overhead = status.get("costs", {}).get("overhead_ms")
    return Group(table, _line(f"beside its runs a round takes {_figure(overhead, '.2f')} ms"))


def _spread(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """At most `MOST_COSTS` of them, the first and the last included."""
    if len(points) <= MOST_COSTS:
        return points
    step = (len(points) - 1) / (MOST_COSTS - 1)
    return [points[round(step * place)] for place in range(MOST_COSTS)]


def _tokens(status: Mapping[str, Any] | None) -> dict[str, int]:
    requests = status.get("requests", ()) if status is not None else ()
    return {str(each.get("request_id")): int(each.get("tokens", 0)) for each in requests}


def _bar(value: float, most: float) -> Bar:
    return Bar(size=max(most, 1), begin=0, end=min(value, max(most, 1)), width=BAR_WIDTH)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, side in columns:
        # Columns that may wrap give way first; their cells are lines and are cut.
        right = side == ">"
        table.add_column(_line(name), justify="right" if right else "left", no_wrap=right)
    return table


def _right(*names: str) -> list[tuple[str, str]]:
    return [(name, ">") for name in names]


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
