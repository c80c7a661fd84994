"""Backpropagation through time on a tiny network, term by term.

A plain RNN h_k = φ(W_x x_k + W_h h_{k−1} + b) reads a few elements, and only its last state enters the loss:
L = ½‖h_T − target‖². The weights are used at every step, so the gradient is a sum over the steps, and each term is a
product over all later steps:

    ∂L/∂W = Σ_k  ∂L/∂h_T · (Π_{j=k+1..T} ∂h_j/∂h_{j−1}) · ∂h_k/∂W        ∂h_j/∂h_{j−1} = diag(φ'(a_j)) W_h

If the factors of the product are smaller than one, early steps do not count: the gradient vanishes; if they are larger,
it explodes. All terms are computed by these formulas; that their sum is autograd's gradient is shown, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...core.device import derive
from ...core.errors import SeriatimError
from ...models.rnn import RNNCell
from ...models.rnn import Settings as RNNSettings
from ...nn.recurrent import scan
from ...report.charts import Cell, HeatmapGrid, Lines, Series, Table, View, matrix, row
from ..result import NamedArray, Result
from ..subject import Subject
from . import view

MAX_WIDTH, MAX_STEPS = 16, 64  # larger ones cannot be read
INPUT_SCALE = 0.2  # small inputs, so that φ is not flat from the first step on
PANELS_PER_ROW = 8


@dataclass(frozen=True)
class UnrolledGradient:
    """All factors for T steps of width D; the inputs have D numbers, too. `terms` (T,…) sum to the gradient."""

    cell: RNNCell
    x: Tensor  # (T,D)
    states: Tensor  # (T+1,D), the first is h_0
    loss: float
    last: Tensor  # ∂L/∂h_T (D,)
    factors: Tensor  # ∂h_k/∂h_{k−1} (T,D,D)
    products: Tensor  # Π_{j=k+1..T} ∂h_j/∂h_{j−1} (T,D,D)
    arriving: Tensor  # ∂L/∂h_k (T,D)
    terms: dict[str, Tensor]
    autograd: dict[str, Tensor]

    @property
    def gradients(self) -> dict[str, Tensor]:
        return {name: terms.sum(dim=0) for name, terms in self.terms.items()}

    @property
    def error(self) -> float:
        """The largest difference between the sums and autograd's gradients."""
        return max(float((value - self.autograd[name]).abs().max()) for name, value in self.gradients.items())


@view(
    "backpropagation",
    {"is not a plain RNN, for which this is shown": lambda subject: not isinstance(subject.settings, RNNSettings)},
)
def show_backpropagation(
    subject: Subject,
    *,
    width: int = 3,
    steps: int = 5,
    seed: int = 0,
    scale: float = 0.7,
    weights: Sequence[Sequence[float]] | None = None,
) -> Result:
    """A network of its own with `width` units over `steps` elements, drawn by `seed`. `scale` multiplies its recurrent
    matrix, which is orthogonal: below 1 the gradient vanishes, above it may explode. `weights` replace that matrix."""
    assert isinstance(subject.settings, RNNSettings)
    unrolled = unroll(width, steps, seed, scale, weights, subject.settings.activation)
    times = [str(k) for k in range(1, steps + 1)]
    units, inputs = [f"unit {n}" for n in range(width)], [f"input {n}" for n in range(width)]
    square = {"unit of h_k": units, "unit of h_k−1": units}
    axes = {
        "inputs": (unrolled.x, {"step": times, "input": inputs}),
        "states": (unrolled.states, {"step": ["0", *times], "unit": units}),
        "last": (unrolled.last, {"unit": units}),
        "factors": (unrolled.factors, {"step": times, **square}),
        "products": (unrolled.products, {"term": times, "unit of h_T": units, "unit of h_k": units}),
        "arriving": (unrolled.arriving, {"step": times, "unit": units}),
        "terms_recurrent": (unrolled.terms["recurrent"], {"term": times, **square}),
        "terms_input": (unrolled.terms["input"], {"term": times, "unit": units, "input": inputs}),
        "terms_bias": (unrolled.terms["bias"], {"term": times, "unit": units}),
        "sum": (unrolled.gradients["recurrent"], square),
        "autograd": (unrolled.autograd["recurrent"], square),
    }
    arrays = {name: NamedArray(values.numpy(), labels) for name, (values, labels) in axes.items()}
    terms = unrolled.terms["recurrent"]
    panels = {f"k = {k}": matrix(terms[k - 1].numpy()) for k in range(1, steps + 1)}
    charts: list[View] = [
        HeatmapGrid(
            title="Terms of ∂L/∂W_h, and their sum",
            note=f"the sum is autograd's gradient (to {unrolled.error:.0e})",
            rows=units,
            columns=units,
            x="unit of h_k−1",
            y="unit of h_k",
            panels={**panels, "sum": matrix(unrolled.gradients["recurrent"].numpy())},
            per_row=min(steps + 1, PANELS_PER_ROW),
            diverging=True,
        ),
        size_chart(unrolled),
        size_table(unrolled),
    ]
    notes = [
        f"the sums of the terms differ from autograd's gradients of W_h, W_x and b by at most {unrolled.error:.1e}"
    ]
    norms = vector_norms(unrolled.arriving)
    if steps > 1 and norms[0] > 0 and norms[-1] > 0:
        factor = (norms[0] / norms[-1]) ** (1 / (steps - 1))
        change = "vanishes" if factor < 1 else "grows"
        notes.append(f"on its way back the gradient {change} by a factor of {factor:.3f} per step")
    details = [] if width * steps > 64 else [numbers_table(unrolled)]
    return Result("Backpropagation through time, term by term", arrays, charts, notes, details)


