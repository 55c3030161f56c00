"""Keys take turns; within a key the order of arrival is kept."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine import turns as turns_module
from gateway.engine.turns import Turns


def served_in_order(turns: Turns[str], count: int) -> list[str]:
    order = []
    for _ in range(count):
        item = turns.pop()
        turns.served(item[0])
        order.append(item)
    return order


def waiting(*items: str) -> Turns[str]:
    """Items are named by their key and a number."""
    turns: Turns[str] = Turns()
    for item in items:
        turns.add(item[0], item)
    return turns


def test_one_key_is_served_in_order_of_arrival() -> None:
    turns = waiting("a1", "a2", "a3")
    assert len(turns) == 3
    assert served_in_order(turns, 3) == ["a1", "a2", "a3"]
    assert not turns


def test_keys_take_turns_however_many_of_one_came_first() -> None:
    turns = waiting("a1", "a2", "a3", "a4", "b1", "c1", "b2")
    assert served_in_order(turns, 7) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_a_turn_that_was_not_waited_for_counts() -> None:
    turns = waiting("a1", "a2", "b1")
    turns.served("a")
    assert served_in_order(turns, 3) == ["b1", "a1", "a2"]


def test_whoever_comes_late_waits_for_one_turn_of_each_other_key() -> None:
    turns = waiting(*(f"{key}{number}" for number in range(9) for key in "abc"))
    served_in_order(turns, 4)
    turns.add("z", "z0")
    assert "z0" in served_in_order(turns, 3)
    turns.add("z", "z1")
    turns.add("z", "z2")
    order = served_in_order(turns, 8)
    assert order.index("z1") <= 3
    assert order.index("z2") <= 7


def test_who_leaves_is_passed_over() -> None:
    turns = waiting("a1", "a2", "b1")
    assert turns.remove("a", "a1")
    assert not turns.remove("a", "a1")
    assert not turns.remove("x", "x1")
    assert list(turns) == ["a2", "b1"]
    assert turns.remove("b", "b1")
    assert served_in_order(turns, 1) == ["a2"]


def test_a_turn_that_came_to_nothing_is_none() -> None:
    turns = waiting("a1", "b1", "a2")
    assert turns.pop() == "a1"
    assert served_in_order(turns, 2) == ["a2", "b1"], "the key of a1 was not served"


def test_what_is_remembered_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "MOST_KEYS", 3)
    turns: Turns[str] = Turns()
    for key in "abcd":
        turns.served(key)
    for key in "dab":
        turns.add(key, f"{key}1")
    # Of `a` nothing is known any more; `b` was served before `d`.
    assert served_in_order(turns, 3) == ["a1", "b1", "d1"]


@given(st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=60))
def test_while_a_key_waits_no_other_has_two_turns(steps: list[str | None]) -> None:
    """A letter comes and waits; None is a turn."""
    turns: Turns[str] = Turns()
    arrived: Counter[str] = Counter()
    served: Counter[str] = Counter()
    since: dict[str, Counter[str]] = {}
    for step in [*steps, *[None] * len(steps)]:
        if step is not None:
            turns.add(step, f"{step}{arrived[step]}")
            arrived[step] += 1
            since.setdefault(step, Counter())
        elif turns:
            item = turns.pop()
            key = item[0]
            turns.served(key)
            assert item == f"{key}{served[key]}", "a key is served in its own order"
            served[key] += 1
            for waiting, seen in since.items():
                if waiting != key:
                    seen[key] += 1
                    assert seen[key] == 1, f"{key} had two turns while {waiting} waited"
            del since[key]
            if arrived[key] > served[key]:
                since[key] = Counter()
    assert served == arrived
