"""The Transformer: an encoder and a decoder made of attention, for pairs of sequences.

Vaswani et al., "Attention is all you need" (2017). Every element of the source looks at all others; every element of
the target looks at those before it and, in each block, at the whole source:

    encoder: x ← x + Self(x)    x ← x + W_2 f(W_1 x)
    decoder: y ← y + Self(y)    y ← y + Cross(y, x)    y ← y + W_2 f(W_1 y)

with a layer norm around each part, and positions added to the vectors of the tokens. New since
Bahdanau's: nothing is read step by step, so that a whole batch of pairs is a few large products. The norm stands before
each part by default (`norm: after` is the paper's, which needs a warm-up of some thousand steps).
Initialisation: Glorot for all products, as the paper's own program; tokens normal with 1/√width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..nn.attention import causal_mask
from ..nn.dropout import Dropout
from ..nn.linear import Activation
from ..nn.native import PLACES, transformer_parts
from ..nn.network import TokenHead
from ..nn.pair import PairBackbone, PairSettings
from ..nn.positions import Learned, Sinusoidal
from ..nn.trace import Trace, inside, show, wants
from ..nn.transformer import Block, HeadedSettings
from ._marian import HUB as HUB

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"width": 128, "layers": 2, "heads": 4},
    "small": {"width": 256, "layers": 3, "decoder_layers": 2, "heads": 4},
    "base": {"width": 512, "layers": 6, "heads": 8, "dropout": 0.1},
    "big": {"width": 1024, "layers": 6, "heads": 16, "dropout": 0.3},
}
WIDER = {"tiny": 2, "small": 2, "base": 4, "big": 4}  # times the width: the hidden size of the element-wise network


class Transformer(PairBackbone):
    """The memory: keys and values of the source for every block of the decoder, and its mask (or None). The state:
    keys and values of the target so far, for every block."""

    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int,
        decoder_layers: int,
        heads: int,
        feedforward: int,
        dropout: float = 0.0,
        norm: Literal["before", "after"] = "before",
        activation: Activation = "relu",
        context: int | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        self.context = context
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width, bias=False)
        self.positions = Sinusoidal(width) if context is None else Learned(width, context)
        self.dropout = Dropout(dropout)
        shape = (width, heads, feedforward, dropout, activation, norm)
        self.encoder = nn.ModuleList(Block(*shape) for _ in range(layers))
        self.decoder = nn.ModuleList(Block(*shape, cross=True) for _ in range(decoder_layers))
        last = nn.LayerNorm if norm == "before" else nn.Identity  # after every part: it has been normed already
        self.encoder_norm, self.decoder_norm = last(width), last(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and not name.startswith("positions"):
                self._glorot(name, parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    @staticmethod
    def _glorot(name: str, weight: Tensor) -> None:
        """Products that stand in one matrix side by side are each by themselves."""
        parts = 3 if name.endswith("attention.inputs.weight") else 2 if name.endswith("cross.memory.weight") else 1
        for part in weight.chunk(parts):
            nn.init.xavier_uniform_(part)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        x = self.read(x, mask, trace)
        return [block.get_submodule("cross").remember(x) for block in self.decoder], mask  # type: ignore[operator]

    def read(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        visible = None if mask is None else mask[:, None, None]  # (B,1,1,S)
        x = self._placed(x, 0)
        show(trace, "encoder.embedded", x, mask)
        for index, block in enumerate(self.encoder):
            x, _ = block(x, None, visible, False, inside(trace, f"encoder.layer{index}", mask))
        y: Tensor = self.encoder_norm(x)
        return y

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        remembered, mask = memory
        source = None if mask is None else mask[:, None, None]
        past, steps = 0 if state is None else state[0].shape[2], y.shape[1]
        y = self._placed(y, past)
        show(trace, "decoder.embedded", y)
        visible = causal_mask(steps, past + steps, y.device) if past and steps > 1 else None
        after, looked = [], []
        keep = ("cross_attention",) if wants(trace, "alignment") else ()
        for index, block in enumerate(self.decoder):
            before = None if state is None else state[index]
            inner = inside(trace, f"decoder.layer{index}", keep=keep)
            y, cache = block(y, before, visible, past == 0, inner, remembered[index], source)
            after.append(cache)
            if inner:
                looked.append(inner["cross_attention"].mean(dim=1))
        if looked:
            show(trace, "alignment", torch.stack(looked).mean(dim=0))  # (B,T,S)
        return self.decoder_norm(y), after

    def native(self, tokens: Tensor, head: TokenHead, scale: float) -> Any:
        if not isinstance(self.project, nn.Identity):
            return None
        places = self.positions(0, tokens.new_empty(1, self.context or PLACES, self.width))
        return transformer_parts(tokens, places, list(self.decoder), self.decoder_norm, head, scale)  # type: ignore[arg-type]

    def _placed(self, x: Tensor, first: int) -> Tensor:
        x = self.project(x)
        y: Tensor = self.dropout(x + self.positions(first, x))
        return y


class Settings(HeadedSettings, PairSettings):
    preset: Literal["tiny", "small", "base", "big"] = Field(
        "small", description="sizes for what is not named: tiny and small for a CPU, base and big are the paper's"
    )
    layers: int = Field(3, ge=1, le=200, description="blocks of the encoder")
    decoder_layers: int | None = Field(None, ge=1, le=200, description="blocks of the decoder (default: as many)")
    feedforward: int | None = Field(
        None, ge=1, description="hidden size of the element-wise network (default: 2·width; base and big 4·width)"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped while training")
    norm: Literal["before", "after"] = Field("before", description="layer norm before each part, or after it")
    activation: Activation = Field("relu", description="between the two products of the element-wise network")
    positions: Literal["sinusoidal", "learned"] = Field(
        "sinusoidal", description="sinusoidal: any length; learned: up to the context"
    )
    context: int | None = Field(
        None, ge=1, le=1_000_000, description="learned positions (default: the longest of the training)"
    )
    scale: bool | None = Field(
        None, description="multiply the vectors of tokens by √width (default: where input and output share them)"
    )

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return PRESETS.get(str(values.get("preset", "small")), {}) | dict(values)

    def fine_size(self) -> int:
        return WIDER[self.preset] * self.width if self.feedforward is None else self.feedforward

    def input_scale(self, size: int, tied: bool) -> float:
        return super().input_scale(size, tied) if self.scale is None else math.sqrt(size) if self.scale else 1.0

    def build(self, inputs: int, length: int) -> Transformer:
        self.check_heads()
        context = length if self.context is None else self.context
        if self.positions == "learned" and context < length:
            raise SeriatimError(
                "model.context",
                f"sequences of {length} do not fit into a context of {context}",
                "raise model.context, or lower data.longest",
            )
        return Transformer(
            inputs,
            self.width,
            self.layers,
            self.layers if self.decoder_layers is None else self.decoder_layers,
            self.heads,
            self.fine_size(),
            self.dropout,
            self.norm,
            self.activation,
            context if self.positions == "learned" else None,
        )
