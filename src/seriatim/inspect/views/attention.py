"""Attention weights: of every head, as alignments of two sequences, and their entropy.

    α = softmax(q kᵀ / √d)    H = −Σ_j α_j log₂ α_j    2^H: the number of equally weighted elements    Σ_j α_j |i − j|

A row of weights sums to one over the elements that may be attended to, and is zero on padding and, in a causal model,
on later elements. An encoder–decoder has three parts: encoder and decoder attend to their own sequence, and the decoder
(`cross`) to the source. With `generate` the model continues the text, with the weights of each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from ...core.errors import SeriatimError, did_you_mean
from ...core.text import format_number
from ...report.charts import Cell, Heatmap, HeatmapGrid, Table, View, matrix
from ...tasks.inspection import Alignment, ImageAttention, check_position
from ..catalog import AlignmentOptions, Attention, Entropy
from ..result import Arrays, Drawing, NamedArray
from ..subject import InspectedInput, Subject
from ..trace import TraceName
from . import Brief, Request, implement, is_long, own_text_brief

PARTS = ("cross", "encoder", "decoder")  # of an encoder–decoder; the first that it has is the default
MAX_CELLS = 120  # on a side of a heatmap
MAX_PER_ROW = 16  # heads beside each other
MAX_ROWS = 40  # of a table in a terminal
MAX_HEADS = 24  # all shown in a report; of more, the heads of the last layer


@dataclass(frozen=True)
class Weights:
    """The attention weights of one part of a network.

    Args:
        part: One of `PARTS`, "" for a network over one sequence.
        values: (L,H,T,S).
        queries: The names of the elements that attend.
        keys: The names of the elements they attend to.
        first_layer: The number of the first layer.
    """

    part: str
    values: np.ndarray
    queries: list[str]
    keys: list[str]
    first_layer: int = 0

    @property
    def layers(self) -> list[str]:
        return [f"layer {self.first_layer + index}" for index in range(len(self.values))]

    @property
    def heads(self) -> list[str]:
        return [f"head {index}" for index in range(self.values.shape[1])]

    @property
    def causal(self) -> bool:
        """Whether no element attends to a later one."""
        return self.part != "cross" and len(self.queries) > 1 and not np.triu(self.values, 1).any()


def attention_parts(subject: Subject) -> list[str]:
    """Returns the parts of a network that have attention: [""], some of `PARTS`, or none."""
    names = [TraceName.parse(name) for name in subject.trace_names]
    sides = {name.side for name in names if name.part == "attention"}
    if not subject.encoder_decoder:
        return [""] if "" in sides else []
    cross = ["cross"] if any(name.part == "cross_attention" for name in names) else []
    return cross + [part for part in PARTS if part in sides]


def attends_to_image(subject: Subject) -> bool:
    """Returns whether the words of a target attend to the cells of an image."""
    if not subject.trained or not subject.encoder_decoder:
        return False
    return subject.predictor.task.modality == "image" and "alignment" in subject.trace_names


def lacks_attention(subject: Subject) -> bool:
    return not attention_parts(subject) and not attends_to_image(subject)


@dataclass(frozen=True)
class ImageFacts:
    """The image (H,W,C) of uint8 that the words of a caption attend to."""

    image: np.ndarray


def attention_arrays(subject: Subject, request: Request[Attention]) -> Arrays[ImageFacts | None]:
    """Returns the weights (L,H,T,S) of the chosen layers and heads, or of words over an image."""
    o = request.options
    if attends_to_image(subject) and o.layer is o.head is o.part is o.generate is None:
        return image_attention_arrays(subject, subject.read(*request.texts, target=o.target, example=o.example))
    reading, weights = read_weights(subject, request.texts, o.layer, o.part, o.target, o.example, o.generate)
    count = weights.values.shape[1]
    heads = list(range(count)) if o.head is None else [check_position(o.head, count, "head")]
    axes = {
        "layer": weights.layers,
        "head": [f"head {index}" for index in heads],
        "query": weights.queries,
        "key": weights.keys,
    }
    title = f"Attention: {subject.label}{f', {weights.part}' if weights.part else ''}"
    arrays = {"attention": NamedArray(weights.values[:, heads], axes)}
    return Arrays(title, arrays, None, reading.notes)


def attention_charts(arrays: Arrays[ImageFacts | None]) -> Drawing:
    """Returns a heatmap of each head, or the image with the weights of each word."""
    facts = arrays.facts
    if facts is not None:
        return image_attention_charts(arrays, facts.image)
    values = arrays["attention"].values
    layers, heads, queries, keys = (list(labels) for labels in arrays["attention"].axes.values())
    rows, columns, folded = fold_weights(queries, keys, values)
    panels = {
        f"{layer}, {head}": matrix(folded[i, j]) for i, layer in enumerate(layers) for j, head in enumerate(heads)
    }
    shape = f"{len(queries)} × {len(keys)} elements, neighbors merged"
    about: dict[str, Any] = {
        "note": "; ".join(arrays.notes if folded.size == values.size else [*arrays.notes, shape]),
        "rows": rows,
        "columns": columns,
        "x": "attended to",
        "y": "attends",
        "low": 0.0,
        "high": 1.0,
    }
    chart: View
    if len(panels) == 1:
        name, cells = next(iter(panels.items()))
        chart = Heatmap(title=f"{arrays.title}, {name}", values=cells, **about)
    else:
        aligned = 1 < len(heads) <= MAX_PER_ROW and len(layers) > 1  # a row of panels per layer
        chart = HeatmapGrid(title=arrays.title, panels=panels, per_row=len(heads) if aligned else None, **about)
    averaged = len(layers) * len(heads)
    note = f"mean over {averaged} heads" if averaged > 1 else ""
    return Drawing([chart], [strongest_table(queries, keys, values.mean(axis=(0, 1)), note)])


def image_attention_arrays(subject: Subject, reading: InspectedInput) -> Arrays[ImageFacts | None]:
    """Returns for each word of a caption its weights (words, rows, columns) over the cells of the image."""
    attention = subject.predictor.image_attention(reading.encoded, reading.item)
    if attention is None:
        raise subject.unavailable("has no attention over images", "name another run")
    rows, columns = attention.grid
    axes = {
        "word": attention.words,
        "row": [str(row) for row in range(rows)],
        "column": [str(column) for column in range(columns)],
    }
    arrays = {"attention": NamedArray(attention.weights.reshape(len(attention.words), rows, columns), axes)}
    title = f"Attention of each word to the image: {subject.label}"
    return Arrays(title, arrays, ImageFacts(attention.image), reading.notes)


def image_attention_charts(arrays: Arrays[object], image: np.ndarray) -> Drawing:
    array = arrays["attention"]
    words = list(array.axes["word"])
    rows, columns = array.values.shape[1:]
    weights = array.values.reshape(len(words), rows * columns)
    cells = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    chart = ImageAttention(image, (rows, columns), words, weights).chart(arrays.title)
    return Drawing([chart], [strongest_table(words, cells, weights, "row and column of a cell")])


def attention_brief(subject: Subject) -> Brief | None:
    """Returns the own text, and the last layer if there are many heads; None of long examples and of images.

    The views of a task show the attention over an image beside its captions.
    """
    if is_long(subject) or (subject.predictor.task.modality == "image" and subject.encoder_decoder):
        return None
    last = max(TraceName.parse(location).index or 0 for location in subject.trace_names)
    heads = (last + 1) * getattr(subject.settings, "heads", 1)
    own = own_text_brief(subject)
    return replace(own, options={"layer": last if heads > MAX_HEADS else None})


implement(
    Attention,
    attention_arrays,
    attention_charts,
    {"has no attention between the elements of a sequence": lacks_attention},
    network=True,
    brief=attention_brief,
)


def read_weights(
    subject: Subject,
    texts: Sequence[str],
    layer: int | None = None,
    part: str | None = None,
    target: str | None = None,
    example: int | None = None,
    generate: int | None = None,
) -> tuple[InspectedInput, Weights]:
    """Returns what is read, and the weights of one part of the network: of all layers, or of one."""
    name = choose_part(subject, part)
    kind = "cross_attention" if name == "cross" else "attention"
    side = {"": "", "encoder": "encoder", "decoder": "decoder", "cross": "decoder"}[name]
    prefix = f"{side}." if side else ""
    names = [kind] if layer is None else [f"{prefix}layer{layer}.{kind}"]
    trace: Mapping[str, Tensor]
    if generate is not None:
        if target is not None or example is not None or len(texts) != 1:
            raise SeriatimError("inspect.generate", "--generate continues one text", "pass a text alone")
        reading, trace = subject.generate(texts[0], generate, names)
    else:
        reading = subject.read(*texts, target=target, example=example)
        trace = subject.run(reading, names)[1]
    by_layer = {}
    for location, value in trace.items():
        parsed = TraceName.parse(location)
        if parsed.side == side and parsed.part == kind and parsed.index is not None:
            by_layer[parsed.index] = value[0].float().numpy()
    if not by_layer:
        layers = [TraceName.parse(name) for name in subject.trace_names]
        check_position(layer or 0, sum(name.side == side and name.part == kind for name in layers), "layer")
    values = np.stack([by_layer[index] for index in sorted(by_layer)])
    queries = reading.predicted if name == "cross" else reading.elements(side, values.shape[2])
    keys = reading.elements("encoder", values.shape[3]) if name == "cross" else queries
    return reading, Weights(name, values, queries, keys, min(by_layer))


def choose_part(subject: Subject, part: str | None) -> str:
    """Returns the part to show, by default the first that there is."""
    parts = attention_parts(subject)
    if not parts:
        raise subject.unavailable("has neither layers nor heads of attention", "omit --part, --layer and --head")
    if part is None:
        return parts[0]
    if parts == [""]:
        raise SeriatimError("inspect.part", f"{subject.label} is not an encoder–decoder", "omit --part")
    if part not in parts:
        raise SeriatimError("inspect.part", f'there is no part "{part}"', did_you_mean(part, parts))
    return part


def fold_weights(
    queries: list[str], keys: list[str], values: np.ndarray, limit: int = MAX_CELLS
) -> tuple[list[str], list[str], np.ndarray]:
    """Returns weights (…,T,S) with at most `limit` cells on a side: means of neighboring queries, sums of neighboring
    keys, so that rows still sum to one. A cell has the name of its first element."""
    rows, columns = (range(0, len(names), -(-len(names) // limit)) for names in (queries, keys))
    sums = np.add.reduceat(values, list(columns), axis=-1)
    counts = np.diff([*rows, len(queries)])
    means = np.add.reduceat(sums, list(rows), axis=-2) / counts[:, None]
    return [queries[row] for row in rows], [keys[column] for column in columns], means


def strongest_table(queries: list[str], keys: list[str], weights: np.ndarray, note: str = "") -> Table:
    """Returns the keys with the largest weights (T,S) of each query, for terminals."""
    rows = [
        (query, ", ".join(f"{key} {weight:.2f}" for key, weight in strongest))
        for query, strongest in Alignment(keys, queries, weights).strongest(least=0.005)
    ]
    if len(rows) > MAX_ROWS:
        rows = [*rows[:MAX_ROWS], ("…", f"{len(queries) - MAX_ROWS} more")]
    return Table(title="Largest weights", note=note, columns=("element", "attends to"), rows=rows)


# Alignment


def alignment_arrays(subject: Subject, request: Request[AlignmentOptions]) -> Arrays[None]:
    """Returns the weights of a target, by default of the model's own translation, over the source."""
    align = subject.predictor.aligner()
    assert align is not None
    (text,) = request.texts
    alignment = align(text, request.options.target, not request.options.tokens)
    axes = {"translation": alignment.target, "source": alignment.source}
    return Arrays(f"Alignment: {subject.label}", {"alignment": NamedArray(alignment.weights, axes)}, None)


