"""Batch norm: the values of each channel brought to mean 0 and variance 1, then to a scale and a shift that are learnt.

Ioffe and Szegedy, "Batch normalization: accelerating deep network training by reducing internal covariate shift"
(2015):

    y = γ (x − μ) / √(σ² + ε) + β        training: μ, σ² of the batch at hand      m ← (1 − r) m + r μ, likewise v
                                         answering: μ = m, σ² = v, so that neighbours never change an answer

While it trains, the examples of a batch do change each other's outputs: the one part here where the size of a batch,
accumulation and the number of processes touch the mathematics, as each pass has statistics of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .backbone import wants_equations

CHANNELS = (1, -1, 1, 1)


class BatchNorm(nn.Module):
    """Of pictures (B,C,H,W). What it remembers are real numbers only: averaged weights average these, too."""

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, rate: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.rate = rate  # of the running statistics
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        alone = self.training and x.numel() == x.shape[1]  # one value has no variance, which the kernel minds
        if alone or wants_equations():
            return self.equations(x)
        statistics = (self.mean, self.variance, self.training, self.rate, self.epsilon)
        return torch.batch_norm(x, self.weight, self.bias, *statistics, torch.backends.cudnn.enabled)

    def equations(self, x: Tensor) -> Tensor:
        """The same, readably."""
        mean, variance = self._measured(x) if self.training else (self.mean, self.variance)
        factor = self.weight / (variance + self.epsilon).sqrt()
        return (x - mean.view(CHANNELS)) * factor.view(CHANNELS) + self.bias.view(CHANNELS)

    def _measured(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the batch; those that are kept take a step towards them."""
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        values = x.numel() // x.shape[1]
        with torch.no_grad():  # the variance that is kept is that of what the batch was drawn from
            self.mean.lerp_(mean.detach(), self.rate)
            self.variance.lerp_(variance.detach() * (values / max(values - 1, 1)), self.rate)
        return mean, variance
