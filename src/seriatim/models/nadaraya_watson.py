"""Nadaraya–Watson kernel regression: a weighted mean of the training targets, without trained parameters.

    ŷ(x) = Σ_i α(x, x_i) y_i        α(x, x_i) = K(‖x − x_i‖ / h) / Σ_j K(‖x − x_j‖ / h)      Nadaraya, Watson 1964

It is attention: x is the query, the training inputs are the keys, their targets the values. The model stores examples
instead of weights, so it is fitted in one pass, and a prediction compares with all of them.

    gaussian       K(u) = exp(−½ u²)       every example contributes, near ones most
    boxcar         K(u) = 1 if u ≤ 1       the mean of the examples within h
    epanechnikov   K(u) = max(0, 1 − u)    the same, with less weight towards the edge

The bandwidth h decides: too small, and the model repeats the noise of the nearest example; too large, and it predicts
the mean. By default h minimizes the leave-one-out error on up to a thousand training examples. An input without any
example in reach gets the target of the nearest one, which is also the limit of the Gaussian for small h. Distances are
Euclidean over all numbers of an example, each divided by the standard deviation of its feature (unless the task does
not scale).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..core.config import Count
from ..core.errors import SeriatimError
from ..core.text import evenly_spaced
from ..nn.attention import attention_pool, log_kernel
from ..nn.fitted import FittedModel
from ..nn.names import KernelName
from ..nn.settings import ModelSettings

BLOCK = 1 << 21  # weights computed at a time
MAX_HELD_OUT = 1_000  # training examples for the leave-one-out error
GRID = 32  # bandwidths tried, and again around the best of them
MAX_DIRECT = 16  # numbers of an example; with more, distances come from a matrix product

Array = np.ndarray


class Settings(ModelSettings):
    title: ClassVar[str] = "Nadaraya–Watson regression"
    gradient_free: ClassVar[bool] = True
    causal: ClassVar[bool] = False

    kernel: KernelName = Field("gaussian", description="how the weight of an example decreases with its distance")
    bandwidth: float | None = Field(
        None, gt=0, le=1e9, description="h (default: that of the smallest leave-one-out error)"
    )
    entries: Count | None = Field(
        None, description="largest number of stored numbers; of more examples, evenly spaced ones are kept"
    )


class NadarayaWatson(FittedModel):
    """The stored examples and the bandwidth, as buffers: `points` (n,d), `values` (n,o), `unit` (d,), `bandwidth` (1,).

    Args:
        settings: The settings.
    """

    tensors_error = ("nadaraya_watson.tensors", "a nadaraya_watson model")
    points: Tensor
    values: Tensor
    unit: Tensor
    bandwidth: Tensor

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings

    @classmethod
    def of(cls, settings: Settings, points: Array, values: Array, unit: Array, bandwidth: float) -> NadarayaWatson:
        """Returns the model of examples and a bandwidth.

        Args:
            settings: The settings.
            points: Inputs of the examples (n,d).
            values: Their targets (n,o).
            unit: The unit of distance in each dimension (d,).
            bandwidth: h.
        """
        h = np.array([bandwidth], np.float64)
        return cls(settings).fill({"points": points, "values": values, "unit": unit, "bandwidth": h})

    @classmethod
    def fit(
        cls,
        points: Array,
        values: Array,
        settings: Settings,
        unit: Array | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> NadarayaWatson:
        """Returns a model of the examples, at most as many as the settings allow, with the best bandwidth."""
        size = points.shape[1] + values.shape[1]
        limit = len(points) if settings.entries is None else settings.entries // size
        if not min(limit, len(points)):
            cause = f"no example can be stored; each has {size:,} numbers"
            raise SeriatimError("nadaraya_watson.empty", cause, "allow more entries, or add examples")
        rows = evenly_spaced(len(points), limit)
        unit = np.ones(points.shape[1], np.float32) if unit is None else unit
        model = cls.of(settings, points[rows], values[rows], unit, settings.bandwidth or 1.0)
        if settings.bandwidth is None:
            bandwidth, error = model.best_bandwidth()
            model.bandwidth.fill_(bandwidth)
            if progress is not None:
                progress(f"bandwidth {bandwidth:.4g}: leave-one-out error {error:.4g}")
        return model

    def set_arrays(self, arrays: Mapping[str, Array]) -> None:
        own = {name: np.array(arrays[name]) for name in ("points", "values", "unit", "bandwidth")}
        points, values, unit, bandwidth = own.values()
        if not (points.ndim == values.ndim == 2 and len(points) == len(values) and unit.shape == points.shape[1:]):
            raise ValueError("examples and targets are not equal in number")
        if not len(bandwidth):
            raise ValueError("there is no bandwidth")
        self._arrays = own
        self._keys = torch.from_numpy(points / unit.astype(np.float64))
        self._targets = torch.from_numpy(values.astype(np.float64))

    def arrays(self) -> dict[str, Array]:
        return self._arrays

    @property
    def entries(self) -> int:
        """The number of stored numbers."""
        return self.points.numel() + self.values.numel()

    @property
    def scale(self) -> Array:
        """The standard deviation of the targets; 1 if they are all equal."""
        std = self._arrays["values"].std(axis=0, dtype=np.float64)
        return np.where(std > 0, std, 1.0)

    # Prediction

    def predict(self, points: Array) -> Array:
        """Returns the predictions (m,o) for inputs (m,d)."""
        blocks = [self._pool(distance)[0] for _, distance in self._distances(points)]
        return torch.cat(blocks).numpy() if blocks else np.zeros((0, self.values.shape[1]))

    def weights(self, points: Array) -> Array:
        """Returns the weight of each example in the predictions (m,n) for inputs (m,d); rows sum to 1."""
        blocks = [self._pool(distance)[1] for _, distance in self._distances(points)]
        return torch.cat(blocks).numpy() if blocks else np.zeros((0, len(self.points)))

    def _pool(self, distance: Tensor, bandwidth: float | None = None) -> tuple[Tensor, Tensor]:
        scores = log_kernel(
            self.settings.kernel, distance / (float(self.bandwidth) if bandwidth is None else bandwidth)
        )
        nearest = torch.zeros_like(scores).masked_fill(distance > distance.amin(dim=1, keepdim=True), -math.inf)
        unreached = scores.amax(dim=1, keepdim=True) == -math.inf
        return attention_pool(torch.where(unreached, nearest, scores), self._targets)

    def _distances(self, points: Array) -> Iterator[tuple[slice, Tensor]]:
        """Yields the distances (m,n) of blocks of inputs to all examples, in units."""
        queries = torch.from_numpy(points / self._arrays["unit"].astype(np.float64))
        mode = "donot_use_mm_for_euclid_dist" if queries.shape[1] <= MAX_DIRECT else "use_mm_for_euclid_dist"
        size = max(1, BLOCK // len(self._keys))
        for start in range(0, len(queries), size):
            rows = slice(start, min(start + size, len(queries)))
            yield rows, torch.cdist(queries[rows], self._keys, compute_mode=mode)

    # Bandwidth

    def best_bandwidth(self) -> tuple[float, float]:
        """Returns the bandwidth with the smallest leave-one-out error, and that error in units of the targets' std."""
        if len(self.points) < 2:
            return 1.0, math.nan
        low, high = self._bandwidth_range()
        grid = np.geomspace(low, high, GRID)
        best = int(np.argmin(self.leave_one_out_errors(grid)))
        grid = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)], GRID)
        errors = self.leave_one_out_errors(grid)
        best = int(np.argmin(errors))
        return float(grid[best]), float(errors[best])

    def leave_one_out_errors(self, bandwidths: Array) -> Array:
        """Returns the mean squared error for each bandwidth when each example is predicted from all others."""
        rows = evenly_spaced(len(self.points), MAX_HELD_OUT)
        scale = self._targets.std(dim=0, correction=0)
        scale = torch.where(scale > 0, scale, 1.0)
        total = np.zeros(len(bandwidths))
        for part, distance in self._held_out_distances(rows):
            targets = self._targets[torch.from_numpy(rows[part])]
            for index, bandwidth in enumerate(bandwidths):
                predictions, _ = self._pool(distance, float(bandwidth))
                total[index] += float(((predictions - targets) / scale).square().mean(dim=1).sum())
        return total / len(rows)

    def _bandwidth_range(self) -> tuple[float, float]:
        """Returns half the distance to a near neighbor, and the largest distance."""
        rows = evenly_spaced(len(self.points), MAX_HELD_OUT)
        near, far = [], 0.0
        for _, distance in self._held_out_distances(rows):
            near.append(distance.amin(dim=1))
            far = max(far, float(distance.masked_fill(distance == math.inf, 0.0).max()))
        if far == 0.0:  # all examples are at one point
            return 1.0, 1.0
        nearest = torch.cat(near)
        nearest = nearest[nearest > 0]
        low = float(nearest.quantile(0.1)) / 2 if len(nearest) else far / 1_000
        return max(low, far * 1e-6), far

    def _held_out_distances(self, rows: Array) -> Iterator[tuple[slice, Tensor]]:
        for part, distance in self._distances(self._arrays["points"][rows]):
            examples = torch.from_numpy(rows[part])
            distance[torch.arange(len(examples)), examples] = math.inf
            yield part, distance
