"""GPT: a stack of causal Transformer blocks.

Radford et al., "Improving language understanding by generative pre-training" (2018), in the form of its successor
(GPT-2, 2019): layer norm before each part, and once more at the end (`norm: after` is the first GPT's). Every element
attends to all earlier ones:

    x = tokens + positions    x ← x + Attention(norm x)    x ← x + W_2 gelu(W_1 norm x)    y = norm x

New since the TCN and the recurrent networks: the path between any two elements is one step, and what is attended to
depends on the content. Limitation: time and memory grow with the square of the length, and positions are learned up to
`context_length` only. Sinusoids (`positions: sinusoidal`) have no such limit, and without positions (`none`) the causal
mask alone encodes the distance from the start (Haviv et al. 2022).
Initialization: normal, 0.02; the matrices that write into the residual stream smaller by √(2·layers), so that its norm
does not grow with depth. Sinusoids have the standard deviation of the token vectors.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.model_info import History
from ..core.state import State, append
from ..nn.attention import causal_mask
from ..nn.backbone import Backbone, Trace, record, trace_scope
from ..nn.layers import Activation, Dropout, Positions, make_positions
from ..nn.native import NetworkParts, PositionTable, transformer_parts
from ..nn.network import TokenHead
from ..nn.settings import BackboneTraits
from ..nn.transformer import Block, TransformerSettings, initialize_normal, stack_outputs

INIT_STD = 0.02
SINUSOID_SCALE = math.sqrt(2) * INIT_STD  # the amplitude of a sinusoid of this standard deviation


class GPT(Backbone):
    """The state: keys and values of every layer, the mask of their positions (None: all valid), elements read (B,)."""

    state_grows = True

    def __init__(
        self,
        inputs: int,
        width: int,
        layers: int,
        heads: int,
        context_length: int | None,
        feedforward: int | None = None,
        dropout: float = 0.0,
        norm: Literal["before", "after"] = "before",
        activation: Activation = "gelu-tanh",
        eps: float = 1e-5,
        positions: Positions = "learned",
    ) -> None:
        super().__init__()
        self.width = width
        self.context_length = context_length
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.positions = make_positions(positions, width, context_length, scale=SINUSOID_SCALE)
        self.dropout = Dropout(dropout)
        hidden = 4 * width if feedforward is None else feedforward
        shape = (width, heads, hidden, dropout, activation, norm)
        blocks = [Block(*shape, eps=eps) for _ in range(layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, eps) if norm == "before" else nn.Identity()
        initialize_normal(self, INIT_STD)
        for block in blocks:
            for writer in (block.attention.output, block.feedforward.output):
                nn.init.normal_(writer.weight, std=INIT_STD / math.sqrt(2 * layers))

    def forward(
        self, x: Tensor, mask: Tensor | None = None, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        steps = x.shape[1]
        caches, past_mask, count = state if state is not None else ([None] * len(self.blocks), None, None)
        x = self._embed(x, count)
        record(trace, "embedded", x, mask)
        attention_mask, key_mask = self._masks(x, mask, past_mask, caches[0])
        after = []
        for index, (block, cache) in enumerate(zip(self.blocks, caches, strict=True)):
            scope = trace_scope(trace, f"layer{index}", mask)
            x, cache = block(x, cache, attention_mask, caches[0] is None, scope)
            after.append(cache)
        added = torch.full((len(x),), steps, device=x.device) if mask is None else mask.sum(dim=1)
        return self.norm(x), (after, key_mask, added if count is None else count + added)

    def outputs(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self._embed(x)
        y = stack_outputs(list(self.blocks), x, mask, causal=True)
        if y is None:
            y = x
            for block in self.blocks:
                y, _ = block(y, None, None, True, None)  # padding is on the right: the causal mask hides it
        normed: Tensor = self.norm(y)
        return normed

    def final_norm(self) -> nn.Module:
        return self.norm

    def native_parts(self, embeddings: Tensor, head: TokenHead) -> NetworkParts | None:
        blocks: list[Block] = list(self.blocks)  # type: ignore[arg-type]
        positions = PositionTable(self.positions, self.width, self.context_length)
        return transformer_parts(self.project(embeddings), positions, blocks, (nn.Identity(), self.norm), head)

    def export_state(self, state: State) -> tuple[list[Tensor], Tensor | None]:
        caches, key_mask, _ = state
        return caches, key_mask

    def _embed(self, x: Tensor, count: Tensor | None = None) -> Tensor:
        """Returns the inputs with positions, after the first `count` (B,) elements."""
        x = self.project(x)
        y: Tensor = self.dropout(x + self.positions(0 if count is None else count, x))
        return y

    def _masks(
        self, x: Tensor, mask: Tensor | None, past_mask: Tensor | None, cache: State
    ) -> tuple[Tensor | None, Tensor | None]:
        """Returns the attention mask (B,1,T,S+T), and the mask of the positions read so far (B,S+T)."""
        steps, past = x.shape[1], 0 if cache is None else cache.shape[2]
        if mask is None and past_mask is None:
            causal_suffices = past == 0 or steps == 1
            return None if causal_suffices else causal_mask(steps, past + steps, x.device), None
        ones = torch.ones(len(x), 1, dtype=torch.bool, device=x.device)
        before = ones.expand(-1, past) if past_mask is None else past_mask
        key_mask = append(before, ones.expand(-1, steps) if mask is None else mask, dim=1)
        if past == 0:
            return None, key_mask  # padding is on the right: the causal mask hides it
        causal = causal_mask(steps, past + steps, x.device)[None, None]
        keys = key_mask if mask is None else torch.cat([before, ones.expand(-1, steps)], dim=1)
        return causal & keys[:, None, None], key_mask


class Settings(TransformerSettings):
    title: ClassVar[str] = "GPT"
    color: ClassVar[tuple[str, str] | None] = ("#d55e00", "#f07c2b")
    history: ClassVar[History] = "sequences"
    predecessors: ClassVar[tuple[str, ...]] = ("ngram", "mlp", "rnn", "lstm", "gru", "tcn")
    novelty: ClassVar[str] = "attention reaches {context} in one step, wherever they are"
    limitation: ClassVar[str] = "attention has to learn even the order of tokens, from {tokens} of them"
    dropout_onset: ClassVar[float] = 30.0
    embedding_std: ClassVar[float | None] = INIT_STD
    output_bias: ClassVar[bool] = False

    width: int = Field(128, ge=1, le=65_536, description="size of the hidden vectors; `--params` solves for it")
    tie: bool | None = Field(True, description="share the weights of input and output tokens")
    layers: int = Field(4, ge=1, le=200, description="Transformer blocks")
    context_length: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="largest number of elements (default: the length of training sequences; any if none are learned)",
    )
    norm: Literal["before", "after"] = Field("before", description="layer norm before each part, or after it")
    activation: Activation = Field("gelu-tanh", description="of the feed-forward network")
    eps: float = Field(1e-5, gt=0, le=1, description="added to the variance in layer norms")

    @property
    def traits(self) -> BackboneTraits:
        bounded = self.positions == "learned" or self.context_length is not None
        return BackboneTraits(bounded=bounded, context_length=self.context_length)

    def position_scale(self) -> float:
        return SINUSOID_SCALE

    def build(self, inputs: int, length: int) -> GPT:
        self.check_heads()
        context_length = self.context_length
        if context_length is None and self.positions == "learned":
            context_length = length
        if context_length is not None and context_length < length:
            raise SeriatimError(
                "model.context",
                f"sequences of {length} do not fit into a context of {context_length}",
                "raise model.context_length, or lower --context-length",
            )
        sizes = (inputs, self.width, self.layers, self.heads, context_length, self.feedforward, self.dropout)
        return GPT(*sizes, self.norm, self.activation, self.eps, self.positions)
