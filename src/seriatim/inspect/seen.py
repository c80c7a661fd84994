"""What a view shows: arrays whose axes have names, and the figures of pictures made from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.files import write_text

if TYPE_CHECKING:
    import altair as alt

DIGITS = 7  # that single precision has


@dataclass(frozen=True)
class Array:
    """Each axis has a name, and a name for every place on it."""

    values: np.ndarray
    axes: tuple[tuple[str, Sequence[str]], ...]

    def __post_init__(self) -> None:
        sizes = tuple(len(names) for _, names in self.axes)
        if sizes != self.values.shape:
            raise ValueError(f"axes of {sizes} for values of {self.values.shape}")

    def __repr__(self) -> str:
        return f"Array({', '.join(f'{name}: {len(labels)}' for name, labels in self.axes)})"

    def record(self) -> dict[str, Any]:
        axes = [{"name": name, "labels": list(labels)} for name, labels in self.axes]
        return {"axes": axes, "values": _short(self.values.tolist())}


@dataclass(frozen=True)
class Seen:
    """`views` are what `report/views.py` draws; `text` are lines for a terminal."""

    title: str
    arrays: Mapping[str, Array]
    views: Sequence[dict[str, Any]]
    text: Sequence[str] = ()
    notes: Sequence[str] = field(default=())  # what was left out, or put together

    def chart(self) -> alt.VConcatChart:
        """All pictures, one below the other."""
        from ..report.views import stacked

        return stacked(self.views)

    def record(self) -> dict[str, Any]:
        """As JSON: the arrays themselves, not the pictures."""
        arrays = {name: array.record() for name, array in self.arrays.items()}
        return {"title": self.title, "arrays": arrays, "notes": list(self.notes)}

    def save(self, path: str | Path) -> None:
        """A picture (.png, .svg, .html, which is interactive) or the labelled arrays (.json)."""
        from ..report import overlay
        from ..report.looks import check_ending, save

        path = Path(path)
        check_ending(path)
        if path.suffix.lower() == ".json":
            write_text(path, json.dumps(self.record(), ensure_ascii=False, allow_nan=False) + "\n")
        elif [view.get("kind") for view in self.views] == ["overlay"]:
            overlay.save(self.views[0], path)
        else:
            save(self.chart(), path)

    def lines(self) -> list[str]:
        """For a terminal."""
        return [self.title, *self.text, *self.notes]

    def __repr__(self) -> str:
        """What a terminal shows."""
        return "\n".join(self.lines())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """For a notebook: a picture that needs no network, as Altair's own would, and the lines for where none is."""
        from ..report.looks import svg

        return {"image/svg+xml": svg(self.chart(), ground=True), "text/plain": repr(self)}


def _short(value: Any) -> Any:
    """JSON has neither infinity nor NaN."""
    if isinstance(value, list):
        return [_short(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return value
