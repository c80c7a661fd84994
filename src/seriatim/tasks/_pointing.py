"""Whether a captioner looks at what it names: the pointing game.

Zhang et al., "Top-down neural attention by excitation backprop" (2016). While a model says a noun, its weights lie on
the cells of a grid over the picture. The noun is pointed at where the centre of the cell with the largest weight lies
in the box of the thing that it names. A box that is half the picture is easily hit: so the figure goes with what a cell
taken blindly would reach, and with what one cell for all pictures would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Box = tuple[float, float, float, float]  # left, top, right and bottom in pixels; right and bottom are just outside


@dataclass(frozen=True)
class Pointed:
    """One noun of a caption."""

    noun: str
    hit: float  # 1 where the peak lies in the box
    mass: float  # share of the weights that lies in it
    inside: np.ndarray  # (S,) which cells have their centre in it
    area: float  # share of the picture that it takes

    @property
    def chance(self) -> float:
        return float(self.inside.mean())


def placed(words: Sequence[str], named: Sequence[tuple[str, Box]]) -> list[tuple[int, str, Box]]:
    """Where the nouns of a list stand among the words of a caption, each at the first place behind the one that was
    taken for the noun before it of the same name. A noun may have several words; what was not said is left out."""
    said = [word.lower() for word in words]
    found, begins = [], dict[str, int]()
    for noun, box in named:
        parts = noun.lower().split()
        start = begins.get(noun.lower(), 0)
        places = (n for n in range(start, len(said) - len(parts) + 1) if said[n : n + len(parts)] == parts)
        if (place := next(places, None)) is not None:
            found.append((place, noun, box))
            begins[noun.lower()] = place + len(parts)
    return found


def pointed(
    weights: np.ndarray,
    groups: Sequence[Sequence[int]],
    grid: tuple[int, int],
    size: tuple[int, int],
    boxes: Sequence[tuple[int, str, Box]],
) -> list[Pointed]:
    """`weights` (T,S): how token t looked at the cells of a `grid` (rows, columns) that lies evenly over a picture of
    some `size` (height, width). `groups` are the tokens of each word; `boxes` say at which word a noun begins, the
    noun, and where in the picture the thing is.

    A noun looks with the mean of the weights of all its tokens: of the pieces of its word, and of its words where it
    has several. The peak is the centre of the cell with the largest mean; of several equal ones each counts its share,
    so that weights which tell nothing reach what chance does. A centre on the left or upper edge of a box lies in it,
    one on the right or lower edge does not. For the mass the weight of a cell lies evenly over it.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != grid[0] * grid[1]:
        raise ValueError(f"weights {weights.shape} do not fit a grid of {grid[0]} × {grid[1]} cells")
    found = []
    for place, noun, box in boxes:
        tokens = [token for group in groups[place : place + max(len(noun.split()), 1)] for token in group]
        row = weights[tokens].mean(axis=0)
        inside = np.outer(_centres(grid[0], size[0], box[1], box[3]), _centres(grid[1], size[1], box[0], box[2]))
        shares = np.outer(_shares(grid[0], size[0], box[1], box[3]), _shares(grid[1], size[1], box[0], box[2]))
        hit = float(inside.ravel()[row == row.max()].mean())
        mass = float(row @ shares.ravel() / row.sum())
        found.append(Pointed(noun, hit, mass, inside.ravel(), float(shares.mean())))
    return found


def pointing(found: Sequence[Pointed]) -> dict[str, float]:
    """Of all nouns of a part: how often the peak lies in the box, and the mean share of the weights there."""
    if not found:
        return {}
    hits, masses = (float(np.mean(values)) for values in zip(*((one.hit, one.mass) for one in found), strict=True))
    return {"pointing": hits, "pointing_mass": masses, "nouns": float(len(found))}


def baselines(found: Sequence[Pointed]) -> dict[str, dict[str, float]]:
    """What the figures are to be held against: a cell taken blindly, and the one cell that lies in most boxes (found on
    the same nouns, so a little too good)."""
    if not found:
        return {}
    inside = np.stack([one.inside for one in found])  # (N,S)
    area = float(np.mean([one.area for one in found]))
    return {
        "any cell": {"pointing": float(inside.mean()), "pointing_mass": area},
        "one cell for all": {"pointing": float(inside.mean(axis=0).max())},
    }


def reachable(found: Sequence[Pointed]) -> float:
    """How many nouns could be pointed at with this grid: a box between the centres of cells cannot."""
    return float(np.mean([one.inside.any() for one in found]))


def _centres(cells: int, pixels: int, first: float, last: float) -> np.ndarray:
    """Which cells along a side have their centre between two edges."""
    middles = (np.arange(cells) + 0.5) * pixels / cells
    return (middles >= first) & (middles < last)


def _shares(cells: int, pixels: int, first: float, last: float) -> np.ndarray:
    """How much of each cell along a side lies between two edges."""
    edges = np.arange(cells + 1) * pixels / cells
    return np.clip(np.minimum(edges[1:], last) - np.maximum(edges[:-1], first), 0, None) * cells / pixels
