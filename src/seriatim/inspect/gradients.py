"""How far back the last loss reaches: ‖∂loss_T/∂x_t‖ over the distance T − t, before training and after.

x_t is the vector that goes into the backbone at t: what every architecture has, so that all can stand in one picture.
In a plain RNN the way from there to the loss is a product of T − t matrices, and the gradient vanishes; an LSTM or GRU
keeps what its gates leave open; attention is one step away from everything; a convolution ends where its receptive
field does. Each curve is the mean over several windows, in units of the gradient at the last element itself.

What made gradients too long while training shows beside it: how often they were clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..core.measures import plain
from ..core.random import derive, numpy_stream
from ..nn.network import full, token_network
from . import own
from .seen import Array, Seen
from .subject import Subject

LENGTH = 128  # elements of a window
WINDOWS = 32
TOKENS = 64  # kinds of them, for a network without a text
STRETCH = 20_000  # tokens of the validation part that windows are taken from
AT = (1, 10, 50, 100)  # distances in the table
SMALLEST = 1e-30  # near where single precision ends


@dataclass(frozen=True)
class Flow:
    """`norms` by distance, 0 first; in units of the first."""

    subject: Subject
    trained: bool
    norms: np.ndarray  # (T,)
    windows: int
    judged: bool = True  # by a loss

    @property
    def name(self) -> str:
        return f"{self.subject.label}, fresh" if self.subject.trained and not self.trained else self.subject.label

    @property
    def reach(self) -> int:
        """The largest distance from which anything arrives."""
        return int(np.nonzero(self.norms > SMALLEST)[0].max(initial=0))

    @property
    def factor(self) -> float | None:
        """By which the gradient changes with each step: the straight line through its logarithm, without distance 0."""
        places = np.nonzero(self.norms[1:] > SMALLEST)[0] + 1
        if len(places) < 2:
            return None
        return float(np.exp(np.polyfit(places, np.log(self.norms[places]), 1)[0]))


def suits(subject: Subject) -> str:
    if subject.counts:
        return "counts, and has no gradients"
    if subject.settings.pairs:
        return "is an encoder–decoder; this is shown of one sequence"
    return "" if subject.run is None else own.lacking(subject)


def look(subjects: Sequence[Subject], *texts: str, length: int = LENGTH) -> Seen:
    """Over windows of at most `length` elements: of the texts, of a run's own validation part, or for networks that
    were never trained of random tokens."""
    if length < 2:
        raise SeriatimError("inspect.length", f"{length} elements have no distance", "2 or more")
    flows = [flow for subject in subjects for flow in _flows(subject, texts, length)]
    if flows and max(len(flow.norms) for flow in flows) < 2:
        raise SeriatimError("inspect.length", "the text is too short to have a distance", "give a longer one")
    longest = max(len(flow.norms) for flow in flows)
    values = np.full((len(flows), longest), np.nan)
    for row, flow in zip(values, flows, strict=True):
        row[: len(flow.norms)] = flow.norms
    axes = (("network", [flow.name for flow in flows]), ("distance", [str(place) for place in range(longest)]))
    arrays = {"gradient": Array(values, axes)}
    fits = [float("nan") if flow.factor is None else flow.factor for flow in flows]
    arrays["factor"] = Array(np.array(fits), (axes[0],))
    clipped = [(one, norms) for one in subjects if len(norms := recorded(one))]
    for one, norms in clipped:
        steps = [str(int(step)) for step in norms[:, 0]]
        arrays[f"norm, {one.label}"] = Array(norms[:, 1], (("step", steps),))
    views = [_curves(flows), _table(flows)]
    views += [_norms(clipped), _clipped(clipped)] if clipped else []
    title = "How far back the last loss reaches"
    return Seen(title, arrays, views, _told(views[1::2]), _notes(flows))


def _flows(subject: Subject, texts: Sequence[str], length: int) -> list[Flow]:
    """Fresh and, where it was trained, after that; over the same windows."""
    if subject.run is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(0, "init"))
            network = token_network(subject.settings, TOKENS, length).eval()
        draw = numpy_stream(0, "gradients")
        rows = draw.integers(0, TOKENS, (WINDOWS, length + 1))
        return [Flow(subject, False, flow(network, rows), len(rows))]
    rows = _windows(subject, texts, length)
    networks = ((own.untrained(subject), False), (subject.network, True))
    judged = subject.run.config.task.name == own.TEXTS
    return [Flow(subject, trained, flow(network, rows, judged), len(rows), judged) for network, trained in networks]


def _windows(subject: Subject, texts: Sequence[str], length: int) -> np.ndarray:
    """(n,T+1) tokens: windows and what follows them. Those of a text that is longer are spread over it."""
    context = subject.backbone.context
    size = length if context is None else min(length, context)
    if texts:
        sources = [subject.reader.tokenizer.encode_many([one], strict=False)[0] for one in texts]
        size = min(size, min(len(ids) for ids in sources) - 1)
    else:
        sources = [own.tokens(subject, STRETCH)]
    if size < 1:
        raise SeriatimError("inspect.length", "a text is too short to have a distance", "give a longer one")
    each = -(-WINDOWS // len(sources))
    rows = []
    for ids in sources:
        places = np.unique(np.linspace(0, len(ids) - size - 1, each).round().astype(int))
        rows += [ids[place : place + size + 1] for place in places]
    return np.stack(rows).astype(np.int64)


def flow(network: Any, rows: np.ndarray, judged: bool = True) -> np.ndarray:
    """The mean norm of ∂loss_T/∂x_t by distance (T,), in units of the one at distance 0. The loss is that of the last
    token of each row; where a network gives no scores of tokens, its last output along a random direction."""
    device = next(network.parameters()).device
    tokens = torch.from_numpy(rows).to(device)
    with torch.enable_grad():
        x = network.input(tokens[:, :-1]).detach().requires_grad_()
        y: Tensor = network.backbone(x)[0][:, -1]  # (n,D)
        if judged:
            loss = F.cross_entropy(full(network.head(y[:, None])[:, 0]), tokens[:, -1], reduction="sum")
        else:
            way = torch.randn(y.shape, generator=torch.Generator().manual_seed(derive(0, "gradients"))).to(device)
            loss = (y * way).sum()
        (gradient,) = torch.autograd.grad(loss, x)
    norms: np.ndarray = gradient.double().norm(dim=-1).mean(dim=0).flip(0).cpu().numpy()
    return norms / norms[0]


def recorded(subject: Subject) -> np.ndarray:
    """Steps of the training and the norm of the gradient at each, before clipping (n,2)."""
    events = [] if subject.run is None else subject.run.history("stepped")
    pairs = [(event["step"], event["norm"]) for event in events if event.get("norm") is not None]
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)


def _curves(flows: Sequence[Flow]) -> dict[str, Any]:
    series = [
        [flow.name, [[place, float(value)] for place, value in enumerate(flow.norms) if value > SMALLEST]]
        for flow in flows
    ]
    both = any(flow.trained for flow in flows)
    return {
        "kind": "lines", "title": "How far back the last loss reaches", "x": "distance T − t in elements",
        "y": "size of ∂loss_T/∂x_t (at T: 1)", "series": series, "log_y": True,
        "dashes": [flow.name for flow in flows if both and not flow.trained],
        "note": "dashed: before training; solid: after" if both else "before training",
    }  # fmt: skip


def _table(flows: Sequence[Flow]) -> dict[str, Any]:
    longest = max(len(flow.norms) for flow in flows)
    places = [place for place in AT if place < longest]
    rows = []
    for flow in flows:
        values = [float(flow.norms[place]) if place < len(flow.norms) else None for place in places]
        rows.append([flow.name, _short(flow.factor), flow.reach, *map(_short, values)])
    columns = ["network", "factor per step", "reaches back", *(f"at distance {place}" for place in places)]
    return {"kind": "table", "title": "The same in figures", "columns": columns, "rows": rows}


def _norms(clipped: Sequence[tuple[Subject, np.ndarray]]) -> dict[str, Any]:
    """The norms over the training, and where they were cut."""
    levels = sorted({level for one, _ in clipped if (level := _level(one)) is not None})
    return {
        "kind": "lines", "title": "The norm of the whole gradient while training", "x": "step", "y": "norm",
        "series": [[one.label, norms.tolist()] for one, norms in clipped], "log_y": True,
        "annotations": [{"y": level, "text": f"clipped above {level:g}"} for level in levels],
        "note": "before clipping, at the steps that were recorded",
    }  # fmt: skip


def _clipped(clipped: Sequence[tuple[Subject, np.ndarray]]) -> dict[str, Any]:
    rows = []
    for one, norms in clipped:
        level = _level(one)
        times = 0 if level is None else int((norms[:, 1] > level).sum())
        middle, largest = float(np.median(norms[:, 1])), float(norms[:, 1].max())
        rows.append([one.label, level, len(norms), times, times / len(norms), _short(middle), _short(largest)])
    columns = ["network", "clipped above", "recorded steps", "clipped", "share clipped", "median norm", "largest norm"]
    return {"kind": "table", "title": "Clipping while training", "columns": columns, "rows": rows}


def _level(subject: Subject) -> float | None:
    clip: float | None = None if subject.run is None else subject.run.config.train.clip
    return clip


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _told(tables: Sequence[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for table in tables:
        cells = [
            table["columns"],
            *([one if isinstance(one, str) else _figure(one) for one in row] for row in table["rows"]),
        ]
        widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
        lines += [table["title"]] if lines else []
        lines += [
            "  ".join(value.ljust(size) for value, size in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
    return lines


def _figure(value: float | None) -> str:
    return plain(value, 0 if isinstance(value, int) else 3, 2)


def _notes(flows: Sequence[Flow]) -> list[str]:
    windows, longest = max(flow.windows for flow in flows), max(len(flow.norms) for flow in flows)
    notes = [f"The mean over {windows} windows of up to {longest} elements."]
    if not all(flow.subject.trained for flow in flows):
        notes.append(f"Networks without a run read random tokens, of {TOKENS} kinds, with the settings of their model.")
    if others := list(dict.fromkeys(flow.subject.label for flow in flows if not flow.judged)):
        notes.append(f"Of {', '.join(others)} not the loss but the last output along a random direction.")
    if short := [flow.name for flow in flows if flow.reach < len(flow.norms) - 1]:
        notes.append(f"Nothing arrives from further back than the table says: {', '.join(short)}.")
    return notes
