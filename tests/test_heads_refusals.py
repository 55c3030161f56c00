"""Heads that cannot be used are refused, and the message names what is wrong with which head."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from export.heads import layouts
from models.errors import UserError
from tests.head_checkpoints import (
    CONFIG,
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
    make_tokenizer,
    medusa,
    mimo,
)

ALL = {**STEPPING, **MEDUSA}


def refusal(path: Path, facts: Any = None, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        layouts.read(path, facts or make_facts(), name="somebody/head", **options)
    assert caught.value.code == "head_invalid"
    assert caught.value.param == "somebody/head"
    assert caught.value.message.startswith("the head somebody/head ")
    return caught.value.message


@pytest.mark.parametrize("layout", sorted(ALL))
def test_a_target_of_another_width(layout: str, tmp_path: Path) -> None:
    facts = make_facts(hidden=48, name="wider")
    message = refusal(ALL[layout]().save(tmp_path), facts)
    assert "64 wide; wider has a hidden size of 48" in message


@pytest.mark.parametrize("layout", sorted(ALL.keys() - {"medusa-shared"}))
def test_a_target_of_another_vocabulary(layout: str, tmp_path: Path) -> None:
    """Medusa heads without LM heads say nothing of a vocabulary."""
    facts = make_facts(vocab_size=70, embeddings=torch.zeros(80, HIDDEN))
    message = refusal(ALL[layout]().save(tmp_path), facts)
    assert "has a vocabulary of 96; tiny has 70 (80 with padding)" in message


def test_heads_without_lm_heads_may_say_what_vocabulary_they_are_for(tmp_path: Path) -> None:
    path = ALL["medusa-shared"]().save(tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "vocab_size": VOCABULARY}))
    layouts.read(path, make_facts(), name="somebody/head")
    (path / "config.json").write_text(json.dumps({**config, "vocab_size": 32000}))
    assert "has a vocabulary of 32000; tiny has 96" in refusal(path)


@pytest.mark.parametrize("layout", sorted(ALL))
def test_missing_tensors_are_listed(layout: str, tmp_path: Path) -> None:
    published = ALL[layout]()
    gone = sorted(
        n for n in published.tensors if n.endswith(("down_proj.weight", "1.0.linear.bias"))
    )
    if "model.layers.0.mlp.down_proj.weight" in gone:
        gone.remove("model.layers.0.mlp.down_proj.weight")
    for name in gone:
        del published.tensors[name]
    message = refusal(published.save(tmp_path))
    assert gone
    assert all(name in message for name in gone)
    assert "lacks" in message


@pytest.mark.parametrize("layout", sorted(ALL.keys() - {"deepseek", "glm", "mimo"}))
def test_tensors_that_would_change_the_function(layout: str, tmp_path: Path) -> None:
    published = ALL[layout]()
    if layout.startswith("mimo"):
        published.tensors["model.mtp_layers.0.extra_proj.weight"] = torch.ones(2, 2)
    else:
        published.tensors["extra_proj.weight"] = torch.ones(2, 2)
    message = refusal(published.save(tmp_path))
    assert "extra_proj.weight" in message
    assert "does not know" in message


def test_wrong_shapes(tmp_path: Path) -> None:
    published = eagle()
    published.tensors["fc.weight"] = torch.zeros(HIDDEN, HIDDEN)
    message = refusal(published.save(tmp_path))
    assert "fc.weight of shape [64, 64] where [64, 128] is needed" in message


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    published = eagle3()
    published.tensors["norm.weight"][3] = float("nan")
    assert "values in norm.weight that are no numbers" in refusal(published.save(tmp_path))


def test_a_head_trained_for_another_target(tmp_path: Path) -> None:
    facts = make_facts()
    head, info = layouts.read(eagle3().save(tmp_path / "theirs"), facts)
    layouts.write(head, info, tmp_path / "ours", facts)
    message = refusal(tmp_path / "ours", make_facts(name="other", sha256="7" * 64))
    assert (
        "was trained for tiny (sha256 555555555555), not for other (sha256 777777777777)" in message
    )


def test_another_tokenizer(tmp_path: Path) -> None:
    directory = eagle3().save(tmp_path)
    make_tokenizer("elsewhere").save(str(directory / "tokenizer.json"))
    message = refusal(directory)
    assert "has another tokenizer than tiny" in message
    assert "token 0 is 'token0' in tiny and 'elsewhere' in somebody/head" in message
    make_tokenizer().save(str(directory / "tokenizer.json"))
    layouts.read(directory, make_facts())


def test_a_broken_tokenizer(tmp_path: Path) -> None:
    directory = eagle3().save(tmp_path)
    (directory / "tokenizer.json").write_text("{}")
    assert "unreadable tokenizer.json" in refusal(directory)


@pytest.mark.parametrize(
    ("wanted", "make", "said"),
    [
        ("eagle", medusa, "is Medusa heads, not an EAGLE head"),
        ("medusa", eagle3, "is an EAGLE-3 head, not Medusa heads"),
        ("mtp", eagle, "holds no MTP modules"),
        ("eagle", deepseek, "is MTP modules, not an EAGLE head"),
    ],
)
def test_another_kind_than_asked_for(
    wanted: str, make: Callable[[], Published], said: str, tmp_path: Path
) -> None:
    assert said in refusal(make().save(tmp_path), wanted=wanted)


def test_both_kinds_of_eagle_are_eagle(tmp_path: Path) -> None:
    for name, make in (("one", eagle), ("three", eagle3)):
        layouts.read(make().save(tmp_path / name), make_facts(), wanted="eagle")


def test_no_head_at_all(tmp_path: Path) -> None:
    assert "is not at" in refusal(tmp_path / "nothing")
    assert "has no config.json" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "has no tensors in" in refusal(tmp_path)
    Published({}, {"model.embed_tokens.weight": torch.ones(2, 2)}).save(tmp_path)
    message = refusal(tmp_path)
    assert "is of no known layout (EAGLE, EAGLE-3, Medusa, MTP)" in message
    assert "model.embed_tokens.weight" in message


def test_unreadable_configs(tmp_path: Path) -> None:
    directory = eagle().save(tmp_path)
    for text in ("{", "[" * 100_000, "[1]", "\udcff"):
        (directory / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        assert "config.json" in refusal(directory)


def test_corrupt_files(tmp_path: Path) -> None:
    whole = eagle().save(tmp_path / "safetensors") / "model.safetensors"
    whole.write_bytes(whole.read_bytes()[:-100])
    assert "corrupt file model.safetensors" in refusal(whole.parent)
    whole.write_bytes(b"not safe")
    assert "corrupt file model.safetensors" in refusal(whole.parent)
    pickled = medusa().save(tmp_path / "pickle") / "medusa_lm_head.pt"
    pickled.write_bytes(pickled.read_bytes()[:-200])
    assert "corrupt or unsafe file medusa_lm_head.pt" in refusal(pickled.parent)


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    directory, proof = medusa().save(tmp_path), tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (proof,)

    bomb = {"0.0.linear.weight": Bomb()}
    (directory / "medusa_lm_head.pt").write_bytes(pickle.dumps(bomb, protocol=2))
    assert "corrupt or unsafe file" in refusal(directory)
    torch.save(bomb, directory / "medusa_lm_head.pt")
    assert "corrupt or unsafe file" in refusal(directory)
    assert not proof.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mlp.experts.0.gate_proj.weight", "mixture-of-experts layer"),
        ("self_attn.kv_a_proj_with_mqa.weight", "multi-head latent attention"),
        ("self_attn.q_proj.weight_scale_inv", "quantised weights"),
    ],
)
def test_layers_that_no_target_has(name: str, said: str, tmp_path: Path) -> None:
    published = deepseek()
    published.tensors[f"model.layers.{LAYERS}.{name}"] = torch.ones(2, 2)
    message = refusal(published.save(tmp_path))
    assert said in message
    assert name in message


def test_quantised_types(tmp_path: Path) -> None:
    published = eagle()
    weight = published.tensors["fc.weight"]
    published.tensors["fc.weight"] = weight.to(torch.float8_e4m3fn)
    message = refusal(published.save(tmp_path))
    assert "fc.weight" in message
    assert "quantised" in message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_act": "relu"}, "activation 'relu'"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_attention_heads": "4"}, "num_attention_heads"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "4 heads of attention for 3 of keys"),
        ({"hidden_size": None}, "hidden_size"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"num_attention_heads": 8}, "rotates 8 dimensions"),
        ({"rope_scaling": {"rope_type": "unheard-of"}}, "unheard-of"),
        ({"num_hidden_layers": 2}, "layers.1."),
    ],
)
def test_configs_that_do_not_fit(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    published = eagle()
    published.config |= changes
    assert said in refusal(published.save(tmp_path))


def test_draft_vocabularies_that_are_none(tmp_path: Path) -> None:
    published = eagle3()
    del published.tensors["d2t"]
    assert "lacks d2t" in refusal(published.save(tmp_path / "without"))
    published = eagle3()
    published.tensors["d2t"][-1] += VOCABULARY
    assert "to ids up to" in refusal(published.save(tmp_path / "outside"))
    published = eagle3()
    published.tensors["d2t"][1] = published.tensors["d2t"][0] - 1
    assert "two entries" in refusal(published.save(tmp_path / "twice"))


def test_taps_that_the_target_has_not(tmp_path: Path) -> None:
    published = eagle3_speculators()
    published.config["eagle_aux_hidden_state_layer_ids"] = [1, 4, 9]
    assert "reads layers [1, 4, 9]; tiny has 8" in refusal(published.save(tmp_path / "beyond"))
    published = eagle3_named_layers()
    published.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = "all"
    assert "no usable eagle_aux_hidden_state_layer_ids" in refusal(published.save(tmp_path / "odd"))
    published.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [1, 2]
    assert "fc.weight of shape [64, 192] where [64, 128]" in refusal(
        published.save(tmp_path / "two")
    )


def test_other_speculators(tmp_path: Path) -> None:
    published = eagle3_speculators()
    published.config["speculators_model_type"] = "independent"
    assert "speculator of type 'independent'" in refusal(published.save(tmp_path / "other"))
    published = eagle3_speculators()
    del published.config["transformer_layer_config"]
    assert "no transformer_layer_config" in refusal(published.save(tmp_path / "without"))


def test_mtp_modules_with_a_gap(tmp_path: Path) -> None:
    published = mimo(modules=3)
    published.tensors = {k: v for k, v in published.tensors.items() if ".mtp_layers.1." not in k}
    assert "MTP modules numbered [0, 2]" in refusal(published.save(tmp_path))


def test_a_narrower_head_needs_embeddings(tmp_path: Path) -> None:
    published = eagle3()
    published.config |= {"hidden_size": 32, "target_hidden_size": HIDDEN}
    message = refusal(published.save(tmp_path))
    assert "is 32 wide and has no embeddings; those of tiny are 64 wide" in message


def test_what_is_written_has_the_published_fields(tmp_path: Path) -> None:
    facts = make_facts()
    head, info = layouts.read(eagle().save(tmp_path / "theirs"), facts)
    layouts.write(head, info, tmp_path / "ours", facts)
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert {k: config[k] for k in CONFIG} == CONFIG


@pytest.mark.parametrize(
    ("layout", "key", "value"),
    [
        ("eagle3", "head_dim", 10**6),
        ("eagle", "intermediate_size", 10**6),
        ("eagle3-speculators-variants", "num_hidden_layers", 10**9),
        ("eagle-two-layers", "num_hidden_layers", 10**9),
        ("medusa", "medusa_num_heads", 10**9),
        ("medusa", "medusa_num_layers", 10**9),
        ("glm", "partial_rotary_factor", 10**6),
        ("mimo", "rope_theta", float("nan")),
        ("mimo", "rms_norm_eps", float("inf")),
        ("eagle3", "rope_scaling", "linear"),
        ("eagle3", "rope_scaling", [1]),
        ("eagle3", "rope_scaling", {"rope_type": "linear", "factor": 0}),
    ],
)
def test_sizes_that_a_config_makes_up(
    layout: str, key: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused before anything of that size is made."""
    made: list[int] = []
    linear = torch.nn.Linear.__init__

    def counted(self: Any, columns: int, rows: int, *rest: Any, **options: Any) -> None:
        made.append(columns * rows)
        assert len(made) < 1000
        assert max(made) < 10**6
        linear(self, columns, rows, *rest, **options)

    monkeypatch.setattr(torch.nn.Linear, "__init__", counted)
    published = ALL[layout]()
    config = published.config.get("transformer_layer_config", published.config)
    changed = {**config, key: value}
    published.config = (
        changed
        if config is published.config
        else {**published.config, "transformer_layer_config": changed}
    )
    message = refusal(published.save(tmp_path))
    assert key in message or "rows" in message or "values are no numbers" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        (
            "fc.weight",
            torch.ones(HIDDEN, 3 * HIDDEN).long(),
            "fc.weight as torch.int64",
        ),
        ("d2t", torch.tensor(3), "d2t as torch.int64 of shape []"),
        ("d2t", torch.zeros(10).bfloat16(), "d2t as torch.float32 of shape [10]"),
        ("d2t", torch.zeros(0, dtype=torch.int64), "an empty draft vocabulary"),
    ],
)
def test_tensors_of_another_type(
    name: str, tensor: torch.Tensor, words: str, tmp_path: Path
) -> None:
    published = eagle3(lm_head=False)
    published.tensors[name] = tensor
    message = refusal(published.save(tmp_path))
    assert words in message
    assert len(message.splitlines()) == 1


def test_a_medusa_tensor_that_is_no_matrix(tmp_path: Path) -> None:
    published = medusa()
    published.tensors["0.0.linear.weight"] = torch.tensor(1.0)
    assert "which is no matrix" in refusal(published.save(tmp_path))
