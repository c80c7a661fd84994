"""The network of a forecast and the loss of its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..nn.backbone import BackboneSettings
from ..nn.heads import StepHead
from ..nn.inputs import NumberInput
from ..nn.network import Network, assemble
from ._forecast_layout import Layout


def pointwise(found: Tensor, wanted: Tensor, quantiles: tuple[float, ...]) -> Tensor:
    """The loss of every value (…,N) for outputs (…,N,Q)."""
    off = wanted[..., None] - found
    if not quantiles:
        return off.square().squeeze(-1)
    shares = torch.tensor(quantiles, dtype=off.dtype, device=off.device)
    return torch.maximum(shares * off, (shares - 1) * off).mean(dim=-1)


def middle(quantiles: tuple[float, ...]) -> int:
    """Which output is the forecast: the quantile nearest to the median."""
    return int(np.argmin([abs(quantile - 0.5) for quantile in quantiles])) if quantiles else 0


def network(model: BackboneSettings, layout: Layout, settings: Any, features: int) -> Network:
    inputs = NumberInput(features, model.embedding)
    outputs = settings.outputs * len(layout.roles.targets) * max(len(settings.quantiles), 1)
    # Fed with its own forecasts, a network reads on beyond the context.
    length = layout.length + (settings.horizon - 1 if settings.mode == "recursive" else 0)
    return assemble(model, inputs, inputs.width, length, lambda backbone: StepHead(backbone.width, outputs))
