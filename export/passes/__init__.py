"""Makes a traced decoder graph canonical, one small pass at a time."""

from __future__ import annotations

import onnx

from export.graph import Graph
from export.passes.attention import pack_attention
from export.passes.constants import drop_identities, lift_constants
from export.passes.linears import merge_linears, slices_to_splits
from export.passes.names import name_parts
from export.passes.norms import fuse_residual_norms, lower_norms
from export.passes.views import fix_shapes, simplify_views
from export.passes.widths import fold_widths

OPSET = 21
IR_VERSION = 10


def canonicalise(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same function as `model`, in the form quantisation and row graphs rely on."""
    graph = Graph(model)
    lift_constants(graph)
    drop_identities(graph)
    lower_norms(graph)
    fold_widths(graph)
    fix_shapes(graph)
    simplify_views(graph)
    slices_to_splits(graph)
    merge_linears(graph)
    simplify_views(graph)
    pack_attention(graph)
    fuse_residual_norms(graph)
    name_parts(graph)
    graph.finish()
    del model.opset_import[:]
    model.opset_import.extend(
        [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("com.microsoft", 1)]
    )
    model.ir_version = IR_VERSION
    return model
