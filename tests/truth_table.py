"""Models that are tables: the probabilities of the next token after each prefix are written down, or drawn once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

EOS = 0


class Table:
    """Unlisted prefixes end."""

    def __init__(self, table: dict[tuple[int, ...], list[float]], vocab_size: int) -> None:
        self.table, self.vocab_size = table, vocab_size

    def of(self, prefix: Sequence[int]) -> list[float]:
        return self.table.get(tuple(prefix), [1.0] + [0.0] * (self.vocab_size - 1))

    def score(self, tokens: Sequence[int]) -> float:
        chances = [self.of(tokens[:place])[token] for place, token in enumerate(tokens)]
        return sum(math.log(chance) if chance > 0 else -math.inf for chance in chances)

    def start(self, rows: int = 1) -> tuple[Tensor, Tensor]:
        return torch.tensor([self.of(())] * rows, dtype=torch.float64).log(), torch.empty(rows, 0, dtype=torch.long)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.cat([state, tokens[:, None]], dim=1)
        return torch.tensor([self.of(row) for row in state.tolist()], dtype=torch.float64).log(), state


def random_table(seed: int, vocab_size: int, depth: int) -> Table:
    generator = np.random.default_rng(seed)
    prefixes = [p for n in range(depth) for p in itertools.product(range(1, vocab_size), repeat=n)]
    return Table({p: generator.dirichlet(np.full(vocab_size, 0.5)).tolist() for p in prefixes}, vocab_size)


class Tables:
    """A batch whose rows have tables of their own. `sizes` remembers how many hypotheses each step was asked about."""

    def __init__(self, tables: list[Table]) -> None:
        self.tables = tables
        self.sizes: list[int] = []

    def start(self) -> tuple[Tensor, Any]:
        first = torch.tensor([table.of(()) for table in self.tables], dtype=torch.float64).log()
        return first, (torch.arange(len(self.tables)), torch.empty(len(self.tables), 0, dtype=torch.long))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        self.sizes.append(len(tokens))
        which, prefix = state[0], torch.cat([state[1], tokens[:, None]], dim=1)
        rows = [self.tables[w].of(p) for w, p in zip(which.tolist(), prefix.tolist(), strict=True)]
        return torch.tensor(rows, dtype=torch.float64).log(), (which, prefix)
