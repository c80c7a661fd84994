"""Back-propagation through time on a tiny network, term by term.

A plain RNN h_k = φ(W_x x_k + W_h h_{k−1} + b) reads a few elements, and only its last state is judged:
L = ½‖h_T − target‖². The weights are used at every step, so the gradient is a sum over the steps, and a term is a
product of all the steps between there and the end:

    ∂L/∂W = Σ_k  ∂L/∂h_T · (Π_{j=k+1..T} ∂h_j/∂h_{j−1}) · ∂h_k/∂W        ∂h_j/∂h_{j−1} = diag(φ'(a_j)) W_h

Where the factors of the product are smaller than one, early steps do not count: the gradient vanishes; where they are
larger it explodes. Everything is worked out here by these formulas; that the sum is autograd's gradient is shown too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.random import derive
from ..models.rnn import RNNCell, Settings
from ..nn.recurrent import scan
from .seen import Array, Seen
from .subject import Subject

MOST = {"width": 16, "steps": 64}  # beyond, nobody could follow
WEIGHTS = ("recurrent", "input", "bias")
SMALL = 0.2  # inputs, so that φ is not flat from the first step on
ACROSS = 8  # terms beside each other
DIGITS = 4


@dataclass(frozen=True)
class Chain:
    """All factors. T steps of width D; x has D numbers too. `terms` (T, …) of each weight sum to its gradient."""

    cell: RNNCell
    x: Tensor  # (T,D)
    states: Tensor  # (T+1,D), the first is h_0
    loss: float
    last: Tensor  # ∂L/∂h_T (D,)
    slopes: Tensor  # φ'(a_k) (T,D)
    factors: Tensor  # ∂h_k/∂h_{k−1} (T,D,D)
    products: Tensor  # Π_{j=k+1..T} ∂h_j/∂h_{j−1} (T,D,D)
    arriving: Tensor  # ∂L/∂h_k (T,D), by way of h_T
    terms: dict[str, Tensor]
    autograd: dict[str, Tensor]

    @property
    def gradients(self) -> dict[str, Tensor]:
        return {name: terms.sum(dim=0) for name, terms in self.terms.items()}

    @property
    def apart(self) -> float:
        """How far the sums are from what autograd gives, at most."""
        return max(float((value - self.autograd[name]).abs().max()) for name, value in self.gradients.items())


def suits(subject: Subject) -> str:
    return "" if subject.model == "rnn" else "is no plain RNN, on whose steps this is shown"


def look(
    subject: Subject,
    *,
    width: int = 3,
    steps: int = 5,
    seed: int = 0,
    scale: float = 0.7,
    weights: Sequence[Sequence[float]] | None = None,
) -> Seen:
    """A network of its own with `width` units over `steps` elements, drawn by `seed`. `scale` multiplies its recurrent
    matrix, which at 1 is orthogonal: below, the gradient vanishes; above, it may explode. `weights` are that matrix
    instead, before it is scaled."""
    settings: Settings = subject.settings  # type: ignore[assignment]
    chain = unrolled(width, steps, seed, scale, weights, settings.activation)
    times = [str(k) for k in range(1, steps + 1)]
    units = [f"unit {index}" for index in range(width)]
    fed = [f"input {index}" for index in range(width)]
    term, square = ("term", times), (("unit of h_k", units), ("unit of h_k−1", units))
    arrays = {
        "inputs": Array(chain.x.numpy(), (("step", times), ("input", fed))),
        "states": Array(chain.states.numpy(), (("step", ["0", *times]), ("unit", units))),
        "last": Array(chain.last.numpy(), (("unit", units),)),
        "factors": Array(chain.factors.numpy(), (("step", times), *square)),
        "products": Array(chain.products.numpy(), (term, ("unit of h_T", units), ("unit of h_k", units))),
        "arriving": Array(chain.arriving.numpy(), (("step", times), ("unit", units))),
        "terms_recurrent": Array(chain.terms["recurrent"].numpy(), (term, *square)),
        "terms_input": Array(chain.terms["input"].numpy(), (term, ("unit", units), ("input", fed))),
        "terms_bias": Array(chain.terms["bias"].numpy(), (term, ("unit", units))),
        "sum": Array(chain.gradients["recurrent"].numpy(), square),
        "autograd": Array(chain.autograd["recurrent"].numpy(), square),
    }
    title = "Back-propagation through time, term by term"
    return Seen(title, arrays, [_grid(chain, units), _curves(chain), _table(chain)], _told(chain), _notes(chain))


def unrolled(
    width: int,
    steps: int,
    seed: int = 0,
    scale: float = 1.0,
    weights: Sequence[Sequence[float]] | None = None,
    activation: str = "tanh",
) -> Chain:
    """The network forwards by its own equations, then backwards by the formulas."""
    cell, x, target = _made(width, steps, seed, scale, weights, activation)
    with torch.enable_grad():
        outputs, _ = scan(cell, cell.input(x[None]), cell.start(x[:1]), None, False)
        loss = 0.5 * (outputs[0, -1] - target).square().sum()
        parameters = {"recurrent": cell.recurrent, "input": cell.input.weight, "bias": cell.input.bias}
        autograd = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    with torch.no_grad():
        states = torch.cat([torch.zeros(1, width, dtype=x.dtype), outputs[0]])
        slopes = 1 - states[1:] ** 2 if activation == "tanh" else (states[1:] > 0).to(x.dtype)
        factors = slopes[:, :, None] * cell.recurrent  # (T,D,D)
        last = states[-1] - target
        products = [torch.eye(width, dtype=x.dtype)]
        for factor in reversed(factors[1:]):
            products.append(products[-1] @ factor)
        chains = torch.stack(products[::-1])  # (T,D,D), the first has all factors
        arriving = torch.einsum("i,kij->kj", last, chains)
        into = arriving * slopes  # ∂L/∂a_k
        terms = {
            "recurrent": into[:, :, None] * states[:-1, None, :],
            "input": into[:, :, None] * x[:, None, :],
            "bias": into,
        }
    return Chain(
        cell, x, states, float(loss.detach()), last, slopes, factors, chains, arriving, terms,
        {name: value.detach() for name, value in autograd.items()},
    )  # fmt: skip


def _made(
    width: int, steps: int, seed: int, scale: float, weights: Sequence[Sequence[float]] | None, activation: str
) -> tuple[RNNCell, Tensor, Tensor]:
    for name, value in (("width", width), ("steps", steps)):
        if not 1 <= value <= MOST[name]:
            raise SeriatimError(f"inspect.{name}", f"{name} {value} cannot be shown", f"from 1 to {MOST[name]}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "backpropagation"))
        cell = RNNCell(width, width, "relu" if activation == "relu" else "tanh").double()
        x, target = SMALL * torch.randn(steps, width).double(), torch.rand(width).double() - 0.5
    with torch.no_grad():
        if weights is not None:
            given = torch.as_tensor(np.asarray(weights, dtype=np.float64))
            if given.shape != cell.recurrent.shape:
                shape = " × ".join(str(size) for size in given.shape)
                raise SeriatimError("inspect.weights", f"weights of {shape} for a width of {width}", "give a square")
            cell.recurrent.copy_(given)
        cell.recurrent.mul_(scale)
    return cell, x, target


def _norms(terms: Tensor) -> list[float]:
    found: list[float] = terms.flatten(1).norm(dim=1).tolist()
    return found


def _grid(chain: Chain, units: list[str]) -> dict[str, object]:
    """Each term of ∂L/∂W_h as a panel, and their sum."""
    terms, steps = chain.terms["recurrent"], len(chain.x)
    panels = [[f"k = {k}", terms[k - 1].tolist()] for k in range(1, steps + 1)]
    panels.append(["sum", chain.gradients["recurrent"].tolist()])
    return {
        "kind": "heats", "title": "The terms of ∂L/∂W_h, and their sum", "rows": units, "columns": units,
        "x": "unit of h_k−1", "y": "unit of h_k", "across": min(steps + 1, ACROSS), "panels": panels,
        "note": f"the sum is autograd's gradient (to {chain.apart:.0e})",
    }  # fmt: skip


def _curves(chain: Chain) -> dict[str, object]:
    """How large the terms are by their distance from the loss."""
    steps = len(chain.x)
    sizes = {
        "term of ∂L/∂W_h": _norms(chain.terms["recurrent"]),
        "∂L/∂h_k": _norms(chain.arriving),
        "product of factors": torch.linalg.matrix_norm(chain.products, ord=2).tolist(),
    }
    series = [[name, [[steps - k, value[k - 1]] for k in range(steps, 0, -1)]] for name, value in sizes.items()]
    return {
        "kind": "lines", "title": "How much of the loss reaches step k", "x": "steps before the last, T − k",
        "y": "norm", "series": series, "log_y": True, "marks": True,
        "note": "of the product the largest singular value; h_0 = 0, so the first step has no term of W_h",
    }  # fmt: skip


def _table(chain: Chain) -> dict[str, object]:
    steps = len(chain.x)
    sizes = zip(
        range(1, steps + 1),
        torch.linalg.matrix_norm(chain.factors, ord=2).tolist(),
        torch.linalg.matrix_norm(chain.products, ord=2).tolist(),
        _norms(chain.arriving),
        *(_norms(chain.terms[name]) for name in WEIGHTS),
        strict=True,
    )
    columns = ["step", "before the last", "factor", "product", "∂L/∂h", *(f"{name} term" for name in WEIGHTS)]
    rows = [[k, steps - k, *map(_rounded, rest)] for k, *rest in sizes]
    note = "sizes: of matrices that multiply the largest singular value, of the rest the norm"
    return {"kind": "table", "title": "The terms in figures", "columns": columns, "rows": rows, "note": note}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _told(chain: Chain) -> list[str]:
    """For reading along: every factor and every term with its numbers."""
    steps = len(chain.x)
    lines = [
        "h_k = φ(W_x x_k + W_h h_{k−1} + b), L = ½‖h_T − target‖²",
        "∂L/∂W_h = Σ_k ∂L/∂h_T · (Π_{j=k+1..T} ∂h_j/∂h_{j−1}) · ∂h_k/∂W_h",
        "",
        *_matrix("W_h =", chain.cell.recurrent.detach()),
        "",
    ]
    lines += [f"h_{k} = {_row(chain.states[k])}" for k in range(steps + 1)]
    lines += [f"L = {chain.loss:.4f}    ∂L/∂h_{steps} = h_{steps} − target = {_row(chain.last)}", ""]
    for k in range(steps, 0, -1):
        if k < steps:
            lines += _matrix(f"∂h_{k + 1}/∂h_{k} = diag(φ') W_h =", chain.factors[k])
        names = " · ".join(f"∂h_{j}/∂h_{j - 1}" for j in range(steps, k, -1))
        product = f"∂L/∂h_{steps} · {names}" if names else f"∂L/∂h_{steps}"
        lines += [
            f"k = {k}: {product} = {_row(chain.arriving[k - 1])}    norm {chain.arriving[k - 1].norm():.4g}",
            *_matrix(f"term {k} = (that ⊙ φ'(a_{k})) ⊗ h_{k - 1} =", chain.terms["recurrent"][k - 1]),
            "",
        ]
    lines += _matrix("sum of the terms =", chain.gradients["recurrent"])
    return [*lines, *_matrix("autograd's ∂L/∂W_h =", chain.autograd["recurrent"])]


def _matrix(head: str, values: Tensor) -> list[str]:
    return [head, *(f"    {_row(row)}" for row in values)]


def _row(values: Tensor) -> str:
    return "[" + "  ".join(f"{value:8.4f}" for value in (values.round(decimals=4) + 0.0).tolist()) + "]"


def _notes(chain: Chain) -> list[str]:
    steps, norms = len(chain.x), _norms(chain.arriving)
    notes = [f"The sums of the terms are autograd's gradients of W_h, W_x and b: at most {chain.apart:.1e} apart."]
    if steps > 1 and norms[0] > 0 and norms[-1] > 0:
        factor = (norms[0] / norms[-1]) ** (1 / (steps - 1))
        way = "vanishes" if factor < 1 else "grows"
        notes.append(f"On its way back the gradient {way} by a factor of {factor:.3f} per step.")
    return notes
