"""Backbones: the interface of all architectures, from a sequence of vectors to a sequence of vectors and a state.

    y, state = backbone(x, mask=None, state=None)        x (B,T,input) → y (B,T,width)

A causal backbone may be fed whole, in chunks or one element at a time, with the same result. `state` is opaque: a tree
of tensors whose first dimension is the batch (see `core.state`). `mask` is boolean (B,T), True for elements and False
for padding, which is on the right and never changes the output of an element or the state.

Intermediate values are recorded by name in a trace, a dict that the caller passes:

    trace = {}                       backbone(x, trace=trace)               trace["layer0.attention"]  (B,H,T,S)
    trace = NamedTrace("alignment")  network.decode(y, memory, s, trace)    nothing else is computed or stored

Elements are dimension 1 of a recorded value; in attention weights of heads (B,H,T,S), dimension 2. If a mask is known,
padding is recorded as zeros. A part of a network records into its `TraceScope`; costly values are computed only if
`is_traced`. All names are listed in inspect/trace.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.state import State
from .layers import TokenInput
from .names import Pooler
from .settings import ModelSettings

if TYPE_CHECKING:
    from .images import ImageInput, ImageShape


class Backbone(nn.Module):
    """Base of all architectures over one sequence. `width` is the size of its outputs."""

    width: int
    causal: bool = True
    carries_state: bool = False  # whether a state may be carried from one training batch to the next
    directions: int = 1
    context_length: int | None = None  # the largest number of elements; None: any
    state_grows: bool = False  # whether the state keeps every element, so that reading without end is not possible

    def stream_window(self, length: int) -> int | None:
        """Returns how many elements of a stream are read with one state; None: any number.

        Args:
            length: Of the training sequences; later positions were never trained.
        """
        if self.context_length is None:
            return length if self.state_grows else None
        return min(self.context_length, length)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        """Returns outputs (B,T,width) and the state; a `trace` records intermediate values and changes nothing."""
        raise TypeError(f"{type(self).__name__} has no forward")

    def outputs(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the outputs of whole sequences (B,T,width) without a state, at less cost than `forward` if possible.

        What padding gives is undefined.
        """
        y: Tensor = self(x, mask)[0]
        return y

    def last_output(self, x: Tensor) -> Tensor:
        """Returns the output of the last element (B,width), at less cost than `forward` if possible."""
        return self.outputs(x)[:, -1]

    def first_output(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the output of the first element (B,width) of a bidirectional backbone."""
        y: Tensor = self(x, mask)[0][:, 0]
        return y

    def final_norm(self) -> nn.Module | None:
        """Returns what follows the last block on the residual stream, for the logit lens; None if there is none."""
        return None

    def native_parts(self, embeddings: Tensor, head: Any) -> Any:
        """Returns the parts of a network for native generation (nn/native.py), None if it is not supported.

        Args:
            embeddings: The token vectors (V,D).
            head: The `TokenHead`.
        """
        return None

    def export_state(self, state: State) -> tuple[list[Tensor], Tensor | None]:
        """Returns the tensors of a state for native generation, and the mask of their positions (None: all valid)."""
        raise TypeError(f"{type(self).__name__} has no native generation")


class BackboneSettings(ModelSettings):
    """The settings that all trained architectures share."""

    embedding_std: ClassVar[float | None] = None  # standard deviation of new token vectors; None: 1/√size
    output_bias: ClassVar[bool] = True  # whether the scores of the next token have a bias
    muon_lr: ClassVar[float | None] = 0.05
    lr_updates: ClassVar[int] = 4_000  # updates that the default learning rate suits; a time budget for fewer raises it
    dropout_onset: ClassVar[float] = 1.0  # parameters · passes / targets; from here on a time budget adds dropout
    budget_field: ClassVar[str] = "embedding"  # a second size, to meet a parameter budget between two widths

    width: int = Field(256, ge=1, le=65_536, description="size of the hidden vectors; `--params` solves for it")
    embedding: int | None = Field(
        None, ge=1, le=65_536, description="size of the input vectors (default: the width if tied, else at most 128)"
    )
    tie: bool | None = Field(
        None, description="share the weights of input and output tokens (default: for more than 4,096 tokens)"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="share of activations dropped in training")

    @model_validator(mode="after")
    def _check_tied_size(self) -> Self:
        if self.tie and self.embedding not in (None, self.width) and "tie" in self.model_fields_set:
            raise ValueError(f"tied tokens have the width {self.width}; an embedding of {self.embedding} contradicts")
        return self

    @property
    def pooler(self) -> Pooler | None:
        """The activation of a linear layer on the first element's output, as in BERT; None: there is no such layer."""
        return "tanh"

    @property
    def pretrain_head(self) -> dict[str, Any]:
        """Arguments of the head in pretraining: `activation`, `eps` and `pooler` of `PretrainHead`."""
        return {}

    def default_lr(self) -> float:
        """Returns the peak learning rate if the user sets none."""
        return 2e-3

    def fine_tuning_lr(self) -> float:
        """Returns the peak learning rate for pretrained weights."""
        return self.default_lr() / 5

    def width_multiples(self) -> tuple[int, ...]:
        """Returns what a width that is solved for may be a multiple of: the first that leads to one is taken."""
        return (1,)

    def with_width(self, width: int) -> Self:
        """Returns the settings with another width, and whatever follows from it."""
        return self.model_copy(update={"width": width})

    def input_width(self, tied: bool) -> int:
        """Returns the size of the input vectors."""
        if tied:
            return self.width
        return min(self.width, 128) if self.embedding is None else self.embedding

    def input_scale(self, size: int, tied: bool) -> float:
        """Returns the factor of token vectors in an encoder–decoder: tied ones are small, for the output."""
        return math.sqrt(size) if tied else 1.0

    def token_input(self, vocab_size: int, separator: int | None = None, tied: bool = False) -> TokenInput:
        """Returns the input module for tokens; `separator` is the token that ends a text, if there is one."""
        return TokenInput(vocab_size, self.input_width(tied), self.embedding_std)

    def image_input(self, shape: ImageShape) -> ImageInput:
        """Returns the input module for images of one shape (C,H,W): patches, row by row."""
        from .images import PatchInput, default_patch_size  # images.py imports this module

        return PatchInput(shape, default_patch_size(shape), self.input_width(tied=False))

    def budget_size(self) -> int:
        """Returns the value of `budget_field` if the settings leave it open."""
        return self.input_width(tied=False)

    def build(self, inputs: int, length: int) -> Any:
        """Returns the backbone for input vectors of size `inputs` and training sequences of `length` elements."""
        raise TypeError(f"{type(self).__name__} has no build")


class LayeredSettings(BackboneSettings):
    """The settings of backbones whose layers may differ in width."""

    layers: int = Field(1, ge=1, le=64, description="hidden layers")
    widths: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] | None = Field(
        None, min_length=1, max_length=64, description="widths of the layers, in place of width and layers: [20,20,1]"
    )

    @model_validator(mode="before")
    @classmethod
    def _widths_decide(cls, values: object) -> object:
        """Sets width and layers from `widths`: a task may have defaults for them."""
        if isinstance(values, Mapping) and isinstance(widths := values.get("widths"), list | tuple) and widths:
            return {**values, "width": widths[-1], "layers": len(widths)}
        return values

    @property
    def layer_widths(self) -> tuple[int, ...]:
        return self.widths or (self.width,) * self.layers

    def with_width(self, width: int) -> Self:
        """Returns the settings with another width of the last layer, and the others in proportion."""
        widths = self.widths and (*(max(1, round(size * width / self.width)) for size in self.widths[:-1]), width)
        return self.model_copy(update={"width": width, "widths": widths})