def alignment_charts(arrays: Arrays[None]) -> Drawing:
    target, source = (list(labels) for labels in arrays["alignment"].axes.values())
    weights = arrays["alignment"].values
    chart = Alignment(source, target, weights).chart(arrays.title)
    return Drawing([chart], [strongest_table(target, source, weights)])


implement(
    AlignmentOptions,
    alignment_arrays,
    alignment_charts,
    {"has no alignment": lambda subject: subject.predictor.aligner() is None},
    network=True,
    trained=True,
)


# Entropy


@dataclass(frozen=True)
class EntropyFacts:
    """The model and the part of it whose heads are shown."""

    where: str


def entropy_arrays(subject: Subject, request: Request[Entropy]) -> Arrays[EntropyFacts]:
    """Returns the entropy (L,H) of each head, by element (L,H,T), and the largest possible one (T,)."""
    o = request.options
    reading, weights = read_weights(subject, request.texts, None, o.part, o.target, o.example, o.generate)
    bits = entropy(weights.values)
    means = {"entropy": bits.mean(axis=-1), "elements": np.exp2(bits).mean(axis=-1)}
    if weights.part != "cross":  # positions of source and target are not comparable
        means["distance"] = distance(weights.values).mean(axis=-1)
    axes = {"layer": weights.layers, "head": weights.heads}
    arrays = {name: NamedArray(values, axes) for name, values in means.items()}
    arrays["possible"] = NamedArray(max_entropy(weights), {"query": weights.queries})
    arrays["entropy by element"] = NamedArray(bits, {**axes, "query": weights.queries})
    where = f"{subject.label}{f', {weights.part}' if weights.part else ''}"
    return Arrays(f"Entropy of attention: {where}", arrays, EntropyFacts(where), reading.notes)


