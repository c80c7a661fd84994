"""Kernel regression: the weighted mean of all it has seen, with nothing to learn.

    ŷ(x) = Σ_i α(x, x_i) y_i        α(x, x_i) = K(‖x − x_i‖ / h) / Σ_j K(‖x − x_j‖ / h)      Nadaraya, Watson 1964

It is attention before its name: the question x is the query, the inputs seen are the keys, their answers the values.
What a network would put into weights it keeps as examples, so it is made in one pass, and to ask is to look at all.

    gaussian       K(u) = exp(−½ u²)       every example has its share, the near ones nearly all of it
    boxcar         K(u) = 1 if u ≤ 1       the mean of the examples within h
    epanechnikov   K(u) = max(0, 1 − u)    the same, with less weight towards the edge

All rests on the bandwidth h: too small, and it repeats the noise of the nearest example; too large, and it says the
mean. By default it is the one with the least leave-one-out error: each training example, or a thousand of them, is
asked of all the others. A question that no example is near enough to gets the answer of the nearest, which is also
where the Gaussian goes as h falls. Distances are Euclidean over all numbers of an example, each in units of the
deviation of its feature (with `data.scale: none` as they are).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..core import config
from ..core.errors import SeriatimError
from ..nn.attention import KernelName, pool
from ..nn.scores import log_kernel

PART = 1 << 21  # weights that are looked at together
ASKED = 1_000  # training examples that the leave-one-out error is measured on
GRID = 32  # bandwidths tried, and again around the best of them
DIRECT = 16  # numbers of an example up to which distances are summed up; beyond, they come from a product

Array = np.ndarray


class Settings(config.Settings):
    counts: ClassVar[bool] = True
    pairs: ClassVar[bool] = False
    pictures: ClassVar[bool] = False

    name: str = Field(description="the architecture: see `seriatim list models`")
    kernel: KernelName = Field("gaussian", description="how the weight of an example falls with its distance")
    bandwidth: float | None = Field(
        None, gt=0, description="the distance h that counts as one (default: by the leave-one-out error)"
    )
    entries: config.Count | None = Field(
        None, ge=1, description="most numbers to store; of more examples, some are kept, evenly spread"
    )


class Kernel:
    def __init__(self, settings: Settings, points: Array, values: Array, unit: Array, bandwidth: float) -> None:
        """Examples (n,d) and their answers (n,o); `unit` (d,) is what a distance of one is in each number."""
        self.settings, self.points, self.values, self.unit = settings, points, values, unit
        self.bandwidth = bandwidth
        self._keys = torch.from_numpy(points / unit.astype(np.float64))
        self._values = torch.from_numpy(values.astype(np.float64))

    @classmethod
    def fit(
        cls,
        points: Array,
        values: Array,
        settings: Settings,
        unit: Array | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Kernel:
        """Keeps the examples, as many as the settings allow, and finds the bandwidth."""
        each = points.shape[1] + values.shape[1]
        most = len(points) if settings.entries is None else settings.entries // each
        if not min(most, len(points)):
            raise SeriatimError(
                "kernel.empty",
                f"there is no example to keep; each has {each:,} numbers",
                "allow more, or give examples",
            )
        kept = _spread(len(points), most)
        unit = np.ones(points.shape[1], np.float32) if unit is None else unit
        model = cls(settings, points[kept], values[kept], unit, settings.bandwidth or 1.0)
        if settings.bandwidth is None:
            model.bandwidth, error = model.best_bandwidth()
            if progress is not None:
                progress(f"bandwidth {model.bandwidth:.4g}: leave-one-out error {error:.4g}")
        return model

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────

    def predict(self, points: Array) -> Array:
        """(m,d) → (m,o)."""
        found = [self._pool(distance)[0] for _, distance in self._distances(points)]
        return torch.cat(found).numpy() if found else np.zeros((0, self.values.shape[1]))

    def weights(self, points: Array) -> Array:
        """What each example counts for in the answer: (m,d) → (m,n), rows that sum to 1."""
        found = [self._pool(distance)[1] for _, distance in self._distances(points)]
        return torch.cat(found).numpy() if found else np.zeros((0, len(self.points)))

    def _pool(self, distance: Tensor, bandwidth: float | None = None) -> tuple[Tensor, Tensor]:
        scores = log_kernel(self.settings.kernel, distance / (self.bandwidth if bandwidth is None else bandwidth))
        nearest = torch.zeros_like(scores).masked_fill(distance > distance.amin(dim=1, keepdim=True), -math.inf)
        alone = scores.amax(dim=1, keepdim=True) == -math.inf
        return pool(torch.where(alone, nearest, scores), self._values)

    def _distances(self, points: Array) -> Iterator[tuple[slice, Tensor]]:
        """From some questions at a time to all examples (m,n), in units."""
        asked = torch.from_numpy(points / self.unit.astype(np.float64))
        mode = "donot_use_mm_for_euclid_dist" if asked.shape[1] <= DIRECT else "use_mm_for_euclid_dist"
        size = max(1, PART // len(self._keys))
        for start in range(0, len(asked), size):
            rows = slice(start, min(start + size, len(asked)))
            yield rows, torch.cdist(asked[rows], self._keys, compute_mode=mode)

    # ── the bandwidth ─────────────────────────────────────────────────────────────────────────────────────────

    def best_bandwidth(self) -> tuple[float, float]:
        """The bandwidth with the least leave-one-out error, and that error: in units of the answers' deviation."""
        if len(self.points) < 2:
            return 1.0, math.nan
        low, high = self._range()
        grid = np.geomspace(low, high, GRID)
        best = int(np.argmin(self.left_out(grid)))
        grid = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)], GRID)
        errors = self.left_out(grid)
        best = int(np.argmin(errors))
        return float(grid[best]), float(errors[best])

    def left_out(self, bandwidths: Array) -> Array:
        """The mean squared error for each bandwidth when an example is asked of all the others."""
        rows = _spread(len(self.points), ASKED)
        scale = self._values.std(dim=0, correction=0)
        scale = torch.where(scale > 0, scale, 1.0)
        total = np.zeros(len(bandwidths))
        for part, distance in self._without_itself(rows):
            true = self._values[torch.from_numpy(rows[part])]
            for index, bandwidth in enumerate(bandwidths):
                said, _ = self._pool(distance, float(bandwidth))
                total[index] += float(((said - true) / scale).square().mean(dim=1).sum())
        return total / len(rows)

    def _range(self) -> tuple[float, float]:
        """From half the distance to a near neighbour to all there is."""
        rows = _spread(len(self.points), ASKED)
        near, far = [], 0.0
        for _, distance in self._without_itself(rows):
            near.append(distance.amin(dim=1))
            far = max(far, float(distance.masked_fill(distance == math.inf, 0.0).max()))
        if far == 0.0:  # one place, many times
            return 1.0, 1.0
        nearest = torch.cat(near)
        nearest = nearest[nearest > 0]
        low = float(nearest.quantile(0.1)) / 2 if len(nearest) else far / 1_000
        return max(low, far * 1e-6), far

    def _without_itself(self, rows: Array) -> Iterator[tuple[slice, Tensor]]:
        for part, distance in self._distances(self.points[rows]):
            some = torch.from_numpy(rows[part])
            distance[torch.arange(len(some)), some] = math.inf
            yield part, distance

    # ── storing ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def entries(self) -> int:
        """How many numbers are stored."""
        return self.points.size + self.values.size

    @property
    def scale(self) -> Array:
        """The deviation of the answers; 1 where they are all the same."""
        deviation = self.values.std(axis=0, dtype=np.float64)
        return np.where(deviation > 0, deviation, 1.0)

    def tensors(self) -> dict[str, Array]:
        bandwidth = np.array([self.bandwidth], np.float64)
        return {"points": self.points, "values": self.values, "unit": self.unit, "bandwidth": bandwidth}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], settings: Settings) -> Kernel:
        """The inverse of `tensors`."""
        try:
            points, values, unit = (tensors[name] for name in ("points", "values", "unit"))
            fits = points.ndim == values.ndim == 2 and len(points) == len(values) and unit.shape == points.shape[1:]
            if not fits:
                raise KeyError("examples and answers in equal number")
            return cls(settings, points, values, unit, float(tensors["bandwidth"][0]))
        except (KeyError, IndexError) as error:
            raise SeriatimError(
                "kernel.tensors", f"these are not the tensors of a kernel model: {error}", "load the whole folder"
            ) from None


def _spread(count: int, most: int) -> Array:
    """At most so many of `count` places, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))
