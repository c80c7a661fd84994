"""Named random streams: every draw is a pure function of (seed, name, indices).

A stream is addressed by the step, not by earlier draws: resuming at step 1,000 needs no stored generator, and the
number of ranks or workers does not change any stream.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive(seed: int, name: str, *indices: int) -> int:
    """Returns a seed of 63 bits for a position of a stream."""
    text = ":".join([str(seed), name, *map(str, indices)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def torch_stream(seed: int, name: str, *indices: int, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device=device).manual_seed(derive(seed, name, *indices))


def numpy_stream(seed: int, name: str, *indices: int) -> np.random.Generator:
    return np.random.default_rng(derive(seed, name, *indices))
