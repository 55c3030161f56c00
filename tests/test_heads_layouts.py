"""Every published layout: what is read proposes what its tensors say, and so it does written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from export.heads import layouts
from export.heads.eagle3 import Eagle3
from export.heads.medusa import Medusa
from export.heads.reference import draft_chain, draft_medusa
from tests.head_checkpoints import (
    HIDDEN,
    LAYERS,
    MEDUSA,
    STEPPING,
    VOCABULARY,
    Published,
    deepseek,
    eagle,
    eagle3,
    eagle3_named_layers,
    eagle3_speculators,
    make_facts,
    medusa,
    mimo,
)
from tests.head_formulas import formula_draft, formula_medusa

PROMPTS, STEPS = 6, 5
# The rest has what only the speculators project has, and no trainer of ours makes.
WRITABLE = sorted(STEPPING.keys() - {"eagle3-speculators-variants", "eagle-speculators-norms"})


def prompt(seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (3 + seed % 5,), generator=generator).tolist()


def features(tokens: list[int], width: int) -> Tensor:
    return torch.randn(len(tokens) - 1, width, generator=torch.Generator().manual_seed(sum(tokens)))


def chain_drafts(published: Published, head: layouts.Head) -> list[list[int]]:
    assert not isinstance(head, Medusa)
    width = 3 * HIDDEN if isinstance(head, Eagle3) else HIDDEN
    prompts = [prompt(seed) for seed in range(PROMPTS)]
    return [draft_chain(head, ids, features(ids, width), STEPS)[0] for ids in prompts]


@pytest.mark.parametrize("layout", sorted(STEPPING))
def test_a_head_proposes_what_its_tensors_say(layout: str, tmp_path: Path) -> None:
    published, facts = STEPPING[layout](), make_facts()
    head, info = layouts.read(published.save(tmp_path), facts)
    drafts = chain_drafts(published, head)
    width = 3 * HIDDEN if info.reads == "taps" else HIDDEN
    for seed, draft in enumerate(drafts):
        ids = prompt(seed)
        assert draft == formula_draft(published, facts, ids, features(ids, width), STEPS)
    assert len({tuple(draft) for draft in drafts}) > 3, "prompts must matter"


@pytest.mark.parametrize("layout", WRITABLE)
def test_a_head_that_is_written_and_read_again_proposes_the_same(
    layout: str, tmp_path: Path
) -> None:
    published, facts = STEPPING[layout](), make_facts()
    head, info = layouts.read(published.save(tmp_path / "theirs"), facts)
    layouts.write(head, info, tmp_path / "ours", facts)
    again, info_again = layouts.read(tmp_path / "ours", facts)
    assert chain_drafts(published, again) == chain_drafts(published, head)
    for fact in ("kind", "reads", "tap_layers", "lookahead", "draft_vocab", "rope"):
        assert getattr(info_again, fact) == getattr(info, fact)


@pytest.mark.parametrize("layout", sorted(MEDUSA))
def test_medusa_heads_propose_what_their_tensors_say(layout: str, tmp_path: Path) -> None:
    published, facts = MEDUSA[layout](), make_facts()
    head, info = layouts.read(published.save(tmp_path / "theirs"), facts)
    layouts.write(head, info, tmp_path / "ours", facts)
    again, _ = layouts.read(tmp_path / "ours", facts)
    assert (info.kind, info.reads, info.lookahead) == ("medusa", "hidden", 0)
    for seed in range(PROMPTS):
        feature = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(seed))
        for read in (head, again):
            assert isinstance(read, Medusa)
            assert draft_medusa(read, feature)[0] == formula_medusa(published, facts, feature)


def test_the_trained_layouts_are_the_published_ones(tmp_path: Path) -> None:
    """Written tensors are called, and are, what the layout's own writer would have written."""
    facts = make_facts()
    for name, published in (("eagle3", eagle3()), ("eagle", eagle()), ("medusa", medusa())):
        head, info = layouts.read(published.save(tmp_path / name / "theirs"), facts)
        layouts.write(head, info, tmp_path / name / "ours", facts)
        (file,) = (tmp_path / name / "ours").glob("*.safetensors")
        written = load_file(file)
        assert written.keys() == published.tensors.keys()
        for key, tensor in written.items():
            assert torch.equal(tensor.float(), published.tensors[key].float())
        assert file.stat().st_mode == (file.parent / "config.json").stat().st_mode


