"""Backpropagation through time on a tiny network, term by term.

A plain RNN reads a few elements and predicts a class after each; the loss sums all outputs, or some of them:

    h_k = φ(W_x x_k + W_h h_{k−1} + b)      ŷ_t = softmax(V h_t)      J_t = −log ŷ_t[y_t]      E = Σ_t J_t

The weights are used at every step, so the gradient is a double sum, over the outputs t and the steps k before them, and
each term has a product over the steps between:

    ∂E/∂W = Σ_t Σ_{k≤t}  ∂J_t/∂h_t · (Π_{j=k+1..t} ∂h_j/∂h_{j−1}) · ∂⁺h_k/∂W
    ∂J_t/∂h_t = Vᵀ(ŷ_t − y_t)        ∂h_j/∂h_{j−1} = diag(φ'(a_j)) W_h        ∂⁺: through h_k alone, h_{k−1} constant

If the factors of the product are smaller than one, far terms do not count: the gradient vanishes; if they are larger,
it explodes. Truncation after τ steps drops the terms with t − k > τ. All terms are computed by these formulas; that
their sum is autograd's gradient is shown, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.device import global_stream
from ...core.errors import SeriatimError
from ...core.text import format_number
from ...inspect.result import Arrays, Drawing, NamedArray
from ...inspect.subject import Subject
from ...inspect.views import Request, implement
from ...models.rnn import RNNCell
from ...models.rnn import Settings as RNNSettings
from ...nn.recurrent import scan
from ...report.charts import Cell, Heatmap, HeatmapGrid, Lines, Series, Table, View, matrix, row
from .catalog import Backpropagation

MAX_WIDTH, MAX_STEPS = 16, 64  # larger ones cannot be read
MAX_WRITTEN = 10  # steps; with more, the cells of a heatmap have no numbers
INPUT_SCALE = 0.2  # small inputs, so that φ is not flat from the first step on
PANELS_PER_ROW = 8
MAX_NUMBERS = 64  # numbers of all states; with more, not every number is listed


@dataclass(frozen=True)
class UnrolledGradient:
    """All factors for T steps of width D and C classes; inputs have D numbers, too. First indices are t, then k.

    `terms` (T,T,…) sum to the gradients of E; the terms of V (T,C,D) have no k.
    """

    cell: RNNCell
    output: Tensor  # V (C,D)
    x: Tensor  # (T,D)
    states: Tensor  # (T+1,D), the first is h_0
    predictions: Tensor  # ŷ_t (T,C)
    targets: Tensor  # classes (T,)
    losses: Tensor  # J_t (T,), 0 for outputs that are not in the loss
    factors: Tensor  # ∂h_k/∂h_{k−1} (T,D,D)
    products: Tensor  # Π_{j=k+1..t} ∂h_j/∂h_{j−1} (T,T,D,D), 0 for k > t
    arriving: Tensor  # ∂J_t/∂h_k (T,T,D)
    terms: dict[str, Tensor]
    autograd: dict[str, Tensor]

    @property
    def gradients(self) -> dict[str, Tensor]:
        sums = {name: terms.sum(dim=(0, 1)) for name, terms in self.terms.items() if name != "output"}
        return sums | {"output": self.terms["output"].sum(dim=0)}

    @property
    def error(self) -> float:
        """The largest difference between the sums and autograd's gradients."""
        return max(float((value - self.autograd[name]).abs().max()) for name, value in self.gradients.items())

    def truncated(self, name: str) -> np.ndarray:
        """Returns for truncation after τ = 0 … T−1 steps the norm of what is dropped, as a share of the whole (T,)."""
        terms, steps = self.terms[name], len(self.x)
        distance = torch.arange(steps)[:, None] - torch.arange(steps)
        dropped = torch.stack([terms[distance > span].sum(dim=0).norm() for span in range(steps)])
        return (dropped / terms.sum(dim=(0, 1)).norm()).numpy()


@dataclass(frozen=True)
class UnrolledFacts:
    """The class that is right at each step, and the largest difference between the sums and autograd's gradients."""

    targets: list[int]
    error: float


