"""The Transformer: an encoder and a decoder made of attention, for pairs of sequences.

Vaswani et al., "Attention is all you need" (2017). Every source element attends to all others; every target element
attends to earlier ones and, in each block, to the whole source:

    encoder: x ← x + Self(x)    x ← x + W_2 f(W_1 x)
    decoder: y ← y + Self(y)    y ← y + Cross(y, x)    y ← y + W_2 f(W_1 y)

with a layer norm at each part, and positions added to the token vectors: without them (`positions: none`) the encoder
reads a set. New since Bahdanau's attention: nothing is read step by step, so that a whole batch of pairs is a few large
matrix products. The norm is before each part by default (`norm: after` is the paper's, which needs a warm-up of some
thousand steps). BART (Lewis et al. 2020) is the paper's with learned positions for each side and a norm after them.
Initialization: Glorot for all matrices, as in the paper's code; tokens normal with 1/√width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.model_info import History
from ..core.state import State
from ..nn.attention import causal_mask
from ..nn.backbone import Trace, is_traced, record, trace_scope
from ..nn.encoder_decoder import EncoderDecoderBackbone, EncoderDecoderSettings
from ..nn.layers import Activation, Dropout, Positions, make_positions
from ..nn.native import NetworkParts, PositionTable, transformer_parts
from ..nn.network import TokenHead
from ..nn.settings import BackboneTraits
from ..nn.transformer import Block, TransformerSettings, stack_outputs

PRESETS: dict[str, dict[str, object]] = {
    "tiny": {"width": 128, "layers": 2, "heads": 4},
    "small": {"width": 256, "layers": 3, "decoder_layers": 2, "heads": 4},
    "base": {"width": 512, "layers": 6, "heads": 8, "dropout": 0.1},
    "big": {"width": 1024, "layers": 6, "heads": 16, "dropout": 0.3},
}
FEEDFORWARD_RATIO = {"tiny": 2, "small": 2, "base": 4, "big": 4}  # hidden size of the feed-forward network / width
STACKED = {"attention.inputs.weight": 3, "cross.memory.weight": 2}  # matrices side by side in one parameter


class Transformer(EncoderDecoderBackbone):
    """The memory: keys and values of the source for every decoder block, and its mask (or None).

    The state: keys and values of the target so far, for every block.
    """

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
        context_length: int | None = None,
        positions: Positions = "sinusoidal",
        shared_positions: bool = True,
        embedding_norm: bool = False,
    ) -> None:
        super().__init__()
        self.width = width
        self.context_length = context_length
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width, bias=False)
        self.positions = make_positions(positions, width, context_length, std=width**-0.5)
        self.decoder_positions = self.positions
        if positions == "learned" and not shared_positions:
            self.decoder_positions = make_positions(positions, width, context_length, std=width**-0.5)
        first = nn.LayerNorm if embedding_norm else nn.Identity
        self.encoder_embedding_norm, self.decoder_embedding_norm = first(width), first(width)
        self.dropout = Dropout(dropout)
        sizes = (width, heads, feedforward, dropout, activation, norm)
        self.encoder = nn.ModuleList(Block(*sizes) for _ in range(layers))
        self.decoder = nn.ModuleList(Block(*sizes, cross=True) for _ in range(decoder_layers))
        last = nn.LayerNorm if norm == "before" else nn.Identity  # with the norm after each part, x is normalized
        self.encoder_norm, self.decoder_norm = last(width), last(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and "positions" not in name:
                count = next((count for suffix, count in STACKED.items() if name.endswith(suffix)), 1)
                for matrix in parameter.chunk(count):
                    nn.init.xavier_uniform_(matrix)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        x = self.encoder_outputs(x, mask, trace)
        return [block.get_submodule("cross").keys_values(x) for block in self.decoder], mask  # type: ignore[operator]

    def encoder_outputs(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        attention_mask = None if mask is None else mask[:, None, None]  # (B,1,1,S)
        x = self._embed(x, 0, self.positions, self.encoder_embedding_norm)
        record(trace, "encoder.embedded", x, mask)
        outputs = stack_outputs(list(self.encoder), x, mask, causal=False) if trace is None else None
        for index, block in enumerate(self.encoder if outputs is None else ()):
            x, _ = block(x, None, attention_mask, False, trace_scope(trace, f"encoder.layer{index}", mask))
        y: Tensor = self.encoder_norm(x if outputs is None else outputs)
        return y

    def decode(self, y: Tensor, memory: State, state: State = None, trace: Trace | None = None) -> tuple[Tensor, State]:
        keys_values, mask = memory
        source_mask = None if mask is None else mask[:, None, None]
        past, steps = 0 if state is None else state[0].shape[2], y.shape[1]
        y = self._embed(y, past, self.decoder_positions, self.decoder_embedding_norm)
        record(trace, "decoder.embedded", y)
        attention_mask = causal_mask(steps, past + steps, y.device) if past and steps > 1 else None
        after, alignments = [], []
        keep = ("cross_attention",) if is_traced(trace, "alignment") else ()
        for index, block in enumerate(self.decoder):
            before = None if state is None else state[index]
            scope = trace_scope(trace, f"decoder.layer{index}", keep=keep)
            y, cache = block(y, before, attention_mask, past == 0, scope, keys_values[index], source_mask)
            after.append(cache)
            if scope:
                alignments.append(scope["cross_attention"].mean(dim=1))
        if alignments:
            record(trace, "alignment", torch.stack(alignments).mean(dim=0))  # (B,T,S)
        return self.decoder_norm(y), after

    def decoder_outputs(self, y: Tensor, memory: State) -> Tensor:
        keys_values, mask = memory
        y = self._embed(y, 0, self.decoder_positions, self.decoder_embedding_norm)
        outputs = stack_outputs(list(self.decoder), y, None, causal=True, memory=keys_values, memory_mask=mask)
        if outputs is None:
            outputs, source_mask = y, None if mask is None else mask[:, None, None]
            for block, part in zip(self.decoder, keys_values, strict=True):
                outputs, _ = block(outputs, None, None, True, None, part, source_mask)
        normed: Tensor = self.decoder_norm(outputs)
        return normed

    def final_norm(self) -> nn.Module:
        return self.decoder_norm

    def native_parts(self, embeddings: Tensor, head: TokenHead, scale: float) -> NetworkParts | None:
        if not isinstance(self.project, nn.Identity):
            return None
        positions = PositionTable(self.decoder_positions, self.width, self.context_length)
        blocks: list[Block] = list(self.decoder)  # type: ignore[arg-type]
        norms = self.decoder_embedding_norm, self.decoder_norm
        return transformer_parts(embeddings, positions, blocks, norms, head, scale)

    def _embed(self, x: Tensor, first: int, positions: nn.Module, norm: nn.Module) -> Tensor:
        """Returns projected vectors with the positions first, first+1, …"""
        x = self.project(x)
        y: Tensor = self.dropout(norm(x + positions(first, x)))
        return y


class Settings(TransformerSettings, EncoderDecoderSettings):
    title: ClassVar[str] = "Transformer"
    color: ClassVar[tuple[str, str] | None] = ("#d55e00", "#f07c2b")
    history: ClassVar[History] = "pairs"
    predecessors: ClassVar[tuple[str, ...]] = ("seq2seq", "bahdanau", "mlp", "rnn", "lstm", "gru", "tcn", "gpt")
    novelty: ClassVar[str] = "every word reaches every other in one step, in several heads and layers"
    limitation: ClassVar[str] = "it has to learn even the order of words, from {tokens} tokens"
    dropout_onset: ClassVar[float] = 30.0
    muon_lr: ClassVar[float | None] = 0.02  # at 0.05 it learns less than with AdamW

    preset: Literal["tiny", "small", "base", "big"] = Field(
        "small", description="default sizes: tiny and small for a CPU, base and big are the paper's"
    )
    layers: int = Field(3, ge=1, le=200, description="blocks of the encoder")
    decoder_layers: int | None = Field(
        None, ge=1, le=200, description="blocks of the decoder (default: as many as the encoder's)"
    )
    feedforward: int | None = Field(
        None,
        ge=1,
        le=1_048_576,
        description="hidden size of the feed-forward network (default: 2·width; base and big 4·width)",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped in training")
    norm: Literal["before", "after"] = Field("before", description="layer norm before each part, or after it")
    activation: Activation = Field("relu", description="of the feed-forward network")
    positions: Positions = Field(
        "sinusoidal",
        description="added to the inputs: sinusoidal, for any length; learned, up to the context length; or none",
    )
    context_length: int | None = Field(
        None, ge=1, le=1_000_000, description="number of learned positions (default: the longest training sequence)"
    )
    shared_positions: bool = Field(
        True, description="one table of learned positions for source and target, or one for each"
    )
    embedding_norm: bool = Field(False, description="a layer norm after the positions, as in BART")
    scale: bool | None = Field(
        None, description="multiply token vectors by √width (default: if input and output share them)"
    )

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        return PRESETS.get(str(values.get("preset", "small")), {}) | dict(values)

    @property
    def traits(self) -> BackboneTraits:
        learned = self.positions == "learned"
        return BackboneTraits(bounded=learned, context_length=self.context_length if learned else None)

    def fine_tuning_lr(self) -> float:
        """With the norm after each part 3e-5 at width 1024, as BART's paper."""
        return super().fine_tuning_lr() if self.norm == "before" else 0.03072 / self.width

    def budget_size(self) -> int:
        return FEEDFORWARD_RATIO[self.preset] * self.width if self.feedforward is None else self.feedforward

    def input_scale(self, size: int, tied: bool) -> float:
        return super().input_scale(size, tied) if self.scale is None else math.sqrt(size) if self.scale else 1.0

    def build(self, inputs: int, length: int) -> Transformer:
        self.check_heads()
        context_length = length if self.context_length is None else self.context_length
        if self.positions == "learned" and context_length < length:
            raise SeriatimError(
                "model.context",
                f"sequences of {length} do not fit into a context of {context_length}",
                "raise model.context_length, or lower the largest length of the task",
            )
        return Transformer(
            inputs,
            self.width,
            self.layers,
            self.layers if self.decoder_layers is None else self.decoder_layers,
            self.heads,
            self.budget_size(),
            self.dropout,
            self.norm,
            self.activation,
            context_length if self.positions == "learned" else None,
            self.positions,
            self.shared_positions,
            self.embedding_norm,
        )
