"""The search for the layers that draft best: against judges that know the answer."""

from __future__ import annotations

import itertools
import math

import onnx
import pytest
from onnx import TensorProto, helper

from export.layer_search import (
    LONGEST,
    SHORTLIST,
    Costs,
    Kept,
    choose_layers,
    costs_of,
    ranges,
)
from export.self_speculative import LayerChoice

LAYERS = 12
AUTO = LayerChoice()
EVEN = Costs(layers=(0.08,) * LAYERS, head=0.04, verify=0.045)
WHOLE = tuple(range(LAYERS))


class Judge:
    """Each layer left out multiplies the agreement by its worth; counts what it is asked."""

    def __init__(self, worth: dict[int, float], other: float = 0.8) -> None:
        self.worth = [worth.get(layer, other) for layer in range(LAYERS)]
        self.asked: list[Kept] = []

    def __call__(self, kept: Kept) -> float:
        self.asked.append(kept)
        return math.prod(self.worth[layer] for layer in range(LAYERS) if layer not in kept)


def silent(_: str) -> None:
    return None


def without(*layers: int) -> Kept:
    return tuple(layer for layer in WHOLE if layer not in layers)


def test_a_useless_layer_is_found() -> None:
    found = choose_layers(AUTO, Judge({5: 1.0}), EVEN, silent)
    assert found.chosen.kept == without(5)
    assert found.chosen.agreement == 1.0
    assert found.complete


def test_every_useless_layer_is_found_and_no_other() -> None:
    """Six of twelve: drafts at half the price that are always right."""
    useless = (1, 3, 4, 7, 8, 10)
    found = choose_layers(AUTO, Judge(dict.fromkeys(useless, 1.0), 0.3), EVEN, silent)
    assert found.chosen.kept == without(*useless)
    assert found.chosen.length == LONGEST
    expected = 9 / (8 * (6 * 0.08 + 0.04) + 1 + 8 * 0.045)
    assert found.chosen.speedup == pytest.approx(expected)
    assert found.chosen.speedup > 1.6


def test_a_pair_that_is_only_useless_together_is_found_by_the_beam() -> None:
    """Alone each costs more than another layer does."""

    class Paired(Judge):
        def __call__(self, kept: Kept) -> float:
            if 2 not in kept and 9 not in kept:
                return super().__call__(tuple(sorted({*kept, 2, 9})))
            return super().__call__(kept)

    found = choose_layers(AUTO, Paired({6: 0.9, 2: 0.89, 9: 0.88}, 0.5), EVEN, silent)
    assert found.chosen.kept == without(2, 9)


def test_a_count_gives_the_best_set_of_that_size() -> None:
    worth = {layer: 0.5 + 0.04 * layer for layer in WHOLE}
    for count in (1, 5, 11):
        found = choose_layers(LayerChoice(count=count), Judge(worth), EVEN, silent)
        assert found.chosen.kept == WHOLE[:count]
        assert [len(row.kept) for row in found.table] == list(range(11, count - 1, -1))


def test_layers_that_are_named_are_judged_and_kept() -> None:
    judge = Judge({}, 0.9)
    found = choose_layers(LayerChoice(kept=(0, 1, 2)), judge, EVEN, silent)
    assert judge.asked == [(0, 1, 2)]
    assert found.chosen == found.table[0]
    assert found.chosen.agreement == pytest.approx(0.9**9)
    assert choose_layers(LayerChoice(count=LAYERS), judge, EVEN, silent).chosen.kept == WHOLE


def test_the_same_search_twice_is_the_same() -> None:
    """Ties included: layers 3 and 8 cost the same."""
    worth = {3: 0.95, 8: 0.95, 5: 0.9}
    one, other = Judge(worth), Judge(worth)
    assert choose_layers(AUTO, one, EVEN, silent) == choose_layers(AUTO, other, EVEN, silent)
    assert one.asked == other.asked


def test_no_set_is_judged_twice_at_a_size_and_few_behind_the_first() -> None:
    judge = Judge({}, 0.97)
    choose_layers(LayerChoice(count=2), judge, EVEN, silent)
    sizes = [len(kept) for kept in judge.asked]
    assert sizes.count(LAYERS - 1) == LAYERS
    assert all(sizes.count(size) <= 2 * SHORTLIST for size in range(2, LAYERS - 1))
    assert len(set(judge.asked)) == len(judge.asked)


def test_where_nothing_pays_the_best_is_kept_and_said_so() -> None:
    """As at the demo's size: every layer is needed."""
    found = choose_layers(AUTO, Judge({4: 0.6}, 0.4), EVEN, silent)
    assert found.chosen.kept == without(4)
    assert found.chosen.speedup < 1
    assert found.lines()[-1] == "  no set of layers pays on these prompts; kept the best, 0-3,5-11"


