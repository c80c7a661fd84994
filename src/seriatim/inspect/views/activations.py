"""Outputs of each layer or level, element by element: their size, and for one layer every unit.

The size of a vector is the root of the mean square of its numbers, so that layers of different widths compare. Of a
Transformer also the norm of the residual stream after each part of each block: every part adds to it, and only a norm
makes it shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...core.errors import SeriatimError
from ...report.charts import Bars, Cell, Heatmap, Table, View, format_number, matrix, row
from ..result import NamedArray, Result
from ..subject import Reading, Subject
from ..trace import NAMES, TraceName
from . import view

OUTPUTS = ("embedded", "hidden", "activation")  # the other known names are inside of a layer
RESIDUAL = "_residual"
MAX_COLUMNS = 120  # elements of a chart; of more, neighbors are averaged
MAX_UNITS = 48  # of a layer that are drawn
SATURATED = 0.95  # of a unit between −1 and 1


@dataclass(frozen=True)
class LayerOutput:
    """The output (T,D) of a layer; `index` is None for the input of the first layer."""

    name: str
    side: str
    index: int | None
    values: np.ndarray
    elements: list[str]

    @property
    def sizes(self) -> np.ndarray:
        sizes: np.ndarray = np.sqrt(np.square(self.values).mean(axis=1))
        return sizes

    @property
    def array(self) -> NamedArray:
        units = [f"unit {index}" for index in range(self.values.shape[1])]
        return NamedArray(self.values, {"element": self.elements, "unit": units})


@view("activations", network=True)
def show_activations(
    subject: Subject, *texts: str, layer: int | None = None, target: str | None = None, example: int | None = None
) -> Result:
    """All layers, or the units of one, counted from 0."""
    reading = subject.read(*texts, target=target, example=example)
    trace = subject.run(reading)[1]
    outputs = layer_outputs(trace, reading)
    if not outputs:
        raise subject.unavailable("records no outputs of its layers", "choose another model")
    if layer is not None:
        return show_units(subject, outputs, layer, reading)
    arrays = {output.name: output.array for output in outputs}
    streams: dict[str, list[tuple[str, float]]] = {}
    for name, value in trace.items():
        if name.endswith(RESIDUAL):
            parsed, norms = TraceName.parse(name), value[0].float().numpy()
            arrays[name] = NamedArray(norms, {"element": reading.elements(parsed.side, len(norms))})
            part = parsed.part.removesuffix(RESIDUAL).replace("_", "-")
            label = f"{parsed.kind} {parsed.index}, {part}"
            streams.setdefault(parsed.side, []).append((label, float(norms.mean())))
    title = f"Outputs of each layer: {subject.label}"
    charts: list[View] = []
    for side in dict.fromkeys(output.side for output in outputs):
        group = [output for output in outputs if output.side == side]
        elements, sizes = fold_elements(group[0].elements, np.stack([output.sizes for output in group]))
        charts.append(
            Heatmap(
                title=f"{title}, {side}" if side else title,
                rows=tuple(output.name for output in group),
                columns=tuple(elements),
                values=matrix(sizes),
                x="element",
                low=0,
                note="root mean square of the numbers of a vector",
            )
        )
    for side, bars in streams.items():
        labels, means = zip(*bars, strict=True)
        name = f"Norm of the residual stream: {subject.label}{f', {side}' if side else ''}"
        charts.append(Bars(title=name, labels=labels, values=row(means), x="mean over the elements"))
    return Result(title, arrays, [*charts, figures_table(outputs)], reading.notes)


def layer_outputs(trace: Mapping[str, Tensor], reading: Reading) -> list[LayerOutput]:
    """Returns the outputs from the first to the last layer, those of an encoder before its decoder."""
    outputs = []
    for name, value in trace.items():
        parsed = TraceName.parse(name)
        if value.dim() == 3 and (parsed.part in OUTPUTS or parsed.part not in NAMES):
            part = "input" if parsed.part == "embedded" else "" if parsed.kind else parsed.part
            label = ", ".join(word for word in (parsed.location, part) if word)
            values = value[0].float().numpy()
            elements = reading.elements(parsed.side, len(values))
            outputs.append(LayerOutput(label, parsed.side, parsed.index, values, elements))
    return outputs


def fold_elements(names: list[str], values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns values (…,T) with at most `MAX_COLUMNS` elements: means of neighbors, with the name of the first."""
    starts = np.arange(0, len(names), -(-len(names) // MAX_COLUMNS))
    counts = np.diff([*starts.tolist(), len(names)])
    return [names[start] for start in starts.tolist()], np.add.reduceat(values, starts, axis=-1) / counts


def figures_table(outputs: list[LayerOutput]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for output in outputs:
        values = output.values
        figures = [format_number(float(x)) for x in (output.sizes.mean(), values.mean(), np.abs(values).max())]
        bounded = bool((np.abs(values) <= 1).all())
        saturated = f"{100 * (np.abs(values) > SATURATED).mean():.1f} %" if bounded else "–"
        rows.append((output.name, values.shape[1], *figures, f"{100 * (values == 0).mean():.1f} %", saturated))
    columns = ("layer", "units", "size", "mean", "largest", "zero", f"beyond ±{SATURATED}")
    return Table(title="Layer by layer", columns=columns, rows=tuple(rows))


def show_units(subject: Subject, outputs: list[LayerOutput], layer: int, reading: Reading) -> Result:
    """Returns the units of one layer that vary most over the elements."""
    selected = [output for output in outputs if output.index == layer]
    if not selected:
        last = max(output.index for output in outputs if output.index is not None)
        raise SeriatimError("inspect.layer", f"there is no layer {layer}", f"choose from 0 to {last}")
    title = f"Outputs of each unit: {subject.label}"
    charts: list[View] = []
    for output in selected:
        width = output.values.shape[1]
        elements, values = fold_elements(output.elements, output.values.T)
        units = np.sort(np.argsort(-output.values.std(axis=0), kind="stable")[:MAX_UNITS])
        charts.append(
            Heatmap(
                title=f"{title}, {output.name}",
                rows=tuple(f"unit {unit}" for unit in units.tolist()),
                columns=tuple(elements),
                values=matrix(values[units]),
                x="element",
                diverging=True,
                note=f"the {MAX_UNITS} of {width} units that vary most over the elements" if width > MAX_UNITS else "",
            )
        )
    arrays = {output.name: output.array for output in selected}
    return Result(title, arrays, charts, reading.notes, [figures_table(selected)])
