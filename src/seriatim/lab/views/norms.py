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
from ...inspect.result import NamedArray, Result
from ...inspect.subject import Subject
from ...inspect.views import view
from ...models.mlp import Settings as MLPSettings
from ...report.charts import Bars, Cell, HeatmapGrid, Lines, Series, Table, View, format_number, matrix, row
from .masked_softmax import parse_row_lengths

LAYERS, MAX_LAYERS = 20, 200
WIDTH, EXAMPLES, CLASSES = 64, 128, 10  # of the stacks
EPS = 1e-5
FEATURES = 6  # of the batch that is normalized
DEFAULT_LENGTHS = (4, 3, 2, 1)
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


@dataclass(frozen=True)
class StackGradients:
    """What each layer of a stack has, the first layer first (L,)."""

    name: str
    sizes: np.ndarray  # ‖∂loss/∂W‖
    slopes: np.ndarray  # mean derivative of the activation
    spreads: np.ndarray  # standard deviation of z over the examples, before a norm


@view(
    "saturation",
    {"is no plain stack of layers, for which this is shown": lambda s: not isinstance(s.settings, MLPSettings)},
)
def show_saturation(subject: Subject, *, layers: str | int = LAYERS, seed: int = 0) -> Result:
    """Untrained stacks of so many `layers` over random examples: sigmoid with and without batch norm, tanh, relu."""
    try:
        depth = int(layers)
    except ValueError:
        depth = 0
    if not 2 <= depth <= MAX_LAYERS:
        cause = f"a stack of {layers} layers cannot be shown"
        raise SeriatimError("inspect.layers", cause, f"choose one number from 2 to {MAX_LAYERS}")
    stacks = [stack_gradients(name, depth, seed) for name in STACKS]
    names, numbers = [stack.name for stack in stacks], [str(n) for n in range(1, depth + 1)]
    figures = {
        "size": ("Gradient of the weights of each layer", "norm of ∂loss/∂W", [stack.sizes for stack in stacks], True),
        "slope": ("Slope of the activation", "mean derivative", [stack.slopes for stack in stacks], False),
        "spread": ("How different the examples are", "std of z over the examples", [s.spreads for s in stacks], True),
    }
    arrays, charts = {}, []
    for name, (title, axis, lines, log) in figures.items():
        arrays[name] = NamedArray(np.stack(lines), {"network": names, "layer": numbers})
        series = [Series(stack, range(1, depth + 1), row(line)) for stack, line in zip(names, lines, strict=True)]
        charts.append(
            Lines(title=title, note=f"{depth} layers before training", x="layer", y=axis, series=series, log_y=log)
        )
    rows: list[tuple[Cell, ...]] = [
        (
            stack.name,
            *(
                format_number(float(value))
                for value in (stack.sizes[0], stack.sizes[-1], stack.sizes[0] / stack.sizes[-1])
            ),
            format_number(float((stack.sizes[0] / stack.sizes[-2]) ** (1 / max(depth - 2, 1)))),
            round(float(stack.slopes.mean()), 3),
        )
        for stack in stacks
    ]
    columns = ("network", "first layer", "last layer", "ratio", "factor per layer", "mean slope")
    table = Table(title="Gradients at the first layer and the last", columns=columns, rows=rows)
    plain, normed = stacks[0], stacks[1]
    notes = [
        f"the gradient of the first sigmoid layer is {format_number(float(plain.sizes[0] / plain.sizes[-1]))} times "
        f"that of the last, with batch norm {format_number(float(normed.sizes[0] / normed.sizes[-1]))} times",
        f"{EXAMPLES} random examples of {WIDTH} numbers and {CLASSES} classes; weights with variance 1/n, for relu 2/n",
    ]
    return Result("Sigmoids in deep stacks, and what batch norm does", arrays, [*charts, table], notes)


def stack_gradients(name: str, depth: int, seed: int) -> StackGradients:
    """Returns what the layers of a stack have at the first step of a training."""
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
    return StackGradients(name, sizes, np.array(slopes), np.array(spreads))


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


