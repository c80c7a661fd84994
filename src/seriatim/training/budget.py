"""A parameter budget: the width at which a model has the wanted size, so that architectures compare fairly."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from ..core.errors import SeriatimError
from ..core.tensors import without_contents
from ..nn.backbone import BackboneSettings
from ..nn.network import count_parameters

WIDEST = 65_536


def solve_width(
    settings: BackboneSettings, parameters: int, build: Callable[[BackboneSettings], nn.Module]
) -> BackboneSettings:
    """The settings with the largest width whose network has at most `parameters`; where widths are too coarse, the
    model's second size (`fine`) fills up the rest."""

    def size(candidate: BackboneSettings) -> int:
        return size_of(candidate, build)

    grain = settings.grain()
    width = grain * _largest(
        lambda n: size(settings.model_copy(update={"width": n * grain})), parameters, WIDEST // grain
    )
    smallest = size(settings.model_copy(update={"width": max(width, grain)}))
    if width == 0:
        raise SeriatimError(
            "budget.too-small",
            f'a "{settings.name}" of {parameters:,} parameters is not possible here: the smallest has {smallest:,}',
            "raise --params, or make the vocabulary smaller (data.tokenizer)",
        )
    solved = settings.model_copy(update={"width": width})
    name, least = solved.fine, solved.fine_size()
    filled = lambda n: size(solved.model_copy(update={name: n}))  # noqa: E731
    if getattr(solved, name) is not None or filled(least) != size(solved):  # not open, or not a matter of size alone
        return solved
    most = least + _largest(lambda n: filled(least + n), parameters, 16 * least)
    return solved.model_copy(update={name: most})


def size_of(settings: BackboneSettings, build: Callable[[BackboneSettings], nn.Module]) -> int:
    with without_contents():
        return count_parameters(build(settings))


def _largest(size: Callable[[int], int], limit: int, highest: int) -> int:
    """The largest n in 0…highest with size(n) ≤ limit; size grows with n."""
    low, high = 0, 1
    while high <= highest and size(high) <= limit:
        low, high = high, high * 2
    high = min(high, highest + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= limit else (low, middle)
    return low
