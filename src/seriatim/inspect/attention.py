"""Where each element looks: the weights of every head of every layer, as they were used.

A row sums to one over the elements that could be seen, and is zero on padding and, in a causal model, on what comes
later.
"""

from __future__ import annotations

import re

import numpy as np

from ..core.errors import SeriatimError
from .seen import Array, Seen
from .subject import Reading, Subject

WEIGHTS = re.compile(r"layer(\d+)\.attention")


def suits(subject: Subject) -> str:
    if subject.run is None:
        return "was never trained"
    return "" if hasattr(subject.settings, "heads") else "has no attention between the elements of a text"


def look(subject: Subject, text: str, *, layer: int | None = None, head: int | None = None) -> Seen:
    """All layers and heads, or one layer, or one head of it; counted from 0."""
    reading = subject.read(text)
    values = weights(subject, reading)  # (L,H,T,S)
    layers, heads = _chosen("layer", layer, values.shape[0]), _chosen("head", head, values.shape[1])
    values = values[np.ix_(layers, heads)]
    names = [f"layer {index}" for index in layers], [f"head {index}" for index in heads]
    axes = (("layer", names[0]), ("head", names[1]), ("from", reading.names), ("to", reading.names))
    panels = [
        [f"{first}, {second}", values[i, j].tolist()]
        for i, first in enumerate(names[0])
        for j, second in enumerate(names[1])
    ]
    title = f"Where each element looks: {subject.label}"
    view = {"title": title, "rows": reading.names, "columns": reading.names, "x": "looked at", "y": "looks"}
    if len(panels) == 1:
        views = [view | {"kind": "heat", "title": f"{title}, {panels[0][0]}", "values": panels[0][1]}]
    else:
        views = [view | {"kind": "heats", "panels": panels}]
    return Seen(title, {"attention": Array(values, axes)}, views)


def weights(subject: Subject, reading: Reading) -> np.ndarray:
    """(L,H,T,S) for one sequence."""
    trace = subject.trace(reading)
    found = sorted((int(match[1]), name) for name in trace if (match := WEIGHTS.fullmatch(name)))
    return np.stack([trace[name][0].float().numpy() for _, name in found])


def _chosen(what: str, wanted: int | None, count: int) -> list[int]:
    if wanted is None:
        return list(range(count))
    if not 0 <= wanted < count:
        raise SeriatimError(f"inspect.{what}", f"there is no {what} {wanted}", f"choose from 0 to {count - 1}")
    return [wanted]
