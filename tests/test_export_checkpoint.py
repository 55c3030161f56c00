"""Checkpoints as they are found: transformers directories and GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from export.checkpoint import Checkpoint, advised_sampling, inspect_source, load_checkpoint
from export.sources import Source, locate
from models.errors import UserError
from tests.checkpoints import CHAT_TEMPLATE, VOCABULARY, make_checkpoint


def load(path: Path) -> Checkpoint:
    source = locate(str(path))
    return load_checkpoint(source, inspect_source(source))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "qwen", "qwen2")


def write_gguf(checkpoint: Checkpoint, path: Path) -> None:
    """The checkpoint as GGUF in fp32. Qwen2 tensors keep their layout in that format."""
    from gguf import MODEL_ARCH, GGUFWriter, TokenType, get_tensor_name_map

    config, vocabulary = checkpoint.config, checkpoint.tokenizer.get_vocab()
    writer = GGUFWriter(str(path), "qwen2")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens += [f"<unused{index}>" for index in range(len(tokens), config.vocab_size)]
    special = set(checkpoint.tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges(_merges(checkpoint))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
    names = get_tensor_name_map(MODEL_ARCH.QWEN2, config.num_hidden_layers)
    for name, tensor in checkpoint.model.state_dict().items():
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        writer.add_tensor(found, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _merges(checkpoint: Checkpoint) -> list[str]:
    model: dict[str, Any] = json.loads(checkpoint.tokenizer.backend_tokenizer.to_str())["model"]
    return [" ".join(pair) for pair in model["merges"]]


def test_a_gguf_file_is_the_same_model(directory: Path, tmp_path: Path) -> None:
    plain = load(directory)
    write_gguf(plain, tmp_path / "qwen.gguf")
    packed = load(tmp_path / "qwen.gguf")
    assert packed.model_type == "qwen2"
    assert packed.chat_template == CHAT_TEMPLATE
    assert packed.eos_ids == (2,)
    text = "The other one, and in the end: ü 12.\n<|im_end|>"
    assert packed.encode(text) == plain.encode(text)
    ids = torch.tensor([plain.encode(text)])
    with torch.no_grad():
        difference = (packed.model(ids).logits - plain.model(ids).logits).abs().max()
    assert difference < 1e-5


@pytest.mark.parametrize(
    ("config", "advised"),
    [
        (None, {}),
        ({"do_sample": False, "temperature": 0.6}, {}),
        ({"temperature": 0.6}, {}),
        ({"do_sample": True}, {"temperature": 1.0}),
        ({"repetition_penalty": 1.1}, {"temperature": 0.0, "repetition_penalty": 1.1}),
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": None},
            {"temperature": 0.6, "top_k": 20.0, "top_p": 0.95},
        ),
    ],
)
def test_how_its_makers_advise_to_sample_it(
    config: dict[str, Any] | None, advised: dict[str, float], tmp_path: Path
) -> None:
    if config is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert advised_sampling(Source("one", "", tmp_path)) == advised


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{", "a generation_config.json that is no JSON"),
        ("[]", "a generation_config.json that is no JSON"),
        ('{"do_sample": true, "temperature": 9}', "temperature must be from 0 to 2, not 9"),
        ('{"do_sample": true, "top_p": "much"}', "sampling that cannot be had"),
    ],
)
def test_advice_that_cannot_be_followed_is_one_clear_error(
    written: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "generation_config.json").write_text(written)
    with pytest.raises(UserError, match=words) as caught:
        advised_sampling(Source("one", "", tmp_path))
    assert caught.value.code == "source_unreadable"


def test_a_gguf_file_is_sampled_as_its_source_says(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{")
    source = Source("one", "", tmp_path, "one.gguf", {"temperature": 0.7})
    assert advised_sampling(source) == {"temperature": 0.7}


def test_the_conversation_is_rendered_with_the_generation_prompt(directory: Path) -> None:
    render = load(directory).renderer()
    assert render is not None
    assert render([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_weights_are_read_as_fp32_whatever_they_are_stored_in(
    directory: Path, tmp_path: Path
) -> None:
    plain = load(directory)
    plain.model.to(torch.bfloat16).save_pretrained(tmp_path)
    plain.tokenizer.save_pretrained(tmp_path)
    assert load(tmp_path).model.dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", b"{", "no readable config.json"),
        ("config.json", b"[]", "unknown type"),
        ("model.safetensors", b"\x10" * 64, "could not be read"),
        ("tokenizer.json", b"{}", "could not be read"),
    ],
)
def test_damaged_files_are_one_clear_error(
    directory: Path, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=words):
        load(tmp_path)


def test_random_checkpoints_are_reproducible(directory: Path, tmp_path: Path) -> None:
    again = load(make_checkpoint(tmp_path / "again", "qwen2"))
    for one, two in zip(load(directory).model.parameters(), again.model.parameters(), strict=True):
        assert np.array_equal(one.numpy(), two.numpy())


@pytest.mark.parametrize("tied", [True, False])
def test_rows_that_only_pad_leave_the_head_and_not_the_embedding(
    tied: bool, tmp_path: Path
) -> None:
    path = make_checkpoint(tmp_path, "qwen2", vocab_size=VOCABULARY + 20, tie_word_embeddings=tied)
    checkpoint = load(path)
    assert checkpoint.vocab_size == len(checkpoint.tokenizer) == VOCABULARY
    model = checkpoint.model
    assert model.get_output_embeddings().weight.shape[0] == VOCABULARY
    assert model.get_input_embeddings().weight.shape[0] == VOCABULARY + 20
    load_model: Any = transformers.AutoModelForCausalLM.from_pretrained
    ids = torch.tensor([[3, VOCABULARY + 7, 5]])
    with torch.no_grad():
        found, expected = (one(ids).logits[0] for one in (model, load_model(path).eval()))
    assert (found - expected[:, :VOCABULARY]).abs().max() < 1e-5


def test_a_head_without_padding_is_left_as_it_is(directory: Path) -> None:
    assert load(directory).vocab_size == VOCABULARY