def unrolled_arrays(subject: Subject, request: Request[Backpropagation]) -> Arrays[UnrolledFacts]:
    """Returns all factors and terms by output t and step k, their sum, and the shares that truncation drops."""
    assert isinstance(subject.settings, RNNSettings)
    o, activation = request.options, subject.settings.activation
    width, steps = o.width, o.steps
    unrolled = unroll(width, steps, o.seed, o.scale, o.weights, activation, o.outputs)
    times = [str(k) for k in range(1, steps + 1)]
    units, inputs = [f"unit {n}" for n in range(width)], [f"input {n}" for n in range(width)]
    classes = [f"class {n}" for n in range(len(unrolled.output))]
    pairs, square = {"output t": times, "step k": times}, {"unit of h_k": units, "unit of h_k−1": units}
    axes = {
        "inputs": (unrolled.x, {"step": times, "input": inputs}),
        "recurrent weights": (unrolled.cell.recurrent.detach(), square),
        "output weights": (unrolled.output, {"class": classes, "unit": units}),
        "states": (unrolled.states, {"step": ["0", *times], "unit": units}),
        "predictions": (unrolled.predictions, {"step": times, "class": classes}),
        "losses": (unrolled.losses, {"step": times}),
        "factors": (unrolled.factors, {"step k": times, **square}),
        "products": (unrolled.products, {**pairs, "unit of h_t": units, "unit of h_k": units}),
        "arriving": (unrolled.arriving, {**pairs, "unit of h_k": units}),
        "terms_recurrent": (unrolled.terms["recurrent"], {**pairs, **square}),
        "terms_input": (unrolled.terms["input"], {**pairs, "unit": units, "input": inputs}),
        "terms_bias": (unrolled.terms["bias"], {**pairs, "unit": units}),
        "terms_output": (unrolled.terms["output"], {"output t": times, "class": classes, "unit": units}),
        "sum": (unrolled.gradients["recurrent"], square),
        "autograd": (unrolled.autograd["recurrent"], square),
    }
    arrays = {name: NamedArray(values.numpy(), labels) for name, (values, labels) in axes.items()}
    shares = np.stack([unrolled.truncated(name) for name in ("recurrent", "input", "bias")])
    spans = {"gradient of": ["W_h", "W_x", "b"], "truncated after": [str(span) for span in range(steps)]}
    arrays["dropped"] = NamedArray(shares, spans)
    notes = [
        f"the sums of the terms differ from autograd's gradients of W_h, W_x, b and V by at most {unrolled.error:.1e}"
    ]
    last = int(torch.nonzero(unrolled.losses)[-1])  # the last output in the loss
    norms = unrolled.arriving[last, : last + 1].norm(dim=-1).tolist()
    if last and norms[0] > 0 and norms[-1] > 0:
        factor = (norms[0] / norms[-1]) ** (1 / last)
        change = "vanishes" if factor < 1 else "grows"
        notes.append(f"on its way back the gradient of J_{last + 1} {change} by a factor of {factor:.3f} per step")
    facts = UnrolledFacts(unrolled.targets.tolist(), unrolled.error)
    return Arrays("Backpropagation through time, term by term", arrays, facts, notes)


def unrolled_charts(arrays: Arrays[UnrolledFacts]) -> Drawing:
    """Returns how much of each loss reaches each step, the terms by step, what truncation drops, and all numbers."""
    tensors = {name: torch.from_numpy(array.values) for name, array in arrays.items()}
    times, units = list(arrays["losses"].axes["step"]), list(arrays["states"].axes["unit"])
    names, steps, error = list(arrays["dropped"].axes["gradient of"]), len(times), arrays.facts.error
    shares = arrays["dropped"].values
    by_step = tensors["terms_recurrent"].sum(dim=0)  # over the outputs
    panels = {f"k = {k}": matrix(by_step[k - 1].numpy()) for k in range(1, steps + 1)}
    charts: list[View] = [
        pair_chart(tensors, times),
        HeatmapGrid(
            title="Terms of ∂E/∂W_h by step, and their sum",
            note=f"each the sum over the outputs in the loss; the sum is autograd's gradient (to {error:.0e})",
            rows=units,
            columns=units,
            x="unit of h_k−1",
            y="unit of h_k",
            panels={**panels, "sum": matrix(arrays["sum"].values)},
            per_row=min(steps + 1, PANELS_PER_ROW),
            diverging=True,
        ),
        Lines(
            title="What truncation after τ steps cuts off",
            note="norm of the terms with t − k > τ, relative to the whole gradient",
            x="τ",
            y="share of the norm",
            series=[Series(f"∂E/∂{name}", range(steps), row(line)) for name, line in zip(names, shares, strict=True)],
            markers=True,
            low=0.0,
        ),
        size_table(tensors),
        Table(
            title="Truncation after τ steps",
            note="share of the norm of each gradient that is dropped; terms of opposite sign may drop more than all",
            columns=("τ", *names),
            rows=[(span, *(f"{100 * share:.1f} %" for share in line)) for span, line in enumerate(shares.T)],
        ),
    ]
    few = len(units) * steps <= MAX_NUMBERS
    return Drawing(charts, [numbers_table(tensors, arrays.facts.targets)] if few else [])


