"""Ways of drafting as the command line names them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench.drafter_settings import (
    Way,
    branching,
    drafters_of,
    parse_drafters,
    parse_ways,
)
from models.errors import UserError
from models.package import DrafterSpec, Manifest, load_package


def spec(kind: str, *, trees: bool = False) -> DrafterSpec:
    return DrafterSpec(
        kind=kind,
        checkpoint="heads",
        revision="1",
        sha256="0" * 64,
        longest=5,
        draft_vocab=32,
        top_k=8,
        graphs={"1": f"{kind}.k1.onnx"},
        weights=(f"{kind}.weights",),
        tree_graphs={"4": f"{kind}.tree.d4.onnx"} if trees else {},
    )


@pytest.fixture
def manifest(tiny_package: Path) -> Manifest:
    found = load_package(tiny_package).manifest
    drafters = (spec("draft-model"), spec("medusa"), spec("eagle3", trees=True))
    return dataclasses.replace(found, drafters=drafters)


def test_all_means_the_package_s_own_and_the_cascade(manifest: Manifest) -> None:
    assert drafters_of(manifest) == ("ngram", "draft-model", "medusa", "eagle3", "cascade")
    assert parse_drafters("all", manifest) == drafters_of(manifest)
    assert drafters_of(dataclasses.replace(manifest, drafters=())) == ("ngram",)


def test_all_may_stand_among_others(manifest: Manifest) -> None:
    names = [way.name for way in parse_ways("all, eagle3:16x8", manifest)]
    assert names == [*(way.name for way in parse_ways("all", manifest)), "eagle3:16x8"]
    assert parse_drafters("ngram+medusa,all", manifest) == ("ngram+medusa", *drafters_of(manifest))
    with pytest.raises(UserError, match="twice"):
        parse_drafters("all,medusa", manifest)


def test_a_drafter_alone_stands_for_its_usual_chain_and_tree(manifest: Manifest) -> None:
    names = [way.name for way in parse_ways("all", manifest)]
    assert names == [
        "ngram:8",
        "ngram:8x4",
        "draft-model:4",
        "medusa:3",
        "medusa:8x3",
        "eagle3:3",
        "eagle3:8x4",
        "cascade:8",
        "cascade:8x4",
        "cascade:auto",
    ]


def test_no_trees_where_the_target_cannot_verify_them(manifest: Manifest) -> None:
    target = dataclasses.replace(manifest.target, tree_graphs={})
    without = dataclasses.replace(manifest, target=target)
    assert [way.name for way in parse_ways("eagle3", without)] == ["eagle3:3"]
    with pytest.raises(UserError, match="cannot verify trees"):
        parse_ways("eagle3:8x4", without)


def test_a_way_on_the_wire(manifest: Manifest) -> None:
    fixed, automatic = parse_ways("eagle3:8x4, ngram+eagle3:auto", manifest)
    assert fixed.wire == {"drafter": "eagle3", "branches": 4, "policy": "fixed", "length": 8}
    assert automatic.wire == {"drafter": "ngram+eagle3", "branches": 1, "policy": "auto"}
    assert Way("off", None).wire == {"policy": "off"}


def test_those_that_can_branch(manifest: Manifest) -> None:
    assert branching(drafters_of(manifest), manifest) == ["ngram", "medusa", "eagle3", "cascade"]
    assert branching(("ngram+draft-model", "draft-model"), manifest) == ["ngram+draft-model"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mtp", "the package has ngram, draft-model, medusa, eagle3, cascade"),
        ("ngram+mtp", "'mtp'"),
        ("eagle3:0", "a length is `auto` or 1 to 31"),
        ("eagle3:32", "a length is `auto` or 1 to 31"),
        ("eagle3:\u0663", "a length is `auto` or 1 to 31"),
        ("eagle3:" + "3" * 5000, "a length is `auto` or 1 to 31"),
        (":3", "no name where one is wanted; the package has"),
        ("eagle3,,medusa", "no name where one is wanted"),
        ("ngram+", "no name where one is wanted"),
        ("eagle3:x3", "a length is `auto` or 1 to 31"),
        ("eagle3:8x9", "x2 to x8"),
        ("eagle3:3,eagle3:3", "one way twice"),
    ],
)
def test_what_a_package_cannot_do_is_refused(manifest: Manifest, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        parse_ways(text, manifest)
    assert refused.value.param == "drafters"


def test_drafters_are_named_once(manifest: Manifest) -> None:
    with pytest.raises(UserError, match="one twice"):
        parse_drafters("ngram,ngram", manifest)
