"""What one pass over a sequence costs: seconds of CPU time, and the bytes of all tensors that live at once.

CPU time does not count other processes; with one thread it is the time on an idle machine. Bytes are counted as tensors
come and go, so they are exact and reproducible; what a kernel needs only while it runs is not counted. Weights and
their gradients do not grow with a sequence and are not counted.
"""

from __future__ import annotations

import contextlib
import copy
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..nn.encoder_decoder import EncoderDecoderBackbone
from ..nn.layers import readable_equations


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within the block torch uses one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of living tensors that are made within it (`now`), and the most at once (`peak`).

    Args:
        known: Tensors that do not count.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        """Counts a storage once: several tensors may share it, and it lives as long as the last of them."""
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.now += self._sizes[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._release, key)

    def _release(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


class Pass:
    """A pass of a backbone over one sequence of vectors, with or without the backward pass.

    Args:
        backbone: The architecture.
        sizes: The sizes of its input vectors: one, or those of source and target.
        equations: Whether it computes by its equations, in which attention stores all its weights.
    """

    def __init__(self, backbone: nn.Module, *sizes: int, equations: bool = False) -> None:
        self.backbone, self.sizes, self.equations = backbone.eval(), sizes, equations
        self._done: set[tuple[int, bool]] = set()
        for weight in backbone.parameters():
            weight.grad = torch.zeros_like(weight)

    def seconds(self, length: int, backward: bool) -> float:
        inputs = self._inputs(length, backward)
        start = time.process_time()
        self._run(inputs, backward)
        return time.process_time() - start

    def bytes(self, length: int, backward: bool) -> int:
        """Returns the most bytes at once."""
        if (length, backward) not in self._done:  # the first pass also makes what is cached for ever
            self._run(self._inputs(length, backward), backward)
        inputs = self._inputs(length, backward)
        weights = list(self.backbone.parameters())
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        with LiveMemory([*inputs, *weights, *gradients]) as memory:
            self._run(inputs, backward)
        return memory.peak

    def on_meta_device(self) -> Pass:
        """Returns the same with tensors that have no contents: what is not native can be counted so at no cost."""
        return Pass(copy.deepcopy(self.backbone).to("meta"), *self.sizes, equations=self.equations)

    def _inputs(self, length: int, backward: bool) -> list[Tensor]:
        device = next(self.backbone.parameters()).device
        generator = torch.Generator(device).manual_seed(0) if device.type == "cpu" else None
        options: Any = {"generator": generator, "device": device, "requires_grad": backward}
        return [torch.randn(1, length, size, **options) for size in self.sizes]

    def _run(self, inputs: list[Tensor], backward: bool) -> None:
        self._done.add((inputs[0].shape[1], backward))
        with readable_equations() if self.equations else contextlib.nullcontext():
            if backward:
                self._forward(*inputs).sum().backward()
                return
            with torch.inference_mode():
                self._forward(*inputs)

    def _forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        if isinstance(self.backbone, EncoderDecoderBackbone) and target is not None:
            return self.backbone.decode(target, self.backbone.encode(x))[0]
        y: Tensor = self.backbone(x)[0]
        return y
