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
from ...core.text import format_number
from ...nn.network import as_float32
from ...report.charts import Bars, Heatmap, Table, View, matrix, row
from ...tasks.inspection import TokenReadout, check_position
from ..catalog import Activations, Lens
from ..result import Arrays, Drawing, NamedArray
from ..subject import InspectedInput, Subject
from ..trace import NAMES, TraceName
from . import Request, implement

OUTPUTS = ("embedded", "hidden", "activation")  # the other known names are inside of a layer
RESIDUAL = "_residual"
MAX_COLUMNS = 120  # elements of a chart; of more, neighbors are averaged
MAX_UNITS = 48  # of a layer that are drawn
SATURATED = 0.95  # of a unit between −1 and 1
MAX_ROWS = 24  # elements in a terminal
TOP = 3  # likeliest tokens of an element


@dataclass(frozen=True)
class LayerFacts:
    """A layer whose output is the array of this name; `index` is None for the input of the first layer."""

    name: str
    side: str
    index: int | None


@dataclass(frozen=True)
class ActivationFacts:
    """What the charts need besides the arrays.

    Args:
        label: The name of the model.
        layers: The layers from the first to the last.
        streams: For each side, the label and the array of the norm of the residual stream after each part.
        units: Whether the units of one layer are shown.
    """

    label: str
    layers: list[LayerFacts]
    streams: dict[str, list[tuple[str, str]]]
    units: bool


def activation_arrays(subject: Subject, request: Request[Activations]) -> Arrays[ActivationFacts]:
    """Returns the outputs (T,D) of all layers, and the norms (T,) of the residual stream; or the outputs of one."""
    options = request.options
    reading = subject.read(*request.texts, target=options.target, example=options.example)
    trace = subject.run(reading)[1]
    outputs = layer_outputs(trace, reading)
    if not outputs:
        raise subject.unavailable("records no outputs of its layers", "choose another model")
    if options.layer is not None:
        last = max((layer.index for layer, _ in outputs if layer.index is not None), default=-1)
        outputs = [output for output in outputs if output[0].index == options.layer]
        if not outputs:
            remedy = "omit --layer" if last < 0 else f"choose from 0 to {last}"
            raise SeriatimError("inspect.layer", f"there is no layer {options.layer}", remedy)
    arrays = {layer.name: array for layer, array in outputs}
    streams: dict[str, list[tuple[str, str]]] = {}
    for name, value in trace.items():
        if name.endswith(RESIDUAL) and options.layer is None:
            parsed, norms = TraceName.parse(name), value[0].float().numpy()
            arrays[name] = NamedArray(norms, {"element": reading.elements(parsed.side, len(norms))})
            part = parsed.part.removesuffix(RESIDUAL).replace("_", "-")
            streams.setdefault(parsed.side, []).append((f"{parsed.kind} {parsed.index}, {part}", name))
    facts = ActivationFacts(subject.label, [layer for layer, _ in outputs], streams, options.layer is not None)
    title = f"Outputs of each {'unit' if facts.units else 'layer'}: {subject.label}"
    return Arrays(title, arrays, facts, reading.notes)


def layer_outputs(trace: Mapping[str, Tensor], reading: InspectedInput) -> list[tuple[LayerFacts, NamedArray]]:
    """Returns the layers and their outputs from the first to the last, an encoder before its decoder."""
    outputs = []
    for name, value in trace.items():
        parsed = TraceName.parse(name)
        if value.dim() == 3 and (parsed.part in OUTPUTS or parsed.part not in NAMES):
            part = "input" if parsed.part == "embedded" else "" if parsed.kind else parsed.part
            label = ", ".join(word for word in (parsed.location, part) if word)
            values = value[0].float().numpy()
            axes = {
                "element": reading.elements(parsed.side, len(values)),
                "unit": [f"unit {index}" for index in range(values.shape[1])],
            }
            outputs.append((LayerFacts(label, parsed.side, parsed.index), NamedArray(values, axes)))
    return outputs


