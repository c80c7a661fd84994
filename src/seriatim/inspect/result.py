"""`Arrays`: the values a view computes, with named axes; `Result`: these values with their charts and as text."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ..core.files import write_text
from ..report.charts import Table, View, views_to_json

DIGITS = 7  # of single precision
HEADER_SIZE = struct.Struct("<I")

Facts = TypeVar("Facts", covariant=True)


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

    @property
    def is_text(self) -> bool:
        return self.values.dtype.kind not in "biuf"

    def to_json(self) -> dict[str, object]:
        """Returns axes and values as JSON values; values that are not finite are null."""
        return {"axes": self._axes_to_json(), "values": rounded(self.values.tolist())}

    def _axes_to_json(self) -> dict[str, list[str]]:
        return {name: list(labels) for name, labels in self.axes.items()}


def rounded(value: object) -> object:
    """Returns nested lists with the digits of single precision, None for what JSON cannot hold."""
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return value


@dataclass(frozen=True, repr=False, eq=False)
class Arrays(Mapping[str, NamedArray], Generic[Facts]):
    """What a view computes: named arrays, a mapping of their names, and what the texts of its charts say.

    Args:
        title: What is shown, and of which model.
        named: The exact values by name.
        facts: What titles and captions of the charts need besides; None if the arrays come from `from_bytes`.
        notes: What limits or qualifies the values, such as a truncated text.
    """

    title: str
    named: Mapping[str, NamedArray]
    facts: Facts
    notes: Sequence[str] = ()

    def __getitem__(self, name: str) -> NamedArray:
        return self.named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.named)

    def __len__(self) -> int:
        return len(self.named)

    def __repr__(self) -> str:
        return f"{self.title}: {dict(self.named)}"

    def to_json(self) -> dict[str, object]:
        """Returns title, arrays and notes as JSON values."""
        arrays = {name: array.to_json() for name, array in self.items()}
        return {"title": self.title, "arrays": arrays, "notes": list(self.notes)}

    def to_bytes(self) -> bytes:
        """Returns title, arrays and notes packed for a browser, with numbers in single precision.

        All numbers are little-endian:

            uint32                the size of the header in bytes, a multiple of 4
            JSON in UTF-8         the header, blanks at its end
            float32 …             the arrays one after another, the last axis fastest

        The header is `{"title", "notes", "arrays"}`; "arrays" lists `{"name", "axes": {name: [label, …], …}}` with
        "offset", the position of the array's first number counted in numbers, or "texts" for an array of texts, as
        nested lists. NaN and infinities are kept. In JavaScript:

            const size = new DataView(buffer).getUint32(0, true)
            const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)))
            const numbers = new Float32Array(buffer, 4 + size)
        """
        entries: list[dict[str, object]] = []
        blocks: list[bytes] = []
        offset = 0
        for name, array in self.items():
            entry: dict[str, object] = {"name": name, "axes": array._axes_to_json()}
            if array.is_text:
                entry["texts"] = array.values.tolist()
            else:
                entry["offset"] = offset
                offset += array.values.size
                blocks.append(np.ascontiguousarray(array.values, dtype="<f4").tobytes())
            entries.append(entry)
        about = {"title": self.title, "notes": list(self.notes), "arrays": entries}
        header = json.dumps(about, ensure_ascii=False, allow_nan=False).encode()
        header += b" " * (-len(header) % 4)  # the numbers begin at a multiple of their size
        return b"".join((HEADER_SIZE.pack(len(header)), header, *blocks))

    @staticmethod
    def from_bytes(data: bytes) -> Arrays[None]:
        """Returns the arrays that `to_bytes` packed, numbers as float32; raises ValueError if they are incomplete."""
        if len(data) < HEADER_SIZE.size:
            raise ValueError("packed arrays are incomplete: they begin with the size of their header")
        start = HEADER_SIZE.size + HEADER_SIZE.unpack_from(data)[0]
        header = json.loads(data[HEADER_SIZE.size : start])
        numbers = np.frombuffer(data, "<f4", offset=start) if len(data) > start else np.zeros(0, "<f4")
        named = {}
        for entry in header["arrays"]:
            shape = tuple(len(labels) for labels in entry["axes"].values())
            values: np.ndarray
            if "texts" in entry:
                values = np.array(entry["texts"], dtype=np.str_).reshape(shape)
            else:
                values = numbers[entry["offset"] : entry["offset"] + math.prod(shape)].astype(np.float32)
                if values.size != math.prod(shape):
                    raise ValueError(f"packed arrays are incomplete: “{entry['name']}” is cut off")
                values = values.reshape(shape)
            named[entry["name"]] = NamedArray(values, entry["axes"])
        return Arrays(header["title"], named, None, header["notes"])


class Drawing(NamedTuple):
    """What a view draws from its arrays.

    Args:
        charts: Drawings and tables.
        details: Tables for terminals, which say in words what the charts draw.
    """

    charts: Sequence[View]
    details: Sequence[Table] = ()


class Result:
    """The result of a view. Its charts are made when they are first asked for.

    Args:
        arrays: The exact values.
        draw: Returns the charts of these values.
    """

    def __init__(self, arrays: Arrays[Any], draw: Callable[[Arrays[Any]], Drawing]) -> None:
        self.arrays, self._draw = arrays, draw

    @property
    def title(self) -> str:
        """What is shown, and of which model."""
        return self.arrays.title

    @property
    def notes(self) -> Sequence[str]:
        """What limits or qualifies the values, such as a truncated text."""
        return self.arrays.notes

    @cached_property
    def drawing(self) -> Drawing:
        """Charts and details."""
        return self._draw(self.arrays)

    @property
    def charts(self) -> Sequence[View]:
        """Drawings and tables."""
        return self.drawing.charts

    @property
    def details(self) -> Sequence[Table]:
        """Tables for terminals, which say in words what the charts draw."""
        return self.drawing.details

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

    def to_json(self, charts: bool = False) -> dict[str, object]:
        """Returns title, arrays and notes as JSON values; with `charts` also the charts and the details."""
        values = self.arrays.to_json()
        if charts:
            values |= {"charts": views_to_json(self.charts), "details": views_to_json(self.details)}
        return values

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
