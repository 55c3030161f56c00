"""GGUF files of the types that a user of llama.cpp would choose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

OWN = "own"
_EMBEDDINGS = "token_embd.weight"
_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def target(weights: Any, kind: str) -> str:
    """The checkpoint's own file, or its values in another type."""
    own: str = weights.gguf
    if kind == OWN:
        return own

    def write(into: str) -> None:
        reader = GGUFReader(own)
        tensors = {
            tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type)
            for tensor in reader.tensors
        }
        _write(into, reader, {}, tensors, kind)

    path: str = weights.made(own, f"{kind}.gguf", write)
    return path


def draft(weights: Any, kind: str) -> str:
    """The draft model, with the header of the target's file but for its number of layers."""
    checkpoint: str = weights.draft

    def write(into: str) -> None:
        config = json.loads((Path(checkpoint) / "config.json").read_text(encoding="utf-8"))
        own = {"llama.block_count": config["num_hidden_layers"], "general.name": "draft"}
        _write(into, GGUFReader(weights.gguf), own, _draft_tensors(checkpoint, config), kind)

    path: str = weights.made(checkpoint, f"{kind}.gguf", write)
    return path


def _draft_tensors(checkpoint: str, config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in _safetensors(Path(checkpoint) / "model.safetensors").items():
        if name == "model.embed_tokens.weight":
            found[_EMBEDDINGS] = value
        elif name == "model.norm.weight":
            found["output_norm.weight"] = value
        else:
            _, _, layer, rest = name.split(".", 3)
            part = _NAMES[rest.removesuffix(".weight")]
            heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(part)
            turned = value if heads is None else _interleaved(value, config[heads])
            found[f"blk.{layer}.{part}.weight"] = turned
    return found


def _interleaved(value: Any, heads: int) -> Any:
    """The rows of each head in llama.cpp's order: its rotation pairs neighbours, not halves."""
    rows, width = value.shape
    return value.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def _safetensors(path: Path) -> dict[str, Any]:
    """fp32 tensors of a file: eight bytes of the header's length, the header, the values."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    found: dict[str, Any] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            values = np.frombuffer(content[start + first : start + last], np.dtype("<f4"))
            found[name] = values.reshape(entry["shape"])
    return found


def _write(
    into: str, like: GGUFReader, own: dict[str, Any], tensors: dict[str, Any], kind: str
) -> None:
    """Matrices in `kind`, embeddings (the LM head too) in Q8_0, vectors in fp32."""
    writer = GGUFWriter(into, "llama")
    for key, field in like.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        types = field.types
        element = types[1] if types[0] is GGUFValueType.ARRAY and len(types) > 1 else None
        writer.add_key_value(key, own.get(key, field.contents()), types[0], element)
    for name, value in tensors.items():
        if value.ndim == 1:
            writer.add_tensor(name, value.astype(np.float32))
            continue
        wanted = GGMLQuantizationType["Q8_0" if name == _EMBEDDINGS else kind]
        writer.add_tensor(name, gguf.quantize(value, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
