"""Names of drafters: what they stand for in a package, and what is refused."""

from __future__ import annotations

import pytest

from gateway.engine.names import PREFERRED, drafter_names, is_name, predicting, resolve
from models.errors import UserError
from models.package import DRAFTER_KINDS

KINDS = ("medusa", "draft-model", "eagle3", "self-speculative")


@pytest.mark.parametrize(
    ("name", "kinds", "meant"),
    [
        ("ngram", (), ("ngram",)),
        ("off", KINDS, ()),
        ("auto", (), ("ngram",)),
        ("auto", KINDS, ("ngram", "eagle3")),
        ("cascade", KINDS, ("ngram", "eagle3")),
        ("cascade", ("draft-model", "medusa"), ("ngram", "medusa")),
        ("cascade", ("self-speculative",), ("ngram", "self-speculative")),
        ("medusa", KINDS, ("medusa",)),
        ("ngram+medusa", KINDS, ("ngram", "medusa")),
        ("eagle3+ngram+medusa", KINDS, ("ngram", "eagle3", "medusa")),
        ("prediction", (), ("prediction",)),
        ("ngram+prediction", (), ("prediction", "ngram")),
        ("medusa+prediction+eagle3", KINDS, ("prediction", "medusa", "eagle3")),
    ],
)
def test_what_a_name_stands_for(name: str, kinds: tuple[str, ...], meant: tuple[str, ...]) -> None:
    assert is_name(name)
    assert resolve(name, kinds) == meant


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("mtp", KINDS),
        ("cascade", ()),
        ("ngram+mtp", KINDS),
        ("ngram+ngram", KINDS),
        ("ngram+auto", KINDS),
        ("ngram+off", KINDS),
        ("ngram+", KINDS),
        ("", KINDS),
        ("EAGLE3", KINDS),
    ],
)
def test_what_a_package_has_not_is_refused(name: str, kinds: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as refused:
        resolve(name, kinds)
    assert (refused.value.code, refused.value.param) == ("unknown_drafter", "speculation.drafter")
    assert ", ".join(drafter_names(kinds)) in refused.value.message


def test_the_refusal_tells_all_that_there_is() -> None:
    with pytest.raises(UserError) as refused:
        resolve("eagle2", ("mtp", "eagle"))
    assert refused.value.message == (
        "unknown drafter 'eagle2'; this package has: auto, cascade, ngram, prediction, mtp, eagle,"
        " off; and combinations such as ngram+mtp."
    )


def test_some_package_may_have_it() -> None:
    assert all(is_name(kind) for kind in DRAFTER_KINDS)
    assert not any(is_name(name) for name in ("meduza", "", "+", "ngram+ngram", "auto+ngram"))


def test_every_kind_has_a_place_in_the_preference() -> None:
    assert sorted(PREFERRED) == sorted(DRAFTER_KINDS)


@pytest.mark.parametrize(
    ("names", "predicted", "drafting"),
    [
        (("ngram",), True, ("prediction", "ngram")),
        (("ngram", "eagle3"), True, ("prediction", "ngram", "eagle3")),
        (("prediction", "ngram"), True, ("prediction", "ngram")),
        (("prediction",), True, ("prediction",)),
        (("prediction", "ngram"), False, ("ngram",)),
        (("prediction",), False, ()),
        (("ngram",), False, ("ngram",)),
        ((), True, ()),
    ],
)
def test_a_prediction_drafts_beside_the_others_where_there_is_one(
    names: tuple[str, ...], predicted: bool, drafting: tuple[str, ...]
) -> None:
    assert predicting(names, predicted=predicted) == drafting
