"""The complexity of one layer, measured: operations over n, d and k, sequential operations, and path lengths.

    layer             operations    sequential    longest path
    self-attention    n²·d          1             1
    recurrent         n·d²          n             n
    convolution       k·n·d²        1             log n        (with dilation)

Vaswani et al., "Attention is all you need" (2017), table 1. Operations are counted product by product while the
equations run, separately for products of two activations (q·k and α·v: the n²·d of attention) and for products with
weights. Sequential operations are the longest chain of products that depend on each other. The longest path is the
number of layers, or steps of a recurrence, between the first element and the last: the fewest layers through which a
gradient arrives, and for a recurrence the number of its states that may not be cut. Time is processor time of one core.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ...core.device import global_stream, on_meta_device
from ...core.state import detach
from ...inspect.result import Arrays, Drawing, NamedArray
from ...inspect.subject import Subject
from ...inspect.views import Request, implement
from ...nn.backbone import BackboneSettings
from ...nn.layers import readable_equations
from ...report.charts import Cell, Lines, Series, Table, View, row
from .catalog import Complexity
from .growth import RECURRENT, Pass, Theory, find_theory, fit_exponent, format_exponent

SIZES = {"n": (64, 128, 256), "d": (64, 128, 256), "k": (2, 4, 8)}  # each is varied while the others stay
FIXED = {"n": 64, "d": 64, "k": 3}
TIMED = {"n": (256, 512, 1024), "d": (128, 256, 512), "k": (2, 4, 8)}
TIMED_FIXED = {"n": 128, "d": 128, "k": 3}
WINDOWS = ("kernel", "window")  # settings that are k
DEPTHS = ("levels", "layers")  # settings that are the number of layers
PATH_ELEMENTS = (8, 16, 32)
MAX_DEPTH = 12
KINDS = ("between activations", "with weights")
TIMES = 3  # passes; their median counts


class ProductMeter(TorchDispatchMode):
    """Counts the operations of products within it, and the longest chain of products that depend on an input.

    Args:
        x: The input.
    """

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.flops = dict.fromkeys(KINDS, 0)
        self.chain = 0
        self._depths = {x.untyped_storage()._cdata: 0}  # of what depends on the input, by storage
        self._kept = [x.untyped_storage()]  # a storage that is freed could come back as another's address

    def __torch_dispatch__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = function(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
        depths = [self._depths.get(tensor.untyped_storage()._cdata) for tensor in tensors]
        packet = getattr(function, "_overloadpacket", None)
        is_product = packet in flop_registry
        if is_product:
            factors = depths[1:] if "add" in str(packet) else depths[:2]  # addmm: the first is added
            kind = KINDS[0] if None not in factors else KINDS[1]
            self.flops[kind] += int(flop_registry[packet](*args, **(kwargs or {}), out_val=result))
        dependent = [depth for depth in depths if depth is not None]
        if dependent:
            depth = max(dependent) + int(is_product)
            self.chain = max(self.chain, depth)
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    storage = leaf.untyped_storage()
                    self._depths[storage._cdata] = max(depth, self._depths.get(storage._cdata, 0))
                    self._kept.append(storage)
        return result


@dataclass(frozen=True)
class Layer:
    """One layer of an architecture."""

    label: str
    settings: BackboneSettings

    def sized(self, sizes: Mapping[str, int], depth: int = 1) -> BackboneSettings:
        """Returns its settings for a length n, a width d, a window k and a number of layers."""
        fields = type(self.settings).model_fields
        changes: dict[str, int] = {"width": sizes["d"]}
        changes |= {name: sizes["k"] for name in WINDOWS if name in fields}
        changes |= {name: depth for name in DEPTHS if name in fields}
        changes |= {"context_length": sizes["n"]} if "context_length" in fields else {}
        return self.settings.model_copy(update=changes)

    def build(self, sizes: Mapping[str, int], depth: int = 1) -> nn.Module:
        with global_stream(0, "init"):
            backbone: nn.Module = self.sized(sizes, depth).build(sizes["d"], sizes["n"]).eval()
        return backbone

    @property
    def varied(self) -> list[str]:
        """Which of n, d and k it has."""
        fields = type(self.settings).model_fields
        return ["n", "d", *(["k"] if any(name in fields for name in WINDOWS) else [])]

    def measure(self, sizes: Mapping[str, int]) -> ProductMeter:
        """Returns the operations of a forward pass, by the equations, on tensors without contents."""
        with on_meta_device():
            backbone = self.build(sizes)
        x = torch.empty(1, sizes["n"], sizes["d"], device="meta")
        with torch.no_grad(), readable_equations(), ProductMeter(x) as meter:
            backbone(x)
        return meter

    def seconds(self, sizes: Mapping[str, int]) -> float:
        """Returns the processor time of a forward pass as the model runs."""
        run = Pass(self.build(sizes), sizes["d"])
        run.seconds(sizes["n"], False)
        return statistics.median(run.seconds(sizes["n"], False) for _ in range(TIMES))

    def path(self, elements: int) -> int | None:
        """Returns the fewest layers between the first element and the last, or steps of a recurrence; None: no path."""
        sizes = FIXED | {"n": elements, "d": 8}
        if find_theory(self.build(sizes)) is RECURRENT:
            cuts = [first_gradient(self.build(sizes), elements, cut) == 0 for cut in range(1, elements)]
            return 1 + sum(cuts)
        for depth in range(1, MAX_DEPTH + 1):
            if first_gradient(self.build(sizes, depth), elements) > 0:
                return depth
        return None


def first_gradient(backbone: nn.Module, elements: int, cut: int | None = None) -> float:
    """Returns the size of the gradient of the last output by the first element; at a `cut` the state is constant."""
    x = torch.randn(1, elements, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with torch.inference_mode(False), torch.enable_grad():
        if cut is None:
            y = backbone(x)[0]
        else:
            state = backbone(x[:, :cut])[1]
            y = backbone(x[:, cut:], None, detach(state))[0]
        (gradient,) = torch.autograd.grad(y[:, -1].square().sum(), x)
    return float(gradient[0, 0].abs().sum())


def complexity_arrays(subjects: list[Subject], request: Request[Complexity]) -> Arrays[list[Theory]]:
    """Returns operations and seconds by n, d and k, their exponents, sequential operations and paths by n; the facts
    are the theories of the layers."""
    layers = [Layer(subject.label, subject.settings) for subject in subjects]  # type: ignore[arg-type]
    names = [layer.label for layer in layers]
    arrays: dict[str, NamedArray] = {}
    exponents = np.full((len(layers), len(KINDS) + 1, len(SIZES)), np.nan)  # by products of two kinds, and by time
    chains = np.zeros((len(layers), len(SIZES["n"])))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for column, (name, sizes) in enumerate(SIZES.items()):
            flops = np.full((len(layers), len(KINDS), len(sizes)), np.nan)
            seconds = np.full((len(layers), len(TIMED[name])), np.nan)
            for index, layer in enumerate(layers):
                if name not in layer.varied:
                    continue
                request.notify(f"{layer.label} over {name}")
                meters = [layer.measure(FIXED | {name: size}) for size in sizes]
                flops[index] = np.array([[meter.flops[kind] for meter in meters] for kind in KINDS])
                seconds[index] = [layer.seconds(TIMED_FIXED | {name: size}) for size in TIMED[name]]
                if name == "n":
                    chains[index] = [meter.chain for meter in meters]
                exponents[index, :2, column] = [fit_exponent(sizes, line) for line in flops[index]]
                exponents[index, 2, column] = fit_exponent(TIMED[name], seconds[index])
            labels, timed = ([str(size) for size in values] for values in (sizes, TIMED[name]))
            arrays[f"operations by {name}"] = NamedArray(flops, {"layer": names, "products": KINDS, name: labels})
            arrays[f"seconds by {name}"] = NamedArray(seconds, {"layer": names, name: timed})
    finally:
        torch.set_num_threads(threads)
    arrays["exponents"] = NamedArray(exponents, {"layer": names, "of": [*KINDS, "time"], "over": list(SIZES)})
    arrays["chain"] = NamedArray(chains, {"layer": names, "n": [str(n) for n in SIZES["n"]]})
    lengths = np.full((len(layers), len(PATH_ELEMENTS)), np.nan)
    for line, layer in zip(lengths, layers, strict=True):
        request.notify(f"paths of {layer.label}")
        paths = [layer.path(elements) for elements in PATH_ELEMENTS]
        line[:] = [np.nan if path is None else path for path in paths]
    arrays["path"] = NamedArray(lengths, {"layer": names, "n": [str(n) for n in PATH_ELEMENTS]})
    notes = [
        "operations are counted from the products of the equations; a layer of attention also has products with "
        "weights (projections and feed-forward network: n·d²), which the theory leaves out",
        "path: layers until a gradient of the last output reaches the first element; of a recurrence its steps; of a "
        "TCN levels, whose dilation doubles",
    ]
    theories = [find_theory(layer.build(FIXED)) for layer in layers]
    return Arrays("Complexity of one layer", arrays, theories, notes)


def complexity_charts(arrays: Arrays[list[Theory]]) -> Drawing:
    """Returns the operations over each of n, d and k, and the figures beside the theory."""
    names, exponents = list(arrays["exponents"].axes["layer"]), arrays["exponents"].values
    charts: list[View] = []
    for column, (name, sizes) in enumerate(SIZES.items()):
        flops = arrays[f"operations by {name}"].values
        series = [
            Series(f"{layer}, {kind}: {name}^{format_exponent(exponents[i, j, column])}", sizes, row(flops[i, j]),
                   dashed=j == 1, group=layer)
            for i, layer in enumerate(names) for j, kind in enumerate(KINDS) if (flops[i, j] > 0).all()
        ]  # fmt: skip
        if series:
            others = ", ".join(f"{other} = {FIXED[other]}" for other in FIXED if other != name)
            charts.append(
                Lines(
                    title=f"Operations of one layer over {name}",
                    note=f"{others}; dashed: products with weights",
                    x=name,
                    y="operations",
                    series=series,
                    log_x=True,
                    log_y=True,
                    markers=True,
                )
            )
    rows: list[tuple[Cell, ...]] = []
    for index, (layer, theory) in enumerate(zip(names, arrays.facts, strict=True)):
        powers = [
            "·".join(
                f"{name}^{format_exponent(value)}"
                for name, value in zip(SIZES, line, strict=True)
                if np.isfinite(value)
            )
            for line in exponents[index]
        ]
        chain = " → ".join(str(int(value)) for value in arrays["chain"].values[index])
        path = " → ".join("none" if np.isnan(value) else str(int(value)) for value in arrays["path"].values[index])
        rows.append((layer, theory.time, *(power or "–" for power in powers), theory.steps, chain, theory.path, path))
    columns = (
        "layer", "theory", *KINDS, "time", "sequential", f"measured, n = {' → '.join(map(str, SIZES['n']))}",
        "path", f"measured, n = {' → '.join(map(str, PATH_ELEMENTS))}",
    )  # fmt: skip
    table = Table(title="Complexity of one layer, measured, beside the theory", columns=columns, rows=rows)
    return Drawing([*charts, table])


implement(
    Complexity,
    complexity_arrays,
    complexity_charts,
    {
        "is an encoder–decoder; this view shows layers over one sequence": lambda s: s.settings.encoder_decoder,
        "reads images of one size": lambda s: s.settings.modality is not None,
    },
    network=True,
)