def test_layers_of_the_taps(tmp_path: Path) -> None:
    """The stream entering a layer; SpecForge names the layers whose outputs they are."""
    facts = make_facts()
    expected = {
        "default": (eagle3(), (2, LAYERS // 2, LAYERS - 3)),
        "named": (eagle3_named_layers(), (1, 4, 7)),
        "speculators": (eagle3_speculators(), (1, 4, 8)),
    }
    for name, (published, layers) in expected.items():
        _, info = layouts.read(published.save(tmp_path / name), facts)
        assert info.tap_layers == layers, name


def test_an_entry_of_several_modules_is_final_when_all_have_their_tokens(tmp_path: Path) -> None:
    _, one = layouts.read(mimo().save(tmp_path / "one"), make_facts())
    _, three = layouts.read(mimo(modules=3).save(tmp_path / "three"), make_facts())
    assert (one.lookahead, three.lookahead) == (1, 3)


def test_fewer_medusa_heads_than_there_are(tmp_path: Path) -> None:
    published = medusa()
    published.config["medusa_num_heads"] = 2
    head, _ = layouts.read(published.save(tmp_path), make_facts())
    assert isinstance(head, Medusa)
    feature = torch.randn(HIDDEN)
    drafted = draft_medusa(head, feature)[0]
    assert len(drafted) == 2
    assert drafted == formula_medusa(published, make_facts(), feature)


def test_copies_of_the_target_are_shared(tmp_path: Path) -> None:
    facts, published = make_facts(), deepseek()
    prefix = f"model.layers.{LAYERS}."
    published.tensors[f"{prefix}embed_tokens.weight"] = facts.embeddings.clone()
    published.tensors[f"{prefix}shared_head.head.weight"] = facts.lm_head.clone()
    head, _ = layouts.read(published.save(tmp_path), facts)
    state = head.state_dict()
    assert f"{prefix}eh_proj.weight" in state
    assert not any("embed_tokens" in name or "shared_head.head" in name for name in state)
    ids = prompt(4)
    assert not isinstance(head, Medusa)
    drafted, _ = draft_chain(head, ids, features(ids, HIDDEN), STEPS)
    assert drafted == formula_draft(published, facts, ids, features(ids, HIDDEN), STEPS)


def test_rows_that_pad_the_vocabulary_are_dropped(tmp_path: Path) -> None:
    """The checkpoint embeds 96 ids, the tokenizer knows 90: the rest has no logits."""
    full = make_facts()
    facts = make_facts(vocab_size=90, lm_head=full.lm_head[:90])
    head, info = layouts.read(eagle3().save(tmp_path / "reduced"), facts)
    assert isinstance(head, Eagle3)
    ids = head.draft_ids()
    assert ids is not None
    assert (ids.tolist(), info.draft_vocab) == ([3, 4, 9, 17, 18, 40, 41, 60, 77], 9)
    assert head.logits(torch.randn(2, HIDDEN)).shape == (2, 9)
    head, info = layouts.read(eagle3(reduced=False).save(tmp_path / "whole"), facts)
    assert isinstance(head, Eagle3)
    assert head.logits(torch.randn(2, HIDDEN)).shape == (2, 90)
    assert info.draft_vocab == 90


def test_a_head_without_its_map_of_known_tokens_is_whole(tmp_path: Path) -> None:
    published = eagle3()
    del published.tensors["t2d"]
    head, _ = layouts.read(published.save(tmp_path), make_facts())
    assert isinstance(head, Eagle3)
    assert head.draft_ids() is not None


def test_a_single_file_with_its_config_beside_it(tmp_path: Path) -> None:
    directory = deepseek().save(tmp_path)
    _, info = layouts.read(directory / "model.safetensors", make_facts(), name="given")
    assert (info.kind, info.layout, info.name) == ("mtp", "deepseek", "given")
    assert len(info.sha256) == 64


def test_other_files_of_a_repository_are_left_aside(tmp_path: Path) -> None:
    facts = make_facts()
    directory = medusa().save(tmp_path / "medusa")
    save_file({"model.embed_tokens.weight": torch.ones(2, 2)}, directory / "model.safetensors")
    layouts.read(directory, facts)
    published = eagle()
    published.file = "pytorch_model.bin"
    directory = published.save(tmp_path / "eagle")
    (directory / "training_args.bin").write_bytes(b"whatever it is")
    layouts.read(directory, facts)


def test_the_target_is_written_into_the_config(tmp_path: Path) -> None:
    facts = make_facts()
    head, info = layouts.read(eagle().save(tmp_path / "theirs"), facts)
    layouts.write(head, info, tmp_path / "ours", facts)
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["target"] == {"checkpoint": "tiny", "sha256": "5" * 64}
