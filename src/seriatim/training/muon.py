"""Muon (Jordan et al. 2024): momentum whose matrices are orthogonalized before each update.

    m ← β m + (1−β) g,    u = (1−β) g + β m,    W ← W − η √max(1, rows/columns) · orthogonalize(u)

orthogonalize(U S Vᵀ) ≈ U Vᵀ by three iterations of Newton and Schulz: every direction of the update is about equally
long, the rare ones included, where a plain step mostly follows the few largest. It is meant for the matrices between
hidden layers. Embeddings, positions, heads, norms and biases are updated by AdamW in the same optimizer.

Layers that stack several matrices in one parameter (queries, keys and values; the gates of a cell) declare it in
`stacked`, and each is orthogonalized by itself. Matrices of equal shape are orthogonalized together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache

import torch
from torch import Tensor, nn

# The quintics a x + b x³ + c x⁵ of the iterations. The first is nearest to 1 over singular values of 0.01 to 1.02, each
# further one over the values that the one before leads to: the best composition (Amsel et al. 2025, "Polar Express").
# Each solves a linear program: min t with |a x + b x³ + c x⁵ − 1| ≤ t on a grid. Values from 0.01 to 1 end in 1 ± 0.29;
# every interval is 2 % longer than it has to be, because beyond its end rounding errors would grow.
COEFFICIENTS = ((7.9424, -22.2873, 15.8239), (3.5875, -2.5845, 0.4893), (2.6604, -1.9134, 0.4194))


def orthogonalize(matrices: Tensor) -> Tensor:
    """Returns U Vᵀ, nearly, of each matrix U S Vᵀ of a batch (N,rows,columns).

    Matrices are divided by (Σ s⁸)^⅛, s being their singular values. It is at most n^⅛ times the largest, where the
    Frobenius norm may be √n times as large, and comes with the products of the first iteration. Float32 is iterated in
    bfloat16 if the processor multiplies it natively: four times as fast, and exact enough for directions. Otherwise, of
    wide matrices X only X Xᵀ is iterated, which takes less arithmetic.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-30)[:, None, None]  # so that its powers neither vanish nor overflow
    short = x.dtype == torch.float32 and _multiplies_bfloat16(x.device.type)
    x = x.bfloat16() if short else x
    gram = torch.bmm(x, x.transpose(1, 2))
    square = torch.bmm(gram, gram)
    scale = square.flatten(1).norm(dim=1).clamp(min=1e-30)[:, None, None] ** -0.25
    x, gram, square = x * scale, gram * scale**2, square * scale**4
    wide = not short and x.shape[2] >= 2 * x.shape[1]  # small eigenvalues of X Xᵀ need the digits
    polynomial = product = gram
    for index, (a, b, c) in enumerate(COEFFICIENTS):
        if index:
            gram = torch.bmm(torch.bmm(polynomial, gram), polynomial) if wide else torch.bmm(x, x.transpose(1, 2))
            square = torch.bmm(gram, gram)
        polynomial = square.mul_(c).add_(gram, alpha=b)
        if wide:
            polynomial.diagonal(dim1=1, dim2=2).add_(a)
            product = torch.bmm(polynomial, product) if index else polynomial
        else:
            x = torch.baddbmm(x, polynomial, x, beta=a)
    x = torch.bmm(product, x) if wide else x
    return (x.transpose(1, 2) if tall else x).to(matrices.dtype)


@cache
def _multiplies_bfloat16(device: str) -> bool:
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def hidden_matrices(network: nn.Module) -> dict[str, int]:
    """Returns the parameters that Muon updates by name, each with the number of matrices stacked in it.

    These are the matrices and convolutions of the backbone; tables of vectors, such as positions, are none.
    """
    stacks: dict[str, int] = {}
    tables: set[str] = set()
    for prefix, module in network.named_modules():
        stacks |= {f"{prefix}.{name}": count for name, count in getattr(module, "stacked", {}).items()}
        if isinstance(module, nn.Embedding):
            tables.add(f"{prefix}.weight")
    named = {name: parameter for name, parameter in network.named_parameters() if parameter.dim() >= 2}
    return {
        name: stacks.get(name, 1)
        for name, parameter in named.items()
        if name.startswith("backbone.") and name not in tables and min(parameter.flatten(1).shape) > 1
    }


class Muon(torch.optim.AdamW):
    """AdamW whose groups with `stacked`, the number of matrices in each parameter, are updated by Muon.

    Args:
        params: The groups. A group with `stacked` has a `momentum`, too.
        options: Arguments of AdamW.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor, float]]] = defaultdict(list)
        for group in self.param_groups:
            for parameter in group["params"] if "stacked" in group else ():
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                average = state["momentum"]
                average.lerp_(parameter.grad, 1 - group["momentum"])
                ahead = parameter.grad.lerp(average, group["momentum"])  # Nesterov
                matrices = ahead.reshape(group["stacked"], len(parameter) // group["stacked"], -1)
                rows, columns = matrices.shape[1:]
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                by_shape[rows, columns].append((parameter, matrices, group["lr"] * math.sqrt(max(1, rows / columns))))
                parameter.grad = None  # AdamW below leaves it out
        for entries in by_shape.values():
            directions = orthogonalize(torch.cat([matrices for _, matrices, _ in entries]))
            counts = [len(matrices) for _, matrices, _ in entries]
            for (parameter, _, lr), direction in zip(entries, directions.split(counts), strict=True):
                parameter.add_(direction.reshape(parameter.shape), alpha=-lr)
        super().step()
