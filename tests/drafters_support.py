"""Drafters for tests: specifications, and small graphs made by hand."""

from __future__ import annotations

import dataclasses

from models.package import DrafterSpec

HEAD = DrafterSpec(
    kind="eagle3",
    checkpoint="test",
    revision="",
    sha256="",
    longest=4,
    draft_vocab=300,
    top_k=64,
    graphs={"1": "eagle3.k1.onnx", "4": "eagle3.k4.onnx"},
    weights=(),
    reads="taps",
    tree_graphs={"4": "eagle3.tree.d4.onnx"},
    tree_width=8,
    layers=1,
    kv_heads=2,
    head_dim=16,
    lookahead=1,
)
DRAFT_MODEL = dataclasses.replace(
    HEAD,
    kind="draft-model",
    reads=None,
    graphs={"6": "draft-model.k6.onnx"},
    tree_graphs={},
    layers=3,
    lookahead=0,
)
