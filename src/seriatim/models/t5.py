"""T5: an encoder–decoder whose positions are numbers added to the attention scores, by the distance of two elements.

Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text Transformer" (2020). The blocks
equal the Transformer's, with the norm before each part:

    n(x) = w ⊙ x / √(mean(x²) + ε)                    it scales, but neither centers nor shifts
    score(i,j) = q_i · k_j + b_h[bucket(j − i)]       of head h; not divided by √d

New since the Transformer: no vector is added to the tokens, so that it reads sequences of any length. Every head learns
a number for each bucket of distances: half of the buckets are single distances, the others grow with the distance up to
`max_distance`. One table serves all blocks of a side; cross-attention has none. No layer has a bias. If input and
output share token vectors, whose numbers have size 1, the outputs are divided by √width. T5 1.1 and FLAN-T5 do not
share them, and their feed-forward network is gated: W_2 (f(W_g x) ⊙ W_1 x).
Initialization: the paper's. Scores are not divided by √d, so the queries are: normal with 1/√(width·d).
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.model_info import History
from ..core.state import State, append
from ..nn.attention import causal_mask
from ..nn.backbone import SelectiveTrace, Trace, is_traced, record, trace_scope
from ..nn.encoder_decoder import EncoderDecoderBackbone, EncoderDecoderSettings
from ..nn.layers import Activation, Dropout, Linear, equations_enabled
from ..nn.settings import BackboneTraits
from ..nn.transformer import AttentionSettings, record_norms


class RelativePositions(nn.Embedding):
    """A number for each bucket of distances and each head."""

    def __init__(self, heads: int, buckets: int, max_distance: int, causal: bool) -> None:
        super().__init__(buckets, heads)
        self.max_distance, self.causal = max_distance, causal

    def forward(self, queries: int, keys: int) -> Tensor:  # type: ignore[override]
        """Returns the numbers (H,T,S) of the last `queries` of `keys` elements; −∞ for later keys if causal."""
        positions = torch.arange(keys, device=self.weight.device)
        distances = positions - positions[keys - queries :, None]  # (T,S): of key and query, negative for earlier keys
        bias = super().forward(self.bucket(distances)).permute(2, 0, 1)
        if self.causal and queries > 1:
            bias = bias.masked_fill(~causal_mask(queries, keys, bias.device), -math.inf)
        return bias

    def bucket(self, distances: Tensor) -> Tensor:
        """Returns the bucket of each distance: of earlier keys, then of later ones if they are attended to."""
        count = self.num_embeddings if self.causal else self.num_embeddings // 2
        size = (-distances).clamp(min=0) if self.causal else distances.abs()
        exact = count // 2
        growth = torch.log(size.float() / exact) / math.log(self.max_distance / exact)  # 0 at `exact`, 1 at the end
        larger = exact + (growth.clamp(min=0) * (count - exact)).long()
        buckets = torch.where(size < exact, size, larger.clamp(max=count - 1))
        return buckets if self.causal else buckets + count * (distances > 0)


class Attention(nn.Module):
    """Multi-head attention; keys and values may be of another sequence (`cross`)."""

    def __init__(self, width: int, heads: int, head_size: int, dropout: float, cross: bool = False) -> None:
        super().__init__()
        self.heads = heads
        inner = heads * head_size
        if cross:
            self.query = Linear(width, inner, bias=False)
            self.memory = Linear(width, 2 * inner, bias=False)
        else:
            self.inputs = Linear(width, 3 * inner, bias=False)
        self.stacked = {"memory.weight": 2} if cross else {"inputs.weight": 3}  # matrices in one parameter, by its name
        self.output = Linear(inner, width, bias=False)
        self.dropout = Dropout(dropout)
        queries = self.query.weight if cross else self.inputs.weight[:inner]
        for matrix in self.memory.weight.chunk(2) if cross else self.inputs.weight.chunk(3):
            nn.init.normal_(matrix, std=width**-0.5)
        nn.init.normal_(queries, std=(width * head_size) ** -0.5)
        nn.init.normal_(self.output.weight, std=inner**-0.5)

    def to_itself(self, x: Tensor, past: Tensor | None, bias: Tensor, trace: Trace | None) -> tuple[Tensor, Tensor]:
        """Returns the outputs, and keys and values of all heads (B,2·H,S,d): those of `past` and those of x."""
        query, cache = self._split(self.inputs(x), 3).split((self.heads, 2 * self.heads), dim=1)
        cache = cache if past is None else append(past, cache, dim=2)
        return self._attend(query, cache, bias, "attention", trace), cache

    def to_memory(self, x: Tensor, memory: Tensor, mask: Tensor | None, trace: Trace | None) -> Tensor:
        """Returns the outputs of attention to keys and values (B,S,2·H·d) with a mask (B,S)."""
        bias = None if mask is None else masked_bias(x.new_zeros(()), mask)
        return self._attend(self._split(self.query(x), 1), self._split(memory, 2), bias, "cross_attention", trace)

    def _split(self, x: Tensor, parts: int) -> Tensor:
        return x.unflatten(-1, (parts * self.heads, -1)).transpose(1, 2)  # (B,T,parts·H·d) → (B,parts·H,T,d)

    def _attend(
        self, query: Tensor, keys_values: Tensor, bias: Tensor | None, name: str, trace: Trace | None
    ) -> Tensor:
        key, value = keys_values.chunk(2, dim=1)
        bias = None if bias is None else bias.to(query.dtype)
        traced = trace is not None and is_traced(trace, name)
        if traced and isinstance(trace, SelectiveTrace):  # the size is quadratic in the length
            trace.reserve(query.shape[:3].numel() * key.shape[2] * query.element_size())
        if traced or equations_enabled():
            scores = query @ key.transpose(-2, -1)
            weights = (scores if bias is None else scores + bias).softmax(dim=-1)
            record(trace, name, weights)
        if equations_enabled():
            mixed = weights @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
        y: Tensor = self.dropout(self.output(mixed.transpose(1, 2).flatten(2)))
        return y


def masked_bias(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Returns numbers (H,T,S) that are added to scores, with −∞ for the padding of a mask (B,S): (B,H,T,S)."""
    return bias[None] if mask is None else torch.where(mask[:, None, None], bias, -math.inf)


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float, activation: Activation, gated: bool) -> None:
        super().__init__()
        self.gate = Linear(width, hidden, bias=False) if gated else None
        self.hidden = Linear(width, hidden, bias=False)
        self.output = Linear(hidden, width, bias=False)
        self.dropout = Dropout(dropout)
        self.activation: Activation = activation
        for layer in (self.gate, self.hidden, self.output):
            if layer is not None:
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            hidden = self.hidden.activated(x, self.activation)
        else:
            hidden = self.gate.activated(x, self.activation) * self.hidden(x)
        y: Tensor = self.dropout(self.output(hidden))
        return y


