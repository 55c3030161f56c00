"""The loop learns, stops, and goes on from its checkpoint as if it had not stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from export.training.batches import Store
from export.training.drafting import Lesson
from export.training.optimizer import Rates
from export.training.trainer import Plan, Trainer
from models.errors import UserError
from tests.trainer_support import small_task, write_store

LENGTHS = (9, 12, 15, 11, 14, 6)


def _plan(**changes: object) -> Plan:
    settings = {
        "minutes": 1000.0,
        "per_update": 30,
        "per_run": 15,
        "warm_up": 1,
        "fall": 1.0 - 1e-9,
    }
    rates = Rates(matrices=0.02, others=0.02)
    return Plan(lesson=Lesson(sampled=8, noise=0.0), rates=rates, **(settings | changes))  # type: ignore[arg-type]


def _trainer(root: Path, checkpoint: Path, plan: Plan | None = None) -> Trainer:
    store = Store(root / "corpus", root / "features")
    return Trainer(small_task(), store, plan or _plan(), checkpoint)


def _run(trainer: Trainer, updates: int) -> list[str]:
    lines: list[str] = []
    trainer.run(lambda: trainer.progress.updates >= updates, lines.append)
    return lines


def _losses(trainer: Trainer) -> list[float]:
    return [entry[0] for entry in trainer.recent.entries]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_store(tmp_path, LENGTHS)
    return tmp_path


def test_the_loss_falls_on_what_is_seen_again(root: Path) -> None:
    trainer = _trainer(root, root / "a.pt")
    _run(trainer, 5)
    first = _losses(trainer)
    _run(trainer, 40)
    assert sum(_losses(trainer)[-5:]) < 0.75 * sum(first)
    assert trainer.progress.epoch >= 5


def test_a_training_that_stopped_goes_on_as_if_it_had_not(root: Path) -> None:
    whole = _trainer(root, root / "whole.pt")
    _run(whole, 7)
    _run(_trainer(root, root / "parts.pt"), 3)
    parts = _trainer(root, root / "parts.pt")
    assert parts.progress.updates == 3
    _run(parts, 7)
    stored = [torch.load(root / name, weights_only=True) for name in ("whole.pt", "parts.pt")]
    for name, value in stored[0]["module"].items():
        torch.testing.assert_close(stored[1]["module"][name], value)
    for name, value in stored[0]["average"].items():
        torch.testing.assert_close(stored[1]["average"][name], value)
    assert not list(root.glob("*.tmp"))


def test_text_that_comes_later_is_learned_from(root: Path) -> None:
    trainer = _trainer(root, root / "a.pt")
    _run(trainer, 2)
    write_store(root, (9, 9, 9), seed=1)
    again = _trainer(root, root / "a.pt")
    _run(again, 12)
    assert again.progress.items == len(LENGTHS) - 1 + 2


def test_it_ends_when_its_minutes_have_passed(root: Path) -> None:
    trainer = _trainer(root, root / "a.pt", _plan(minutes=1e-6))
    _run(trainer, 1000)
    assert trainer.progress.updates == 1
    assert (root / "a.pt").is_file()


def test_the_average_is_in_the_module_for_a_while(root: Path) -> None:
    trainer = _trainer(root, root / "a.pt")
    _run(trainer, 5)
    weight = trainer.module.get_parameter("fc.weight")
    now = weight.detach().clone()
    with trainer.averaged():
        assert not torch.equal(weight, now)
    assert torch.equal(weight, now)


def test_the_schedule_rises_stays_and_falls() -> None:
    plan = Plan(minutes=10, warm_up=4, fall=0.5, last=0.1)
    assert [plan.scale(updates, 0) for updates in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert plan.scale(99, 300) == 1.0
    assert plan.scale(99, 450) == pytest.approx(0.55)
    assert plan.scale(99, 600) == plan.scale(99, 6000) == pytest.approx(0.1)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    trainer = _trainer(root, checkpoint)
    trainer.save()
    before = checkpoint.read_bytes()

    def full(_: object, path: Path) -> None:
        path.write_bytes(before[:100])
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match="is the disk full") as error:
        trainer.save()
    assert error.value.message.startswith(f"{checkpoint} could not be written")
    assert checkpoint.read_bytes() == before
    assert not list(tmp_path.glob("*.tmp"))
