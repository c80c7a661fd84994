"""Time and memory over the length of a sequence, measured, and beside them what theory says.

The exponent of a cost is the slope of its logarithm over that of the length, by least squares over the longer half of
the lengths: what is linear and what is the same for all lengths weighs there least.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..core.random import derive
from ..models.mlp import WindowMLP
from ..models.tcn import CausalConv
from ..nn.pair import PairSettings
from ..nn.recurrent import Cell
from ..nn.scores import Score
from ..nn.transformer import SelfAttention
from .cost import Pass, one_thread
from .seen import Array, Seen
from .subject import Subject

LENGTHS = tuple(64 << power for power in range(8))  # 64 … 8,192
BUDGET = 20.0  # seconds of work for each curve
MEMORY = 2**30  # bytes up to which attention that holds its weights is timed
REPEATS = (3, 9)  # at least, and at most
ENOUGH = 0.3  # seconds of repeats
TICK = 1e-3  # seconds: some clocks have no shorter ones, and show 0
KINDS = ("forward", "forward and backward")
NOTES = {
    "seconds": "time: of one sequence on one core, the median of several passes",
    "bytes": "memory: of the tensors that live at once, beside the weights",
}


@dataclass(frozen=True)
class Theory:
    """Of one layer over n elements of width d; `steps` must follow one another, `path` is the way between elements."""

    of: str
    time: str
    memory: str
    steps: str
    path: str


ATTENTION = Theory("self-attention", "n²·d", "n·d", "1", "1")
VISIBLE = Theory("self-attention, its weights held", "n²·d", "n²·heads", "1", "1")
RECURRENT = Theory("recurrent", "n·d²", "n·d", "n", "n")
LOOKING = Theory("recurrent, with attention to the source", "n·d² + n²·d", "n·d + n²", "n", "n")
CONVOLUTION = Theory("convolution over k", "k·n·d²", "n·d", "1", "log_k n")
WINDOW = Theory("window of k", "k·n·d²", "k·n·d", "1", "1, k back at most")
UNKNOWN = Theory("", "", "", "", "")


@dataclass
class Curve:
    """What was measured of one way through one model: for every length a figure, forward and with backward."""

    name: str
    go: Pass
    theory: Theory
    counted: bool = False  # its bytes are known before it is timed
    seconds: list[tuple[float, float]] = field(default_factory=list)
    bytes: list[tuple[float, float]] = field(default_factory=list)
    spent: float = 0.0
    why: str = ""  # it was measured no further

    def array(self, what: str, count: int) -> np.ndarray:
        """(2, lengths), NaN where it was not measured."""
        found = getattr(self, what)
        return np.array([*found, *[(math.nan, math.nan)] * (count - len(found))]).T


def suits(subject: Subject) -> str:
    if subject.settings.pictures and not subject.settings.pairs:
        return "takes pictures of one size alone"
    return "counts, and reads no vectors" if subject.counts else ""


def look(
    subjects: Sequence[Subject],
    *,
    lengths: str | Sequence[int] | None = None,
    budget: float = BUDGET,
    notify: Callable[[str], None] | None = None,
) -> Seen:
    """`lengths` of sequences, as 64,128,256; a curve that would need more than `budget` seconds ends before."""
    wanted = _lengths(lengths)
    with one_thread():
        curves = measured(subjects, wanted, budget, notify)
    return _seen(curves, wanted)


def measured(
    subjects: Sequence[Subject], lengths: Sequence[int], budget: float, notify: Callable[[str], None] | None = None
) -> list[Curve]:
    """The curves of all models, length by length; those that are timed take turns."""
    curves = [curve for subject in subjects for curve in _curves(subject, lengths)]
    for before, length in pairwise([0, *lengths]):
        for curve in curves:
            _check(curve, lengths, before, length, budget)
        going = [curve for curve in curves if not curve.why]
        if notify is not None and going:
            notify(f"length {length:,}: {', '.join(curve.name for curve in going)}")
        _time(going, length)
        for curve in going:
            if not curve.counted:
                curve.bytes.append(_bytes(curve.go, length))
    return curves


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """Over the longer half of those lengths that have a figure; NaN for fewer than two."""
    pairs = [(n, value) for n, value in zip(lengths, values, strict=True) if value > 0]
    some = pairs[-max(2, -(-len(pairs) // 2)) :]
    if len(some) < 2:
        return math.nan
    x, y = np.log([n for n, _ in some]), np.log([value for _, value in some])
    return float(np.polyfit(x, y, 1)[0])


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _curves(subject: Subject, lengths: Sequence[int]) -> list[Curve]:
    """One for the way a model goes, and where it has attention one for that which holds the weights."""
    settings, longest = subject.settings, max(lengths)
    if hasattr(settings, "context"):
        settings = settings.model_copy(update={"context": longest})
    inputs = settings.input_width(tied=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(0, "init"))
        backbone = settings.build(inputs, longest)
    sizes = (settings.source_width(inputs), inputs) if isinstance(settings, PairSettings) else (inputs,)
    curves = [Curve(subject.label, Pass(backbone, *sizes), theory(backbone))]
    if curves[0].theory is ATTENTION:
        visible = Pass(backbone, *sizes, visible=True)
        held = [_bytes(visible.without_contents(), length) for length in lengths]
        curves.append(Curve(f"{subject.label}, visible", visible, VISIBLE, counted=True, bytes=held))
    return curves


def theory(backbone: torch.nn.Module) -> Theory:
    """By the parts that it is made of."""

    def has(*kinds: type) -> bool:
        return any(isinstance(module, kinds) for module in backbone.modules())

    if has(SelfAttention):
        return ATTENTION
    if has(Cell):
        return LOOKING if has(Score) else RECURRENT
    return CONVOLUTION if has(CausalConv) else WINDOW if has(WindowMLP) else UNKNOWN


def _check(curve: Curve, lengths: Sequence[int], before: int, length: int, budget: float) -> None:
    """Ends a curve whose next passes would take too much memory, or too long."""
    if curve.why:
        return
    if curve.counted and (needed := curve.bytes[lengths.index(length)][1]) > MEMORY:
        until = f"up to {before:,}" if before else "at no length"
        curve.why = f"{curve.name} is timed {until}: at {length:,} it holds {needed / 1e9:.1f} GB"
        return
    if not before:
        return
    times = [sum(both) for both in curve.seconds]
    steep = exponent(lengths[: len(times)][-2:], times[-2:]) if len(times) > 1 else 2.0
    expected = times[-1] * (length / before) ** min(max(steep, 1.0), 2.0)
    if curve.spent + (1 + REPEATS[0]) * expected > budget:
        curve.why = f"{curve.name} is timed up to {before:,}: {length:,} would take more than its {budget:g} seconds"


def _time(curves: Sequence[Curve], length: int) -> None:
    """Medians; the first passes warm up and say how often to repeat."""
    first = [[curve.go.seconds(length, learns) for learns in (False, True)] for curve in curves]
    turns = [max(REPEATS[0], min(REPEATS[1], int(ENOUGH / max(sum(both), TICK)))) for both in first]
    times: list[list[tuple[float, float]]] = [[] for _ in curves]
    for turn in range(max(turns, default=0)):
        for index, curve in enumerate(curves):
            if turn < turns[index]:
                times[index].append((curve.go.seconds(length, False), curve.go.seconds(length, True)))
    for curve, found, both in zip(curves, times, first, strict=True):
        forward, learning = (statistics.median(some) for some in zip(*found, strict=True))
        curve.seconds.append((forward, learning))
        curve.spent += sum(both) + sum(map(sum, found))


def _bytes(go: Pass, length: int) -> tuple[float, float]:
    return float(go.bytes(length, False)), float(go.bytes(length, True))


def _lengths(given: str | Sequence[int] | None) -> list[int]:
    if given is None:
        return list(LENGTHS)
    parts = given.split(",") if isinstance(given, str) else given
    try:
        found = sorted({int(part) for part in parts})
    except ValueError:
        found = []
    if len(found) < 2 or found[0] < 1:
        raise SeriatimError("inspect.lengths", f"{given} are no lengths", "name two or more, as 64,128,256")
    return found


# ── showing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _seen(curves: Sequence[Curve], lengths: Sequence[int]) -> Seen:
    names, columns = [curve.name for curve in curves], [str(n) for n in lengths]
    arrays, fits, views = {}, {}, []
    for what, unit, factor in (("seconds", "milliseconds", 1e3), ("bytes", "megabytes", 1e-6)):
        values = np.stack([curve.array(what, len(lengths)) for curve in curves])  # (curves, 2, lengths)
        fitted = np.array([[exponent(lengths, row) for row in both] for both in values])
        arrays[what] = Array(values, (("model", names), ("pass", KINDS), ("length", columns)))
        fits[what] = fitted
        labels = [f"{name}: n^{_plain(one)}" for name, (_, one) in zip(names, fitted.tolist(), strict=True)]
        series = [
            [label, [[n, factor * value] for n, value in zip(lengths, row[1].tolist(), strict=True) if value > 0]]
            for label, row in zip(labels, values, strict=True)
        ]
        title = "Time" if what == "seconds" else "Memory"
        views.append(
            {"kind": "lines", "title": f"{title} over the length n, forward and backward", "x": "length n",
             "y": unit, "series": series, "log_x": True, "log_y": True, "marks": True, "note": NOTES[what],
             "dashes": [one for one, curve in zip(labels, curves, strict=True) if curve.theory is VISIBLE]}
        )  # fmt: skip
    both = np.stack([fits["seconds"], fits["bytes"]])
    axes = (("of", ("time", "memory")), ("model", names), ("pass", KINDS))
    arrays["exponents"] = Array(both, axes)
    views.append(_table(curves, fits))
    notes = [*NOTES.values(), *(curve.why for curve in curves if curve.why)]
    return Seen("Growth with the length of a sequence", arrays, views, _text(curves, fits), notes)


def _table(curves: Sequence[Curve], fits: dict[str, np.ndarray]) -> dict[str, Any]:
    passes = ("exponent forward", "with backward")
    columns = ["model", "layer", "time", *passes, "memory", *passes, "steps in a row", "longest path"]
    rows = []
    for index, curve in enumerate(curves):
        seconds, held = (_exponents(fits[what][index]) for what in ("seconds", "bytes"))
        about = curve.theory
        rows.append([curve.name, about.of, about.time, *seconds, about.memory, *held, about.steps, about.path])
    return {
        "kind": "table", "title": "Exponents of n, measured, beside the theory", "columns": columns, "rows": rows,
        "note": "fitted over the longer half of the lengths; theory: of one layer of width d",
    }  # fmt: skip


def _text(curves: Sequence[Curve], fits: dict[str, np.ndarray]) -> list[str]:
    """Exponents of forward and backward beside the theory of a layer."""
    wide = max(len(curve.name) for curve in curves) + 2
    lines = [f"{'':{wide}}{'time':<9}{'theory':<14}{'memory':<9}{'theory':<12}{'steps':<7}path"]
    for index, curve in enumerate(curves):
        seconds, held = (f"n^{_plain(fits[what][index, 1])}" for what in ("seconds", "bytes"))
        about = curve.theory
        lines.append(
            f"{curve.name:{wide}}{seconds:<9}{about.time:<14}{held:<9}{about.memory:<12}{about.steps:<7}{about.path}"
        )
    return lines


def _exponents(pair: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else value for value in pair.tolist()]


def _plain(value: float) -> str:
    return "…" if math.isnan(value) else f"{value:.2f}".replace("-", "−")
