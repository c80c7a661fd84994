"""What each layer of a Transformer would predict: the residual stream behind every block, read by the model's own head.

    p_l = softmax(head(norm(x_l)))        l = 0: tokens and places alone; the last: what the model says

nostalgebraist, "Interpreting GPT: the logit lens" (2020). Every block writes into the same stream, so what stands in it
can be read before it is finished: mostly the next word shows some blocks before the end. Of a model that looks back it
is the next token that is read, of a decoder the next token of the target, and of BERT the token at the place itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..nn.heads import PretrainHead
from ..nn.network import Network, TokenHead, full
from ..nn.pair import Translator
from .activations import folded
from .attention import chosen, parts
from .reading import Reading
from .seen import Array, Seen
from .subject import Subject

TOLD, TOP = 24, 3  # places that are told in words; tokens of each


def suits(subject: Subject) -> str:
    if not parts(subject):
        return "has no residual stream, into which all layers write"
    if subject.run is None:
        return "was never trained"
    network = subject.network
    if isinstance(network, Translator):
        return "" if hasattr(network.backbone, "decoder_norm") else "reads its source behind its blocks, not in them"
    head = network.get_submodule("head")
    if isinstance(head, TokenHead):
        return "" if hasattr(network.backbone, "norm") else "has no norm behind its blocks, by which they could be read"
    return "" if isinstance(head, PretrainHead) and head.masked is not None else "does not predict tokens"


def look(
    subject: Subject, *texts: str, target: str | None = None, example: int | None = None, position: int | None = None
) -> Seen:
    """At all places, or at one, counted from 0, with the likeliest tokens there."""
    reading = subject.read(*texts, target=target, example=example)
    layers, scores = through(subject, reading)
    places, said = _places(subject, reading)
    chances = [full(one).softmax(dim=-1) for one in scores]  # (T,V) each
    best, likely = (torch.stack(some).cpu().numpy() for some in zip(*(_best(one) for one in chances), strict=True))
    token = _tokenizer(subject).token
    texts_of = [[token(int(index)) for index in row] for row in best[..., 0]]  # (L,T)
    true = torch.stack([_of(one, said) for one in chances]).cpu().numpy()  # (L,T)
    axes = (("layer", layers), ("place", places))
    arrays = {
        "likeliest": Array(likely[..., 0], axes),
        "true": Array(true, axes),
        "rank of the true": Array(np.stack([_ranks(one, said) for one in chances]), axes),
        "token": Array(np.array(texts_of), axes),
    }
    title = f"What each layer would predict: {subject.label}"
    if position is not None:
        return _at(title, layers, places, position, best, likely, token, arrays)
    order = slice(None, None, -1)  # the last layer on top, as it stands in the model
    view = {"rows": layers[order], "columns": places, "x": "at", "y": ""}
    names, chances_of_true = folded(places, np.nan_to_num(true[order]))
    views: list[dict[str, Any]] = [
        view | {
            "kind": "words", "title": title, "texts": texts_of[order], "values": likely[order, :, 0].tolist(),
            "high": 1.0, "note": "the likeliest token, and how likely it is",
        },
        view | {
            "kind": "heat", "title": f"How likely each layer holds what {_true(subject)}: {subject.label}",
            "columns": names, "values": chances_of_true.tolist(), "high": 1.0,
        },
    ]  # fmt: skip
    return Seen(title, arrays, views, _told(layers, places, texts_of, likely[..., 0], true), reading.notes)


def through(subject: Subject, reading: Reading) -> tuple[list[str], list[Tensor]]:
    """The names of layers, what goes into the first among them, and the scores of all tokens (T,V) for each."""
    network = subject.network
    side = "decoder." if isinstance(network, Translator) else ""
    trace = subject.trace(reading, (f"{side}embedded", "hidden"))
    count = sum(name.startswith(f"{side}layer") for name in trace)
    names = [f"{side}embedded", *(f"{side}layer{index}.hidden" for index in range(count))]
    device = next(network.parameters()).device
    with torch.inference_mode():
        scores = [_scores(network, trace[name].to(device))[0] for name in names]
    return ["input", *(f"layer {index}" for index in range(count))], scores


def _scores(network: Any, hidden: Tensor) -> Tensor:
    """Of what stands behind a block (1,T,D), as if it were the last."""
    backbone, head = network.backbone, network.head
    if isinstance(network, Translator):
        found: Tensor = head(backbone.decoder_norm(hidden))
    elif isinstance(head, PretrainHead) and head.masked is not None:
        found = head.masked.scores(hidden)  # the norm of BERT stands within its blocks, and before the first of them
    else:
        found = head(backbone.norm(hidden))
    return found


def _tokenizer(subject: Subject) -> Any:
    predictor: Any = subject.run.predictor  # type: ignore[union-attr]
    return predictor.coder.target if isinstance(subject.network, Translator) else subject.reader.tokenizer


def _places(subject: Subject, reading: Reading) -> tuple[list[str], Tensor]:
    """What stands at each place, and what is true there (T,); −1: nobody knows."""
    if reading.target is not None:
        return reading.target.names, reading.target.tokens
    row = reading.inputs[0]
    network: Network = subject.network  # type: ignore[assignment]
    if network.backbone.causal:
        return reading.names, torch.cat([row[1:], row.new_full((1,), -1)])
    mask = subject.reader.tokenizer.mask
    return reading.names, row if mask is None else torch.where(row == mask, -1, row)


def _true(subject: Subject) -> str:
    translates = isinstance(subject.network, Translator)
    return "comes next" if translates or subject.backbone.causal else "stands there"


def _best(chances: Tensor) -> tuple[Tensor, Tensor]:
    found = chances.topk(min(TOP, chances.shape[-1]))
    return found.indices, found.values


def _of(chances: Tensor, said: Tensor) -> Tensor:
    true = chances.gather(1, said.clamp(min=0)[:, None])[:, 0]
    return torch.where(said < 0, torch.nan, true)


def _ranks(chances: Tensor, said: Tensor) -> np.ndarray:
    """1 for the likeliest."""
    true = chances.gather(1, said.clamp(min=0)[:, None])
    ranks = (chances > true).sum(dim=1).double() + 1
    found: np.ndarray = torch.where(said < 0, torch.nan, ranks).cpu().numpy()
    return found


def _told(
    layers: list[str], places: list[str], texts: list[list[str]], likely: np.ndarray, true: np.ndarray
) -> list[str]:
    """For each place what the last layer says, and from which layer on it stays with it."""
    lines = ["what is said at each place, and from which layer on:"]
    wide = min(max(len(name) for name in places[:TOLD]), 20)
    for place, name in enumerate(places[:TOLD]):
        column = [row[place] for row in texts]
        since = next(index for index in range(len(column)) if len(set(column[index:])) == 1)
        right = np.isnan(true[-1, place]) or true[-1, place] == likely[-1, place]
        real = "" if right else f", the true one {true[-1, place]:.3f}"
        lines.append(f"  {name:<{wide}}  → {column[-1]} {likely[-1, place]:.3f}{real} (since {layers[since]})")
    return lines + ([f"  … {len(places) - TOLD} more"] if len(places) > TOLD else [])


def _at(
    title: str,
    layers: list[str],
    places: list[str],
    position: int,
    best: np.ndarray,
    likely: np.ndarray,
    token: Any,
    arrays: dict[str, Array],
) -> Seen:
    chosen("position", position, len(places))
    columns = ["layer", *(f"{rank + 1}." for rank in range(best.shape[-1]))]
    rows = [
        [name, *(f"{token(int(i))} {p:.3f}" for i, p in zip(best[n, position], likely[n, position], strict=True))]
        for n, name in enumerate(layers)
    ]
    told = f"{title}, at {places[position]} ({position})"
    view = {"kind": "table", "title": told, "columns": columns, "rows": rows[::-1]}
    return Seen(told, arrays, [view], ["  ".join(row) for row in rows[::-1]])
