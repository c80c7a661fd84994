"""What every architecture answers to: a sequence of vectors in, a sequence of vectors and a state out.

    y, state = backbone(x, mask=None, state=None)        x (B,T,input) → y (B,T,width)

A causal backbone may be fed whole, in chunks or one element at a time, with the same result. `state` is
opaque: a tree of tensors whose first dimension is the batch (see `core.state`). `mask` is boolean (B,T),
True where a real element stands; padding is on the right, and never changes a real output or the state.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.config import Settings
from .inputs import TokenInput
from .trace import Trace

if TYPE_CHECKING:
    from .pictures import PictureInput, Shape

_readable = ContextVar("readable", default=False)


@contextlib.contextmanager
def readable_equations() -> Iterator[None]:
    """Within the block parts compute by their equations, not by fused kernels: what counts operations sees them."""
    token = _readable.set(True)
    try:
        yield
    finally:
        _readable.reset(token)


def wants_equations() -> bool:
    return _readable.get()


class Backbone(nn.Module):
    """The base of all architectures. `width` is the size of its outputs."""

    width: int
    causal: bool = True
    carries: bool = False  # whether a state may be carried from one training batch into the next
    context: int | None = None  # how many elements it can take in at all; None: any number

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: Any = None, trace: Trace | None = None
    ) -> tuple[Tensor, Any]:
        """`trace`, where given, collects what happened inside under names; it never changes the result."""
        raise TypeError(f"{type(self).__name__} has no forward")

    def final(self, x: Tensor) -> Tensor:
        """The output of the last element alone, (B,width): what `forward` gives there, at less cost where possible."""
        y: Tensor = self(x)[0][:, -1]
        return y

    def native(self, tokens: Tensor, head: Any) -> Any:
        """The parts of a network of tokens (their vectors, (V,D)), this backbone and a head, for the native step of
        generation (nn/native.py); None where there is none."""
        return None

    def kept(self, state: Any) -> tuple[list[Tensor], Tensor | None]:
        """The tensors of a state, for the native step, and which of their places are real (None: all)."""
        raise TypeError(f"{type(self).__name__} has no native step")

    def first(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The output of the first element alone, (B,width), for a backbone that looks in both directions."""
        y: Tensor = self(x, mask)[0][:, 0]
        return y


class BackboneSettings(Settings):
    """The settings that all architectures share; a model's file adds its own and says how to build it."""

    counts: ClassVar[bool] = False  # a model that counts instead of learning by gradients
    pairs: ClassVar[bool] = False  # an encoder–decoder, for pairs of sequences
    causal: ClassVar[bool] = True  # it can be made to look back only, and so predict what comes next
    pictures: ClassVar[bool] = False  # it reads nothing but pictures
    spread: ClassVar[float | None] = None  # standard deviation of fresh token vectors; None: 1/√size
    suits: ClassVar[Mapping[str, Any]] = {}  # settings of a task that suit it, where the user does not say
    tokens: ClassVar[Mapping[str, Any]] = {}  # likewise settings of a tokenizer
    pooler: ClassVar[bool] = True  # where its first element stands for a whole, one more product follows it, as BERT's
    output_bias: ClassVar[bool] = True  # scores of the next token have one
    fine: ClassVar[str] = "embedding"  # a second size, which meets a parameter budget where widths are too coarse

    name: str = Field(description="the architecture: see `seriatim list models`")
    width: int = Field(256, ge=1, le=65_536, description="size of the hidden vectors; `--params` solves for it")
    embedding: int | None = Field(
        None, ge=1, le=65_536, description="size of the input vectors (default: the width where tied, else at most 128)"
    )
    tie: bool | None = Field(
        None, description="share the weights of input and output tokens (default: for more than 4,096 tokens)"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="share of activations dropped while training")

    @model_validator(mode="after")
    def _one_table_one_size(self) -> Self:
        if self.tie and self.embedding not in (None, self.width) and "tie" in self.model_fields_set:
            raise ValueError(f"tied tokens have the width {self.width}; an embedding of {self.embedding} contradicts")
        return self

    def rate(self) -> float:
        """The peak learning rate that suits it, where the user names none."""
        return 2e-3

    def tuning_rate(self) -> float:
        """The same where the weights are trained already and are to be fitted to another task."""
        return self.rate() / 5

    def grain(self) -> int:
        """Widths are multiples of this."""
        return 1

    def input_width(self, tied: bool) -> int:
        """The size of the vectors it is fed with."""
        if tied:
            return self.width
        return min(self.width, 128) if self.embedding is None else self.embedding

    def input_scale(self, size: int, tied: bool) -> float:
        """What the vectors of tokens are multiplied by before a model of pairs: those that suit an output are small."""
        return math.sqrt(size) if tied else 1.0

    def token_input(self, vocabulary: int, separator: int | None = None, tied: bool = False) -> TokenInput:
        """The first part of a network over tokens; `separator` is the token that ends a text, where there is one."""
        return TokenInput(vocabulary, self.input_width(tied), self.spread)

    def picture_input(self, shape: Shape) -> PictureInput:
        """The first part of a network over pictures of one shape (C,H,W): patches, to be read row by row."""
        from .pictures import Patches, patch_side  # its norms ask this file whether equations are wanted

        return Patches(shape, patch_side(shape), self.input_width(tied=False))

    def fine_size(self) -> int:
        """The second size as it is, where the settings leave it open."""
        return self.input_width(tied=False)

    def build(self, inputs: int, length: int) -> Any:
        """The network, for input vectors of size `inputs` and training sequences of `length` elements."""
        raise TypeError(f"{type(self).__name__} has no build")
