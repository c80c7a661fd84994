"""Time and memory over the length of a sequence, measured, beside the theory.

The exponent of a cost is the slope of its logarithm over the logarithm of the length, by least squares over the longer
half of the lengths, where linear and constant parts weigh least.

Time is processor time with one thread, which does not count other processes. Bytes are counted as tensors come and go,
so they are exact and reproducible; what a kernel needs only while it runs is not counted, nor are weights and their
gradients, which do not grow with a sequence.
"""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...core.device import global_stream
from ...core.errors import SeriatimError
from ...inspect.declare import Notify
from ...inspect.result import Arrays, Drawing, NamedArray
from ...inspect.subject import Subject
from ...inspect.views import Request, implement
from ...models.mlp import WindowMLP
from ...models.t5 import Attention as RelativeAttention
from ...models.tcn import CausalConv
from ...nn.attention import Score
from ...nn.encoder_decoder import EncoderDecoderBackbone, EncoderDecoderSettings
from ...nn.layers import readable_equations
from ...nn.recurrent import Cell as RecurrentCell
from ...nn.transformer import SelfAttention
from ...report.charts import Lines, Series, Table, View, row
from .catalog import Growth

LENGTHS = tuple(64 << power for power in range(8))  # 64 … 8,192
MAX_MEMORY = 2**30  # bytes; attention that stores more weights is not timed
MIN_REPEATS, MAX_REPEATS = 3, 9
REPEAT_SECONDS = 0.3  # of all repeats of a pass
CLOCK_TICK = 1e-3  # seconds: some clocks have no shorter ones
PASSES = ("forward", "forward and backward")
UNITS = (("seconds", "milliseconds", 1e3), ("bytes", "megabytes", 1e-6))  # of the charts
NOTES = {
    "seconds": "time: of one sequence on one core, the median of several passes",
    "bytes": "memory: of the tensors that live at once, without the weights",
}


@dataclass(frozen=True)
class Theory:
    """The costs of one layer over n elements of width d."""

    layer: str
    time: str
    memory: str
    steps: str  # that cannot be parallel
    path: str  # the longest between two elements


ATTENTION = Theory("self-attention", "n²·d", "n·d", "1", "1")
STORED_ATTENTION = Theory("self-attention that stores its weights", "n²·d", "n²·heads", "1", "1")
RECURRENT = Theory("recurrent", "n·d²", "n·d", "n", "n")
ATTENDING = Theory("recurrent, with attention to the source", "n·d² + n²·d", "n·d + n²", "n", "n")
CONVOLUTION = Theory("convolution over k", "k·n·d²", "n·d", "1", "log_k n")
WINDOW = Theory("window of k", "k·n·d²", "k·n·d", "1", "1, at most k back")
UNKNOWN = Theory("", "", "", "", "")


@dataclass
class Curve:
    """The measured costs of one way of computing a model: for every length forward, and with backward."""

    name: str
    run: Pass
    theory: Theory
    counted: bool = False  # whether its bytes are known before it is timed
    seconds: list[tuple[float, float]] = field(default_factory=list)
    bytes: list[tuple[float, float]] = field(default_factory=list)
    spent: float = 0.0
    stopped: str = ""  # why it was measured no further

    def array(self, costs: list[tuple[float, float]], count: int) -> np.ndarray:
        """Returns costs (2, lengths), NaN where they were not measured."""
        return np.array([*costs, *[(math.nan, math.nan)] * (count - len(costs))]).T


@dataclass(frozen=True)
class GrowthFacts:
    """The lengths, and the theory of each curve."""

    lengths: list[int]
    theories: list[Theory]


def growth_arrays(subjects: list[Subject], request: Request[Growth]) -> Arrays[GrowthFacts]:
    """Returns seconds and bytes (model, pass, length), NaN where they were not measured, and their exponents."""
    lengths = parse_lengths(request.options.lengths)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        curves = measure_curves(subjects, lengths, request.options.budget, request.notify)
    finally:
        torch.set_num_threads(threads)
    axes = {"model": [curve.name for curve in curves], "pass": PASSES, "length": [str(n) for n in lengths]}
    costs = {"seconds": [curve.seconds for curve in curves], "bytes": [curve.bytes for curve in curves]}
    arrays = {
        name: NamedArray(
            np.stack([curve.array(cost, len(lengths)) for curve, cost in zip(curves, values, strict=True)]), axes
        )
        for name, values in costs.items()
    }
    exponents = np.array(
        [[[fit_exponent(lengths, line) for line in both] for both in arrays[name].values] for name in costs]
    )
    axes = {"of": ["time", "memory"], "model": axes["model"], "pass": PASSES}
    arrays["exponents"] = NamedArray(exponents, axes)
    notes = [*NOTES.values(), *(curve.stopped for curve in curves if curve.stopped)]
    facts = GrowthFacts(lengths, [curve.theory for curve in curves])
    return Arrays("Growth with the length of a sequence", arrays, facts, notes)


