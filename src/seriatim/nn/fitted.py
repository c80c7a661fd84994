"""The base of models without parameters, which are fitted in one pass: what they count or store is in buffers.

They are modules like every network, so that weights are stored, loaded, moved and copied on one path. What differs is
that the data, not the settings, decide how large their buffers are: an empty model takes tensors of any size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _IncompatibleKeys

from ..core.errors import SeriatimError


class FittedModel(nn.Module):
    """A model whose buffers have the sizes of its data, and what it derives from them to compute with."""

    tensors_error: ClassVar[tuple[str, str]]  # code, and the model whose tensors were expected

    @property
    @abstractmethod
    def entries(self) -> int:
        """The number of stored numbers, which a budget limits as it limits the parameters of a network."""

    @abstractmethod
    def set_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Derives from named arrays what the model computes with.

        Raises KeyError, IndexError, TypeError or ValueError if they do not belong together.
        """

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays to store, by name: the inverse of `set_arrays`. They share the memory of the model."""

    def fill(self, arrays: Mapping[str, np.ndarray]) -> Self:
        """Replaces the buffers by named arrays of any size; returns the model."""
        self.set_arrays(arrays)
        self.register_arrays()
        return self

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Replaces the buffers by stored tensors of any size, which must belong together."""
        try:
            self.fill({name: tensor.detach().cpu().numpy() for name, tensor in state_dict.items()})
        except (KeyError, IndexError, TypeError, ValueError) as error:
            code, model = self.tensors_error
            cause = f"these are not the tensors of {model}: {error}"
            raise SeriatimError(code, cause, "copy the whole folder") from None
        return _IncompatibleKeys([], [])

    def register_arrays(self) -> None:
        """Makes buffers of the arrays; a dotted name is that of a buffer in a submodule."""
        self._buffers.clear()
        self._modules.clear()
        for name, array in self.arrays().items():
            module: nn.Module = self
            *path, last = name.split(".")
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.register_buffer(last, torch.from_numpy(array))

    def _read_buffers(self) -> None:
        """Derives everything from buffers that were moved or copied; on the CPU, memory is shared again."""
        buffers = dict(self.named_buffers())
        if buffers:
            self.set_arrays({name: buffer.cpu().numpy() for name, buffer in buffers.items()})
        if all(buffer.device.type == "cpu" for buffer in buffers.values()):
            self.register_arrays()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = [buffer.data_ptr() for buffer in self.buffers()]
        super()._apply(fn, recurse)
        if [buffer.data_ptr() for buffer in self.buffers()] != before:
            self._read_buffers()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._read_buffers()
