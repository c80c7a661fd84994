"""What a fresh BERT looks at before it has learnt anything.

A hidden token says nothing by itself: until some head finds its neighbours there is nothing to learn from but
frequencies, and with heads that look everywhere alike it takes a small model thousands of steps to get beyond them.
Whether a passage follows another asks for words that both have, a comparison that gradients find later still. So a few
heads begin with what texts are known to need; everything is trained from there, and the format stays BERT's.

    block 1, head 1    the element before            block 2, head 1    the element behind
    block 1, head 2    the same word in the other text, or, where there is none, the first element

Where an element stands is written in waves, sin ωi and cos ωi: turned by ω they are those of its neighbour, so that a
linear map can ask for it. Two more places of a vector mark the second text and the first element. docs/results.md
tells what it is worth on WikiText-2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Of vectors, in units of the spread of token vectors: of a wave, of the mark of a text, of that of the first element.
WAVE, TEXT, FIRST = 2.25, 3.4, 11.3
# Of attention, as scores: of a neighbour, of the same word, of another text (and as much less of its own), of the
# first element, which stands between a word that is found and none.
NEAR, SAME, OTHER, NONE = 17.0, 15.5, 2.2, 12.5
LEAST = 16  # numbers that a head needs for it


def _waves(width: int, heads: int) -> int:
    """How many frequencies there are; 0 where the heads have no room for it."""
    size = width // heads
    return 0 if heads < 2 or size < LEAST else size // 2 - 1


@torch.no_grad()
def begin(bert: Any, heads: int) -> None:
    """Positions and the first heads of a fresh network."""
    width, count = bert.width, _waves(bert.width, heads)
    if not count or not isinstance(bert.project, nn.Identity):
        return
    spread, size, table = width**-0.5, width // heads, bert.positions.weight
    turns = [(index + 0.5) * math.pi / count for index in range(count)]  # ω
    angles = torch.arange(len(table))[:, None] * torch.tensor(turns)
    table.zero_()
    table[:, : 2 * count] = WAVE * spread * torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    table[0, 2 * count + 1] = FIRST * spread
    norm = math.sqrt(1 + WAVE**2 * count / width)  # by which the first layer norm divides, in units of the spread
    for block, step in zip(bert.blocks, (-1, 1), strict=False):
        inputs = block.attention.inputs
        for weight in (inputs.weight[2 * width :], block.attention.output.weight):
            nn.init.normal_(weight, std=spread)
        query, key = inputs.weight[:size], inputs.weight[width : width + size]
        _neighbour(query, key, turns, step, math.sqrt(NEAR * math.sqrt(size) / count) * norm / WAVE)
    inputs = bert.blocks[0].attention.inputs
    query, key = inputs.weight[size : 2 * size], inputs.weight[width + size : width + 2 * size]
    rows, mark = size - 2, 2 * count
    likeness = SAME * math.sqrt(size) * norm**2 / (rows * (width - mark - 2))
    query.zero_()
    query[:rows, mark + 2 :].normal_(std=math.sqrt(likeness))
    key.copy_(query)
    apart = math.sqrt(OTHER * math.sqrt(size)) * norm / TEXT
    query[rows, mark], key[rows, mark] = -apart, apart
    strength = math.sqrt(NONE * math.sqrt(size) * norm / FIRST)
    inputs.bias[size + rows + 1], key[rows + 1, mark + 1] = strength, strength


def _neighbour(query: Tensor, key: Tensor, turns: Sequence[float], step: int, scale: float) -> None:
    """Added to what they are: the waves of the element `step` places further."""
    for index, turn in enumerate(turns):
        sine, cosine = 2 * index, 2 * index + 1
        query[sine, sine] += scale * math.cos(turn * step)
        query[sine, cosine] += scale * math.sin(turn * step)
        query[cosine, cosine] += scale * math.cos(turn * step)
        query[cosine, sine] -= scale * math.sin(turn * step)
        key[sine, sine] += scale
        key[cosine, cosine] += scale


@torch.no_grad()
def mark(segments: Tensor, heads: int) -> None:
    """Of fresh vectors of segments (n,width) the first two are told apart by one number."""
    width = segments.shape[1]
    if (count := _waves(width, heads)) and len(segments) > 1:
        segments[0, 2 * count], segments[1, 2 * count] = TEXT * width**-0.5, -TEXT * width**-0.5
