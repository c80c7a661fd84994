"""What one pass over a sequence costs: the seconds of work it takes, and the bytes of all tensors that live at once.

Seconds are those that a processor works, so that others who share it do not count; with one thread they are what passes
on an idle machine. Bytes are counted as tensors come and go, so they are exact and the same every time; what a kernel
needs only while it runs is not seen. Weights and their gradients do not grow with a sequence and are not counted.
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

from ..nn.backbone import readable_equations
from ..nn.pair import PairBackbone


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch works with one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Live(TorchDispatchMode):
    """Within it, `now` are the bytes of tensors made in it that live, `peak` the most there were; those `known` before
    count nothing."""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return found

    def _count(self, storage: torch.UntypedStorage) -> None:
        """Several tensors may share a storage, which lives as long as the last of them."""
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.now += self._sizes[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


class Pass:
    """A backbone that reads a sequence of so many elements of `inputs` numbers each (one of pairs: a source and a
    target, with the sizes of both), and learns from it or not. `visible`: by the equations, in which attention holds
    all its weights."""

    def __init__(self, backbone: nn.Module, *inputs: int, visible: bool = False) -> None:
        self.backbone, self.inputs, self.visible = backbone.eval(), inputs, visible
        self._made: set[tuple[int, bool]] = set()
        for weight in backbone.parameters():
            weight.grad = torch.zeros_like(weight)

    def seconds(self, length: int, learns: bool) -> float:
        given = self._given(length, learns)
        began = time.process_time()
        self._go(given, learns)
        return time.process_time() - began

    def bytes(self, length: int, learns: bool) -> int:
        """The most at once."""
        if (length, learns) not in self._made:  # what is kept for ever is made the first time
            self._go(self._given(length, learns), learns)
        given = self._given(length, learns)
        weights = list(self.backbone.parameters())
        with Live([*given, *weights, *(weight.grad for weight in weights if weight.grad is not None)]) as live:
            self._go(given, learns)
        return live.peak

    def without_contents(self) -> Pass:
        """The same of tensors that have a size but no numbers: whatever is not native can be counted so at no cost."""
        return Pass(copy.deepcopy(self.backbone).to("meta"), *self.inputs, visible=self.visible)

    def _given(self, length: int, learns: bool) -> list[Tensor]:
        device = next(self.backbone.parameters()).device
        made = torch.Generator(device).manual_seed(0) if device.type == "cpu" else None
        known: Any = {"generator": made, "device": device, "requires_grad": learns}
        return [torch.randn(1, length, size, **known) for size in self.inputs]

    def _go(self, given: list[Tensor], learns: bool) -> None:
        self._made.add((given[0].shape[1], learns))
        with readable_equations() if self.visible else contextlib.nullcontext():
            if learns:
                self._through(*given).sum().backward()
                return
            with torch.inference_mode():
                self._through(*given)

    def _through(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        if isinstance(self.backbone, PairBackbone) and target is not None:
            return self.backbone.decode(target, self.backbone.encode(x))[0]
        y: Tensor = self.backbone(x)[0]
        return y
