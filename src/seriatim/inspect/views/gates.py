"""Gates of recurrent layers over a text: how much is written, kept and output at each element.

    LSTM  C_t = F ⊙ C_{t−1} + I ⊙ C̃,  H_t = O ⊙ tanh(C_t)        GRU  H_t = Z ⊙ H_{t−1} + (1 − Z) ⊙ H̃

A forget gate F or update gate Z near 1 keeps what was read, one near 0 forgets it. A plain RNN has no gates: its state
is shown, and the share of saturated units, which pass no gradient on. Units are averaged, drawn in rows, or one alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from ...core.errors import SeriatimError
from ...report.charts import HeatmapGrid, Lines, Series, Table, TokenStrip, View, matrix, row
from ...tasks.inspection import check_position
from ..catalog import Gates
from ..result import Arrays, Drawing, NamedArray
from ..subject import InspectedInput, Subject
from ..trace import TraceName
from . import Request, implement

GATES = ("input", "forget", "output", "reset", "update")
KEEPING = ("forget", "update")
STATES = ("cell", "hidden")
MAX_UNITS = 24  # rows of a heatmap
MAX_COLUMNS = 120  # elements of a heatmap; of more, neighbors are averaged
CLOSED, OPEN = 0.1, 0.9  # Karpathy et al., "Visualizing and understanding recurrent networks" (2015)
SATURATED = 0.95  # |tanh| above passes less than a tenth of a gradient
MAX_MAPS = 2  # layers that are drawn unit by unit
MIN_CURVE = 4  # elements below which a curve shows less than the table
MAX_STRIP = 600  # elements of a text that is drawn


@dataclass(frozen=True)
class Layer:
    """One layer in one direction: its gates and states (T,D) by name."""

    index: int
    name: str  # "encoder, layer 0, backward"
    elements: list[str]
    first_sequence: bool  # whether it reads the first sequence, not the target
    bounded: bool  # whether states are between −1 and 1: not after a relu
    parts: dict[str, np.ndarray]

    def array_name(self, part: str) -> str:
        return f"{self.name}, {part}"

    def parts_of(self, arrays: Mapping[str, NamedArray]) -> dict[str, np.ndarray]:
        """Returns its gates and states among the arrays of the view."""
        names = [part for part in GATES + STATES if self.array_name(part) in arrays]
        return {part: arrays[self.array_name(part)].values for part in names}

    @property
    def gates(self) -> list[str]:
        return [name for name in GATES if name in self.parts]

    @property
    def keeping(self) -> str:
        """The gate that keeps the state, "" if there is none."""
        return next((name for name in KEEPING if name in self.parts), "")

    def values(self, part: str) -> np.ndarray:
        """Returns a part as it is output: a cell passes through tanh."""
        return np.tanh(self.parts[part]) if part == "cell" else self.parts[part]

    @property
    def saturated(self) -> np.ndarray:
        """Whether each unit (T,D) of a plain RNN is saturated, so that it passes on less than a tenth of a gradient."""
        hidden = self.parts["hidden"]
        return np.abs(hidden) > SATURATED if self.bounded else hidden <= 0


def lacks_recurrence(subject: Subject) -> bool:
    """Returns whether no layer has gates, nor records a state and nothing else, as a plain RNN does."""
    traits = subject.settings.traits
    carries = traits.carries_state or traits.directions == 2 or subject.settings.encoder_decoder
    layers = Counter(name.rpartition(".")[0] for name in subject.trace_names)
    for name in subject.trace_names:
        parsed = TraceName.parse(name)
        plain = parsed.part == "hidden" and parsed.kind == "layer" and layers[name.rpartition(".")[0]] == 1
        if parsed.part.endswith("_gate") or (plain and carries):
            return False
    return True


@dataclass(frozen=True)
class GateFacts:
    """What the charts need besides the arrays.

    Args:
        label: The name of the model.
        layers: The layers without their values.
        tokens: For each layer its elements as they are written.
        unit: The unit that is shown, None for all.
        every_layer: Whether no layer was chosen.
    """

    label: str
    layers: list[Layer]
    tokens: list[list[str]]
    unit: int | None
    every_layer: bool


def gate_arrays(subject: Subject, request: Request[Gates]) -> Arrays[GateFacts]:
    """Returns the gates and states (T,D) of each layer, or those (T,1) of one unit."""
    options = request.options
    reading = subject.read(*request.texts, target=options.target, example=options.example)
    trace = subject.run(reading, (*(f"{name}_gate" for name in GATES), *STATES))[1]
    layers = read_layers(trace, reading)
    unit = options.unit
    number = 0 if options.layer is None and unit is not None else options.layer
    selected = [recurrent for recurrent in layers if number in (None, recurrent.index)]
    if not selected:
        last = max(recurrent.index for recurrent in layers)
        raise SeriatimError("inspect.layer", f"there is no layer {options.layer}", f"choose from 0 to {last}")
    if unit is not None:
        check_position(unit, min(recurrent.parts["hidden"].shape[1] for recurrent in selected), "unit")
    written = subject.written_elements(reading) if subject.trained else reading.names
    arrays: dict[str, NamedArray] = {}
    for recurrent in selected:
        for part, values in recurrent.parts.items():
            units = list(range(values.shape[1])) if unit is None else [unit]
            axes = {"element": recurrent.elements, "unit": [f"unit {index}" for index in units]}
            shown = values if unit is None else values[:, [unit]]
            arrays[recurrent.array_name(part)] = NamedArray(shown, axes)
    facts = GateFacts(
        label=subject.label,
        layers=[replace(recurrent, parts={}) for recurrent in selected],
        tokens=[written if recurrent.first_sequence else recurrent.elements for recurrent in selected],
        unit=unit,
        every_layer=options.layer is None,
    )
    title = f"{'Gates' if selected[0].gates else 'States'}: {subject.label}"
    notes = list(reading.notes)
    if unit is None and options.layer is None and len(selected) > MAX_MAPS:
        notes.append("choose a layer to see its units: --layer")
    return Arrays(title if unit is None else f"{title}, unit {unit}", arrays, facts, notes)


def gate_charts(arrays: Arrays[GateFacts]) -> Drawing:
    """Returns means over units and the units of each layer; or one unit over the text."""
    facts, unit = arrays.facts, arrays.facts.unit
    layers = [replace(layer, parts=layer.parts_of(arrays)) for layer in facts.layers]
    pairs = list(zip(layers, facts.tokens, strict=True))
    if unit is not None:
        strips = [strip for layer, tokens in pairs for strip in unit_strips(layer, unit, tokens)]
        return Drawing(strips, [unit_table(layer, unit) for layer in layers])
    charts = [chart for layer, tokens in pairs for chart in layer_charts(layer, tokens, facts.label)]
    if not facts.every_layer or len(layers) <= MAX_MAPS:
        for layer, tokens in pairs:
            charts += unit_maps(layer, tokens, f"{facts.label}, {layer.name}")
    return Drawing([*charts, figures_table(layers)])


implement(Gates, gate_arrays, gate_charts, {"has no recurrent layers": lacks_recurrence}, network=True)


def read_layers(trace: Mapping[str, Tensor], reading: InspectedInput) -> list[Layer]:
    """Returns the recurrent layers of a trace, the encoder's before the decoder's."""
    grouped: dict[tuple[bool, int, str], dict[str, np.ndarray]] = {}
    names: dict[tuple[bool, int, str], TraceName] = {}
    for name, values in trace.items():
        parsed = TraceName.parse(name)
        part = parsed.part.removesuffix("_gate")
        if parsed.index is not None and part in GATES + STATES:
            key = (parsed.side == "decoder", parsed.index, parsed.direction)
            grouped.setdefault(key, {})[part] = values[0].float().numpy()
            names[key] = parsed
    layers = []
    for key in sorted(grouped, key=lambda key: key[:2]):
        parts = {part: grouped[key][part] for part in GATES + STATES if part in grouped[key]}
        if "hidden" in parts:
            elements = reading.elements(names[key].side, len(parts["hidden"]))
            hidden = parts["hidden"]
            gated = any(part in GATES for part in parts)
            bounded = gated or bool((np.abs(hidden) <= 1).all() and (hidden < 0).any())
            layers.append(Layer(key[1], names[key].location, elements, not key[0], bounded, parts))
    return layers


def layer_charts(layer: Layer, tokens: list[str], label: str) -> list[View]:
    """Returns means over units as curves, and the keeping gate over the text."""
    where = f"{label}, {layer.name}"
    charts: list[View] = []
    if len(tokens) >= MIN_CURVE:
        means = {describe_part(name): layer.parts[name].mean(axis=1) for name in layer.gates}
        if "cell" in layer.parts:
            means["|tanh(cell)|"] = np.abs(layer.values("cell")).mean(axis=1)
        means["|state|"] = np.abs(layer.parts["hidden"]).mean(axis=1)
        note = ""
        if not layer.gates:
            name = "saturated units" if layer.bounded else "silent units"
            means[name] = layer.saturated.mean(axis=1)
            note = f"saturated: |h| above {SATURATED}" if layer.bounded else "silent: at 0, where relu has no gradient"
        positions = range(len(tokens))
        charts.append(
            Lines(
                title=f"Mean over units: {where}",
                note=note,
                x="element",
                y="mean over units",
                series=[Series(name, positions, row(values)) for name, values in means.items()],
            )
        )
    if len(tokens) <= MAX_STRIP:
        keeping = layer.keeping
        values = layer.parts[keeping] if keeping else np.abs(layer.parts["hidden"])
        name = f"{keeping.capitalize()} gate" if keeping else "Size of the state"
        charts.append(
            TokenStrip(
                title=f"{name}, mean over units: {where}",
                tokens=tokens,
                values=row(values.mean(axis=1)),
                label="mean",
                low=0,
            )
        )
    return charts


def unit_maps(layer: Layer, tokens: list[str], where: str) -> list[View]:
    """Returns heatmaps with units as rows, sorted by how much they keep; of many units evenly spaced ones."""
    ranked = layer.parts[layer.keeping] if layer.keeping else np.abs(layer.parts["hidden"])
    order = np.argsort(-ranked.mean(axis=0), kind="stable")
    units = order[np.unique(np.linspace(0, len(order) - 1, MAX_UNITS).round().astype(int))]
    names = [token if token.strip() else name for token, name in zip(tokens, layer.elements, strict=True)]
    columns = np.array_split(np.arange(len(names)), min(len(names), MAX_COLUMNS))
    count = f"{len(units)} of {len(order)} units" if len(units) < len(order) else "all units"
    ranking = f"their mean {layer.keeping} gate" if layer.keeping else "the mean size of their state"
    merged = f"; {len(names):,} elements, neighbors averaged" if len(columns) < len(names) else ""
    about: dict[str, Any] = {
        "rows": [f"unit {unit}" for unit in units],
        "columns": [names[positions[0]] for positions in columns],
        "x": "element",
        "y": "unit",
        "note": f"{count}, by {ranking}{merged}",
        "per_row": 1 if len(columns) > 30 else 2,
    }

    def folded(part: str) -> np.ndarray:
        values = layer.values(part)[:, units]  # (T,rows)
        return np.stack([values[positions].mean(axis=0) for positions in columns], axis=1)

    charts: list[View] = []
    if layer.gates:
        panels = {describe_part(name): matrix(folded(name)) for name in layer.gates}
        charts.append(HeatmapGrid(title=f"Gates by unit: {where}", panels=panels, low=0, high=1, **about))
    panels = {describe_part(name): matrix(folded(name)) for name in STATES if name in layer.parts}
    ends: dict[str, Any] = {"low": -1, "high": 1, "diverging": True} if layer.bounded else {}
    charts.append(HeatmapGrid(title=f"States by unit: {where}", panels=panels, **ends, **about))
    return charts


def unit_strips(layer: Layer, unit: int, tokens: list[str]) -> list[View]:
    """Returns the gates and states (T,1) of one unit over the text."""
    charts: list[View] = []
    for part in layer.parts:
        name = describe_part(part)
        ends: dict[str, Any] = {"low": -1, "high": 1, "diverging": True} if layer.bounded else {}
        ends = {"low": 0, "high": 1} if part in GATES else ends
        charts.append(
            TokenStrip(
                title=f"{name[:1].upper()}{name[1:]}: {layer.name}, unit {unit}",
                tokens=tokens,
                values=row(layer.values(part)[:, 0]),
                label=name,
                **ends,
            )
        )
    return charts


def unit_table(layer: Layer, unit: int) -> Table:
    columns = ("element", *map(describe_part, layer.parts))
    numbers = (layer.values(part)[:, 0].tolist() for part in layer.parts)
    rows = list(zip(layer.elements, *numbers, strict=True))
    return Table(title=f"{layer.name}, unit {unit}", columns=columns, rows=rows)


def describe_part(part: str) -> str:
    return f"{part} gate" if part in GATES else "tanh(cell)" if part == "cell" else "state"


def figures_table(layers: list[Layer]) -> Table:
    """Returns how often gates are nearly closed or open; of plain RNNs the size of the state."""
    rows = []
    for layer in layers:
        for name in layer.gates:
            values = layer.parts[name]
            shares = float((values < CLOSED).mean()), float((values > OPEN).mean())
            rows.append((layer.name, describe_part(name), float(values.mean()), *shares))
        if not layer.gates:
            hidden = np.abs(layer.parts["hidden"])
            shares = float((hidden < CLOSED).mean()), float(layer.saturated.mean())
            rows.append((layer.name, "size of the state", float(hidden.mean()), *shares))
    above = f"share above {OPEN}"
    if not layers[0].gates:
        above = f"share saturated (above {SATURATED})" if layers[0].bounded else "share silent (at 0)"
    columns = ("layer", "part", "mean", f"share below {CLOSED}", above)
    return Table(title="Gates" if layers[0].gates else "States", columns=columns, rows=rows)
