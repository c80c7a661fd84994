"""A recurrent layer in one direction by torch's own functions: cuDNN on a GPU, oneDNN's LSTM on a CPU.

cuDNN includes the product of the inputs, has the GRU only with the reset after the product, and supports no mask: rows
must be padded on the right, and are packed. oneDNN's LSTM is faster for weights that do not fit in the caches.
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

MIN_ONEDNN_WIDTH = 512


def supports_cudnn(x: Tensor, kind: str | None, mask: Tensor | None) -> bool:
    """Returns whether cuDNN has this cell, and the rows can be packed."""
    if x.device.type != "cuda" or kind not in FUNCTIONS or not torch.backends.cudnn.enabled or x.shape[1] == 0:
        return False
    return mask is None or bool(mask[:, 0].all() and (mask[:, 1:] <= mask[:, :-1]).all())


def prefers_onednn(x: Tensor, width: int, mask: Tensor | None) -> bool:
    """Returns whether oneDNN's LSTM is faster on the CPU: as measured, equal at 256 units, a seventh faster at 650."""
    return (
        width >= MIN_ONEDNN_WIDTH
        and mask is None
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.shape[1] > 1
    )


def layer(
    kind: str,
    x: Tensor,
    weights: tuple[Tensor, Tensor],
    biases: tuple[Tensor, Tensor],
    state: tuple[Tensor, ...],
    mask: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Returns the outputs (B,T,H) and the last state, in the type of the weights, also under autocast.

    Args:
        kind: A key of `FUNCTIONS`.
        x: Inputs (B,T,D).
        weights: Of the inputs and of the state.
        biases: Of the inputs and of the state.
        state: Before the first step.
        mask: True for elements, False for padding on the right.
        reverse: Whether to run from the last element to the first.
    """
    run = FUNCTIONS[kind]
    before = tuple(part[None] for part in state)
    hidden = before if len(before) > 1 else before[0]
    parameters = [*weights, *biases]
    lengths = torch.full((len(x),), x.shape[1], device=x.device) if mask is None else mask.sum(dim=1)
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(weights[0].dtype)
        if reverse:
            x = _reverse_rows(x, lengths)
        if mask is None:
            y, *after = run(x, hidden, parameters, True, 1, 0.0, False, False, True)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            longest_first, original = packed.sorted_indices, packed.unsorted_indices
            assert longest_first is not None  # because of enforce_sorted=False
            assert original is not None
            first = tuple(part.index_select(1, longest_first) for part in before)
            hidden = first if len(first) > 1 else first[0]
            data, *after = run(packed.data, packed.batch_sizes, hidden, parameters, True, 1, 0.0, False, False)
            y, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True, total_length=x.shape[1])
            after = [part.index_select(1, original) for part in after]
        if reverse:
            y = _reverse_rows(y, lengths)
    return y, tuple(part[0] for part in after)


def _reverse_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverses the elements of each row; padding stays on the right."""
    positions = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    mirrored = torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)
    return x.gather(1, mirrored[..., None].expand_as(x))