def entropy_charts(arrays: Arrays[EntropyFacts]) -> Drawing:
    """Returns a cell for each head: its entropy, and how far away it attends."""
    layers, heads = (list(labels) for labels in arrays["entropy"].axes.values())
    means = {name: arrays[name].values for name in ("entropy", "elements", "distance") if name in arrays}
    largest = arrays["possible"].values
    high = float(largest.mean())
    note = f"mean over {len(largest)} elements; {high:.2f} bits are possible"
    labels: dict[str, Any] = {"rows": layers, "columns": heads, "low": 0.0}
    charts: list[View] = [
        Heatmap(title=f"{arrays.title} (bits)", values=matrix(means["entropy"]), high=high, note=note, **labels)
    ]
    if "distance" in means:
        far = f"Mean distance attended to: {arrays.facts.where} (elements)"
        charts.append(Heatmap(title=far, values=matrix(means["distance"]), **labels))
    rows: list[tuple[Cell, ...]] = []
    for index in np.argsort(means["entropy"], axis=None, kind="stable").tolist():
        i, j = divmod(index, len(heads))
        figures = (round(float(values[i, j]), 4) for values in means.values())
        rows.append((f"{layers[i]}, {heads[j]}", *figures))
    columns = ("head", "bits", "elements", "distance")[: len(rows[0])]
    average = f"on average {format_number(float(means['entropy'].mean()))} bits of {format_number(high)}"
    return Drawing(charts, [Table(title="Heads, the narrowest first", note=average, columns=columns, rows=rows)])


implement(
    Entropy,
    entropy_arrays,
    entropy_charts,
    {"has no attention heads": lambda subject: not attention_parts(subject)},
    network=True,
)


def entropy(weights: np.ndarray) -> np.ndarray:
    """Returns the entropy of weights (…,S) in bits."""
    logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
    bits: np.ndarray = np.maximum(-(weights * logs).sum(axis=-1), 0.0)  # no −0
    return bits


def max_entropy(weights: Weights) -> np.ndarray:
    """Returns the entropy of each query if all elements it may attend to had equal weights (T,)."""
    count = len(weights.keys)
    visible = np.arange(1, count + 1) if weights.causal else np.full(len(weights.queries), count)
    return np.log2(visible.astype(np.float64))


def distance(weights: np.ndarray) -> np.ndarray:
    """Returns the mean distance, in elements, that each query attends to (…,T)."""
    positions = np.arange(weights.shape[-1])
    distances: np.ndarray = (weights * np.abs(positions[:, None] - positions)).sum(axis=-1)
    return distances