def unroll(
    width: int,
    steps: int,
    seed: int = 0,
    scale: float = 1.0,
    weights: Sequence[Sequence[float]] | None = None,
    activation: str = "tanh",
) -> UnrolledGradient:
    """Runs the network forward by its own equations, then backward by the formulas."""
    cell, x, target = make_network(width, steps, seed, scale, weights, activation)
    with torch.enable_grad():
        outputs, _ = scan(cell, cell.input(x[None]), cell.initial_state(x[:1]), None, False)
        loss = 0.5 * (outputs[0, -1] - target).square().sum()
        parameters = {"recurrent": cell.recurrent, "input": cell.input.weight, "bias": cell.input.bias}
        gradients = torch.autograd.grad(loss, list(parameters.values()))
    with torch.no_grad():
        states = torch.cat([torch.zeros(1, width, dtype=x.dtype), outputs[0]])
        slopes = 1 - states[1:] ** 2 if activation == "tanh" else (states[1:] > 0).to(x.dtype)  # φ'(a_k) (T,D)
        factors = slopes[:, :, None] * cell.recurrent
        last = states[-1] - target
        products = [torch.eye(width, dtype=x.dtype)]
        for factor in reversed(factors[1:]):
            products.append(products[-1] @ factor)
        chains = torch.stack(products[::-1])
        arriving = torch.einsum("i,kij->kj", last, chains)
        local = arriving * slopes  # ∂L/∂a_k
        terms = {
            "recurrent": local[:, :, None] * states[:-1, None, :],
            "input": local[:, :, None] * x[:, None, :],
            "bias": local,
        }
    autograd = {name: gradient.detach() for name, gradient in zip(parameters, gradients, strict=True)}
    return UnrolledGradient(cell, x, states, float(loss.detach()), last, factors, chains, arriving, terms, autograd)


