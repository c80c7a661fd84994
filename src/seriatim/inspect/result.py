"""`Result`: what a view shows, as arrays with named axes, charts, and a text for terminals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.files import write_text
from ..report.charts import Table, View

DIGITS = 7  # of single precision


@dataclass(frozen=True, repr=False)
class NamedArray:
    """An array whose axes have names, and whose cells along each axis have labels.

    Args:
        values: Numbers or texts.
        axes: Name → the label of each cell, in the order of the dimensions.
    """

    values: np.ndarray
    axes: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        sizes = tuple(len(labels) for labels in self.axes.values())
        if sizes != self.values.shape:
            raise ValueError(f"an array of shape {self.values.shape} has axes of sizes {sizes}")

    def __repr__(self) -> str:
        return f"NamedArray({', '.join(f'{name}: {len(labels)}' for name, labels in self.axes.items())})"

    def to_json(self) -> dict[str, object]:
        """Returns axes and values as JSON values; values that are not finite are null."""
        axes = {name: list(labels) for name, labels in self.axes.items()}
        return {"axes": axes, "values": rounded(self.values.tolist())}


def rounded(value: object) -> object:
    """Returns nested lists with the digits of single precision, None for what JSON cannot hold."""
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return value


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a view.

    Args:
        title: What is shown, and of which model.
        arrays: The exact values.
        charts: Drawings and tables of them.
        notes: What was left out or is to be known about them.
        details: Tables for terminals, which say in words what the charts draw.
    """

    title: str
    arrays: Mapping[str, NamedArray]
    charts: Sequence[View]
    notes: Sequence[str] = ()
    details: Sequence[Table] = ()

    @property
    def text(self) -> str:
        """The result for a terminal: tables as aligned columns, other charts as a sentence if there are no tables."""
        tables = [*self.details, *(chart for chart in self.charts if isinstance(chart, Table))]
        blocks = [[table.title, *table.lines(), *([table.note] if table.note else [])] for table in tables]
        if not blocks:
            blocks = [[chart.alt_text] for chart in self.charts]
        return "\n\n".join("\n".join(block) for block in [[self.title], *blocks, list(self.notes)] if block)

    def __repr__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, object]:
        """Returns title, arrays and notes as JSON values."""
        arrays = {name: array.to_json() for name, array in self.arrays.items()}
        return {"title": self.title, "arrays": arrays, "notes": list(self.notes)}

    def save(self, path: str | Path) -> None:
        """Writes the charts (.png, .svg, or .html with tooltips) or the arrays (.json)."""
        from ..report.render import check_extension, save  # imports altair

        path = Path(path)
        check_extension(path)
        if path.suffix.lower() == ".json":
            write_text(path, json.dumps(self.to_json(), ensure_ascii=False, allow_nan=False) + "\n")
        else:
            save(self.charts, path)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For notebooks: a drawing that needs no network connection, and the text."""
        from ..report.render import to_svg  # imports altair

        return {"image/svg+xml": to_svg(self.charts), "text/plain": self.text}
