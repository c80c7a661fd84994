"""Why norms: sigmoids in deep stacks, and batch norm beside layer norm on the same batch.

A stack of layers a_l = σ(z_l), z_l = W_l a_{l−1}, has gradients ∂L/∂a_{l−1} = W_lᵀ(σ'(z_l) ⊙ ∂L/∂a_l), and σ' ≤ ¼: with
each layer they shrink, and the first layers do not learn. Batch norm before the sigmoid divides z by its standard
deviation over the batch, in the backward pass the gradient as well, so that it arrives.

    batch norm   (x − μ_f) / √(σ²_f + ε)    mean and variance of a feature f, over all elements of the batch
    layer norm   (x − μ_e) / √(σ²_e + ε)    mean and variance of an element e, over its features

Batch norm therefore depends on the neighbors, on the size of the batch and on padding; layer norm on none of them.
Ioffe and Szegedy, "Batch normalization" (2015); Ba et al., "Layer normalization" (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.device import derive
from ...core.errors import SeriatimError
from ...core.text import format_number
from ...inspect.declare import Notify
from ...inspect.result import Arrays, Drawing, NamedArray
from ...inspect.subject import Subject
from ...inspect.views import Request, ignore, implement
from ...models.mlp import Settings as MLPSettings
from ...report.charts import Bars, Cell, HeatmapGrid, Lines, Series, Table, View, matrix, row
from .catalog import Normalization, Saturation
from .masked_softmax import parse_row_lengths

MAX_LAYERS = 200
WIDTH, EXAMPLES, CLASSES = 64, 128, 10  # of the stacks
EPS = 1e-5
FEATURES = 6  # of the batch that is normalized
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
DRAWS = 64  # batches of each size
POPULATION = 20_000  # elements by whose statistics batches are judged

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}
STACKS = {  # name → activation, whether z is normalized, variance of the weights times the width
    "sigmoid": ("sigmoid", False, 1.0),
    "sigmoid, batch norm": ("sigmoid", True, 1.0),
    "tanh": ("tanh", False, 1.0),
    "relu": ("relu", False, 2.0),  # He et al. 2015
}


SATURATION_CHARTS = {  # array → title, axis, whether it is logarithmic
    "size": ("Gradient of the weights of each layer", "norm of ∂loss/∂W", True),
    "slope": ("Slope of the activation", "mean derivative", False),
    "spread": ("How different the examples are", "std of z over the examples", True),
}


@dataclass(frozen=True)
class StackGradients:
    """What each layer of a stack has, the first layer first (L,)."""

    sizes: np.ndarray  # ‖∂loss/∂W‖
    slopes: np.ndarray  # mean derivative of the activation
    spreads: np.ndarray  # standard deviation of z over the examples, before a norm


def saturation_arrays(subject: Subject, request: Request[Saturation]) -> Arrays[None]:
    """Returns by network and layer the size of the gradient, the slope of the activation, and the standard deviation
    of z over the examples."""
    layers = request.options.layers
    try:
        depth = int(layers)
    except ValueError:
        depth = 0
    if not 2 <= depth <= MAX_LAYERS:
        cause = f"a stack of {layers} layers cannot be shown"
        raise SeriatimError("inspect.layers", cause, f"choose one number from 2 to {MAX_LAYERS}")
    stacks = [stack_gradients(name, depth, request.options.seed, request.notify) for name in STACKS]
    axes = {"network": list(STACKS), "layer": [str(n) for n in range(1, depth + 1)]}
    lines = {
        "size": [stack.sizes for stack in stacks],
        "slope": [stack.slopes for stack in stacks],
        "spread": [stack.spreads for stack in stacks],
    }
    arrays = {name: NamedArray(np.stack(values), axes) for name, values in lines.items()}
    plain, normed = (format_number(float(stack.sizes[0] / stack.sizes[-1])) for stack in stacks[:2])
    notes = [
        f"the gradient of the first sigmoid layer is {plain} times that of the last, with batch norm {normed} times",
        f"{EXAMPLES} random examples of {WIDTH} numbers and {CLASSES} classes; weights with variance 1/n, for relu 2/n",
    ]
    return Arrays("Sigmoids in deep stacks, and what batch norm does", arrays, None, notes)


def saturation_charts(arrays: Arrays[None]) -> Drawing:
    names = list(arrays["size"].axes["network"])
    depth = len(arrays["size"].axes["layer"])
    charts: list[View] = []
    for name, (title, axis, log) in SATURATION_CHARTS.items():
        lines = zip(names, arrays[name].values, strict=True)
        series = [Series(stack, range(1, depth + 1), row(line)) for stack, line in lines]
        charts.append(
            Lines(title=title, note=f"{depth} layers before training", x="layer", y=axis, series=series, log_y=log)
        )
    rows: list[tuple[Cell, ...]] = []
    for name, sizes, slopes in zip(names, arrays["size"].values, arrays["slope"].values, strict=True):
        figures = (sizes[0], sizes[-1], sizes[0] / sizes[-1], (sizes[0] / sizes[-2]) ** (1 / max(depth - 2, 1)))
        rows.append((name, *(format_number(float(value)) for value in figures), round(float(slopes.mean()), 3)))
    columns = ("network", "first layer", "last layer", "ratio", "factor per layer", "mean slope")
    table = Table(title="Gradients at the first layer and the last", columns=columns, rows=rows)
    return Drawing([*charts, table])


implement(
    Saturation,
    saturation_arrays,
    saturation_charts,
    {"is no plain stack of layers, for which this is shown": lambda s: not isinstance(s.settings, MLPSettings)},
)


def stack_gradients(name: str, depth: int, seed: int, notify: Notify = ignore) -> StackGradients:
    """Returns what the layers of a stack have at the first step of a training."""
    notify(f"{name}, {depth} layers")
    kind, normed, variance = STACKS[name]
    generator = torch.Generator().manual_seed(derive(seed, "saturation"))
    a = torch.randn(EXAMPLES, WIDTH, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, CLASSES, (EXAMPLES,), generator=generator)
    draws = [torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) for _ in range(depth)]
    weights = [(draw * (variance / WIDTH) ** 0.5).requires_grad_() for draw in draws]
    output = torch.randn(CLASSES, WIDTH, generator=generator, dtype=torch.float64) * WIDTH**-0.5
    slopes, spreads = [], []
    with torch.inference_mode(False), torch.enable_grad():
        for weight in weights:
            z = a @ weight.T
            spreads.append(float(z.detach().std(dim=0).mean()))
            if normed:
                z = batch_norm(z)
            a = ACTIVATIONS[kind](z)
            slopes.append(float(activation_slope(kind, a.detach()).mean()))
        gradients = torch.autograd.grad(F.cross_entropy(a @ output.T, targets), weights)
    sizes = np.array([float(gradient.norm()) for gradient in gradients])
    return StackGradients(sizes, np.array(slopes), np.array(spreads))


def activation_slope(kind: str, a: Tensor) -> Tensor:
    """Returns the derivative of an activation from its value."""
    if kind == "sigmoid":
        return a * (1 - a)
    return 1 - a**2 if kind == "tanh" else (a > 0).to(a.dtype)


def batch_norm(x: Tensor) -> Tensor:
    """Returns elements (N,F) standardized feature by feature."""
    variance, mean = torch.var_mean(x, dim=0, correction=0)
    return (x - mean) / (variance + EPS).sqrt()


def layer_norm(x: Tensor) -> Tensor:
    """Returns elements (N,F) standardized element by element."""
    variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
    return (x - mean) / (variance + EPS).sqrt()


# Batch norm and layer norm


NORMS: dict[str, Callable[[Tensor], Tensor]] = {"batch norm": batch_norm, "layer norm": layer_norm}


def normalization_arrays(subject: Subject, request: Request[Normalization]) -> Arrays[None]:
    """Returns the batch and both normalized ones (element, feature), how much the first sequence changes with its batch
    (norm, case), and the error of the statistics by the size of the batch (norm, elements)."""
    counts = parse_row_lengths(request.options.lengths)
    if 0 in counts:
        raise SeriatimError("inspect.lengths", "a sequence without elements has nothing to normalize", "as 4,3,2,1")
    generator = torch.Generator().manual_seed(derive(request.options.seed, "normalization"))
    centers, scales = torch.linspace(-2, 2, FEATURES), torch.linspace(0.5, 2, FEATURES).flip(0)

    def draw(elements: int) -> Tensor:
        return (centers + scales * torch.randn(elements, FEATURES, generator=generator)).double()

    sequences = [draw(count) for count in counts]
    x = torch.cat(sequences)
    axes = {
        "element": [f"{s}.{t}" for s, count in enumerate(counts) for t in range(count)],
        "feature": [f"feature {n}" for n in range(FEATURES)],
    }
    values = {"input": x} | {name: norm(x) for name, norm in NORMS.items()}
    arrays = {name: NamedArray(cells.numpy(), axes) for name, cells in values.items()}
    first, others = counts[0], [draw(count) for count in counts[1:]]
    padded = torch.cat([F.pad(sequence, (0, 0, 0, max(counts) - len(sequence))) for sequence in sequences])
    cases = {
        "alone in its batch": x[:first],
        "with other neighbors": torch.cat([x[:first], *others]),
        "with padding counted as zeros": padded,
    }
    changes = np.array([
        [float((norm(batch)[:first] - norm(x)[:first]).square().mean().sqrt()) for batch in cases.values()]
        for norm in NORMS.values()
    ])  # fmt: skip
    arrays["change"] = NamedArray(changes, {"norm": list(NORMS), "case": list(cases)})
    population = draw(POPULATION)
    mean, std = population.mean(dim=0), (population.var(dim=0, correction=0) + EPS).sqrt()
    noise = np.zeros((2, len(BATCH_SIZES)))
    for column, size in enumerate(BATCH_SIZES):
        batches = [draw(size) for _ in range(DRAWS)]
        noise[0, column] = rms([batch_norm(batch) - (batch - mean) / std for batch in batches])
        noise[1, column] = rms([layer_norm(batch)[:1] - layer_norm(batch[:1]) for batch in batches])
    arrays["by batch size"] = NamedArray(noise, {"norm": list(NORMS), "elements": [str(size) for size in BATCH_SIZES]})
    notes = [
        "batch norm takes mean and variance of each feature over all elements of the batch, layer norm of each element "
        "over its features",
        "a batch of one element has no variance: batch norm gives zeros, whatever the element is",
    ]
    return Arrays("Batch norm and layer norm on the same batch", arrays, None, notes)


def normalization_charts(arrays: Arrays[None]) -> Drawing:
    elements, features = (list(labels) for labels in arrays["input"].axes.values())
    norms, cases = (list(labels) for labels in arrays["change"].axes.values())
    changes, noise = arrays["change"].values, arrays["by batch size"].values
    charts: list[View] = [
        HeatmapGrid(
            title="The same batch, normalized over the batch and over the features",
            note="rows are sequence.element; batch norm makes each column standard, layer norm each row",
            rows=elements,
            columns=features,
            panels={name: matrix(arrays[name].values) for name in ("input", *norms)},
            per_row=3,
            diverging=True,
        ),
        Bars(
            title="Change of the first sequence when only its batch changes",
            labels=[case for case in cases for _ in norms],
            groups=norms * len(cases),
            values=row(changes.T.flatten()),
            x="root mean square of the change",
        ),
        Lines(
            title="Error of the batch's statistics by its size",
            note="batch norm: distance from the result by the statistics of all data, as at inference",
            x="elements in the batch",
            y="root mean square of the error",
            series=[Series(name, row(BATCH_SIZES), row(line)) for name, line in zip(norms, noise, strict=True)],
            log_x=True,
            markers=True,
        ),
    ]
    rows: list[tuple[Cell, ...]] = [
        (case, *(round(float(value), 4) for value in changes[:, n])) for n, case in enumerate(cases)
    ]
    rows += [
        (f"error with {size} elements", *(round(float(v), 4) for v in noise[:, n]))
        for n, size in enumerate(BATCH_SIZES)
    ]
    return Drawing(charts, [Table(title="Change of the result", columns=("case", *norms), rows=rows)])


implement(Normalization, normalization_arrays, normalization_charts)


def rms(parts: Sequence[Tensor]) -> float:
    return float(torch.cat([part.flatten() for part in parts]).square().mean().sqrt())