def make_network(
    width: int, steps: int, seed: int, scale: float, weights: Sequence[Sequence[float]] | None, activation: str
) -> tuple[RNNCell, Tensor, Tensor]:
    """Returns the cell, the inputs (T,D) and the target (D,)."""
    for name, value, most in (("width", width, MAX_WIDTH), ("steps", steps, MAX_STEPS)):
        if not 1 <= value <= most:
            raise SeriatimError(f"inspect.{name}", f"--{name} {value} cannot be shown", f"choose from 1 to {most}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "backpropagation"))
        cell = RNNCell(width, width, "relu" if activation == "relu" else "tanh").double()
        x, target = INPUT_SCALE * torch.randn(steps, width).double(), torch.rand(width).double() - 0.5
    with torch.no_grad():
        if weights is not None:
            matrix_values = torch.as_tensor(np.asarray(weights, dtype=np.float64))
            if matrix_values.shape != cell.recurrent.shape:
                shape = " × ".join(str(size) for size in matrix_values.shape)
                cause = f"weights of shape {shape} do not fit a width of {width}"
                raise SeriatimError("inspect.weights", cause, f"pass {width} rows of {width} numbers")
            cell.recurrent.copy_(matrix_values)
        cell.recurrent.mul_(scale)
    return cell, x, target


def vector_norms(terms: Tensor) -> list[float]:
    norms: list[float] = terms.flatten(1).norm(dim=1).tolist()
    return norms


def spectral_norms(matrices: Tensor) -> list[float]:
    norms: list[float] = torch.linalg.matrix_norm(matrices, ord=2).tolist()
    return norms


def size_chart(unrolled: UnrolledGradient) -> Lines:
    """Returns the sizes of the terms by their distance from the loss."""
    sizes = {
        "term of ∂L/∂W_h": vector_norms(unrolled.terms["recurrent"]),
        "∂L/∂h_k": vector_norms(unrolled.arriving),
        "product of factors": spectral_norms(unrolled.products),
    }
    distances = range(len(unrolled.x))
    positive = {name: [value if value > 0 else np.nan for value in values] for name, values in sizes.items()}
    return Lines(
        title="How much of the loss reaches step k",
        note="of the product the largest singular value; h_0 = 0, so the first step has no term of W_h",
        x="steps before the last, T − k",
        y="norm",
        series=[Series(name, distances, row(values[::-1])) for name, values in positive.items()],
        log_y=True,
        markers=True,
    )


def size_table(unrolled: UnrolledGradient) -> Table:
    steps = len(unrolled.x)
    columns = ("step", "before the last", "factor", "product", "∂L/∂h", "recurrent term", "input term", "bias term")
    values = zip(
        spectral_norms(unrolled.factors),
        spectral_norms(unrolled.products),
        vector_norms(unrolled.arriving),
        *(vector_norms(unrolled.terms[name]) for name in ("recurrent", "input", "bias")),
        strict=True,
    )
    rows = [(k, steps - k, *(float(f"{number:.4g}") for number in line)) for k, line in enumerate(values, 1)]
    note = "of matrices that multiply the largest singular value, of the others the norm"
    return Table(title="Sizes of the terms", note=note, columns=columns, rows=rows)


def numbers_table(unrolled: UnrolledGradient) -> Table:
    """Returns every factor and every term with its numbers, from the last step to the first."""

    def vector(values: Tensor) -> str:
        return "  ".join(f"{value:7.4f}" for value in (values.round(decimals=4) + 0.0).tolist())

    def lines(name: str, values: Tensor) -> list[tuple[Cell, ...]]:
        return [(name if n == 0 else "", vector(line)) for n, line in enumerate(values)]

    steps = len(unrolled.x)
    rows = lines("W_h", unrolled.cell.recurrent.detach())
    rows += [(f"h_{k}", vector(state)) for k, state in enumerate(unrolled.states)]
    rows.append((f"∂L/∂h_{steps} = h_{steps} − target", vector(unrolled.last)))
    for k in range(steps, 0, -1):
        if k < steps:
            rows += lines(f"∂h_{k + 1}/∂h_{k} = diag(φ') W_h", unrolled.factors[k])
        factors = " · ".join(f"∂h_{j}/∂h_{j - 1}" for j in range(steps, k, -1))
        rows.append((f"∂L/∂h_{k} = ∂L/∂h_{steps}{' · ' if factors else ''}{factors}", vector(unrolled.arriving[k - 1])))
        rows += lines(f"term {k} = (∂L/∂h_{k} ⊙ φ'(a_{k})) ⊗ h_{k - 1}", unrolled.terms["recurrent"][k - 1])
    rows += lines("sum of the terms", unrolled.gradients["recurrent"])
    rows += lines("autograd's ∂L/∂W_h", unrolled.autograd["recurrent"])
    note = "h_k = φ(W_x x_k + W_h h_{k−1} + b), L = ½‖h_T − target‖²"
    return Table(title="All numbers", note=note, columns=("quantity", "values"), rows=rows)
