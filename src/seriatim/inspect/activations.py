"""What each layer or level gives, element by element: how large it is, and unit by unit for one layer.

The size of a vector is told as the root of the mean square of its numbers, so that layers of different widths compare.
Of a Transformer also the length of the residual stream behind each part of each block: every part writes into it, and
nothing but a norm makes it shorter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..core.errors import SeriatimError
from .reading import Reading
from .seen import Array, Seen
from .subject import Subject

PLACE = re.compile(r"(?:(encoder|decoder)\.)?(?:(layer|level)(\d+)\.)?(?:(forward|backward)\.)?(\w+)")
OUTPUTS = ("embedded", "hidden", "activation")  # what a place gives; the others are what happens within it
RESIDUAL = "_residual"
COLUMNS = 120  # elements of a picture; of more, neighbours are put together
UNITS = 48  # of a layer that are drawn
FLAT = 0.95  # of a unit that is between −1 and 1: nearly all that it can be


@dataclass(frozen=True)
class Output:
    """What a place gives, (T,D)."""

    name: str
    index: int | None  # the layer; None: what goes into the first
    values: np.ndarray
    elements: list[str]

    @property
    def sizes(self) -> np.ndarray:
        found: np.ndarray = np.sqrt(np.square(self.values).mean(axis=1))
        return found


def suits(subject: Subject) -> str:
    return "counts, and has no layers" if subject.counts else ""


def look(
    subject: Subject,
    *texts: str,
    layer: int | None = None,
    target: str | None = None,
    example: int | None = None,
) -> Seen:
    """All layers, or the units of one, counted from 0."""
    reading = subject.read(*texts, target=target, example=example)
    trace = subject.trace(reading)
    found = outputs(trace, reading)
    if not found:
        raise subject.lacks("shows nothing of what its layers give", "choose another model")
    if layer is not None:
        return _of_layer(subject, found, layer, reading.notes)
    arrays = {one.name: _array(one) for one in found} | _residuals(trace, reading)
    title = f"What each layer gives: {subject.label}"
    views = [_sizes(title, some) for some in _sides(found)]
    views += [_streams(subject.label, side, lines) for side, lines in _by_side(trace, reading).items()]
    table = _table(found)
    return Seen(title, arrays, [*views, table], _told(table), reading.notes)


def outputs(trace: Mapping[str, Tensor], reading: Reading) -> list[Output]:
    """From below to above, an encoder before its decoder."""
    found = []
    for name, value in trace.items():
        match = PLACE.fullmatch(name)
        if value.dim() == 3 and match and (match[5] in OUTPUTS or match[5] not in _INNER):
            side, kind, number, direction, last = match.groups()
            told = "input" if last == "embedded" else f"{kind} {number}" if kind else last
            whole = ", ".join(part for part in (side, told, direction) if part)
            values = value[0].float().numpy()
            found.append(Output(whole, int(number) if number else None, values, _elements(reading, side, len(values))))
    return found


_INNER = (
    "alignment",
    "first",
    "second",
    "cell",
    "input_gate",
    "forget_gate",
    "output_gate",
    "reset_gate",
    "update_gate",
)


def _elements(reading: Reading, side: str | None, count: int) -> list[str]:
    names = reading.target.names if side == "decoder" and reading.target is not None else reading.names
    return names if len(names) == count else [str(place) for place in range(count)]


def _array(one: Output) -> Array:
    units = [f"unit {index}" for index in range(one.values.shape[1])]
    return Array(one.values, (("element", one.elements), ("unit", units)))


def _residuals(trace: Mapping[str, Tensor], reading: Reading) -> dict[str, Array]:
    return {
        name: Array(value[0].float().numpy(), (("element", _elements(reading, name.split(".")[0], value.shape[1])),))
        for name, value in trace.items()
        if name.endswith(RESIDUAL)
    }


def _sides(found: list[Output]) -> list[list[Output]]:
    """Those that have the same elements, together."""
    groups: dict[tuple[str, ...], list[Output]] = {}
    for one in found:
        groups.setdefault((one.name.split(",")[0] if "," in one.name else "", *one.elements), []).append(one)
    return list(groups.values())


def _sizes(title: str, some: list[Output]) -> dict[str, Any]:
    side = some[0].name.split(",")[0]
    names, values = folded(some[0].elements, np.stack([one.sizes for one in some]))
    return {
        "kind": "heat", "title": f"{title}, {side}" if side in ("encoder", "decoder") else title,
        "rows": [one.name for one in some], "columns": names, "values": values.tolist(), "x": "element", "y": "",
        "note": "root of the mean square of the numbers of a vector",
    }  # fmt: skip


def folded(names: list[str], values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Columns (…,T) as many as a picture has room for: of neighbours the mean, with the name of the first."""
    size = -(-len(names) // COLUMNS)
    starts = np.arange(0, len(names), size)
    counts = np.diff([*starts.tolist(), len(names)])
    return [names[start] for start in starts.tolist()], np.add.reduceat(values, starts, axis=-1) / counts


def _by_side(trace: Mapping[str, Tensor], reading: Reading) -> dict[str, list[tuple[str, float]]]:
    """The mean length of the residual stream behind each part of each block, from below to above."""
    found: dict[str, list[tuple[str, float]]] = {}
    for name, value in trace.items():
        match = PLACE.fullmatch(name)
        if match and name.endswith(RESIDUAL):
            told = f"{match[2]} {match[3]}, {match[5].removesuffix(RESIDUAL).replace('_', '-')}"
            found.setdefault(match[1] or "", []).append((told, float(value[0].float().mean())))
    return found


def _streams(label: str, side: str, lines: list[tuple[str, float]]) -> dict[str, Any]:
    return {
        "kind": "bars", "title": f"Length of the residual stream: {label}{f', {side}' if side else ''}",
        "measure": "mean over the elements", "rows": [[name, value] for name, value in lines],
    }  # fmt: skip


def _table(found: list[Output]) -> dict[str, Any]:
    rows = []
    for one in found:
        values = one.values
        bounded = bool((np.abs(values) <= 1).all())
        rows.append([
            one.name, values.shape[1], _digits(one.sizes.mean()), _digits(values.mean()), _digits(np.abs(values).max()),
            f"{100 * (values == 0).mean():.1f} %", f"{100 * (np.abs(values) > FLAT).mean():.1f} %" if bounded else "–",
        ])  # fmt: skip
    columns = ["place", "units", "size", "mean", "largest", "zero", f"beyond ±{FLAT}"]
    return {"kind": "table", "title": "Layer by layer", "columns": columns, "rows": rows}


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


def _told(table: dict[str, Any]) -> list[str]:
    rows = [[str(cell) for cell in row] for row in [table["columns"], *table["rows"]]]
    wide = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(size) for cell, size in zip(row, wide, strict=True)).rstrip() for row in rows]


def _of_layer(subject: Subject, found: list[Output], layer: int, notes: list[str]) -> Seen:
    chosen = [one for one in found if one.index == layer]
    if not chosen:
        last = max(one.index for one in found if one.index is not None)
        raise SeriatimError("inspect.layer", f"there is no layer {layer}", f"choose from 0 to {last}")
    title = f"What each unit gives: {subject.label}"
    views = []
    for one in chosen:
        width = one.values.shape[1]
        names, values = folded(one.elements, one.values.T)
        kept = np.sort(np.argsort(-one.values.std(axis=0), kind="stable")[:UNITS])  # those that vary most
        units, values = [f"unit {index}" for index in kept.tolist()], values[kept]
        views.append({
            "kind": "signed", "title": f"{title}, {one.name}", "rows": units, "columns": names,
            "values": values.tolist(), "x": "element", "y": "",
            **({"note": f"the {UNITS} units that vary most over the elements, of {width}"} if width > UNITS else {}),
        })  # fmt: skip
    return Seen(title, {one.name: _array(one) for one in chosen}, views, _told(_table(chosen)), notes)
