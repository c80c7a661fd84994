"""Where and with which random numbers networks compute: devices, processes, named random streams, the meta device.

Every random draw is a pure function of (seed, name, indices). A stream is addressed by the step, not by earlier draws:
resuming at step 1,000 needs no stored generator, and the number of ranks or workers does not change any stream.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import datetime
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .errors import SeriatimError

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h


def flush_denormals() -> None:
    """Rounds denormal numbers to 0, in threads started later too, so call it early.

    Gradients that vanish over hundreds of steps become denormal, and a CPU computes many times slower with them.
    """
    torch.set_flush_denormal(True)


def retain_freed_memory() -> None:
    """Lets the process keep the memory that it frees.

    By default glibc returns large blocks to the system, and every training step has them cleared and mapped again,
    which takes a tenth of its time.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    for setting, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1)):
        mallopt(setting, value)


def pick_device(name: str = "auto") -> torch.device:
    """Returns the device of that name; `auto` takes cuda, then mps, then cpu."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if present[kind])
    kind = name.partition(":")[0]
    if kind not in present or not present[kind]:
        choices = ", ".join(kind for kind, there in present.items() if there)
        raise SeriatimError("device.missing", f'this machine has no device "{name}"', f"choose from: auto, {choices}")
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    return torch.device(name)


def memory_size() -> int:
    """Returns the memory of the machine in bytes, or of the container that the process is in."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        size = min(size, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return size


@dataclass(frozen=True)
class Ranks:
    """This process among its peers. With one process every operation is free."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sums a tensor over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, values: list[float]) -> list[float]:
        """Returns the values of rank 0 on every rank."""
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(tensor, src=0)
        return [float(value) for value in tensor]

    def gather(self, tensor: Tensor) -> Tensor:
        """Returns the tensors of all ranks, joined along the batch."""
        if self.world_size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def barrier(self) -> None:
        self.broadcast([0.0])


def join_ranks() -> Ranks:
    """Joins the processes that torchrun started, until this process ends; one rank without torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Ranks()
    if not dist.is_initialized():
        # CPU tensors always use gloo; the timeout is long because the other ranks wait while rank 0 evaluates
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group(backend, timeout=datetime.timedelta(hours=12))
        atexit.register(dist.destroy_process_group)
    return Ranks(dist.get_rank(), dist.get_world_size())


# Random streams


def derive(seed: int, name: str, *indices: int) -> int:
    """Returns a seed of 63 bits for a position of a stream."""
    text = ":".join([str(seed), name, *map(str, indices)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


_GLOBAL_DRAWS = threading.RLock()


@contextlib.contextmanager
def global_stream(seed: int, name: str, *indices: int) -> Iterator[None]:
    """Lets torch's global generator on the CPU draw from a stream within the block, and restores it afterwards.

    New modules draw their weights from it. Blocks of several threads run one after another.
    """
    with _GLOBAL_DRAWS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, name, *indices))
        yield


def torch_stream(seed: int, name: str, *indices: int, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device=device).manual_seed(derive(seed, name, *indices))


def numpy_stream(seed: int, name: str, *indices: int) -> np.random.Generator:
    return np.random.default_rng(derive(seed, name, *indices))


# Networks without memory


@contextlib.contextmanager
def on_meta_device() -> Iterator[None]:
    """Networks built within the block have shapes but no memory; initialization is skipped."""
    with torch.device("meta"), _SkipInitialization():
        yield


class _SkipInitialization(TorchFunctionMode):
    """Skips `torch.nn.init`, which on the meta device would load torch's compiler (two seconds) to do nothing."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)
