"""The Vision Transformer: an image as a sequence of patches, read by Transformer blocks.

Dosovitskiy et al., "An image is worth 16x16 words: Transformers for image recognition at scale" (2021):

    x = [class; E·patch₁; …; E·patch_n] + positions
    x ← x + Attention(norm x)    x ← x + W₂ gelu(W₁ norm x)    y = norm x

New since ResNet: that neighboring pixels belong together is learned, positions included; from the first block on every
patch attends to all others. With little data this is a disadvantage, with much data an advantage. The first element,
the class token, represents the whole image, as in BERT. Positions are learned for one size of images; with sinusoids
(over the patches, row by row) or without positions it reads any size.
Initialization: normal, 0.02.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.state import State
from ..nn.backbone import Backbone, Trace, record, trace_scope
from ..nn.images import ImageShape, PatchInput, default_patch_size
from ..nn.layers import Activation, Dropout, Positions, make_positions
from ..nn.names import Pooler
from ..nn.settings import BackboneTraits
from ..nn.transformer import Block, TransformerSettings, initialize_normal, stack_outputs

PRESETS: dict[str, dict[str, object]] = {
    "tiny": {"width": 128, "layers": 4, "heads": 4},
    "small": {"width": 384, "layers": 12, "heads": 6, "patch": 16},
    "base": {"width": 768, "layers": 12, "heads": 12, "patch": 16},
}
INIT_STD = 0.02


class ViT(Backbone):
    """Has one output more than inputs: the first one is the class token."""

    causal = False

    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int,
        heads: int,
        length: int,
        feedforward: int | None = None,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        eps: float = 1e-12,
        positions: Positions = "learned",
    ) -> None:
        super().__init__()
        self.width = width
        self.context_length = length if positions == "learned" else None
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.class_token = nn.Parameter(torch.empty(width))
        self.positions = make_positions(positions, width, 1 + length, std=width**-0.5)
        self.dropout = Dropout(dropout)
        hidden = 4 * width if feedforward is None else feedforward
        shape = (width, heads, hidden, dropout, activation)
        self.blocks = nn.ModuleList(Block(*shape, eps=eps) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps)
        nn.init.normal_(self.class_token, std=INIT_STD)
        initialize_normal(self, INIT_STD)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        x = self._embed(x)
        record(trace, "embedded", x)
        return self.norm(self._run_blocks(list(self.blocks), x, trace)), None

    def first_output(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the vector of the whole image (B,D); the last block computes no other element."""
        x = self._run_blocks(list(self.blocks)[:-1], self._embed(x))
        y: Tensor = self.norm(self.blocks[-1].first_output(x, None))[:, 0]  # type: ignore[operator]
        return y

    @staticmethod
    def _run_blocks(blocks: Sequence[nn.Module], x: Tensor, trace: Trace | None = None) -> Tensor:
        if trace is None:
            y = stack_outputs(blocks, x, None, causal=False)
            if y is not None:
                return y
        for index, block in enumerate(blocks):
            x, _ = block(x, None, None, False, trace_scope(trace, f"layer{index}"))
        return x

    def _embed(self, x: Tensor) -> Tensor:
        """Returns class token and patches with positions, (B,1+T,D)."""
        if self.context_length is not None and x.shape[1] != self.context_length:
            cause = f"an image has {x.shape[1]} patches; positions were learned for {self.context_length}"
            raise SeriatimError("model.context", cause, "use images of the size it was trained on")
        x = self.project(x)
        x = torch.cat([self.class_token.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        y: Tensor = self.dropout(x + self.positions(0, x))
        return y


class Settings(TransformerSettings):
    title: ClassVar[str] = "ViT"
    dropout_onset: ClassVar[float] = 30.0
    causal: ClassVar[bool] = False
    modality: ClassVar[str | None] = "image"
    embedding_std: ClassVar[float | None] = INIT_STD
    task_defaults: ClassVar[Mapping[str, object]] = {"pooling": "first"}

    preset: Literal["tiny", "small", "base"] = Field(
        "tiny", description="default sizes: tiny for a CPU, base is the paper's"
    )
    width: int = Field(128, ge=1, le=65_536, description="size of the hidden vectors; `--params` solves for it")
    layers: int = Field(4, ge=1, le=200, description="Transformer blocks")
    patch: int | None = Field(
        None, ge=1, le=4_096, description="side of a patch in pixels (default: about eight patches per row)"
    )
    activation: Activation = Field("gelu", description="of the feed-forward network")
    eps: float = Field(1e-12, gt=0, le=1, description="added to the variance in layer norms")

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        return PRESETS.get(str(values.get("preset", "tiny")), {}) | dict(values)

    @property
    def pooler(self) -> Pooler | None:
        return None

    @property
    def traits(self) -> BackboneTraits:
        return BackboneTraits(causal=False, bounded=self.positions == "learned")

    def image_input(self, shape: ImageShape) -> PatchInput:
        size = default_patch_size(shape) if self.patch is None else self.patch
        return PatchInput(shape, size, self.input_width(tied=False))

    def build(self, inputs: int, length: int) -> ViT:
        self.check_heads()
        sizes = (inputs, self.width, self.layers, self.heads, length, self.feedforward, self.dropout)
        return ViT(*sizes, self.activation, self.eps, self.positions)
