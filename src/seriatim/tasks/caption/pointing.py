"""The pointing game: whether a captioning model attends to what it names.

Zhang et al., "Top-down neural attention by excitation backprop" (2016). While a model writes a noun, its attention is
spread over the cells of a grid on the image. The noun is a hit if the center of the cell with the largest weight lies
in the box of the object it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Box = tuple[float, float, float, float]  # left, top, right and bottom in pixels; right and bottom are exclusive


class Region(NamedTuple):
    """A noun of a caption, and the box of what it names."""

    position: int  # of the noun among the words of the caption, from 0
    noun: str
    box: Box


def parse_regions(cell: Any) -> tuple[Region, ...]:
    """Returns the regions of a cell: tuples, or [{"noun": "dog", "position": 1, "box": [4, 8, 30, 20]}]."""
    regions = []
    for region in cell or ():
        if isinstance(region, dict):
            region = region.get("position", region.get("place")), region.get("noun"), region.get("box")
        position, noun, box = region
        left, top, right, bottom = (float(edge) for edge in box)
        regions.append(Region(int(position), str(noun), (left, top, right, bottom)))
    return tuple(regions)


@dataclass(frozen=True)
class PointedNoun:
    noun: str
    hit: float  # 1 if the largest weight lies in the box; a share if several are equal
    mass: float  # fraction of the weights in the box
    chance: float  # fraction of the cells whose center lies in the box


def point(
    weights: np.ndarray,
    groups: Sequence[Sequence[int]],
    grid: tuple[int, int],
    size: tuple[int, int],
    regions: Sequence[Region],
) -> list[PointedNoun]:
    """Returns the result for each noun of a caption.

    A noun attends with the mean of the weights of all its tokens. The peak is the center of the cell with the largest
    mean; of equal ones each counts its share, so that uniform weights reach what chance does. A center on the left or
    upper edge of a box lies in it, one on the right or lower edge does not. For the mass, the weight of a cell is
    spread evenly over it.

    Args:
        weights: (T,S) of each token over the cells.
        groups: The tokens of each word.
        grid: Rows and columns of the cells.
        size: Height and width of the image.
        regions: The nouns with their boxes.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != grid[0] * grid[1]:
        raise ValueError(f"weights {weights.shape} do not fit a grid of {grid[0]} × {grid[1]} cells")
    results = []
    for position, noun, (left, top, right, bottom) in regions:
        words = groups[position : position + max(len(noun.split()), 1)]
        row = weights[[token for group in words for token in group]].mean(axis=0)
        inside = np.outer(_centers(grid[0], size[0], top, bottom), _centers(grid[1], size[1], left, right)).ravel()
        shares = np.outer(_shares(grid[0], size[0], top, bottom), _shares(grid[1], size[1], left, right)).ravel()
        hit = float(inside[row == row.max()].mean())
        results.append(PointedNoun(noun, hit, float(row @ shares / row.sum()), float(inside.mean())))
    return results


def pointing_metrics(nouns: Sequence[PointedNoun]) -> dict[str, float]:
    """Returns the fraction of hits, the mean mass in the boxes, and the number of nouns; nothing without nouns."""
    if not nouns:
        return {}
    hits, masses = ([noun.hit for noun in nouns], [noun.mass for noun in nouns])
    return {"pointing": float(np.mean(hits)), "pointing_mass": float(np.mean(masses)), "nouns": float(len(nouns))}


def _centers(cells: int, pixels: int, first: float, last: float) -> np.ndarray:
    """Returns which cells along a side have their center between two edges."""
    centers = (np.arange(cells) + 0.5) * pixels / cells
    return (centers >= first) & (centers < last)


def _shares(cells: int, pixels: int, first: float, last: float) -> np.ndarray:
    """Returns the fraction of each cell along a side that lies between two edges."""
    edges = np.arange(cells + 1) * pixels / cells
    return np.clip(np.minimum(edges[1:], last) - np.maximum(edges[:-1], first), 0, None) * cells / pixels
