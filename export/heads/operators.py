"""Tracing a part of a head to a graph, in the operators of `export.kernels`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from export.heads.block import RmsNorm
from export.kernels import rms_norm, silu

_OPSET = 18


def export(
    module: nn.Module,
    arguments: tuple[Any, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
) -> onnx.ModelProto:
    """The graph as traced, not yet canonical."""
    with tempfile.TemporaryDirectory() as scratch, traced_operators(module), torch.no_grad():
        path = Path(scratch) / "traced.onnx"
        torch.onnx.export(
            module.eval(),
            arguments,
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=dict(axes),
            opset_version=_OPSET,
            dynamo=False,
        )
        traced = onnx.load(str(path))
        results = module(*arguments)
    for name, result in zip(
        outputs, results if isinstance(results, tuple) else (results,), strict=True
    ):
        _declare_shape(traced, name, result, axes.get(name, {}))
    return traced


def _declare_shape(
    traced: onnx.ModelProto, name: str, result: Tensor, dynamic: Mapping[int, str]
) -> None:
    """Tracing leaves open what it cannot see through the operators of `export.kernels`."""
    output = next(value for value in traced.graph.output if value.name == name)
    for axis, dim in enumerate(output.type.tensor_type.shape.dim):
        if axis not in dynamic:
            dim.dim_value = int(result.shape[axis])


@contextlib.contextmanager
def traced_operators(module: nn.Module) -> Iterator[None]:
    """Within, norms and SiLU are the operators of the exported graph."""
    patched: list[nn.Module] = []
    try:
        for part in module.modules():
            if isinstance(part, RmsNorm | nn.SiLU):
                vars(part)["forward"] = _traced(part)
                patched.append(part)
        yield
    finally:
        for part in patched:
            del vars(part)["forward"]


def _traced(part: RmsNorm | nn.SiLU) -> Any:
    if isinstance(part, nn.SiLU):
        return silu
    return lambda x: rms_norm(x, part.weight, part.epsilon)


def flat(x: Tensor) -> Tensor:
    """[1, N, width] -> [N, width]."""
    return x.reshape(-1, int(x.shape[-1]))
