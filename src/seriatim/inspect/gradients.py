"""How far back the last loss reaches: ‖∂loss_T/∂x_t‖ over the distance T − t, before training and after.

x_t is the vector that goes into the backbone at t: what every architecture has, so that all can stand in one picture.
In a plain RNN the way from there to the loss is a product of T − t matrices, and the gradient vanishes; an LSTM or GRU
keeps what its gates leave open; attention is one step away from everything; a convolution ends where its receptive
field does. Each curve is the mean over several sequences, in units of the gradient at the last element itself.

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
from . import _clipping, own
from .reading import reads_two
from .rows import aligned
from .seen import Array, Seen
from .sights import no_sequence
from .subject import Subject

LENGTH = 128  # elements of a sequence
SEQUENCES = 32
TOKENS = 64  # kinds of them, for a network without a run
STRETCH = 20_000  # tokens of the validation part that sequences are taken from
AT = (1, 10, 50, 100)  # distances in the table
SMALLEST = 1e-30  # near where single precision ends

Read = list[tuple[Any, Tensor | None]]  # inputs (n,T,…), and the tokens that follow (n,) where there are any


@dataclass(frozen=True)
class Flow:
    """`norms` by distance, 0 first; in units of the first."""

    subject: Subject
    trained: bool
    norms: np.ndarray  # (T,)
    sequences: int
    judged: bool  # by a loss

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
    pairs = subject.settings.pairs if subject.run is None else subject.pairs
    return "is an encoder–decoder; this is shown of one sequence" if pairs else no_sequence(subject)


def look(subjects: Sequence[Subject], *texts: str, length: int = LENGTH) -> Seen:
    """Over sequences of at most `length` elements: of the texts, of a run's own validation data, or for networks that
    were never trained of random tokens."""
    if length < 2:
        raise SeriatimError("inspect.length", f"windows of {length} have no distance in them", "--length 2 or more")
    flows = [one for subject in subjects for one in _flows(subject, texts, length)]
    longest = max(len(one.norms) for one in flows)
    if longest < 2:
        raise SeriatimError("inspect.length", "a sequence of one element has no distance", "give a longer one")
    values = np.full((len(flows), longest), np.nan)
    for row, one in zip(values, flows, strict=True):
        row[: len(one.norms)] = one.norms
    names = [one.name for one in flows]
    factors = np.array([np.nan if one.factor is None else one.factor for one in flows])
    axis = ("network", names)
    arrays = {"gradient": Array(values, (axis, ("distance", [str(place) for place in range(longest)])))}
    arrays["factor"] = Array(factors, (axis,))
    views = [_curves(flows), _table(flows)]
    if found := _clipping.recorded(subjects):
        arrays |= _clipping.arrays(found)
        views += [_clipping.curves(found), _clipping.table(found)]
    return Seen("How far back the last loss reaches", arrays, views, _told(views[1::2]), _notes(flows))


def _flows(subject: Subject, texts: Sequence[str], length: int) -> list[Flow]:
    """Fresh and, where it was trained, after that; over the same sequences."""
    if subject.run is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(0, "init"))
            network = token_network(subject.settings, TOKENS, length).eval()
        rows = numpy_stream(0, "gradients").integers(0, TOKENS, (SEQUENCES, length + 1))
        return [Flow(subject, False, flow(network, _split(rows)), len(rows), True)]
    judged = own.speaks(subject)
    read = _windows(subject, texts, length) if judged else _examples(subject, texts, length)
    count = sum(_size(inputs) for inputs, _ in read)
    networks = ((own.untrained(subject, read[0][0]), False), (subject.network, True))
    return [Flow(subject, known, flow(network, read), count, judged) for network, known in networks]


def _windows(subject: Subject, texts: Sequence[str], length: int) -> Read:
    """Tokens, and what follows them. Windows of a text that is longer are spread over it."""
    context = subject.backbone.context
    size = length if context is None else min(length, context)
    sources = [subject.reader.tokenizer.encode_many([one], strict=False)[0] for one in texts]
    sources = sources or [own.tokens(subject, STRETCH)]
    size = min(size, min(len(ids) for ids in sources) - 1)
    if size < 1:
        raise SeriatimError("inspect.length", "a text of one token has no next one", "give a longer one")
    each = -(-SEQUENCES // len(sources))
    rows = []
    for ids in sources:
        places = np.unique(np.linspace(0, len(ids) - size - 1, each).round().astype(int))
        rows += [ids[place : place + size + 1] for place in places]
    return _split(np.stack(rows).astype(np.int64))


def _split(rows: np.ndarray) -> Read:
    tokens = torch.from_numpy(rows)
    return [(tokens[:, :-1], tokens[:, -1])]


def _examples(subject: Subject, texts: Sequence[str], length: int) -> Read:
    """Of a run that does not predict what comes next: the texts, or the first sequences of its own data."""
    if texts:
        groups = [texts] if reads_two(subject) else [(one,) for one in texts]
        return [(_last(subject.read(*some).inputs, length), None) for some in groups]
    found: Read = []
    for number in range(SEQUENCES):
        try:
            found.append((_last(subject.read(example=number).inputs, length), None))
        except SeriatimError as error:
            if not found or error.code != "inspect.example":
                raise
            break  # there are no more
    return found


def _last(inputs: Any, length: int) -> Any:
    """The end of a sequence; words with their spelling, and pictures (1,C,H,W), stay as they are."""
    return inputs[:, -length:] if isinstance(inputs, Tensor) and inputs.dim() < 4 else inputs


def _size(inputs: Any) -> int:
    return len(inputs if isinstance(inputs, Tensor) else inputs[0])


def flow(network: Any, read: Read) -> np.ndarray:
    """The mean norm of ∂loss_T/∂x_t by distance, in units of the one at distance 0, as far back as half of the
    sequences go."""
    found = [row for inputs, targets in read for row in norms(network, inputs, targets)]
    longest = int(np.median([len(row) for row in found]))
    means = [np.mean([row[place] for row in found if len(row) > place]) for place in range(longest)]
    return np.array(means) / means[0]


def norms(network: Any, inputs: Any, targets: Tensor | None = None) -> np.ndarray:
    """‖∂loss_T/∂x_t‖ for each sequence by distance, 0 first (n,T). The loss is that of the token that follows; where a
    network is not asked for one, its last output along a random direction."""
    device = next(network.parameters()).device
    inputs = inputs.to(device) if isinstance(inputs, Tensor) else inputs
    with torch.enable_grad():
        x = network.input(inputs).detach().requires_grad_()
        y: Tensor = network.backbone(x)[0][:, -1]  # (n,D)
        if targets is not None:
            loss = F.cross_entropy(full(network.head(y[:, None])[:, 0]), targets.to(device), reduction="sum")
        else:
            way = torch.randn(y.shape, generator=torch.Generator().manual_seed(derive(0, "gradients")))
            loss = (y * way.to(device)).sum()
        (gradient,) = torch.autograd.grad(loss, x)
    found: np.ndarray = gradient.double().norm(dim=-1).flip(1).cpu().numpy()
    return found


def _curves(flows: Sequence[Flow]) -> dict[str, Any]:
    series = [
        [one.name, [[place, float(value)] for place, value in enumerate(one.norms) if value > SMALLEST]]
        for one in flows
    ]
    both = any(one.trained for one in flows)
    return {
        "kind": "lines", "title": "How far back the last loss reaches", "x": "distance T − t in elements",
        "y": "size of ∂loss_T/∂x_t (at T: 1)", "series": series, "log_y": True,
        "dashes": [one.name for one in flows if both and not one.trained],
        "note": "dashed: before training; solid: after" if both else "before training", "together": "gradients",
    }  # fmt: skip


def _table(flows: Sequence[Flow]) -> dict[str, Any]:
    longest = max(len(one.norms) for one in flows)
    places = [place for place in AT if place < longest]
    rows = []
    for one in flows:
        values = [float(one.norms[place]) if place < len(one.norms) else None for place in places]
        rows.append([one.name, _short(one.factor), one.reach, *map(_short, values)])
    columns = ["network", "factor per step", "reaches back", *(f"at distance {place}" for place in places)]
    return {"kind": "table", "title": "The same in figures", "columns": columns, "rows": rows}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _told(tables: Sequence[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for table in tables:
        lines += ["", table["title"]] if lines else []
        lines += aligned([table["columns"], *([_figure(one) for one in row] for row in table["rows"])])
    return [*lines, ""]


def _figure(value: Any) -> str:
    return value if isinstance(value, str) else plain(value, 0 if isinstance(value, int) else 3, 2)


def _notes(flows: Sequence[Flow]) -> list[str]:
    count, longest = max(one.sequences for one in flows), max(len(one.norms) for one in flows)
    notes = [f"The mean over {count} sequence{'s' * (count > 1)} of up to {longest} elements."]
    if not all(one.subject.trained for one in flows):
        notes.append(f"Networks without a run read random tokens, of {TOKENS} kinds, with the settings of their model.")
    if others := list(dict.fromkeys(one.subject.label for one in flows if not one.judged)):
        notes.append(f"Of {', '.join(others)} not the loss but the last output along a random direction.")
    if short := [one.name for one in flows if one.reach < len(one.norms) - 1]:
        notes.append(f"Nothing arrives from further back than the table says: {'; '.join(short)}.")
    return notes