implement(
    Backpropagation,
    unrolled_arrays,
    unrolled_charts,
    {"is not a plain RNN, for which this is shown": lambda subject: not isinstance(subject.settings, RNNSettings)},
)


def unroll(
    width: int,
    steps: int,
    seed: int = 0,
    scale: float = 1.0,
    weights: Sequence[Sequence[float]] | None = None,
    activation: str = "tanh",
    outputs: str | Sequence[int] = "all",
) -> UnrolledGradient:
    """Runs the network forward by its own equations, then backward by the formulas."""
    cell, output, x, targets = make_network(width, steps, seed, scale, weights, activation)
    counted = torch.zeros(steps, dtype=x.dtype)
    counted[[step - 1 for step in parse_outputs(outputs, steps)]] = 1
    with torch.enable_grad():
        output.requires_grad_()
        hidden, _ = scan(cell, cell.input(x[None]), cell.initial_state(x[:1]), None, False)
        losses = counted * F.cross_entropy(hidden[0] @ output.T, targets, reduction="none")
        parameters = {
            "recurrent": cell.recurrent,
            "input": cell.input.weight,
            "bias": cell.input.bias,
            "output": output,
        }
        gradients = torch.autograd.grad(losses.sum(), list(parameters.values()))
    with torch.no_grad():
        states = torch.cat([torch.zeros(1, width, dtype=x.dtype), hidden[0]])
        slopes = 1 - states[1:] ** 2 if activation == "tanh" else (states[1:] > 0).to(x.dtype)  # φ'(a_k) (T,D)
        factors = slopes[:, :, None] * cell.recurrent
        predictions = (states[1:] @ output.T).softmax(dim=-1)
        errors = counted[:, None] * (predictions - F.one_hot(targets, len(output)))  # ∂J_t/∂(V h_t)
        products = torch.zeros(steps, steps, width, width, dtype=x.dtype)
        products[range(steps), range(steps)] = torch.eye(width, dtype=x.dtype)
        for k in reversed(range(steps - 1)):
            products[k + 1 :, k] = products[k + 1 :, k + 1] @ factors[k + 1]
        arriving = torch.einsum("ti,tkij->tkj", errors @ output, products)
        local = arriving * slopes  # ∂J_t/∂a_k
        terms = {
            "recurrent": local[..., None] * states[:-1, None, :],
            "input": local[..., None] * x[:, None, :],
            "bias": local,
            "output": errors[:, :, None] * states[1:, None, :],
        }
    autograd = {name: gradient.detach() for name, gradient in zip(parameters, gradients, strict=True)}
    values = (states, predictions, targets, losses.detach(), factors, products, arriving, terms, autograd)
    return UnrolledGradient(cell, output.detach(), x, *values)


def make_network(
    width: int, steps: int, seed: int, scale: float, weights: Sequence[Sequence[float]] | None, activation: str
) -> tuple[RNNCell, Tensor, Tensor, Tensor]:
    """Returns the cell, V (C,D), the inputs (T,D) and the classes (T,) that are right."""
    for name, value, most in (("width", width, MAX_WIDTH), ("steps", steps, MAX_STEPS)):
        if not 1 <= value <= most:
            raise SeriatimError(f"inspect.{name}", f"--{name} {value} cannot be shown", f"choose from 1 to {most}")
    classes = max(width, 2)  # a single one is always right
    with global_stream(seed, "backpropagation"):
        cell = RNNCell(width, width, "relu" if activation == "relu" else "tanh").double()
        x = INPUT_SCALE * torch.randn(steps, width).double()
        output, targets = torch.randn(classes, width).double(), torch.randint(0, classes, (steps,))
    with torch.no_grad():
        if weights is not None:
            matrix_values = torch.as_tensor(np.asarray(weights, dtype=np.float64))
            if matrix_values.shape != cell.recurrent.shape:
                shape = " × ".join(str(size) for size in matrix_values.shape)
                cause = f"weights of shape {shape} do not fit a width of {width}"
                raise SeriatimError("inspect.weights", cause, f"pass {width} rows of {width} numbers")
            cell.recurrent.copy_(matrix_values)
        cell.recurrent.mul_(scale)
    return cell, output, x, targets


def parse_outputs(outputs: str | Sequence[int], steps: int) -> list[int]:
    """Returns the steps whose outputs are in the loss, counted from 1: of "all", "last", "last3" or "2,5"."""
    if outputs == "all":
        return list(range(1, steps + 1))
    if isinstance(outputs, str) and (found := re.fullmatch(r"last(\d*)", outputs)):
        numbers = list(range(steps + 1 - int(found[1] or 1), steps + 1))
    else:
        parts = outputs.split(",") if isinstance(outputs, str) else outputs
        try:
            numbers = sorted({int(part) for part in parts})
        except ValueError:
            numbers = []
    if not numbers or numbers[0] < 1 or numbers[-1] > steps:
        cause = f"{outputs} are not outputs of {steps} steps"
        raise SeriatimError("inspect.outputs", cause, "choose all, last, last3 or steps such as 1,2")
    return numbers


