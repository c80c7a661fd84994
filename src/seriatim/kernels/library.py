"""One recurrent layer in one direction by torch's own functions: on a GPU cuDNN's, and on a CPU oneDNN's LSTM.

cuDNN makes the product of the inputs itself, has the GRU with the reset after its product only, and knows no mask: rows
must be real from their begin up to some length, and are packed. What it cannot do is left to the equations. oneDNN's
LSTM is the faster one where its weights are so many that every step must fetch them from far away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "tanh": torch.rnn_tanh,
    "relu": torch.rnn_relu,
    "lstm": torch.lstm,
    "gru-after": torch.gru,
}

WIDE = 512  # units


def serves(x: Tensor, kind: str | None, mask: Tensor | None) -> bool:
    """Whether cuDNN has this cell, and these rows can be packed."""
    if x.device.type != "cuda" or kind not in FUNCTIONS or not torch.backends.cudnn.enabled or x.shape[1] == 0:
        return False
    return mask is None or bool(mask[:, 0].all() and (mask[:, 1:] <= mask[:, :-1]).all())


def faster(x: Tensor, width: int, mask: Tensor | None) -> bool:
    """Whether an LSTM on the CPU is left to oneDNN. Measured, the ways are level at 256 units, and at 650 ours takes a
    seventh longer."""
    return width >= WIDE and mask is None and x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[1] > 1


def layer(
    kind: str,
    x: Tensor,
    weights: tuple[Tensor, Tensor],
    biases: tuple[Tensor, Tensor],
    state: tuple[Tensor, ...],
    mask: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The outputs (B,T,H) and the last state, of inputs (B,T,D), the weights and biases of inputs and state, and the
    state before. In the type of the weights, also under autocast, as the state is best kept in it."""
    run = FUNCTIONS[kind]
    before = tuple(part[None] for part in state)
    hidden = before if len(before) > 1 else before[0]
    parameters = [*weights, *biases]
    lengths = torch.full((len(x),), x.shape[1], device=x.device) if mask is None else mask.sum(dim=1)
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(weights[0].dtype)
        if reverse:
            x = _turned(x, lengths)
        if mask is None:
            y, *after = run(x, hidden, parameters, True, 1, 0.0, False, False, True)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            longest_first, back = packed.sorted_indices, packed.unsorted_indices
            assert longest_first is not None  # for they were not said to be sorted
            assert back is not None
            first = tuple(part.index_select(1, longest_first) for part in before)
            hidden = first if len(first) > 1 else first[0]
            data, *after = run(packed.data, packed.batch_sizes, hidden, parameters, True, 1, 0.0, False, False)
            y, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True, total_length=x.shape[1])
            after = [part.index_select(1, back) for part in after]
        if reverse:
            y = _turned(y, lengths)
    return y, tuple(part[0] for part in after)


def _turned(x: Tensor, lengths: Tensor) -> Tensor:
    """Each row's real elements from the last to the first; padding stays where it is."""
    places = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    mirrored = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    return x.gather(1, mirrored[..., None].expand_as(x))
