"""What a run costs: floating-point operations, counted while they happen, and memory."""

from __future__ import annotations

import copy
import resource
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ..nn.backbone import readable_equations
from ..tasks._task import Task


def count_flops(task: Task, network: nn.Module, rows: int, device: torch.device) -> float:
    """Operations of the products of one forward and backward pass over `rows` rows."""
    one = task.batch(0, 0, 1, rows).to(device)
    twin = copy.deepcopy(network).train()
    generator = torch.random.get_rng_state()
    with readable_equations(), FlopCounterMode(display=False) as counter:
        loss, _ = task.loss(twin, one, None, 0.0)
        loss.backward()
    torch.random.set_rng_state(generator)
    return float(counter.get_total_flops()) * rows


def reset_peak_memory() -> None:
    """Lets the system forget the highest memory use so far, where it can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """The highest resident memory of this process since the last reset, in bytes."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024
