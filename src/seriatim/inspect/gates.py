"""What gates do over a text: how much is let in, kept and given out at each element.

An LSTM keeps C_t = F ⊙ C_{t−1} + I ⊙ C̃ and gives H_t = O ⊙ tanh(C_t), a GRU keeps H_t = Z ⊙ H_{t−1} + (1 − Z) ⊙ H̃: a
forget gate F or update gate Z near 1 holds on to what was read, one near 0 lets it go. A plain RNN has no gates; of it
the state is shown, and how many units are saturated, where its gradient ends. Units are averaged, drawn in rows, or one
is looked at alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.measures import plain
from ..nn.recurrent import Cell
from . import own
from .reading import Reading
from .rows import aligned
from .seen import Array, Seen
from .subject import Subject

PLACE = re.compile(r"(?:(encoder|decoder)\.)?layer(\d+)\.(?:(forward|backward)\.)?(\w+)")
GATES = ("input", "forget", "output", "reset", "update")
KEEPING = ("forget", "update")
STATES = ("cell", "hidden")
ROWS = 24  # units in a heat map
COLUMNS = 120  # elements in it; more are put together
CLOSED, OPEN = 0.1, 0.9  # a gate below or above is as good as shut or open
FLAT = 0.95  # |tanh| above lets less than a tenth of a gradient through
MAPS = 2  # layers that are drawn unit by unit
CURVES = 4  # elements from which on a curve says more than a table
STRIP = 600  # elements that are written


@dataclass(frozen=True)
class Layer:
    """What one layer did in one direction: each part (T,D)."""

    index: int
    name: str  # "layer 0", "encoder, layer 0, backward"
    names: list[str]  # of the elements that it read
    parts: dict[str, np.ndarray]

    @property
    def gates(self) -> list[str]:
        return [name for name in GATES if name in self.parts]

    @property
    def keeping(self) -> str:
        """The gate that keeps; "" where there is none."""
        return next((name for name in KEEPING if name in self.parts), "")

    def activity(self, name: str) -> np.ndarray:
        """As it is given on: a cell is squashed before it is read."""
        values = self.parts[name]
        return np.tanh(values) if name == "cell" else values

    @property
    def bounded(self) -> bool:
        """Whether its states are between −1 and 1, as all are but those of a relu, which are never below 0."""
        hidden = self.parts["hidden"]
        return bool(self.gates) or bool((np.abs(hidden) <= 1).all() and (hidden < 0).any())


def suits(subject: Subject) -> str:
    if subject.counts:
        return "counts, and has no network"
    return "" if any(isinstance(part, Cell) for part in subject.backbone.modules()) else "keeps no gates"


def look(
    subject: Subject,
    *texts: str,
    layer: int | None = None,
    unit: int | None = None,
    target: str | None = None,
    example: int | None = None,
) -> Seen:
    """All layers, or one, counted from 0; all units, or one of a layer (by default of the first)."""
    reading = subject.read(*texts, target=target, example=example)
    found = layers(subject.trace(reading, (*(f"{name}_gate" for name in GATES), *STATES)), reading)
    wanted = 0 if layer is None and unit is not None else layer
    chosen = [one for one in found if wanted in (None, one.index)]
    if not chosen:
        last = max(one.index for one in found)
        raise SeriatimError("inspect.layer", f"there is no layer {layer}", f"choose from 0 to {last}")
    width = min(one.parts["hidden"].shape[1] for one in chosen)
    if unit is not None and not 0 <= unit < width:
        raise SeriatimError("inspect.unit", f"there is no unit {unit}", f"choose from 0 to {width - 1}")
    arrays = {f"{one.name}, {part}": _array(one, part, unit) for one in chosen for part in one.parts}
    title = f"What the {'gates' if chosen[0].gates else 'states'} do: {subject.label}"
    shown = own.written(subject, texts, reading.names)
    if unit is not None:
        views = [view for one in chosen for view in _of_unit(one, unit, _tokens(one, reading, shown))]
        return Seen(f"{title}, unit {unit}", arrays, views, _told_unit(chosen, unit), reading.notes)
    views = [view for one in chosen for view in _of_layer(one, _tokens(one, reading, shown), subject.label)]
    few = layer is not None or len(chosen) <= MAPS
    for one in chosen if few else ():
        views += _maps(one, _tokens(one, reading, shown), f"{subject.label}, {one.name}")
    table = _table(chosen)
    more = [] if few else ["unit by unit: choose a layer"]
    return Seen(title, arrays, [*views, table], _told(table), [*reading.notes, *more])


def _array(one: Layer, part: str, unit: int | None) -> Array:
    values = one.parts[part]
    units = list(range(values.shape[1])) if unit is None else [unit]
    return Array(values[:, units], (("element", one.names), ("unit", [f"unit {index}" for index in units])))


def _tokens(one: Layer, reading: Reading, shown: list[str]) -> list[str]:
    """As they stand in the text, where it is that which the layer read."""
    return shown if one.names is reading.names else one.names


def layers(trace: Mapping[str, Tensor], reading: Reading) -> list[Layer]:
    """What the trace of one sequence holds of recurrent layers, an encoder before its decoder."""
    found: dict[tuple[str, int, str], dict[str, np.ndarray]] = {}
    for name, values in trace.items():
        match = PLACE.fullmatch(name)
        part = match[4].removesuffix("_gate") if match else ""
        if match and part in GATES + STATES:
            key = match[1] or "", int(match[2]), match[3] or ""
            found.setdefault(key, {})[part] = values[0].float().numpy()
    made = []
    for (side, index, direction), parts in sorted(
        found.items(), key=lambda pair: (pair[0][0] == "decoder", pair[0][1])
    ):
        told = ", ".join(part for part in (side, f"layer {index}", direction) if part)
        names = reading.target.names if side == "decoder" and reading.target is not None else reading.names
        ordered = {part: parts[part] for part in GATES + STATES if part in parts}
        made.append(Layer(index, told, names, ordered))
    return [one for one in made if "hidden" in one.parts]


def _of_layer(one: Layer, tokens: list[str], label: str) -> list[dict[str, Any]]:
    """Averages as curves, and the gate that keeps over the text itself."""
    where = f"{label}, {one.name}"
    views: list[dict[str, Any]] = []
    if len(tokens) >= CURVES:
        series = [[name, _points(values)] for name, values in _averages(one).items()]
        note = {"note": _about(one)} if _about(one) else {}
        views.append(
            {"kind": "lines", "title": f"Averaged over units: {where}", "x": "element", "y": "mean over units",
             "series": series} | note
        )  # fmt: skip
    if len(tokens) <= STRIP:
        shown, values = _shown(one)
        strip = {"kind": "strip", "title": f"{shown}: {where}", "tokens": tokens, "values": values.tolist()}
        views.append(strip)
    return views


def _averages(one: Layer) -> dict[str, np.ndarray]:
    """Over units, at each element."""
    found = {_named(name): one.parts[name].mean(axis=1) for name in one.gates}
    if "cell" in one.parts:
        found["size of tanh(cell)"] = np.abs(one.activity("cell")).mean(axis=1)
    found["size of the state"] = np.abs(one.parts["hidden"]).mean(axis=1)
    if not one.gates:
        found["saturated units" if one.bounded else "silent units"] = _ended(one).mean(axis=1)
    return found


def _ended(one: Layer) -> np.ndarray:
    """Units of a plain RNN that hardly let a gradient through (T,D)."""
    hidden = one.parts["hidden"]
    return np.abs(hidden) > FLAT if one.bounded else hidden <= 0


def _about(one: Layer) -> str:
    if one.gates:
        return ""
    return f"saturated: |h| above {FLAT}" if one.bounded else "silent: at 0, where relu lets nothing through"


def _shown(one: Layer) -> tuple[str, np.ndarray]:
    """What is written over the text: how much is kept, else the size of the state."""
    if one.keeping:
        return f"The {one.keeping} gate, mean over units", one.parts[one.keeping].mean(axis=1)
    return "The size of the state, mean over units", np.abs(one.parts["hidden"]).mean(axis=1)


def _maps(one: Layer, tokens: list[str], where: str) -> list[dict[str, Any]]:
    """Units in rows, those that keep most first; of many, some, evenly spread."""
    by = one.parts[one.keeping] if one.keeping else np.abs(one.parts["hidden"])
    order = np.argsort(-by.mean(axis=0), kind="stable")
    units = order[np.unique(np.linspace(0, len(order) - 1, ROWS).round().astype(int))]
    names = [token if token.strip() else name for token, name in zip(tokens, one.names, strict=True)]  # no blanks
    across = np.array_split(np.arange(len(names)), min(len(names), COLUMNS))
    sorted_by = f"their mean {one.keeping} gate" if one.keeping else "the mean size of their state"
    some = f"{len(units)} of {len(order)} units" if len(units) < len(order) else "all units"
    less = f"; {len(names):,} elements, neighbours put together" if len(across) < len(names) else ""
    grid: dict[str, Any] = {
        "kind": "heats", "rows": [f"unit {unit}" for unit in units], "columns": [names[few[0]] for few in across],
        "x": "element", "y": "unit", "note": f"{some}, by {sorted_by}{less}", "across": 1 if len(across) > 30 else 2,
    }  # fmt: skip
    grid |= {"high": 1.0} if one.bounded else {}

    def folded(part: str) -> list[list[float]]:
        values = one.activity(part)[:, units]  # (T,rows)
        cells: list[list[float]] = np.stack([values[few].mean(axis=0) for few in across], axis=1).tolist()
        return cells

    gates = [[_named(name), folded(name)] for name in one.gates]
    states = [[_named(name), folded(name)] for name in STATES if name in one.parts]
    views = [grid | {"title": f"Gates unit by unit: {where}", "panels": gates}] if gates else []
    return [*views, grid | {"title": f"States unit by unit: {where}", "panels": states}]


def _of_unit(one: Layer, unit: int, tokens: list[str]) -> list[dict[str, Any]]:
    """Its states and gates, each over the text."""
    views: list[dict[str, Any]] = []
    for part in one.parts:
        name = _named(part)
        strip: dict[str, Any] = {"kind": "strip", "title": f"{name[:1].upper()}{name[1:]}: {one.name}, unit {unit}"}
        strip |= {"tokens": tokens, "values": one.activity(part)[:, unit].tolist()}
        ends = {"low": 0, "high": 1} if part in GATES else {"low": -1, "high": 1, "diverging": True}
        views.append(strip | (ends if one.bounded or part in GATES else {}))
    return views


def _named(part: str) -> str:
    return f"{part} gate" if part in GATES else "tanh(cell)" if part == "cell" else "state"


def _points(values: np.ndarray) -> list[list[float]]:
    return [[place, float(value)] for place, value in enumerate(values)]


def _table(chosen: list[Layer]) -> dict[str, Any]:
    """How far gates are from 0 and 1, after Karpathy et al., "Visualizing and understanding recurrent networks"."""
    rows: list[list[Any]] = []
    for one in chosen:
        for name in one.gates:
            values = one.parts[name]
            shares = [float((values < CLOSED).mean()), float((values > OPEN).mean())]
            rows.append([one.name, _named(name), float(values.mean()), *shares])
        if not one.gates:
            hidden = np.abs(one.parts["hidden"])
            rows.append(
                [
                    one.name,
                    "size of the state",
                    float(hidden.mean()),
                    float((hidden < CLOSED).mean()),
                    float(_ended(one).mean()),
                ]
            )
    rows = [[value if isinstance(value, str) else round(value, 4) for value in row] for row in rows]
    above = f"share above {OPEN}"
    if not chosen[0].gates:
        above = f"share saturated (above {FLAT})" if chosen[0].bounded else "share silent (at 0)"
    columns = ["layer", "what", "mean", f"share below {CLOSED}", above]
    return {
        "kind": "table",
        "title": "Gates in figures" if chosen[0].gates else "States in figures",
        "columns": columns,
        "rows": rows,
    }


def _told(table: dict[str, Any]) -> list[str]:
    return aligned([table["columns"], *([*row[:2], *map(plain, row[2:])] for row in table["rows"])], (0, 1))


def _told_unit(chosen: list[Layer], unit: int) -> list[str]:
    """A line for each element."""
    lines = []
    for one in chosen:
        values = [[plain(float(value)) for value in one.activity(part)[:, unit]] for part in one.parts]
        lines += aligned([[one.name, *map(_named, one.parts)], *zip(one.names, *values, strict=True)])
    return lines
