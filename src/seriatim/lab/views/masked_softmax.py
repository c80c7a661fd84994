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
from ...inspect.result import Arrays, Drawing, NamedArray
from ...inspect.subject import Subject
from ...inspect.views import Request, implement
from ...inspect.views.attention_steps import MAX_WRITTEN, grid, written
from ...nn.attention import masked_softmax
from ...report.charts import Table, matrix
from .catalog import MaskedSoftmax

MAX_LENGTH = 32
NOTE = "a row with elements sums to 1 and is exactly 0 on padding; a row without any is all 0, never NaN"
UNMASKED, MASKED = "softmax over padding: wrong", "masked softmax"


def masked_softmax_arrays(subject: Subject, request: Request[MaskedSoftmax]) -> Arrays[list[int]]:
    """Returns scores and weights (rows, positions) with and without a mask; the facts are the lengths of the rows."""
    counts = parse_row_lengths(request.options.lengths)
    longest = max(counts)
    generator = torch.Generator().manual_seed(derive(request.options.seed, "masked_softmax"))
    scores = torch.randn(len(counts), longest, generator=generator)
    mask = torch.arange(longest) < torch.tensor(counts)[:, None]
    panels = {
        "scores, padding included": scores,
        UNMASKED: scores.softmax(dim=-1),
        "masked: −∞ at padding": scores.masked_fill(~mask, -math.inf),
        MASKED: masked_softmax(scores, mask),
    }
    axes = {
        "row": [f"row {n}, length {count}" for n, count in enumerate(counts)],
        "position": [str(n) for n in range(longest)],
    }
    arrays = {name: NamedArray(values.numpy(), axes) for name, values in panels.items()}
    return Arrays("Masked softmax over rows of different lengths", arrays, counts, [NOTE])


def masked_softmax_charts(arrays: Arrays[list[int]]) -> Drawing:
    rows, columns = (list(labels) for labels in arrays[MASKED].axes.values())
    finite = {name: matrix(np.where(np.isfinite(array.values), array.values, np.nan)) for name, array in arrays.items()}
    few = len(columns) <= MAX_WRITTEN
    texts = {name: written(array.values) for name, array in arrays.items()} if few else None
    chart = grid(arrays.title, finite, rows, columns, "row", "position", NOTE, texts, diverging=True)
    mask = np.arange(len(columns)) < np.array(arrays.facts)[:, None]
    lost = (arrays[UNMASKED].values * ~mask).sum(axis=-1)
    lines = [
        (name, round(float(wrong), 4), round(float(right.sum()), 4), round(float(right[~line].sum()), 4))
        for name, wrong, right, line in zip(rows, lost, arrays[MASKED].values, mask, strict=True)
    ]
    columns_of = ("row", "weight lost to padding without a mask", "sum with it", "weight on padding with it")
    return Drawing([chart], [Table(title="Rows", columns=columns_of, rows=lines)])


implement(MaskedSoftmax, masked_softmax_arrays, masked_softmax_charts)


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