def activation_charts(arrays: Arrays[ActivationFacts]) -> Drawing:
    """Returns the sizes of the vectors by layer and element, and the residual stream; or the units of one layer."""
    facts = arrays.facts
    table = figures_table({layer.name: arrays[layer.name].values for layer in facts.layers})
    if facts.units:
        return Drawing([unit_chart(f"{arrays.title}, {layer.name}", arrays[layer.name]) for layer in facts.layers],
                       [table])  # fmt: skip
    charts: list[View] = []
    for side in dict.fromkeys(layer.side for layer in facts.layers):
        group = [layer.name for layer in facts.layers if layer.side == side]
        values = np.stack([vector_sizes(arrays[name].values) for name in group])
        elements, sizes = fold_elements(list(arrays[group[0]].axes["element"]), values)
        charts.append(
            Heatmap(
                title=f"{arrays.title}, {side}" if side else arrays.title,
                rows=group,
                columns=elements,
                values=matrix(sizes),
                x="element",
                low=0,
                note="root mean square of the numbers of a vector",
            )
        )
    for side, bars in facts.streams.items():
        labels = [label for label, _ in bars]
        means = [float(arrays[name].values.mean()) for _, name in bars]
        title = f"Norm of the residual stream: {facts.label}{f', {side}' if side else ''}"
        charts.append(Bars(title=title, labels=labels, values=row(means), x="mean over the elements"))
    return Drawing([*charts, table])


implement(Activations, activation_arrays, activation_charts, network=True)


def vector_sizes(values: np.ndarray) -> np.ndarray:
    """Returns the root mean square of the numbers of each vector of (T,D)."""
    sizes: np.ndarray = np.sqrt(np.square(values).mean(axis=1))
    return sizes


