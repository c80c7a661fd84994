"""How long gradients were while a run was trained, and how often they were clipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .seen import Array
from .subject import Subject

Recorded = tuple[Subject, np.ndarray]


def recorded(subjects: Sequence[Subject]) -> list[Recorded]:
    """For each run steps of its training with the norm of the gradient there, before clipping (n,2); what was trained
    before such norms were kept has none and is left out."""
    found = []
    for subject in subjects:
        events = [] if subject.run is None else subject.run.history("stepped")
        pairs = [(event["step"], event["norm"]) for event in events if event.get("norm") is not None]
        if pairs:
            found.append((subject, np.array(pairs, dtype=np.float64)))
    return found


def arrays(found: Sequence[Recorded]) -> dict[str, Array]:
    return {
        f"norm, {one.label}": Array(norms[:, 1], (("step", [str(int(step)) for step in norms[:, 0]]),))
        for one, norms in found
    }


def curves(found: Sequence[Recorded]) -> dict[str, Any]:
    """The norms over the training, and where they were cut."""
    levels = sorted({level for one, _ in found if (level := _level(one)) is not None})
    return {
        "kind": "lines", "title": "The norm of the whole gradient while training", "x": "step", "y": "norm",
        "series": [[one.label, norms.tolist()] for one, norms in found], "log_y": True,
        "annotations": [{"y": level, "text": f"clipped above {level:g}"} for level in levels],
        "note": "before clipping, at the steps that were recorded",
    }  # fmt: skip


def table(found: Sequence[Recorded]) -> dict[str, Any]:
    rows = []
    for one, norms in found:
        level, sizes = _level(one), norms[:, 1]
        times = 0 if level is None else int((sizes > level).sum())
        middle, largest = (float(f"{value:.4g}") for value in (np.median(sizes), sizes.max()))
        rows.append([one.label, level, len(sizes), times, f"{100 * times / len(sizes):.1f} %", middle, largest])
    columns = ["network", "clipped above", "recorded steps", "clipped", "share", "median norm", "largest norm"]
    return {"kind": "table", "title": "Clipping while training", "columns": columns, "rows": rows}


def _level(subject: Subject) -> float | None:
    clip: float | None = None if subject.run is None else subject.run.config.train.clip
    return clip