def growth_charts(arrays: Arrays[GrowthFacts]) -> Drawing:
    """Returns the costs over the length, and their exponents beside the theory."""
    facts, names = arrays.facts, list(arrays["seconds"].axes["model"])
    charts: list[View] = []
    for (cost, unit, factor), exponents in zip(UNITS, arrays["exponents"].values, strict=True):
        series = []
        for name, theory, line, (_, exponent) in zip(
            names, facts.theories, arrays[cost].values, exponents.tolist(), strict=True
        ):
            measured = np.flatnonzero(line[1] > 0)
            x = [facts.lengths[n] for n in measured]
            label = f"{name}: n^{format_exponent(exponent)}"
            series.append(Series(label, x, row(factor * line[1][measured]), dashed=theory == STORED_ATTENTION))
        charts.append(
            Lines(
                title=f"{'Time' if cost == 'seconds' else 'Memory'} over the length n, forward and backward",
                note=NOTES[cost],
                x="length n",
                y=unit,
                series=series,
                log_x=True,
                log_y=True,
                markers=True,
            )
        )
    return Drawing([*charts, theory_table(names, facts.theories, arrays["exponents"].values)])


implement(
    Growth,
    growth_arrays,
    growth_charts,
    {"reads images of one size": lambda s: s.settings.modality is not None and not s.settings.encoder_decoder},
    network=True,
)


def measure_curves(subjects: Sequence[Subject], lengths: Sequence[int], budget: float, notify: Notify) -> list[Curve]:
    """Returns the curves of all models, measured length by length in turns."""
    curves = [curve for subject in subjects for curve in make_curves(subject, lengths)]
    for before, length in pairwise([0, *lengths]):
        for curve in curves:
            check_limits(curve, lengths, before, length, budget)
        active = [curve for curve in curves if not curve.stopped]
        if active:
            notify(f"length {length:,}: {', '.join(curve.name for curve in active)}")
        time_curves(active, length)
        for curve in active:
            if not curve.counted:
                curve.bytes.append(count_bytes(curve.run, length))
    return curves


def make_curves(subject: Subject, lengths: Sequence[int]) -> list[Curve]:
    """Returns the curve of a model as it is, and if it has attention one that stores the weights."""
    settings: Any = subject.settings
    longest = max(lengths)
    if "context_length" in type(settings).model_fields:
        settings = settings.model_copy(update={"context_length": longest})
    width = settings.input_width(tied=True)
    with global_stream(0, "init"):
        backbone = settings.build(width, longest)
    sizes = (settings.source_width(width), width) if isinstance(settings, EncoderDecoderSettings) else (width,)
    curves = [Curve(subject.label, Pass(backbone, *sizes), find_theory(backbone))]
    if curves[0].theory is ATTENTION:
        stored = Pass(backbone, *sizes, equations=True)
        sizes_of = [count_bytes(stored.on_meta_device(), length) for length in lengths]
        name = f"{subject.label}, weights stored"
        curves.append(Curve(name, stored, STORED_ATTENTION, counted=True, bytes=sizes_of))
    return curves


def find_theory(backbone: nn.Module) -> Theory:
    """Returns the theory of an architecture by the modules it has."""

    def has(*kinds: type) -> bool:
        return any(isinstance(module, kinds) for module in backbone.modules())

    if has(SelfAttention, RelativeAttention):
        return ATTENTION
    if has(RecurrentCell):
        return ATTENDING if has(Score) else RECURRENT
    return CONVOLUTION if has(CausalConv) else WINDOW if has(WindowMLP) else UNKNOWN


def check_limits(curve: Curve, lengths: Sequence[int], before: int, length: int, budget: float) -> None:
    """Ends a curve whose next passes would need too much memory or time."""
    if curve.stopped:
        return
    if curve.counted and (needed := curve.bytes[lengths.index(length)][1]) > MAX_MEMORY:
        until = f"up to {before:,}" if before else "at no length"
        curve.stopped = f"{curve.name} is timed {until}: at {length:,} it needs {needed / 1e9:.1f} GB"
        return
    if not before:
        return
    times = [sum(both) for both in curve.seconds]
    slope = fit_exponent(lengths[: len(times)][-2:], times[-2:]) if len(times) > 1 else 2.0
    expected = times[-1] * (length / before) ** min(max(slope, 1.0), 2.0)
    if curve.spent + (1 + MIN_REPEATS) * expected > budget:
        curve.stopped = (
            f"{curve.name} is timed up to {before:,}: {length:,} would take more than its {budget:g} seconds"
        )


def time_curves(curves: Sequence[Curve], length: int) -> None:
    """Adds medians; the first passes warm up and decide the number of repeats."""
    first = [[curve.run.seconds(length, backward) for backward in (False, True)] for curve in curves]
    repeats = [max(MIN_REPEATS, min(MAX_REPEATS, int(REPEAT_SECONDS / max(sum(both), CLOCK_TICK)))) for both in first]
    times: list[list[tuple[float, float]]] = [[] for _ in curves]
    for turn in range(max(repeats, default=0)):
        for index, curve in enumerate(curves):
            if turn < repeats[index]:
                times[index].append((curve.run.seconds(length, False), curve.run.seconds(length, True)))
    for curve, measured, both in zip(curves, times, first, strict=True):
        forward, backward = (statistics.median(values) for values in zip(*measured, strict=True))
        curve.seconds.append((forward, backward))
        curve.spent += sum(both) + sum(map(sum, measured))


