"""Masked softmax over rows of different lengths: −∞ at padding, then softmax.

Weights are exactly 0 on padding, and a row without elements is all 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ...core.device import derive
from ...core.errors import SeriatimError
from ...inspect.result import NamedArray, Result
from ...inspect.subject import Subject
from ...inspect.views import view
from ...inspect.views.attention_steps import MAX_WRITTEN, grid, written
from ...nn.attention import masked_softmax
from ...report.charts import Table, matrix

DEFAULT_LENGTHS = (5, 3, 1, 0)
MAX_LENGTH = 32


@view("masked_softmax")
def show_masked_softmax(subject: Subject, *, lengths: str | Sequence[int] = DEFAULT_LENGTHS, seed: int = 0) -> Result:
    """A batch of rows of these `lengths` with random scores, padded to the longest; 0 is a row without elements. The
    same for every model."""
    counts = parse_row_lengths(lengths)
    longest = max(counts)
    generator = torch.Generator().manual_seed(derive(seed, "masked_softmax"))
    scores = torch.randn(len(counts), longest, generator=generator)
    mask = torch.arange(longest) < torch.tensor(counts)[:, None]
    masked = scores.masked_fill(~mask, -math.inf)
    panels = {
        "scores, padding included": scores,
        "softmax over padding: wrong": scores.softmax(dim=-1),
        "masked: −∞ at padding": masked,
        "masked softmax": masked_softmax(scores, mask),
    }
    rows = [f"row {n}, length {count}" for n, count in enumerate(counts)]
    columns = [str(n) for n in range(longest)]
    arrays = {name: NamedArray(values.numpy(), {"row": rows, "position": columns}) for name, values in panels.items()}
    finite = {name: matrix(np.where(np.isfinite(values), values, np.nan)) for name, values in panels.items()}
    texts = {name: written(values.numpy()) for name, values in panels.items()} if longest <= MAX_WRITTEN else None
    title = "Masked softmax over rows of different lengths"
    note = "a row with elements sums to 1 and is exactly 0 on padding; a row without any is all 0, never NaN"
    chart = grid(title, finite, rows, columns, "row", "position", note, texts, diverging=True)
    lost = (panels["softmax over padding: wrong"] * ~mask).sum(dim=-1)
    lines = [
        (name, round(float(wrong), 4), round(float(right.sum()), 4), round(float(right[~line].sum()), 4))
        for name, wrong, right, line in zip(rows, lost, panels["masked softmax"], mask, strict=True)
    ]
    columns_of = ("row", "weight lost to padding without a mask", "sum with it", "weight on padding with it")
    return Result(title, arrays, [chart], [note], [Table(title="Rows", columns=columns_of, rows=lines)])


def parse_row_lengths(lengths: str | Sequence[int]) -> list[int]:
    parts = lengths.split(",") if isinstance(lengths, str) else lengths
    try:
        counts = [int(part) for part in parts]
    except ValueError:
        counts = []
    if not counts or min(counts) < 0 or not 1 <= max(counts) <= MAX_LENGTH or len(counts) > MAX_LENGTH:
        cause = f"{lengths} are not lengths of rows, from 0 to {MAX_LENGTH}"
        raise SeriatimError("inspect.lengths", cause, "name some, as 5,3,1")
    return counts
