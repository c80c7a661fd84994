"""Where to compute, and which of several processes this is."""

from __future__ import annotations

import atexit
import ctypes
import datetime
import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import SeriatimError

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h


def flush_denormals() -> None:
    """Numbers too small for full precision become 0. Gradients that vanish over hundreds of steps end in such
    numbers, and a CPU takes many times as long over them. Threads inherit this when they are made: call it early."""
    torch.set_flush_denormal(True)


def keep_memory() -> None:
    """Lets the process keep memory that it frees. By default glibc gives large blocks back to the system, and every
    step of a training has them cleared and mapped anew, which takes a tenth of its time."""
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another library than glibc: it has its own ways
        return
    for setting, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1)):
        mallopt(setting, value)


def pick_device(name: str = "auto") -> torch.device:
    """`auto` takes cuda, then mps, then cpu; a device that is not there is the user's mistake."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if present[kind])
    kind = name.partition(":")[0]
    if kind not in present or not present[kind]:
        have = ", ".join(kind for kind, there in present.items() if there)
        raise SeriatimError("device.missing", f'there is no device "{name}" here', f"choose from: auto, {have}")
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    return torch.device(name)


@dataclass(frozen=True)
class Ranks:
    """This process among its peers. With one process every operation here is free."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Adds up over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def share(self, values: list[float]) -> list[float]:
        """The values of rank 0, on every rank."""
        if self.world == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(tensor, src=0)
        return [float(value) for value in tensor]

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all ranks, joined along the batch."""
        if self.world == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def wait(self) -> None:
        self.share([0.0])


def joined_ranks() -> Ranks:
    """The ranks that torchrun started, joined until the process ends; one rank without torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Ranks()
    if not dist.is_initialized():
        # tensors on the CPU always go by gloo; the others wait while rank 0 evaluates, however long that takes
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group(backend, timeout=datetime.timedelta(hours=12))
        atexit.register(dist.destroy_process_group)
    return Ranks(dist.get_rank(), dist.get_world_size())