def pair_chart(tensors: Mapping[str, Tensor], times: list[str]) -> Heatmap:
    """Returns the norms of ∂J_t/∂h_k for each output t in the loss and each step k."""
    norms = tensors["arriving"].norm(dim=-1)
    hidden = torch.triu(torch.ones_like(norms), 1).bool() | (tensors["losses"] == 0)[:, None]
    values = norms.masked_fill(hidden, torch.nan).numpy()
    written = [["" if np.isnan(value) else format_number(float(value)) for value in line] for line in values]
    return Heatmap(
        title="How much of each loss reaches each step",
        note="norm of ∂J_t/∂h_k, the product of factors from t back to k; empty where h_k is no cause of J_t",
        rows=[f"J_{t}" for t in times],
        columns=[f"h_{k}" for k in times],
        values=matrix(values),
        texts=written if len(times) <= MAX_WRITTEN else (),
        x="with respect to",
        y="loss of the output",
        low=0.0,
    )


def size_table(tensors: Mapping[str, Tensor]) -> Table:
    columns = ("step", "loss", "factor", "product", "∂E/∂h", "term of W_h", "term of W_x", "term of b")
    values = zip(
        tensors["losses"].tolist(),
        torch.linalg.matrix_norm(tensors["factors"], ord=2).tolist(),
        torch.linalg.matrix_norm(tensors["products"][-1], ord=2).tolist(),
        tensors["arriving"].sum(dim=0).norm(dim=-1).tolist(),
        *(
            tensors[f"terms_{name}"].sum(dim=0).flatten(1).norm(dim=1).tolist()
            for name in ("recurrent", "input", "bias")
        ),
        strict=True,
    )
    rows = [(k, *(float(f"{number:.4g}") for number in line)) for k, line in enumerate(values, 1)]
    note = "of factor and product (to the last step) the largest singular value, of the others the norm"
    return Table(title="Sizes of the terms", note=note, columns=columns, rows=rows)


def numbers_table(tensors: Mapping[str, Tensor], targets: list[int]) -> Table:
    """Returns every factor and every term with its numbers, from the last output to the first."""

    def vector(values: Tensor) -> str:
        return "  ".join(f"{value:7.4f}" for value in (values.round(decimals=4) + 0.0).tolist())

    def lines(name: str, values: Tensor) -> list[tuple[Cell, ...]]:
        return [(name if n == 0 else "", vector(line)) for n, line in enumerate(values)]

    steps = len(tensors["losses"])
    rows = lines("W_h", tensors["recurrent weights"]) + lines("V", tensors["output weights"])
    rows += [(f"h_{k}", vector(state)) for k, state in enumerate(tensors["states"])]
    for k in range(steps, 1, -1):
        rows += lines(f"∂h_{k}/∂h_{k - 1} = diag(φ') W_h", tensors["factors"][k - 1])
    for t in (int(index) + 1 for index in torch.nonzero(tensors["losses"]).flatten().flip(0)):
        loss, target = float(tensors["losses"][t - 1]), targets[t - 1]
        rows.append((f"ŷ_{t} = softmax(V h_{t})", vector(tensors["predictions"][t - 1])))
        rows.append((f"J_{t} = −log ŷ_{t}[{target}]", f"{loss:7.4f}"))
        for k in range(t, 0, -1):
            chain = " · ".join(f"∂h_{j}/∂h_{j - 1}" for j in range(t, k, -1))
            formula = f"∂J_{t}/∂h_{t} · {chain}" if chain else f"Vᵀ(ŷ_{t} − y_{t})"
            rows.append((f"∂J_{t}/∂h_{k} = {formula}", vector(tensors["arriving"][t - 1, k - 1])))
    for k in range(steps, 0, -1):
        name = f"term {k} = Σ_t (∂J_t/∂h_{k} ⊙ φ'(a_{k})) ⊗ h_{k - 1}"
        rows += lines(name, tensors["terms_recurrent"][:, k - 1].sum(dim=0))
    rows += lines("sum of the terms", tensors["sum"])
    rows += lines("autograd's ∂E/∂W_h", tensors["autograd"])
    note = "h_k = φ(W_x x_k + W_h h_{k−1} + b), ŷ_t = softmax(V h_t), E = Σ_t J_t"
    return Table(title="All numbers", note=note, columns=("quantity", "values"), rows=rows)
