"""A linear layer that does no more than it must, while its weights learn and once they rest.

A matrix product first brings its weights into an order that suits the processor. While a model learns they change with
every step, and this must be done each time; while it only answers, once is enough. Within `torch.inference_mode`, on a
CPU, the layer keeps the weights in that order (beside the others: they take twice the place) and multiplies by the
native kernel, whose results differ from those of the library in the last bits. A layer that is put to training forgets
them. Where an activation follows, bias and activation are one pass over the numbers, there or behind the product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels import linear as kernels
from .backbone import wants_equations

Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),  # of GPT-2
    "silu": F.silu,
}
SMALLEST = 1 << 14  # weights; below, the way there costs more than it saves
_ordered: WeakKeyDictionary[nn.Module, tuple[tuple[int, int], Tensor]] = WeakKeyDictionary()


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return self._answered(x) if self._rests(x) else F.linear(x, self.weight, self.bias)

    def activated(self, x: Tensor, activation: Activation) -> Tensor:
        """The activation of its outputs."""
        if self._rests(x):
            return self._answered(x, activation)
        if self.bias is not None and x.dtype == self.weight.dtype and not wants_equations() and kernels.pays(x):
            return kernels.biased(F.linear(x, self.weight), self.bias, activation)
        return ACTIVATIONS[activation](F.linear(x, self.weight, self.bias))

    def train(self, mode: bool = True) -> Linear:
        if mode:
            _ordered.pop(self, None)
        return super().train(mode)

    def _rests(self, x: Tensor) -> bool:
        return (
            not self.training
            and torch.is_inference_mode_enabled()
            and x.dtype == self.weight.dtype == torch.float32
            and self.weight.numel() >= SMALLEST
            and x.numel() > 0
            and not wants_equations()
            and not torch.compiler.is_compiling()
            and kernels.pays(x)
        )

    def _answered(self, x: Tensor, activation: Activation | None = None) -> Tensor:
        now = (self.weight.data_ptr(), self.weight._version)
        kept = _ordered.get(self)
        if kept is None or kept[0] != now:
            kept = now, kernels.pack(self.weight.detach())
            _ordered[self] = kept
        return kernels.product(x, kept[1], self.out_features, self.bias, activation)