def fold_elements(names: list[str], values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns values (…,T) with at most `MAX_COLUMNS` elements: means of neighbors, with the name of the first."""
    starts = np.arange(0, len(names), -(-len(names) // MAX_COLUMNS))
    counts = np.diff([*starts.tolist(), len(names)])
    return [names[start] for start in starts.tolist()], np.add.reduceat(values, starts, axis=-1) / counts


def figures_table(layers: Mapping[str, np.ndarray]) -> Table:
    """Returns figures of the outputs (T,D) of each layer."""
    rows = []
    for name, values in layers.items():
        figures = (vector_sizes(values).mean(), values.mean(), np.abs(values).max())
        bounded = bool((np.abs(values) <= 1).all())
        saturated = f"{100 * (np.abs(values) > SATURATED).mean():.1f} %" if bounded else "–"
        zero = f"{100 * (values == 0).mean():.1f} %"
        rows.append((name, values.shape[1], *(format_number(float(x)) for x in figures), zero, saturated))
    columns = ("layer", "units", "size", "mean", "largest", "zero", f"beyond ±{SATURATED}")
    return Table(title="Layer by layer", columns=columns, rows=rows)


def unit_chart(title: str, array: NamedArray) -> Heatmap:
    """Returns the units of one layer that vary most over the elements."""
    width = array.values.shape[1]
    elements, values = fold_elements(list(array.axes["element"]), array.values.T)
    units = np.sort(np.argsort(-array.values.std(axis=0), kind="stable")[:MAX_UNITS])
    return Heatmap(
        title=title,
        rows=[f"unit {unit}" for unit in units.tolist()],
        columns=elements,
        values=matrix(values[units]),
        x="element",
        diverging=True,
        note=f"the {MAX_UNITS} of {width} units that vary most over the elements" if width > MAX_UNITS else "",
    )


# The logit lens


@dataclass(frozen=True)
class LensFacts:
    """What the charts need besides the arrays.

    Args:
        label: The name of the model.
        predicts_next: Whether the next token is predicted, not the one at the element.
        position: The element that is shown, None for all.
    """

    label: str
    predicts_next: bool
    position: int | None


def lens_arrays(subject: Subject, request: Request[Lens]) -> Arrays[LensFacts]:
    """Returns by layer and element the likeliest token, its probability, and probability and rank of the true one."""
    options, position = request.options, request.options.position
    reading = subject.read(*request.texts, target=options.target, example=options.example)
    readout = subject.predictor.token_readout()
    assert readout is not None
    layers, scores = layer_scores(subject, reading, readout)
    elements = list(reading.sequences.values())[-1]
    probabilities = as_float32(torch.stack(scores)).softmax(dim=-1).cpu()  # (L,T,V)
    top = probabilities.topk(min(TOP, probabilities.shape[-1]))
    best, likely = top.indices.numpy(), top.values.numpy()  # (L,T,K)
    token = readout.tokenizer.token
    targets = readout.targets(reading.batch).cpu()
    actual = probabilities.gather(2, targets.clamp(min=0).expand(len(layers), -1)[..., None])  # (L,T,1)
    true = torch.where(targets < 0, torch.nan, actual[..., 0]).numpy()
    ranks = torch.where(targets < 0, torch.nan, (probabilities > actual).sum(dim=2).double() + 1).numpy()
    axes = {"layer": layers, "element": elements}
    arrays = {
        "likeliest": NamedArray(likely[..., 0], axes),
        "true": NamedArray(true, axes),
        "rank of the true": NamedArray(ranks, axes),
        "token": NamedArray(np.array([[token(int(index)) for index in line] for line in best[..., 0]]), axes),
    }
    title = f"Logit lens: {subject.label}"
    if position is not None:
        check_position(position, len(elements))
        title = f"{title}, at {elements[position]} ({position})"
        ranked = {"layer": layers, "rank": [f"{rank}." for rank in range(1, best.shape[-1] + 1)]}
        tokens = [[token(int(index)) for index in line] for line in best[:, position]]
        arrays["candidates"] = NamedArray(np.array(tokens), ranked)
        arrays["candidate probabilities"] = NamedArray(likely[:, position], ranked)
    return Arrays(title, arrays, LensFacts(subject.label, readout.predicts_next, position), reading.notes)


def lens_charts(arrays: Arrays[LensFacts]) -> Drawing:
    """Returns the predictions of the layers at all elements, or the likeliest tokens at one."""
    if arrays.facts.position is not None:
        names, values = arrays["candidates"], arrays["candidate probabilities"].values
        rows = [
            (layer, *(f"{name} {value:.3f}" for name, value in zip(*pair, strict=True)))
            for layer, *pair in zip(names.axes["layer"], names.values, values, strict=True)
        ]
        ranks = ("layer", *names.axes["rank"])
        return Drawing([Table(title=arrays.title, columns=ranks, rows=rows[::-1])])
    likely, true = arrays["likeliest"].values, arrays["true"].values
    layers, elements = (list(labels) for labels in arrays["token"].axes.values())
    tokens = arrays["token"].values.tolist()
    order = slice(None, None, -1)  # the last layer on top, as in drawings of the model
    about: dict[str, Any] = {"rows": layers[order], "x": "at", "low": 0.0, "high": 1.0}
    columns, true_folded = fold_elements(elements, true[order])
    predicted = "the next token" if arrays.facts.predicts_next else "the token there"
    charts: list[View] = [
        Heatmap(
            title=arrays.title,
            note="the likeliest token, and its probability",
            columns=elements,
            values=matrix(likely[order]),
            texts=tokens[order],
            **about,
        ),
        Heatmap(
            title=f"Probability of {predicted}: {arrays.facts.label}",
            columns=columns,
            values=matrix(true_folded),
            **about,
        ),
    ]
    return Drawing(charts, [first_layers(layers, elements, tokens, likely, true)])


implement(
    Lens,
    lens_arrays,
    lens_charts,
    {
        "has no residual stream, which all layers add to": lambda subject: not subject.records("embedded"),
        "does not predict tokens": lambda subject: subject.predictor.token_readout() is None,
        "reads its source after its blocks, not in them": lambda subject: subject.backbone.final_norm() is None,
    },
    network=True,
    trained=True,
)


def layer_scores(subject: Subject, reading: InspectedInput, readout: TokenReadout) -> tuple[list[str], list[Tensor]]:
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
    """Returns the prediction at each element, and the first layer from which it stays the same."""
    rows = []
    for n, name in enumerate(elements[:MAX_ROWS]):
        column = [line[n] for line in tokens]
        since = next(index for index in range(len(column)) if len(set(column[index:])) == 1)
        actual = None if np.isnan(true[-1, n]) else float(true[-1, n])
        rows.append((name, column[-1], float(likely[-1, n]), actual, layers[since]))
    note = f"{len(elements) - MAX_ROWS} more elements" if len(elements) > MAX_ROWS else ""
    columns = ("at", "prediction", "probability", "of the true token", "since")
    return Table(title="Predictions", note=note, columns=columns, rows=rows)