@view("normalization")
def show_normalization(subject: Subject, *, lengths: str | Sequence[int] = DEFAULT_LENGTHS, seed: int = 0) -> Result:
    """Both norms over one batch of random sequences of these `lengths`, and how much the first sequence changes with
    its neighbors, the size of the batch and padding. The same for every model; γ = 1, β = 0."""
    counts = parse_row_lengths(lengths)
    if 0 in counts:
        raise SeriatimError("inspect.lengths", "a sequence without elements has nothing to normalize", "as 4,3,2,1")
    generator = torch.Generator().manual_seed(derive(seed, "normalization"))
    centers, scales = torch.linspace(-2, 2, FEATURES), torch.linspace(0.5, 2, FEATURES).flip(0)

    def draw(elements: int) -> Tensor:
        return (centers + scales * torch.randn(elements, FEATURES, generator=generator)).double()

    sequences = [draw(count) for count in counts]
    x = torch.cat(sequences)
    norms: dict[str, Callable[[Tensor], Tensor]] = {"batch norm": batch_norm, "layer norm": layer_norm}
    elements = [f"{s}.{t}" for s, count in enumerate(counts) for t in range(count)]
    features = [f"feature {n}" for n in range(FEATURES)]
    values = {"input": x} | {name: norm(x) for name, norm in norms.items()}
    arrays = {
        name: NamedArray(cells.numpy(), {"element": elements, "feature": features}) for name, cells in values.items()
    }
    first, others = counts[0], [draw(count) for count in counts[1:]]
    padded = torch.cat([F.pad(sequence, (0, 0, 0, max(counts) - len(sequence))) for sequence in sequences])
    cases = {
        "alone in its batch": x[:first],
        "with other neighbors": torch.cat([x[:first], *others]),
        "with padding counted as zeros": padded,
    }
    changes = np.array([
        [float((norm(batch)[:first] - norm(x)[:first]).square().mean().sqrt()) for batch in cases.values()]
        for norm in norms.values()
    ])  # fmt: skip
    arrays["change"] = NamedArray(changes, {"norm": list(norms), "case": list(cases)})
    population = draw(POPULATION)
    mean, std = population.mean(dim=0), (population.var(dim=0, correction=0) + EPS).sqrt()
    noise = np.zeros((2, len(BATCH_SIZES)))
    for column, size in enumerate(BATCH_SIZES):
        batches = [draw(size) for _ in range(DRAWS)]
        noise[0, column] = rms([batch_norm(batch) - (batch - mean) / std for batch in batches])
        noise[1, column] = rms([layer_norm(batch)[:1] - layer_norm(batch[:1]) for batch in batches])
    arrays["by batch size"] = NamedArray(noise, {"norm": list(norms), "elements": [str(size) for size in BATCH_SIZES]})
    labels = [case for case in cases for _ in norms]
    charts: list[View] = [
        HeatmapGrid(
            title="The same batch, normalized over the batch and over the features",
            note="rows are sequence.element; batch norm makes each column standard, layer norm each row",
            rows=elements,
            columns=features,
            panels={name: matrix(cells.numpy()) for name, cells in values.items()},
            per_row=3,
            diverging=True,
        ),
        Bars(
            title="Change of the first sequence when only its batch changes",
            labels=labels,
            groups=list(norms) * len(cases),
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
    table = Table(title="Change of the result", columns=("case", *norms), rows=rows)
    notes = [
        "batch norm takes mean and variance of each feature over all elements of the batch, layer norm of each element "
        "over its features",
        "a batch of one element has no variance: batch norm gives zeros, whatever the element is",
    ]
    return Result("Batch norm and layer norm on the same batch", arrays, charts, notes, [table])


def rms(parts: Sequence[Tensor]) -> float:
    return float(torch.cat([part.flatten() for part in parts]).square().mean().sqrt())