class Block(nn.Module):
    """Self-attention, cross-attention if `cross`, and feed-forward network, each with a norm before it."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_size: int,
        feedforward: int,
        dropout: float,
        activation: Activation,
        gated: bool,
        eps: float,
        cross: bool = False,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width, eps)
        self.attention = Attention(width, heads, head_size, dropout)
        if cross:
            self.cross_norm = nn.RMSNorm(width, eps)
            self.cross = Attention(width, heads, head_size, dropout, cross=True)
        self.feedforward_norm = nn.RMSNorm(width, eps)
        self.feedforward = FeedForward(width, feedforward, dropout, activation, gated)

    def forward(
        self,
        x: Tensor,
        past: Tensor | None,
        bias: Tensor,
        trace: Trace | None,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        mixed, cache = self.attention.to_itself(self.attention_norm(x), past, bias, trace)
        x = x + mixed
        record_norms(trace, "attention", x)
        if memory is not None:
            x = x + self.cross.to_memory(self.cross_norm(x), memory, mask, trace)
            record_norms(trace, "cross_attention", x)
        x = x + self.feedforward(self.feedforward_norm(x))
        record_norms(trace, "feedforward", x)
        record(trace, "hidden", x)
        return x, cache


class OutputNorm(nn.RMSNorm):
    """A norm times a factor."""

    def __init__(self, width: int, eps: float, scale: float) -> None:
        super().__init__(width, eps)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class T5(EncoderDecoderBackbone):
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
        head_size: int,
        feedforward: int,
        dropout: float = 0.0,
        activation: Activation = "relu",
        gated: bool = False,
        buckets: int = 32,
        max_distance: int = 128,
        eps: float = 1e-6,
        output_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.width = width
        self.project = nn.Identity() if inputs == width else nn.Linear(inputs, width, bias=False)
        self.dropout = Dropout(dropout)
        sizes = (width, heads, head_size, feedforward, dropout, activation, gated, eps)
        self.encoder_positions = RelativePositions(heads, buckets, max_distance, causal=False)
        self.decoder_positions = RelativePositions(heads, buckets, max_distance, causal=True)
        self.encoder = nn.ModuleList(Block(*sizes) for _ in range(layers))
        self.decoder = nn.ModuleList(Block(*sizes, cross=True) for _ in range(decoder_layers))
        self.encoder_norm = nn.RMSNorm(width, eps)
        self.decoder_norm = OutputNorm(width, eps, output_scale)
        for positions in (self.encoder_positions, self.decoder_positions):
            nn.init.normal_(positions.weight, std=width**-0.5)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        x = self.encoder_outputs(x, mask, trace)
        return [block.get_submodule("cross.memory")(x) for block in self.decoder], mask

    def encoder_outputs(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        x = self.dropout(self.project(x))
        record(trace, "encoder.embedded", x, mask)
        bias = masked_bias(self.encoder_positions(x.shape[1], x.shape[1]), mask)
        for index, block in enumerate(self.encoder):
            x, _ = block(x, None, bias, trace_scope(trace, f"encoder.layer{index}", mask))
        y: Tensor = self.dropout(self.encoder_norm(x))
        return y

    def decode(self, y: Tensor, memory: State, state: State = None, trace: Trace | None = None) -> tuple[Tensor, State]:
        keys_values, mask = memory
        past, steps = 0 if state is None else state[0].shape[2], y.shape[1]
        y = self.dropout(self.project(y))
        record(trace, "decoder.embedded", y)
        bias = masked_bias(self.decoder_positions(steps, past + steps), None)
        after, alignments = [], []
        keep = ("cross_attention",) if is_traced(trace, "alignment") else ()
        for index, block in enumerate(self.decoder):
            before = None if state is None else state[index]
            scope = trace_scope(trace, f"decoder.layer{index}", keep=keep)
            y, cache = block(y, before, bias, scope, keys_values[index], mask)
            after.append(cache)
            if scope:
                alignments.append(scope["cross_attention"].mean(dim=1))
        if alignments:
            record(trace, "alignment", torch.stack(alignments).mean(dim=0))  # (B,T,S)
        return self.dropout(self.decoder_norm(y)), after

    def final_norm(self) -> nn.Module:
        return self.decoder_norm


class Settings(AttentionSettings, EncoderDecoderSettings):
    title: ClassVar[str] = "T5"
    color: ClassVar[tuple[str, str] | None] = ("#cc79a7", "#de93bc")
    history: ClassVar[History] = "pairs"
    muon_lr: ClassVar[float | None] = 0.02  # as that of the Transformer
    embedding_std: ClassVar[float | None] = 1.0
    output_bias: ClassVar[bool] = False

    layers: int = Field(3, ge=1, le=200, description="blocks of the encoder")
    decoder_layers: int | None = Field(
        None, ge=1, le=200, description="blocks of the decoder (default: as many as the encoder's)"
    )
    head_size: int | None = Field(
        None, ge=1, le=4_096, description="numbers of a query, key or value of a head (default: width/heads)"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped in training")
    activation: Activation = Field("relu", description="of the feed-forward network")
    gated: bool = Field(False, description="gated feed-forward network, as in T5 1.1 and FLAN-T5 (with gelu-tanh)")
    buckets: int = Field(32, ge=4, le=65_536, description="buckets of distances; an encoder has half of them each way")
    max_distance: int = Field(128, ge=2, le=1_000_000, description="from this distance on, all are in the last bucket")

    eps: float = Field(1e-6, gt=0, le=1, description="added to the mean square in norms")

    @model_validator(mode="after")
    def _check_distances(self) -> Self:
        if self.max_distance <= self.buckets // 2:
            raise ValueError(f"max_distance is {self.max_distance}; {self.buckets} buckets need more than half of them")
        return self

    @property
    def traits(self) -> BackboneTraits:
        return BackboneTraits()

    @property
    def tied(self) -> bool:
        """Whether input and output share token vectors."""
        return self.tie is not False and self.embedding in (None, self.width)

    def budget_size(self) -> int:
        return 4 * self.width if self.feedforward is None else self.feedforward

    def input_scale(self, size: int, tied: bool) -> float:
        return 1.0

    def build(self, inputs: int, length: int) -> T5:
        if self.head_size is None:
            self.check_heads()
        return T5(
            inputs,
            self.width,
            self.layers,
            self.layers if self.decoder_layers is None else self.decoder_layers,
            self.heads,
            self.width // self.heads if self.head_size is None else self.head_size,
            self.budget_size(),
            self.dropout,
            self.activation,
            self.gated,
            self.buckets,
            self.max_distance,
            self.eps,
            self.width**-0.5 if self.tied else 1.0,
        )
