"""A linear layer that answers faster once its weights rest.

A matrix product first brings its weights into an order that suits the processor. While a model learns they change with
every step, and this must be done each time; while it only answers, once is enough. Within `torch.inference_mode`, on a
CPU, the layer keeps the weights in that order (beside the others: they take twice the place) and multiplies by oneDNN,
whose results differ from those of the library in the last bits. A layer that is put to training forgets them.
"""

from __future__ import annotations

import functools
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .backbone import wants_equations

SMALLEST = 1 << 14  # weights; below, the way there costs more than it saves
_ordered: WeakKeyDictionary[nn.Module, tuple[tuple[int, int], Tensor]] = WeakKeyDictionary()


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_inference_mode_enabled() or not self._rests(x):
            return F.linear(x, self.weight, self.bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weights(), self.bias, "none", [], "")
        return y

    def train(self, mode: bool = True) -> Linear:
        if mode:
            _ordered.pop(self, None)
        return super().train(mode)

    def _rests(self, x: Tensor) -> bool:
        return (
            not self.training
            and x.device.type == "cpu"
            and x.dtype == self.weight.dtype == torch.float32
            and self.weight.numel() >= SMALLEST
            and x.numel() > 0
            and not torch.is_autocast_enabled("cpu")
            and not wants_equations()
            and not torch.compiler.is_compiling()
            and _available()
        )

    def _weights(self) -> Tensor:
        now = (self.weight.data_ptr(), self.weight._version)
        kept = _ordered.get(self)
        if kept is None or kept[0] != now:
            kept = now, torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)
            _ordered[self] = kept
        return kept[1]


@functools.cache
def _available() -> bool:
    """Whether this build of torch has the two operators: they are its own compiler's, and tried once."""
    try:
        with torch.inference_mode():
            weight, x = torch.eye(32), torch.ones(2, 32)
            ordered = torch.ops.mkldnn._reorder_linear_weight(weight, None)
            y = torch.ops.mkldnn._linear_pointwise(x, ordered, torch.zeros(32), "none", [], "")
            return torch.equal(y, x)
    except (AttributeError, RuntimeError):
        return False
