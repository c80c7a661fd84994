"""The cost of a model: parameters and the width for a budget of them, floating-point operations, and memory."""

from __future__ import annotations

import copy
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ..core.device import on_meta_device
from ..core.errors import SeriatimError
from ..core.state import flatten
from ..nn.backbone import BackboneSettings
from ..nn.layers import readable_equations
from ..nn.network import count_parameters
from ..tasks.batching import POOL_BATCHES, Batch

if TYPE_CHECKING:
    from .objective import Objective

MAX_WIDTH = 65_536
EQUAL_BATCHES = 4  # after this number of prefetched batches of one size, all count as equal
COUNTED_BATCHES = 4  # whose operations are counted


def solve_width(
    settings: BackboneSettings, parameters: int, build: Callable[[BackboneSettings], nn.Module]
) -> BackboneSettings:
    """Returns settings with the largest width whose network has at most `parameters`.

    If widths are too coarse, the model's second size (`budget_field`) is increased to fill the rest.

    Args:
        settings: The settings of the model.
        parameters: The budget.
        build: Returns the network of settings.
    """

    def size(candidate: BackboneSettings) -> int:
        return parameter_count(candidate, build)

    def size_by_width(width: int) -> int:
        return size(settings.with_width(width))

    for multiple in settings.width_multiples():
        if width := _largest(size_by_width, parameters, MAX_WIDTH, multiple):
            break
    else:
        smallest = size_by_width(multiple)
        raise SeriatimError(
            "budget.too-small",
            f'a "{settings.name}" of {parameters:,} parameters is not possible here: the smallest has {smallest:,}',
            "raise --params, or make the vocabulary smaller (--vocab-size)",
        )
    solved = settings.with_width(width)
    if width == MAX_WIDTH and size(settings) == size(solved):
        return settings  # a size that the data decides, as that of a linear model of numbers
    name, default = solved.budget_field, solved.budget_size()
    filled = lambda n: size(solved.model_copy(update={name: n}))  # noqa: E731
    if getattr(solved, name) is not None or filled(default) != size(solved):  # set by the user, or not only a size
        return solved
    value = default + _largest(lambda n: filled(default + n), parameters, 16 * default)
    return solved.model_copy(update={name: value})


def parameter_count(settings: BackboneSettings, build: Callable[[BackboneSettings], nn.Module]) -> int:
    with on_meta_device():
        return count_parameters(build(settings))


def _largest(size: Callable[[int], int], limit: int, highest: int, multiple: int = 1) -> int:
    """Returns the largest multiple n in 0…highest with size(n) ≤ limit, for a size that grows with n."""
    low, high, end = 0, 1, highest // multiple
    while high <= end and size(high * multiple) <= limit:
        low, high = high, high * 2
    high = min(high, end + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle * multiple) <= limit else (low, middle)
    return low * multiple


def count_targets(objective: Objective[Any, Any], batch_size: int) -> float:
    """Returns the mean number of targets of the first batches."""
    return fmean(measure_batches(objective, batch_size, lambda batch: batch.count))


def count_flops(objective: Objective[Any, Any], network: nn.Module, batch_size: int, device: torch.device) -> float:
    """Returns the operations of the matrix products of a forward and backward pass over a mean batch.

    They are counted on rows of batches from short to long, and scaled by the elements of the first batches: the lengths
    of the batches that a seed draws must not decide.
    """
    sizes = measure_batches(objective, batch_size, count_elements)
    by_size = sorted(range(len(sizes)), key=sizes.__getitem__)
    parts = min(COUNTED_BATCHES, len(sizes))
    twin = copy.deepcopy(network).train()
    generator = torch.random.get_rng_state()
    flops = elements = 0
    for part in range(parts):
        step = by_size[(2 * part + 1) * len(sizes) // (2 * parts)]  # the middle of each quarter
        row = objective.batch(step, batch_size - 1, batch_size, batch_size).to(device)
        with readable_equations(), FlopCounterMode(display=False) as counter:
            objective.loss(objective.forward(twin, row), row).backward()
        flops, elements = flops + counter.get_total_flops(), elements + count_elements(row)
    torch.random.set_rng_state(generator)
    return flops / max(elements, 1) * fmean(sizes)


def measure_batches(objective: Objective[Any, Any], batch_size: int, measure: Callable[[Batch], int]) -> list[int]:
    """Returns a size of each of the first batches; of few if they are costly and equal, as images are."""
    sizes: list[int] = []
    for step in range(min(POOL_BATCHES, objective.steps_per_epoch(batch_size))):
        sizes.append(measure(objective.batch(step, 0, batch_size, batch_size)))
        if objective.prefetch and len(sizes) == EQUAL_BATCHES and len(set(sizes)) == 1:
            break
    return sizes


def count_elements(batch: Batch) -> int:
    """Returns the elements of a batch with their padding, which its operations are about proportional to.

    Tensors of another number of rows, such as all captions of some images, are not counted.
    """
    tensors, _ = flatten(batch.inputs)
    return sum(tensor.numel() for tensor in tensors if len(tensor) == len(tensors[0]))


def reset_peak_memory() -> None:
    """Resets the highest memory use of the process, if the system supports it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """Returns the highest resident memory of the process since the last reset, in bytes."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024