def count_bytes(run: Pass, length: int) -> tuple[float, float]:
    return float(run.bytes(length, False)), float(run.bytes(length, True))


def fit_exponent(lengths: Sequence[int], values: Sequence[float] | np.ndarray) -> float:
    """Returns the exponent over the longer half of the lengths with a value; NaN for fewer than two."""
    pairs = [(n, value) for n, value in zip(lengths, values, strict=True) if value > 0]
    half = pairs[-max(2, -(-len(pairs) // 2)) :]
    if len(half) < 2:
        return math.nan
    x, y = np.log([n for n, _ in half]), np.log([value for _, value in half])
    return float(np.polyfit(x, y, 1)[0])


def parse_lengths(lengths: str | Sequence[int] | None) -> list[int]:
    """Returns lengths from a text such as "64,128"."""
    if lengths is None:
        return list(LENGTHS)
    parts = lengths.split(",") if isinstance(lengths, str) else lengths
    try:
        numbers = sorted({int(part) for part in parts})
    except ValueError:
        numbers = []
    if len(numbers) < 2 or numbers[0] < 1:
        raise SeriatimError("inspect.lengths", f"{lengths} are not lengths", "name two or more, as 64,128,256")
    return numbers


def theory_table(names: Sequence[str], theories: Sequence[Theory], exponents: np.ndarray) -> Table:
    """Returns the exponents (2,models,passes) of time and memory beside the theory of each model."""
    columns = (
        "model", "layer", "time", "exponent forward", "with backward", "memory", "memory forward",
        "memory with backward", "sequential steps", "longest path",
    )  # fmt: skip
    rows = []
    for index, (name, theory) in enumerate(zip(names, theories, strict=True)):
        seconds, memory = (map(format_exponent, cost[index].tolist()) for cost in exponents)
        cells = (theory.time, *seconds, theory.memory, *memory, theory.steps, theory.path)
        rows.append((name, theory.layer, *cells))
    note = "exponents of n over the longer half of the lengths; theory: of one layer of width d"
    return Table(title="Exponents, measured, beside the theory", note=note, columns=columns, rows=rows)


def format_exponent(value: float) -> str:
    return "…" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


# The cost of one pass


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of living tensors that are made within it (`now`), and the most at once (`peak`).

    Args:
        known: Tensors that do not count.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def __torch_dispatch__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        """Counts a storage once: several tensors may share it, and it lives as long as the last of them."""
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.now += self._sizes[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._release, key)

    def _release(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


class Pass:
    """A pass of a backbone over one sequence of vectors, with or without the backward pass.

    Args:
        backbone: The architecture.
        sizes: The sizes of its input vectors: one, or one each for source and target.
        equations: Whether it computes by its equations; attention then stores all its weights.
    """

    def __init__(self, backbone: nn.Module, *sizes: int, equations: bool = False) -> None:
        self.backbone, self.sizes, self.equations = backbone.eval(), sizes, equations
        self._done: set[tuple[int, bool]] = set()
        for weight in backbone.parameters():
            weight.grad = torch.zeros_like(weight)

    def seconds(self, length: int, backward: bool) -> float:
        inputs = self._inputs(length, backward)
        start = time.process_time()
        self._run(inputs, backward)
        return time.process_time() - start

    def bytes(self, length: int, backward: bool) -> int:
        """Returns the most bytes at once."""
        if (length, backward) not in self._done:  # the first pass also makes what is cached for ever
            self._run(self._inputs(length, backward), backward)
        inputs = self._inputs(length, backward)
        weights = list(self.backbone.parameters())
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        with LiveMemory([*inputs, *weights, *gradients]) as memory:
            self._run(inputs, backward)
        return memory.peak

    def on_meta_device(self) -> Pass:
        """Returns the same with tensors that have no contents: what is not native can be counted so at no cost."""
        return Pass(copy.deepcopy(self.backbone).to("meta"), *self.sizes, equations=self.equations)

    def _inputs(self, length: int, backward: bool) -> list[Tensor]:
        device = next(self.backbone.parameters()).device
        generator = torch.Generator(device).manual_seed(0) if device.type == "cpu" else None
        options: Any = {"generator": generator, "device": device, "requires_grad": backward}
        return [torch.randn(1, length, size, **options) for size in self.sizes]

    def _run(self, inputs: list[Tensor], backward: bool) -> None:
        self._done.add((inputs[0].shape[1], backward))
        with readable_equations() if self.equations else contextlib.nullcontext():
            if backward:
                self._forward(*inputs).sum().backward()
                return
            with torch.inference_mode():
                self._forward(*inputs)

    def _forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        if isinstance(self.backbone, EncoderDecoderBackbone) and target is not None:
            return self.backbone.decode(target, self.backbone.encode(x))[0]
        y: Tensor = self.backbone(x)[0]
        return y