# Traces

Trace = dict[str, Tensor]


class SelectiveTrace(Trace):
    """Base of traces that accept only some names."""

    def accepts(self, name: str) -> bool:
        raise TypeError(f"{type(self).__name__} has no accepts")

    def reserve(self, size: int) -> None:
        """Called before a value of `size` bytes is computed; may raise an error."""

    def update(self, *others: Any, **more: Tensor) -> None:
        for name, value in dict(*others, **more).items():
            self[name] = value


class NamedTrace(SelectiveTrace):
    """A trace of the given names, or last parts of names ("attention" is that of every layer). Without names: all."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = frozenset(names)

    def accepts(self, name: str) -> bool:
        return not self.names or name in self.names or name.rpartition(".")[2] in self.names

    def __setitem__(self, name: str, value: Tensor) -> None:
        if self.accepts(name):
            super().__setitem__(name, value)


class TraceScope(SelectiveTrace):
    """Records into another trace under a prefix; the names in `keep` are also kept here, for the caller."""

    def __init__(self, trace: Trace, prefix: str, mask: Tensor | None = None, keep: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.trace, self.prefix, self.mask, self.keep = trace, prefix, mask, keep

    def reserve(self, size: int) -> None:
        if isinstance(self.trace, SelectiveTrace):
            self.trace.reserve(size)

    def accepts(self, name: str) -> bool:
        return name in self.keep or is_traced(self.trace, f"{self.prefix}.{name}")

    def __setitem__(self, name: str, value: Tensor) -> None:
        if name in self.keep:
            super().__setitem__(name, value)
        record(self.trace, f"{self.prefix}.{name}", value, self.mask)


def trace_scope(
    trace: Trace | None, prefix: str, mask: Tensor | None = None, keep: tuple[str, ...] = ()
) -> TraceScope | None:
    """Returns a scope of the trace, None without a trace. `mask` (B,T) is True for elements, False for padding."""
    return None if trace is None else TraceScope(trace, prefix, mask, keep)


def is_traced(trace: Trace | None, *names: str) -> bool:
    """Returns whether the trace accepts any of the names; a plain dict accepts all."""
    if isinstance(trace, SelectiveTrace):
        return any(trace.accepts(name) for name in names)
    return trace is not None


def record(trace: Trace | None, name: str, value: Tensor, mask: Tensor | None = None) -> None:
    if trace is not None and is_traced(trace, name):
        trace[name] = value if mask is None else zero_padding(value, mask)


def zero_padding(value: Tensor, mask: Tensor) -> Tensor:
    """Returns the value with zeros at padded elements."""
    shape = [1] * value.dim()
    shape[0], shape[element_axis(value)] = mask.shape
    return value.masked_fill(~mask.view(shape), 0.0)


def element_axis(value: Tensor) -> int:
    return 2 if value.dim() == 4 else 1
