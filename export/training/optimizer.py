"""Muon for matrices, AdamW for the rest.

Muon: momentum whose singular values are all set near one by Newton-Schulz iterations (Keller
Jordan et al., 2024); the update of a matrix then has the same size in every direction. Scaled by
0.2 * sqrt(the larger side) it is as large as AdamW's, whose learning rates fit (Liu et al.,
arXiv 2502.16982). A step costs as much as several hundred places: it pays where updates
are large. Measured here: AdamW learns as fast at first and at 2e-3 loses what Muon has found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_NEWTON_STEPS = 5
_ADAM_EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class Rates:
    """Learning rates of matrices and of the rest; decay is of matrices, per unit of rate."""

    matrices: float = 3e-3
    others: float = 3e-3
    decay: float = 0.4
    momentum: float = 0.95
    adam: tuple[float, float] = (0.9, 0.98)


class Optimizer:
    """Over the parameters of `module` that need a gradient. Its state goes into checkpoints."""

    def __init__(self, module: nn.Module, rates: Rates, *, muon: bool = True) -> None:
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        self._parameters = dict(named)
        self._rates = rates
        self._matrices = {n for n, p in named if p.dim() == 2 and muon}
        self._state: dict[str, dict[str, Tensor]] = {}
        self.steps = 0

    def zero(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None

    def clip(self, most: float) -> float:
        """Scale all gradients so that their norm is at most `most`; the norm there was."""
        return float(nn.utils.clip_grad_norm_(self._parameters.values(), most))

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """`scale` is the schedule's share of the learning rates."""
        self.steps += 1
        for name, parameter in self._parameters.items():
            if parameter.grad is None:
                continue
            state = self._state.setdefault(name, {})
            if name in self._matrices:
                self._turn(parameter, parameter.grad, state, scale)
            else:
                self._adapt(parameter, parameter.grad, state, scale)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "state": self._state}

    def load_state_dict(self, stored: dict[str, Any]) -> None:
        self.steps = stored["steps"]
        self._state = {
            name: {k: v.clone().to(self._parameters[name].device) for k, v in state.items()}
            for name, state in stored["state"].items()
        }

    def _turn(
        self, parameter: nn.Parameter, gradient: Tensor, state: dict[str, Tensor], scale: float
    ) -> None:
        rates = self._rates
        momentum = state.setdefault("momentum", torch.zeros_like(parameter))
        momentum.lerp_(gradient, 1 - rates.momentum)
        update = orthogonal(gradient.lerp(momentum, rates.momentum))
        rate = scale * rates.matrices
        parameter.mul_(1 - rate * rates.decay)
        parameter.add_(update, alpha=-rate * 0.2 * max(parameter.shape) ** 0.5)

    def _adapt(
        self, parameter: nn.Parameter, gradient: Tensor, state: dict[str, Tensor], scale: float
    ) -> None:
        first = state.setdefault("first", torch.zeros_like(parameter))
        second = state.setdefault("second", torch.zeros_like(parameter))
        begin, end = self._rates.adam
        first.lerp_(gradient, 1 - begin)
        second.lerp_(gradient.square(), 1 - end)
        # The steps of this parameter, not of the optimizer, would be exact; they are the same.
        size = (second / (1 - end**self.steps)).sqrt_().add_(_ADAM_EPSILON)
        parameter.addcdiv_(first, size, value=-scale * self._rates.others / (1 - begin**self.steps))


def orthogonal(matrix: Tensor) -> Tensor:
    """About U V' of the singular value decomposition U S V'; singular values within 0.7 to 1.2."""
    a, b, c = _COEFFICIENTS
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp_min(1e-7)
    for _ in range(_NEWTON_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Average:
    """Exponential average of a module's trained parameters; faster while it is young."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._decay = decay
        self.values = {n: p.detach().clone() for n, p in _trained(module)}

    @torch.no_grad()
    def update(self, module: nn.Module, steps: int) -> None:
        decay = min(self._decay, (1 + steps) / (10 + steps))
        for name, parameter in _trained(module):
            self.values[name].lerp_(parameter, 1 - decay)

    @torch.no_grad()
    def swap(self, module: nn.Module) -> None:
        """Exchange the module's parameters with the averages."""
        for name, parameter in _trained(module):
            held = parameter.detach().clone()
            parameter.copy_(self.values[name])
            self.values[name] = held


def _trained(module: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    return ((n, p) for n, p in module.named_parameters() if p.requires_grad)
