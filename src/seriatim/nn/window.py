"""What a causal model with a finite view keeps: the last few elements, whatever the chunks they came in."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.room import append, last


def extend(x: Tensor, buffer: Tensor | None, size: int) -> Tensor:
    """x (B,T,D) behind the `size` elements before it, zeros where nothing stood: (B,size+T,D)."""
    if buffer is None:
        buffer = x.new_zeros(len(x), size, x.shape[-1])
    return append(buffer.to(x.dtype), x, dim=1)


def remember(extended: Tensor, mask: Tensor | None, size: int) -> Tensor:
    """The last `size` real elements of each row of what `extend` gave: the buffer for the next chunk."""
    if mask is None:
        return last(extended, size, dim=1)
    ends = mask.sum(dim=1, keepdim=True)  # (B,1): real elements of this chunk; the rows are padded on the right
    index = ends + torch.arange(size, device=extended.device)  # (B,size)
    return extended.gather(1, index[:, :, None].expand(-1, -1, extended.shape[-1]))
