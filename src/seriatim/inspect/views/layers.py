"""The layers of a network, element by element: their outputs, and what each of them would predict (logit lens).

The size of a vector is the root of the mean square of its numbers, so that layers of different widths compare. Of a
Transformer also the norm of the residual stream after each part of each block: every part adds to it, and only a norm
makes it shorter.

The lens reads the residual stream after every block by the model's own head:

    p_l = softmax(head(norm(x_l)))        l = 0: tokens and positions alone; the last: the prediction of the model

nostalgebraist, "Interpreting GPT: the logit lens" (2020). Every block adds to the same stream, so it can be read before
the last one: the next word mostly appears some blocks before the end. A causal model is read for the next token, a
decoder for the next token of the target, and BERT for the token at the element itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.errors import SeriatimError
from ...nn.network import as_float32
from ...report.charts import Bars, Heatmap, Table, View, format_number, matrix, row
from ...tasks.inspection import TokenReadout, check_position
from ..result import NamedArray, Result
from ..subject import Reading, Subject
from ..trace import NAMES, TraceName
from . import view

OUTPUTS = ("embedded", "hidden", "activation")  # the other known names are inside of a layer
RESIDUAL = "_residual"
MAX_COLUMNS = 120  # elements of a chart; of more, neighbors are averaged
MAX_UNITS = 48  # of a layer that are drawn
SATURATED = 0.95  # of a unit between −1 and 1
MAX_ROWS = 24  # elements in a terminal
TOP = 3  # likeliest tokens of an element


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
                rows=[output.name for output in group],
                columns=elements,
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
    rows = []
    for output in outputs:
        values = output.values
        figures = [format_number(float(x)) for x in (output.sizes.mean(), values.mean(), np.abs(values).max())]
        bounded = bool((np.abs(values) <= 1).all())
        saturated = f"{100 * (np.abs(values) > SATURATED).mean():.1f} %" if bounded else "–"
        rows.append((output.name, values.shape[1], *figures, f"{100 * (values == 0).mean():.1f} %", saturated))
    columns = ("layer", "units", "size", "mean", "largest", "zero", f"beyond ±{SATURATED}")
    return Table(title="Layer by layer", columns=columns, rows=rows)


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
                rows=[f"unit {unit}" for unit in units.tolist()],
                columns=elements,
                values=matrix(values[units]),
                x="element",
                diverging=True,
                note=f"the {MAX_UNITS} of {width} units that vary most over the elements" if width > MAX_UNITS else "",
            )
        )
    arrays = {output.name: output.array for output in selected}
    return Result(title, arrays, charts, reading.notes, [figures_table(selected)])


# The logit lens


@view(
    "lens",
    {
        "has no residual stream, which all layers add to": lambda subject: not subject.records("embedded"),
        "does not predict tokens": lambda subject: subject.predictor.token_readout() is None,
        "reads its source after its blocks, not in them": lambda subject: subject.backbone.final_norm() is None,
    },
    network=True,
    trained=True,
)
def show_lens(
    subject: Subject, *texts: str, target: str | None = None, example: int | None = None, position: int | None = None
) -> Result:
    """At all elements, or at one (`position`, counted from 0) with its likeliest tokens."""
    reading = subject.read(*texts, target=target, example=example)
    readout = subject.predictor.token_readout()
    assert readout is not None
    layers, scores = layer_scores(subject, reading, readout)
    elements = list(reading.sequences.values())[-1]
    probabilities = as_float32(torch.stack(scores)).softmax(dim=-1).cpu()  # (L,T,V)
    top = probabilities.topk(min(TOP, probabilities.shape[-1]))
    best, likely = top.indices.numpy(), top.values.numpy()  # (L,T,K)
    token = readout.tokenizer.token
    tokens = [[token(int(index)) for index in line] for line in best[..., 0]]  # (L,T)
    targets = readout.targets(reading.batch).cpu()
    actual = probabilities.gather(2, targets.clamp(min=0).expand(len(layers), -1)[..., None])  # (L,T,1)
    true = torch.where(targets < 0, torch.nan, actual[..., 0]).numpy()
    ranks = torch.where(targets < 0, torch.nan, (probabilities > actual).sum(dim=2).double() + 1).numpy()
    axes = {"layer": layers, "element": elements}
    arrays = {
        "likeliest": NamedArray(likely[..., 0], axes),
        "true": NamedArray(true, axes),
        "rank of the true": NamedArray(ranks, axes),
        "token": NamedArray(np.array(tokens), axes),
    }
    title = f"Logit lens: {subject.label}"
    if position is not None:
        check_position(position, len(elements))
        rows = [
            (name, *(f"{token(int(i))} {p:.3f}" for i, p in zip(best[n, position], likely[n, position], strict=True)))
            for n, name in reversed(list(enumerate(layers)))
        ]
        title = f"{title}, at {elements[position]} ({position})"
        columns = ("layer", *(f"{rank}." for rank in range(1, best.shape[-1] + 1)))
        return Result(title, arrays, [Table(title=title, columns=columns, rows=rows)], reading.notes)
    order = slice(None, None, -1)  # the last layer on top, as in drawings of the model
    about: dict[str, Any] = {"rows": layers[order], "x": "at", "low": 0.0, "high": 1.0}
    names, true_folded = fold_elements(elements, true[order])
    what = "the next token" if readout.predicts_next else "the token there"
    charts: list[View] = [
        Heatmap(
            title=title,
            note="the likeliest token, and its probability",
            columns=elements,
            values=matrix(likely[order, :, 0]),
            texts=tokens[order],
            **about,
        ),
        Heatmap(title=f"Probability of {what}: {subject.label}", columns=names, values=matrix(true_folded), **about),
    ]
    return Result(title, arrays, charts, reading.notes, [first_layers(layers, elements, tokens, likely[..., 0], true)])


def layer_scores(subject: Subject, reading: Reading, readout: TokenReadout) -> tuple[list[str], list[Tensor]]:
    """Returns the names of the layers, the input of the first among them, and the scores (T,V) at each."""
    side = "decoder." if subject.encoder_decoder else ""
    trace = subject.run(reading, (f"{side}embedded", "hidden"))[1]
    hidden = [name for name in trace if name.startswith(f"{side}layer")]
    hidden.sort(key=lambda name: TraceName.parse(name).index or 0)
    device, norm = next(subject.network.parameters()).device, subject.backbone.final_norm()
    with torch.inference_mode():
        scores = [readout.scores(norm(trace[name].to(device)))[0] for name in (f"{side}embedded", *hidden)]
    return ["input", *(f"layer {n}" for n in range(len(hidden)))], scores


def first_layers(
    layers: list[str], elements: list[str], tokens: list[list[str]], likely: np.ndarray, true: np.ndarray
) -> Table:
    """Returns the prediction at each element, and the layer from which on it stays the same."""
    rows = []
    for n, name in enumerate(elements[:MAX_ROWS]):
        column = [line[n] for line in tokens]
        since = next(index for index in range(len(column)) if len(set(column[index:])) == 1)
        actual = None if np.isnan(true[-1, n]) else float(true[-1, n])
        rows.append((name, column[-1], float(likely[-1, n]), actual, layers[since]))
    note = f"{len(elements) - MAX_ROWS} more elements" if len(elements) > MAX_ROWS else ""
    columns = ("at", "prediction", "probability", "of the true token", "since")
    return Table(title="Predictions", note=note, columns=columns, rows=rows)
