"""The drafters of a package: loaded once when they are wanted, refused where they do not fit."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from pathlib import Path

import pytest

from models import memory
from models.drafters import learned
from models.drafters.graphs import DrafterGraphs
from models.drafters.learned import LearnedModels
from models.drafters.medusa import MedusaDrafter
from models.drafters.recurrent import RecurrentDrafter, RecurrentTreeDrafter
from models.drafters.self_speculative import SelfSpeculativeDrafter
from models.errors import UserError
from models.memory import drafter_weight_bytes
from models.package import Package, load_package, write_manifest
from models.target import Target
from tests.drafters_support import CPU, Conversation, load, make_sampler
from tests.engine_support import make_prompt
from tests.patience import PATIENCE

KINDS = {
    "eagle3": RecurrentDrafter,
    "draft-model": RecurrentDrafter,
    "mtp": RecurrentDrafter,
    "self-speculative": SelfSpeculativeDrafter,
    "medusa": MedusaDrafter,
}


def test_a_package_says_which_drafters_it_has(drafting: Package, package: Package) -> None:
    models = LearnedModels(drafting, CPU)
    assert models.kinds == tuple(KINDS)
    assert models.spec("mtp") is drafting.manifest.drafters[2]
    assert LearnedModels(package, CPU).kinds == ()


def test_every_kind_has_its_drafter(drafting: Package) -> None:
    models = load(drafting)
    (slot,) = Target(drafting, CPU).make_slots(1, 64)
    for kind, made in KINDS.items():
        drafter = models.drafter(kind, slot, make_sampler(), shared=True)
        assert type(drafter) is made
        assert drafter.name == kind
        assert drafter.runs_graph  # type: ignore[attr-defined]
        branching = models.drafter(kind, slot, None, shared=False, branches=4)
        trees = {RecurrentDrafter: RecurrentTreeDrafter}.get(made, made)
        assert type(branching) is (trees if models.drafts_trees(kind) else made)


def test_graphs_are_loaded_once_and_when_wanted(
    drafting: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    begun = threading.Event()

    def slowly(package: Package, spec: object, *rest: object) -> DrafterGraphs:
        made.append(spec.kind)  # type: ignore[attr-defined]
        begun.wait(PATIENCE)
        return DrafterGraphs(package, spec, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(learned, "DrafterGraphs", slowly)
    models = LearnedModels(drafting, CPU)
    assert not models.loaded("eagle3")
    threads = [threading.Thread(target=models.load, args=("eagle3",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()
    models.load("eagle3")
    assert made == ["eagle3"]
    assert models.loaded("eagle3")
    assert not models.loaded("mtp")


def test_a_drafter_that_does_not_fit_is_refused_and_can_be_tried_again(
    drafting: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = LearnedModels(drafting, CPU)
    needed = drafter_weight_bytes(drafting, models.spec("eagle3"))
    assert needed > 6 * drafting.manifest.files["eagle3.weights"].bytes
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    with pytest.raises(UserError, match="the drafter eagle3 needs") as refused:
        models.load("eagle3")
    assert refused.value.code == "out_of_memory"
    assert not models.loaded("eagle3")
    monkeypatch.setattr(memory, "available_bytes", lambda: needed)
    models.load("eagle3")


def test_requests_learn_for_one_another(drafting: Package) -> None:
    """How often the target agrees is a drafter's property, not a request's."""
    models, target = load(drafting, "eagle3"), Target(drafting, CPU)
    talks = [
        Conversation(target, slot, make_prompt(20 + seed, seed=seed))
        for seed, slot in enumerate(target.make_slots(2, 200))
    ]
    drafters = [
        talk.begin(models.drafter("eagle3", talk.slot, None, shared=False)) for talk in talks
    ]
    before = drafters[1].propose(1).confidence
    for _ in range(40):
        draft = drafters[0].propose(1)
        talks[0].say(drafters[0], ((draft.tokens[0] + 1) % 300,))
    after = drafters[1].propose(1).confidence
    assert before is not None
    assert after is not None
    assert after[0] < before[0]


def test_graphs_of_another_package_are_not_loaded(drafting: Package, tmp_path: Path) -> None:
    """One that took the place of the first has graphs of the same names."""
    place = tmp_path / "package"
    shutil.copytree(drafting.path, place)
    package = load_package(place)
    models = LearnedModels(package, CPU)
    models.load("medusa")
    target = Target(package, CPU)
    write_manifest(place, dataclasses.replace(package.manifest, name="another"))
    models.load("medusa")
    with pytest.raises(UserError, match="was changed since it was loaded") as error:
        models.load("eagle3")
    assert error.value.code == "package_changed"
    with pytest.raises(UserError, match="load it anew"):
        target.load_trees()
    write_manifest(place, package.manifest)
    models.load("eagle3")
    shutil.rmtree(place)
    with pytest.raises(UserError, match="was changed"):
        models.load("mtp")
