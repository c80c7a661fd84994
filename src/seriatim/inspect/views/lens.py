"""What each layer of a Transformer would predict: the residual stream after every block, read by the model's own head.

    p_l = softmax(head(norm(x_l)))        l = 0: tokens and positions alone; the last: the prediction of the model

nostalgebraist, "Interpreting GPT: the logit lens" (2020). Every block adds to the same stream, so it can be read before
the last one: the next word mostly appears some blocks before the end. A causal model is read for the next token, a
decoder for the next token of the target, and BERT for the token at the element itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...nn.network import as_float32
from ...report.charts import Cell, Heatmap, Table, View, matrix
from ...tasks.inspection import TokenReadout, check_position
from ..result import NamedArray, Result
from ..subject import Reading, Subject
from ..trace import TraceName
from . import view
from .activations import fold_elements

MAX_ROWS = 24  # elements in a terminal
TOP = 3  # likeliest tokens of an element


def missing_stream(subject: Subject) -> str:
    if not subject.records("embedded"):
        return "has no residual stream, which all layers add to"
    if subject.predictor.token_readout() is None:
        return "does not predict tokens"
    if subject.backbone.final_norm() is None:
        return "reads its source after its blocks, not in them"
    return ""


@view("lens", missing_stream, network=True, trained=True)
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
        rows: list[tuple[Cell, ...]] = [
            (name, *(f"{token(int(i))} {p:.3f}" for i, p in zip(best[n, position], likely[n, position], strict=True)))
            for n, name in reversed(list(enumerate(layers)))
        ]
        title = f"{title}, at {elements[position]} ({position})"
        columns = ("layer", *(f"{rank}." for rank in range(1, best.shape[-1] + 1)))
        return Result(title, arrays, [Table(title=title, columns=columns, rows=tuple(rows))], reading.notes)
    order = slice(None, None, -1)  # the last layer on top, as in drawings of the model
    about: dict[str, Any] = {"rows": tuple(layers[order]), "x": "at", "low": 0.0, "high": 1.0}
    names, true_folded = fold_elements(elements, true[order])
    what = "the next token" if readout.predicts_next else "the token there"
    charts: list[View] = [
        Heatmap(
            title=title,
            note="the likeliest token, and its probability",
            columns=tuple(elements),
            values=matrix(likely[order, :, 0]),
            texts=tuple(map(tuple, tokens[order])),
            **about,
        ),
        Heatmap(
            title=f"Probability of {what}: {subject.label}", columns=tuple(names), values=matrix(true_folded), **about
        ),
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
    rows: list[tuple[Cell, ...]] = []
    for n, name in enumerate(elements[:MAX_ROWS]):
        column = [line[n] for line in tokens]
        since = next(index for index in range(len(column)) if len(set(column[index:])) == 1)
        actual = None if np.isnan(true[-1, n]) else float(true[-1, n])
        rows.append((name, column[-1], float(likely[-1, n]), actual, layers[since]))
    note = f"{len(elements) - MAX_ROWS} more elements" if len(elements) > MAX_ROWS else ""
    columns = ("at", "prediction", "probability", "of the true token", "since")
    return Table(title="Predictions", note=note, columns=columns, rows=tuple(rows))
