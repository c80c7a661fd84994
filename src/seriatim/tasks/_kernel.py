"""What `regress` needs for a model that keeps its examples: vectors of one length, and the pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import registry
from ..core.errors import SeriatimError
from ..data.sequences import Examples, Sequences
from ._coder import Coder
from ._examples import Part, refuse_counting

STEPS = 200  # of the curve
DOTS = 1_000
FIELDS = 100  # on a side of the picture of weights


def refuse_others(model: Any, task: str) -> None:
    """Of the models that learn by no gradient only one that keeps examples answers here."""
    if model.counts and not hasattr(registry.models.load(model.name), "Kernel"):
        refuse_counting(model, task)


def vectors(sequences: Sequences, rows: np.ndarray, steps: int, place: Callable[[int], str]) -> np.ndarray:
    """Some examples with all their numbers side by side (m,steps·F)."""
    wrong = rows[sequences.lengths[rows] != steps]
    if len(wrong):
        row = int(wrong[0])
        raise SeriatimError(
            "kernel.length",
            f"{place(row)}: {int(sequences.lengths[row])} steps, others have {steps}; distances need as many in each",
            "give sequences of one length, or choose another --model",
        )
    block, _ = sequences.padded(rows)
    return block.reshape(len(rows), steps * block.shape[-1]).astype(np.float32)


def check(model: Any, coder: Coder, parts: dict[str, Part]) -> None:
    """Numbers, of one length in all parts: what can be wrong is found before anything is written."""
    if coder.kind != "numbers":
        raise SeriatimError(
            "kernel.text",
            f"{model.name} measures distances between numbers, and the inputs are texts",
            "choose another --model: `seriatim list models`",
        )
    for part in parts.values():
        vectors(part.inputs, np.arange(len(part)), _steps(parts["train"]), part.examples.place)


def _steps(train: Part) -> int:
    """What most have: so the odd one is named, not the first."""
    return int(np.bincount(train.inputs.lengths).argmax())


def fitted(model: Any, train: Part, deviation: np.ndarray | None, progress: Callable[[str], None]) -> Any:
    """The model of a training part; `deviation` of its features, where distances are in units of it."""
    steps = _steps(train)
    points = vectors(train.inputs, np.arange(len(train)), steps, train.examples.place)
    unit = None if deviation is None else np.tile(deviation, steps)
    return registry.models.load(model.name).Kernel.fit(points, train.targets, model, unit, progress)


def asked(model: Any, coder: Coder, sequences: Sequences, rows: np.ndarray, examples: Examples | None) -> np.ndarray:
    """Examples as the model knows them."""
    place = (lambda row: f"input {row + 1}") if examples is None else examples.place
    return vectors(sequences, rows, model.points.shape[1] // coder.size, place)


# ── pictures ──────────────────────────────────────────────────────────────────────────────────────────────────────


def curves(said: Callable[[np.ndarray], np.ndarray], coder: Coder, train: Part) -> list[dict[str, Any]]:
    """Where one number goes in: the answers over it, and the training examples as dots."""
    if coder.kind != "numbers" or coder.size != 1 or coder.longest != 1 or len(train) < 2:
        return []
    x = train.inputs.values[:, 0].astype(np.float64)
    line = np.linspace(x.min(), x.max(), STEPS)
    answers = said(line.astype(np.float32)[:, None])
    some = np.unique(np.linspace(0, len(x) - 1, min(DOTS, len(x))).astype(np.int64))
    return [
        {
            "kind": "lines",
            "title": f"{name} over {coder.features[0]}",
            "note": "dots: training examples",
            "x": coder.features[0],
            "y": name,
            "series": [["prediction", [[float(a), float(b)] for a, b in zip(line, answers[:, k], strict=True)]]],
            "points": [[float(x[i]), float(train.targets[i, k])] for i in some],
        }
        for k, name in enumerate(coder.labels)
    ]


def weights(model: Any, coder: Coder, points: np.ndarray, answers: np.ndarray) -> dict[str, Any]:
    """What each training example counts for in the answers to some questions, as a heat map.

    Both are sorted, by the number that goes in where it is one, else by (the first of) what comes out; neighbouring
    training examples are put together, their weights added, so that a row still sums to 1.
    """
    single = points.shape[1] == 1
    key_order = np.argsort(model.points[:, 0] if single else model.values[:, 0], kind="stable")
    order = np.argsort(points[:, 0] if single else answers[:, 0], kind="stable")
    order = order[np.unique(np.linspace(0, len(order) - 1, min(FIELDS, len(order))).astype(np.int64))]
    groups = np.array_split(key_order, min(FIELDS, len(key_order)))
    found = model.weights(points[order])
    fields = np.stack([found[:, some].sum(axis=1) for some in groups], axis=1)
    along = coder.features[0] if single else coder.labels[0]
    keys = model.points[:, 0] if single else model.values[:, 0]
    questions = points[order, 0] if single else answers[order, 0]
    each = " (each column several together, their weights added)" if len(groups) < len(key_order) else ""
    reach = f"{model.bandwidth * float(model.unit[0]):.3g} in {along}" if single else f"{model.bandwidth:.3g}"
    kernel = f"{model.settings.kernel} kernel, bandwidth {reach}"
    return {
        "kind": "heat",
        "title": "What the answers are made of",
        "note": f"{kernel}{each}",
        "x": f"training examples by {along}",
        "y": f"questions by {along if single else 'answer'}",
        "columns": [f"{float(keys[some].mean()):.3g}" for some in groups],
        "rows": [f"{float(value):.3g}" for value in questions],
        "values": [[float(f"{value:.4g}") for value in row] for row in fields.tolist()],
    }
