"""The temporal convolutional network: causal dilated convolutions in residual blocks.

Bai, Kolter and Koltun, "An empirical evaluation of generic convolutional and recurrent networks for sequence
modeling" (2018). Each level looks twice as far back as the one below it, so that few levels see far, and the
whole sequence is computed at once:

    y_t = Σ_j W_j x_{t−d·j},  d = 1, 2, 4, …    block(x) = relu(F(x) + skip(x)),  F = two such, relu, dropout
    receptive field = 1 + Σ over convolutions of (k−1)·d

New since recurrent networks: nothing is handed from step to step, so training needs no loop over time and the
gradient has a short way; what lies outside the receptive field is not seen.
Initialisation: He for the directions, and the gains of weight norm (Salimans and Kingma 2016) start at the
lengths of these directions, so that the layer begins as He's; the identity as skip where widths agree.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from ..kernels import convolution as kernels
from ..nn.backbone import Backbone, BackboneSettings, wants_equations
from ..nn.dropout import Dropout
from ..nn.trace import Trace, inside, show
from ..nn.window import extend, remember


class CausalConv(nn.Module):
    """A convolution that sees only the past. Vectors stay last in memory, the layout the CPU is fastest with."""

    def __init__(self, inputs: int, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.before = (kernel - 1) * dilation  # elements of the past it needs
        self.direction = nn.Parameter(torch.empty(width, inputs, kernel))
        nn.init.kaiming_normal_(self.direction, nonlinearity="relu")
        self.gain = nn.Parameter(self.direction.detach().flatten(1).norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, mask: Tensor | None, buffer: Tensor | None) -> tuple[Tensor, Tensor]:
        extended = extend(x, buffer, self.before)  # (B,before+T,C)
        return self._slide(extended, dilation=self.dilation), remember(extended, mask, self.before)

    def sparse(self, x: Tensor, stride: int) -> Tensor:
        """x holds every dilation-th element, the last one among them; of the outputs, every stride-th, the last too."""
        extended = extend(x, None, self.direction.shape[2] - 1)
        return self._slide(extended[:, (x.shape[1] - 1) % stride :], stride=stride)

    def _slide(self, extended: Tensor, dilation: int = 1, stride: int = 1) -> Tensor:
        length = self.direction.flatten(1).norm(dim=1)
        weight = self.direction * (self.gain / length)[:, None, None]  # (D,C,k)
        if stride == 1 and not wants_equations() and kernels.pays(extended):
            return kernels.convolution(extended, weight, self.bias, dilation)
        picture = extended.transpose(1, 2).unsqueeze(2)  # (B,C,1,before+T), channels last in memory
        y = torch.conv2d(picture, weight.unsqueeze(2), self.bias, stride=(1, stride), dilation=(1, dilation))
        return y.squeeze(2).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.first = CausalConv(inputs, width, kernel, dilation)
        self.second = CausalConv(width, width, kernel, dilation)
        self.skip = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None, state: Any, trace: Trace | None = None) -> tuple[Tensor, Any]:
        before = (None, None) if state is None else state
        inner, first = self.first(x, mask, before[0])
        inner = self.dropout(torch.relu(inner))
        outer, second = self.second(inner, mask, before[1])
        outer = self.dropout(torch.relu(outer))
        y = torch.relu(outer + self.skip(x))
        for name, value in (("first", inner), ("second", outer), ("activation", y)):
            show(trace, name, value)
        return y, (first, second)

    def sparse(self, x: Tensor) -> Tensor:
        """The same for a part of the elements; of its outputs every second, which is all that the next level needs."""
        y = self.dropout(torch.relu(self.first.sparse(x, 1)))
        y = self.dropout(torch.relu(self.second.sparse(y, 2)))
        return torch.relu(y + self.skip(x[:, (x.shape[1] - 1) % 2 :: 2]))


class TCN(Backbone):
    def __init__(self, inputs: int, width: int, levels: int, kernel: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.blocks = nn.ModuleList(
            Block(inputs if level == 0 else width, width, kernel, 2**level, dropout) for level in range(levels)
        )
        self.receptive_field = 1 + sum(2 * (kernel - 1) * 2**level for level in range(levels))

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        states = []
        for level, block in enumerate(self.blocks):
            x, after = block(x, mask, None if state is None else state[level], inside(trace, f"level{level}", mask))
            states.append(after)
        return x, states

    def final(self, x: Tensor) -> Tensor:
        """One output depends on ever fewer elements the higher the level, and only those are computed: about 3·T
        positions instead of 2·T for every level."""
        for block in self.blocks:
            x = block.sparse(x)  # type: ignore[operator]
        return x[:, -1]


class Settings(BackboneSettings):
    width: int = Field(128, ge=1, le=65_536, description="channels of every level; `--params` solves for it")
    levels: int = Field(4, ge=1, le=24, description="residual blocks; the dilation doubles with each")
    kernel: int = Field(3, ge=2, le=64, description="elements that one convolution sees")

    def input_width(self, tied: bool) -> int:
        return super().input_width(tied) if tied or self.embedding is not None else max(min(self.width // 2, 128), 1)

    def build(self, inputs: int, length: int) -> TCN:
        return TCN(inputs, self.width, self.levels, self.kernel, self.dropout)