def test_where_something_pays_the_table_shows_it() -> None:
    found = choose_layers(AUTO, Judge(dict.fromkeys(range(6, 12), 1.0), 0.2), EVEN, silent)
    lines = found.lines()
    assert lines[0].split() == ["layers", "agreement", "draft", "length", "expected", "speed-up"]
    chosen = [line for line in lines if line.endswith("<-")]
    assert [line.split() for line in chosen] == [["6", "of", "12", "1.000", "8", "1.63x", "<-"]]
    assert lines[-1] == "  kept layers 0-5"


def test_the_search_ends_where_smaller_sets_cannot_be_better() -> None:
    """Below this agreement not even the head and one layer alone would gain as much."""
    judge = Judge({0: 0.99}, 0.01)
    found = choose_layers(AUTO, judge, EVEN, silent)
    assert [len(row.kept) for row in found.table] == [11, 10]
    assert found.chosen.kept == without(0)
    assert found.complete


def test_the_search_ends_where_several_sizes_were_no_better() -> None:
    judge = Judge({}, 0.8)
    found = choose_layers(AUTO, judge, EVEN, silent)
    assert len(found.chosen.kept) == LAYERS - 1
    assert EVEN.bound(found.table[-1].agreement) > found.chosen.speedup
    assert len(found.table) == 4


def test_time_bounds_the_search() -> None:
    ticks = itertools.count()
    judge = Judge({5: 1.0, 6: 0.9})
    found = choose_layers(AUTO, judge, EVEN, silent, limit_s=20, clock=lambda: float(next(ticks)))
    assert not found.complete
    assert len(judge.asked) < 30
    assert found.chosen.kept == without(5)
    assert "  time ran out: smaller sets were not judged" in found.lines()


def test_without_time_a_count_is_reached_by_what_layers_cost_alone() -> None:
    ticks = itertools.count()
    judge = Judge({layer: 0.5 + 0.04 * layer for layer in WHOLE})
    choice = LayerChoice(count=4)
    found = choose_layers(choice, judge, EVEN, silent, limit_s=14, clock=lambda: float(next(ticks)))
    assert not found.complete
    assert found.chosen.kept == WHOLE[:4]
    assert found.chosen.agreement == pytest.approx(math.prod(judge.worth[4:]))
    assert len(judge.asked) < 20


def test_what_is_judged_next_is_told() -> None:
    told: list[str] = []
    choose_layers(LayerChoice(count=10), Judge({}), EVEN, told.append)
    assert told == ["judging 11 of 12 layers", "judging 10 of 12 layers"]


def test_a_round_costs_its_drafts_and_its_verification() -> None:
    costs = Costs(layers=(0.3, 0.4, 0.2), head=0.1, verify=0.05)
    assert costs.draft((0, 2)) == pytest.approx(0.6)
    measured = costs.measured((0, 2), 0.5)
    by_length = {
        k: (1 - 0.5 ** (k + 1)) / 0.5 / (0.6 * k + 1 + 0.05 * k) for k in range(1, LONGEST + 1)
    }
    assert measured.length == max(by_length, key=lambda k: by_length[k])
    assert measured.speedup == pytest.approx(max(by_length.values()))
    assert costs.bound(0.5) == pytest.approx(
        max((1 - 0.5 ** (k + 1)) / 0.5 / (0.3 * k + 1 + 0.05 * k) for k in range(1, LONGEST + 1))
    )


def test_costs_are_the_bytes_of_weights() -> None:
    """Outside or inside the graph; what belongs to no layer and is not the head costs nothing."""
    outside = TensorProto(name="layers.1.down", data_type=TensorProto.FLOAT, dims=[300])
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "target.weights"), ("offset", "0"), ("length", "1200")):
        outside.external_data.add(key=key, value=value)
    sizes = {"layers.0.qkv_Q8": 100, "layers.0.down": 200, "lm_head_Q8": 100, "embedding": 900}
    inside = [
        TensorProto(name=name, data_type=TensorProto.UINT8, dims=[size], raw_data=bytes(size))
        for name, size in sizes.items()
    ]
    attention = [helper.make_node("GroupQueryAttention", ["x"], [f"y{n}"]) for n in range(2)]
    graph = helper.make_graph(attention, "target", [], [], [*inside, outside])
    costs = costs_of(helper.make_model(graph), "w8a8")
    assert costs.layers == (300 / 1600, 1200 / 1600)
    assert costs.head == 100 / 1600
    assert isinstance(graph, onnx.GraphProto)
    assert costs.verify < costs_of(helper.make_model(graph), "int4").verify


@pytest.mark.parametrize(
    ("kept", "text"),
    [((0, 1, 2, 5, 7, 8), "0-2,5-5,7-8"), ((3,), "3-3"), ((0, 1), "0-1")],
)
def test_kept_layers_are_written_as_the_option_takes_them(kept: Kept, text: str) -> None:
    assert ranges(kept) == text
